// SPDX-License-Identifier: GPL-2.0

//! Control messages as they cross the link, regardless of their contents.
//!
//! A message fills one 64-byte slot of the receiver's control ring:
//!
//! ```text
//!  0  kind      u8     which message of the service; answers have numbers from 128 on
//!  1  version   u8     VERSION
//!  2  service   u16    the service that the message belongs to
//!  4  target    u32    the receiver's id of the channel it is about, 0 for none
//!  8  fields    48 B   by service and kind; unused bytes are zero, and ignored
//! 56  sequence  u64    written last; says that the slot is complete (see `control_block.rs`)
//! ```
//!
//! Fields are little-endian numbers in the order of the message's definition. Each lies at a
//! multiple of its size, as in a C structure.
//!
//! A slot is decoded from a private copy; nothing in it is a pointer. The service whose id an
//! [`Envelope`] bears opens it. That checks the form of each field (known values, no overflow). The
//! receiver has to check whether an id exists, or an address lies inside the aperture.
//!
//! [`define_messages`] makes the messages of a service from one table, so that writing and reading
//! can't differ.
//!
//! This file does not contain the services' messages (those of SCIF are in `messages.rs`), except
//! those that the two peers exchange for themselves.

use super::control_block::Lane;

/// Version of this protocol; both sides must have the same.
pub(crate) const VERSION: u8 = 16;

/// Size of a slot in bytes.
pub(crate) const SLOT_SIZE: usize = 64;

/// Offset of the sequence number in a slot.
pub(crate) const SEQUENCE_OFFSET: usize = 56;

/// Number of bytes for the fields of a message.
pub(crate) const FIELDS: usize = 48;

/// The service that a message belongs to. Numbers are assigned here and in
/// `Documentation/wire-protocol.rst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceId(pub(crate) u16);

impl ServiceId {
    /// The service of the two peers themselves.
    pub(crate) const PEER: Self = Self(0);
    /// The service of SCIF connections.
    pub(crate) const SCIF: Self = Self(1);
    /// The service of network devices.
    pub(crate) const NET: Self = Self(2);
}

/// An id that one side gives to its end of a channel, opaque to the other side. An id is used again
/// only after all others.
///
/// Zero is never an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChannelId(pub(crate) u32);

impl ChannelId {
    /// The id in messages that concern no channel.
    pub(crate) const NONE: Self = Self(0);

    /// The first of the ids that no table of channels gives out. Services use these for ends that
    /// exist as long as the session.
    pub(crate) const FIRST_FIXED: Self = Self(0xffff_ff00);
}

/// The reason why a slot is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The version is not that of this protocol.
    Version,
    /// The kind is unknown.
    Kind,
    /// A field has an invalid value.
    Field,
}

impl Malformed {
    /// Returns the reason in words, for the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Malformed::Version => "it sends a message of another protocol version",
            Malformed::Kind => "it sends a message of unknown kind",
            Malformed::Field => "it sends a message with an impossible field",
        }
    }
}

/// A message whose fields were not decoded yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) service: ServiceId,
    pub(crate) kind: u8,
    pub(crate) target: ChannelId,
    pub(crate) fields: [u8; FIELDS],
}

/// The first kind of an answer.
const FIRST_ANSWER: u8 = 128;

impl Envelope {
    /// Returns the ring for this message.
    pub(crate) fn lane(&self) -> Lane {
        if self.kind < FIRST_ANSWER {
            Lane::Requests
        } else {
            Lane::Answers
        }
    }

    /// Encodes the envelope as a slot, to which the caller adds the sequence number.
    pub(crate) fn encode(&self) -> [u8; SEQUENCE_OFFSET] {
        let [service_low, service_high] = self.service.0.to_le_bytes();
        let head = [self.kind, VERSION, service_low, service_high];
        let bytes = head.into_iter().chain(self.target.0.to_le_bytes());
        let mut slot = [0; SEQUENCE_OFFSET];
        for (place, byte) in slot.iter_mut().zip(bytes.chain(self.fields)) {
            *place = byte;
        }
        slot
    }

    /// Decodes an envelope from a private copy of a slot.
    pub(crate) fn decode(slot: &[u8; SEQUENCE_OFFSET]) -> Result<Self, Malformed> {
        let [kind, version, s0, s1, t0, t1, t2, t3, fields @ ..] = *slot;
        if version != VERSION {
            return Err(Malformed::Version);
        }
        Ok(Self {
            service: ServiceId(u16::from_le_bytes([s0, s1])),
            kind,
            target: ChannelId(u32::from_le_bytes([t0, t1, t2, t3])),
            fields,
        })
    }
}

// An envelope fills the slot up to the sequence number, and the number fills the rest.
const _: () = assert!(8 + FIELDS == SEQUENCE_OFFSET && SEQUENCE_OFFSET + 8 == SLOT_SIZE);

/// A type that can be put into an envelope.
pub(crate) trait Enveloped {
    fn envelope(&self) -> Envelope;
}

/// A type that can be a field of a message.
pub(crate) trait Field: Sized {
    /// Sizes of the numbers that make up the field, in their order.
    const NUMBERS: &'static [usize];

    fn write(&self, fields: &mut Fields);

    /// Reads the field. Accepts only values that [`Self::write`] writes.
    fn read(fields: &mut Fields) -> Result<Self, Malformed>;
}

/// Returns how many bytes fields take, one after another.
pub(crate) const fn fields_end(mut fields: &[&[usize]]) -> usize {
    let mut end: usize = 0;
    while let [field, rest @ ..] = fields {
        let mut numbers: &[usize] = field;
        while let [size, rest @ ..] = numbers {
            end = match end.checked_next_multiple_of(*size) {
                Some(at) => at.saturating_add(*size),
                None => usize::MAX,
            };
            numbers = rest;
        }
        fields = rest;
    }
    end
}

/// The fields of a message, written or read one after another.
pub(crate) struct Fields {
    pub(crate) bytes: [u8; FIELDS],
    at: usize,
}

impl Fields {
    pub(crate) fn new(bytes: [u8; FIELDS]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the place of the next number, which has `N` bytes.
    fn next<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        let at = self.at.checked_next_multiple_of(N)?;
        self.at = at.checked_add(N)?;
        self.bytes.get_mut(at..)?.first_chunk_mut()
    }
}

macro_rules! number_fields {
    ($($number:ty),*) => {
        $(
            impl Field for $number {
                const NUMBERS: &'static [usize] = &[size_of::<Self>()];

                fn write(&self, fields: &mut Fields) {
                    // Each message fits, as `define_messages` asserts.
                    if let Some(place) = fields.next() {
                        *place = self.to_le_bytes();
                    }
                }

                fn read(fields: &mut Fields) -> Result<Self, Malformed> {
                    let bytes = fields.next().ok_or(Malformed::Field)?;
                    Ok(Self::from_le_bytes(*bytes))
                }
            }
        )*
    };
}

number_fields!(u16, u32, u64);

/// A bool crosses the link as the number 1 or 0.
impl Field for bool {
    const NUMBERS: &'static [usize] = u32::NUMBERS;

    fn write(&self, fields: &mut Fields) {
        u32::from(*self).write(fields);
    }

    fn read(fields: &mut Fields) -> Result<Self, Malformed> {
        match u32::read(fields)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Field),
        }
    }
}

/// Returns the size of a field that is one number. For other fields, returns a size that never
/// fits.
pub(crate) const fn size_of_number<T: Field>() -> usize {
    match T::NUMBERS {
        [size] => *size,
        _ => usize::MAX,
    }
}

/// Defines a structure that is a field of messages. Its own fields are numbers, in this order. A
/// condition that they have to meet may follow.
macro_rules! structure_field {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $structure:ident {
            $($(#[$documentation:meta])* $field:ident: $type:ty,)*
        } $(if |$this:ident| $condition:expr)?
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility struct $structure {
            $($(#[$documentation])* $visibility $field: $type,)*
        }

        structure_field!($structure { $($field: $type),* } $(, |$this| $condition)?);
    };
    ($structure:ident { $($field:tt: $type:ty),* } $(, |$this:ident| $condition:expr)?) => {
        impl $crate::logic::envelope::Field for $structure {
            const NUMBERS: &'static [usize] =
                &[$($crate::logic::envelope::size_of_number::<$type>()),*];

            fn write(&self, fields: &mut $crate::logic::envelope::Fields) {
                $($crate::logic::envelope::Field::write(&self.$field, fields);)*
            }

            fn read(
                fields: &mut $crate::logic::envelope::Fields,
            ) -> Result<Self, $crate::logic::envelope::Malformed> {
                let read = Self {
                    $($field: <$type as $crate::logic::envelope::Field>::read(fields)?,)*
                };
                $(
                    let $this = &read;
                    if !($condition) {
                        return Err($crate::logic::envelope::Malformed::Field);
                    }
                )?
                Ok(read)
            }
        }
    };
}
pub(crate) use structure_field;

structure_field!(ServiceId { 0: u16 });
structure_field!(ChannelId { 0: u32 }, |id| *id != ChannelId::NONE);

/// Defines the messages of a service by a table.
///
/// ```text
/// define_messages! {
///     /// The messages of the service.
///     pub(crate) enum Message of ServiceId::SCIF;
///
///     /// A message that concerns no channel.
///     1 Hello { greeting: u32 };
///     /// A message to the receiver's channel `target`, with a condition on its fields.
///     2 Count to target { from: u32, below: u32 } if from < below;
/// }
/// ```
///
/// A number is never used for another message, nor for one with other fields, in the same version
/// of the protocol.
macro_rules! define_messages {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $messages:ident of $service:expr;

        $(
            $(#[$documentation:meta])*
            $number:literal $name:ident $(to $target:ident)? {
                $($field:ident: $type:ty),* $(,)?
            } $(if $condition:expr)?;
        )*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $messages {
            $(
                $(#[$documentation])*
                $name {
                    $($target: $crate::logic::envelope::ChannelId,)?
                    $($field: $type,)*
                },
            )*
        }

        impl $messages {
            /// Returns the receiver's id of the channel that the message concerns, or NONE.
            $visibility fn target(&self) -> $crate::logic::envelope::ChannelId {
                match *self {
                    $(
                        Self::$name { $($target,)? .. } => {
                            $crate::logic::envelope::define_messages!(@target $($target)?)
                        }
                    )*
                }
            }

            /// Decodes the message in an envelope.
            #[deny(unreachable_patterns)] // Two messages of one number.
            $visibility fn from_envelope(
                envelope: &$crate::logic::envelope::Envelope,
            ) -> Result<Self, $crate::logic::envelope::Malformed> {
                use $crate::logic::envelope::{Field, Fields, Malformed};

                if envelope.service != $service {
                    return Err(Malformed::Kind);
                }
                let mut fields = Fields::new(envelope.fields);
                match envelope.kind {
                    $(
                        $number => {
                            $crate::logic::envelope::define_messages!(
                                @check envelope $(, $target)?
                            );
                            $(let $field = <$type as Field>::read(&mut fields)?;)*
                            $(
                                if !($condition) {
                                    return Err(Malformed::Field);
                                }
                            )?
                            Ok(Self::$name { $($target,)? $($field,)* })
                        }
                    )*
                    _ => Err(Malformed::Kind),
                }
            }
        }

        impl $crate::logic::envelope::Enveloped for $messages {
            fn envelope(&self) -> $crate::logic::envelope::Envelope {
                use $crate::logic::envelope::{fields_end, Envelope, Field, Fields, FIELDS};

                $(
                    const {
                        assert!(
                            fields_end(&[$(<$type as Field>::NUMBERS),*]) <= FIELDS,
                            concat!(stringify!($name), " does not fit into an envelope")
                        );
                    }
                )*
                let mut fields = Fields::new([0; FIELDS]);
                let kind = match self {
                    $(Self::$name { $($field,)* .. } => {
                        $(Field::write($field, &mut fields);)*
                        $number
                    })*
                };
                Envelope {
                    service: $service,
                    kind,
                    target: self.target(),
                    fields: fields.bytes,
                }
            }
        }
    };

    (@target) => { $crate::logic::envelope::ChannelId::NONE };
    (@target $target:ident) => { $target };

    (@check $envelope:ident) => {
        if $envelope.target != $crate::logic::envelope::ChannelId::NONE {
            return Err($crate::logic::envelope::Malformed::Field);
        }
    };
    (@check $envelope:ident, $target:ident) => {
        let $target = $envelope.target;
        if $target == $crate::logic::envelope::ChannelId::NONE {
            return Err($crate::logic::envelope::Malformed::Field);
        }
    };
}
pub(crate) use define_messages;

define_messages! {
    /// A message between the two peers themselves.
    pub(crate) enum PeerMessage of ServiceId::PEER;

    /// The receiver has sent a message for a service that the sender does not have.
    128 NoService { service: ServiceId };
}
