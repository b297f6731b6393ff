// SPDX-License-Identifier: GPL-2.0

//! The messages of SCIF, each defined once.
//!
//! One table, [`message_table`], defines all that depends on the set of messages: the enum, the
//! encoding and decoding, and what the tests generate. `envelope.rs` describes the resulting
//! layout.
//!
//! This file does not say which message may be sent when; the senders and receivers do.

use super::{
    control_block::ANNEX_WORDS,
    envelope::{
        define_messages,
        structure_field,
        ChannelId,
        Field,
        Fields,
        Malformed,
        ServiceId, //
    },
};

/// Number of packed extents in a [`Message::WindowOffer`] itself, so that small windows need no
/// annex.
pub(crate) const EXTENTS_IN_OFFER: usize = 2;

/// Number of packed extents in the annex of a message.
pub(crate) const EXTENTS_IN_ANNEX: usize = ANNEX_WORDS;

/// An id that a window's owner gives to it, unique among the owner's windows of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WindowId(pub(crate) u32);

structure_field!(WindowId { 0: u32 });

impl WindowId {
    /// The id in messages that concern no window.
    pub(crate) const NONE: Self = Self(0);
}

structure_field! {
    /// The place where the sender of the message wants data of a connection to be written.
    pub(crate) struct RingAddress {
        /// Bus address of the ring's memory, which begins with the ring's header.
        address: u64,
        /// Bytes of data in the ring, a power of two.
        size: u32,
        /// Number of the doorbell that announces data.
        doorbell: u32,
        /// Maximum size of the ring, a power of two.
        limit: u32,
    } if |ring| ring.size.is_power_of_two()
        && ring.limit.is_power_of_two()
        && ring.limit >= ring.size
        && ring.address.checked_add(u64::from(ring.size)).is_some()
}

structure_field! {
    /// The listener that a connector wants: by its port, or by its class and name. No class is 0.
    pub(crate) struct Destination {
        /// The port, or 0 if the listener is given by its name.
        port: u16,
        /// The class of the name, or 0 if the listener is given by its port.
        class: u32,
        name: u32,
    } if |to| to.class == 0 || to.port == 0
}

impl Destination {
    /// Creates the destination of the listener on a port.
    pub(crate) const fn of_port(port: u16) -> Self {
        Self {
            port,
            class: 0,
            name: 0,
        }
    }
}

structure_field! {
    /// The limits up to which the sender keeps track of windows that the receiver offers.
    pub(crate) struct Grant {
        /// The first bus address of the receiver that the sender reaches.
        from: u64,
        /// Number of bytes that the sender reaches from there on.
        len: u64,
        /// Maximum number of windows.
        windows: u32,
        /// Maximum number of packed extents of all windows together.
        extents: u64,
    }
}

structure_field! {
    /// A window that the sender offers.
    pub(crate) struct Offer {
        window: WindowId,
        protection: u32,
        offset: u64,
        len: u64,
        /// Number of packed extents, or 0 if the receiver does not reach the window.
        extents: u32,
        /// Whether the owner waits for an answer.
        wants_answer: bool,
    }
}

structure_field! {
    /// A request to the receiver to copy from its windows into the sender's.
    pub(crate) struct PushRequest {
        /// Number by which the sender recognises the answer.
        token: u32,
        /// Whether the receiver has to write the part in the last cache line of the source last.
        ordered: bool,
        /// Offset in the windows of the receiver.
        source: u64,
        /// Offset in the windows of the sender.
        destination: u64,
        len: u64,
        /// Set if the sender can't copy by itself, so the receiver has to copy, in whatever way it
        /// can.
        must: bool,
        /// The window with the destination that the sender has offered for this request, or NONE.
        window: WindowId,
    } if |request| request.len > 0
}

/// The result of a request, as its sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The request was carried out.
    Done,
    /// There was not enough memory for the request.
    NoMemory,
    /// The request concerns memory out of reach of the side that answers.
    OutOfReach,
    /// The requested transfer failed, or a transfer that the request waited for.
    TransferFailed,
    /// The request names an object that does not exist, or not any more.
    Unknown,
    /// No listener accepts the request.
    Refused,
}

impl Status {
    /// All values in the order of their numbers on the wire, which are those of the enum.
    const ALL: [Self; 6] = [
        Self::Done,
        Self::NoMemory,
        Self::OutOfReach,
        Self::TransferFailed,
        Self::Unknown,
        Self::Refused,
    ];
}

impl Field for Status {
    const NUMBERS: &'static [usize] = u32::NUMBERS;

    fn write(&self, fields: &mut Fields) {
        (*self as u32).write(fields);
    }

    fn read(fields: &mut Fields) -> Result<Self, Malformed> {
        let number = u32::read(fields)?;
        let status = Self::ALL.get(number as usize);
        status.copied().ok_or(Malformed::Field)
    }
}

/// Passes the table to a macro: to [`define_messages`], and to a macro of the tests.
macro_rules! message_table {
    ($define:ident) => {
        $define! {
            /// A control message of SCIF.
            pub(crate) enum Message of ServiceId::SCIF;

            /// Asks a listener for a connection.
            1 Connect {
                source: ChannelId,
                source_port: u16,
                to: Destination,
                ring: RingAddress,
            };

            /// The answer of the listener on `port`: the connection exists.
            2 Accept to target { source: ChannelId, port: u16, ring: RingAddress };

            /// The connector gives up a request that has not been answered.
            3 Cancel { source: ChannelId, to: Destination };

            /// The sender has closed its end, which it knows as `source`: it writes nothing more,
            /// and wants no more data in its ring.
            4 Close to target { source: ChannelId };

            /// The sender's message does not fit into the receiver's ring: asks for a larger ring,
            /// once.
            5 RingWanted to target {};

            /// A window was registered. The offer contains its first extents, then as many in the
            /// annex as there is room for. `WindowExtents` messages with the others follow.
            6 WindowOffer to target {
                offer: Offer,
                first: [u64; EXTENTS_IN_OFFER],
            };

            /// The next `count` extents of an offered window, in the annex.
            7 WindowExtents to target {
                window: WindowId,
                count: u32,
            } if count >= 1 && count as usize <= EXTENTS_IN_ANNEX;

            /// The window was unregistered: no new use of it may begin.
            8 WindowRevoke to target { window: WindowId, offset: u64 };

            /// Asks for a mark for all transfers that the receiver has started on the connection.
            9 MarkRequest to target { token: u32 };

            /// Asks for an answer when all the receiver's transfers up to `sequence` have
            /// completed.
            10 FenceWait to target { token: u32, sequence: u64 };

            /// Asks to store values, given as (offset, value), once all the receiver's transfers so
            /// far have completed: in a window of the sender, and in a window of the receiver. A
            /// `FenceAnswer` says whether they will be stored.
            11 Signal to target {
                token: u32,
                senders: Option<(u64, u64)>,
                receivers: Option<(u64, u64)>,
            } if senders.is_some() || receivers.is_some();

            /// Asks the receiver to copy bytes from its windows into windows of the sender.
            12 PushWanted to target { request: PushRequest };

            /// The sender has slots at `address` for data that is meant for memory of the sender
            /// which the receiver does not reach (`staging.rs`). There are `slots` slots of `size`
            /// bytes each.
            13 StagingOffer { address: u64, slots: u32, size: u32 };

            /// The listener refuses a connection, or no listener has the name.
            128 Refuse to target { reason: Status } if reason != Status::Done;

            /// The sender will write nothing more into the ring of the closed connection.
            129 CloseDone to target {};

            /// The answer to `RingWanted`: the sender's ring may go on in an area of `size` bytes
            /// at `address`. If `size` is 0, it stays as it is.
            130 RingOffer to target {
                address: u64,
                size: u32,
            } if size == 0
                || (size.is_power_of_two() && address.checked_add(u64::from(size)).is_some());

            /// Tells whether the offered window can be used. Sent if the offer wants an answer, or
            /// if the window can't be used.
            131 WindowAnswer to target { window: WindowId, status: Status, grant: Grant };

            /// The last use of the window is over.
            132 WindowReleased { window: WindowId };

            /// The answer to `FenceWait` once the transfers have completed, to `Signal`, and to
            /// `MarkRequest`. For the latter, `sequence` is the number of the last transfer
            /// started.
            134 FenceAnswer to target { token: u32, status: Status, sequence: u64 };

            /// The revoked window can't be found any more. If `released` is not set, uses that
            /// began earlier go on.
            135 WindowRevokeDone to target { window: WindowId, released: bool };

            /// The answer to `PushWanted`. If the status is neither done nor failed, nothing was or
            /// will be written.
            136 PushDone { token: u32, status: Status };

            /// The answer to `StagingOffer`: `address` is where the sender of the offer has to
            /// count the slots that it has emptied.
            137 StagingTaken { address: u64 };
        }
    };
}
#[allow(unused_imports)] // For the tests.
pub(crate) use message_table;

message_table!(define_messages);

impl<const N: usize> Field for [u64; N] {
    const NUMBERS: &'static [usize] = &[size_of::<u64>(); N];

    fn write(&self, fields: &mut Fields) {
        for number in self {
            number.write(fields);
        }
    }

    fn read(fields: &mut Fields) -> Result<Self, Malformed> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u64::read(fields)?;
        }
        Ok(numbers)
    }
}

/// The number 1 or 0 tells whether a pair is there. The offset and the value follow in any case.
impl Field for Option<(u64, u64)> {
    const NUMBERS: &'static [usize] = &[4, 8, 8];

    fn write(&self, fields: &mut Fields) {
        let (offset, value) = self.unwrap_or_default();
        self.is_some().write(fields);
        offset.write(fields);
        value.write(fields);
    }

    fn read(fields: &mut Fields) -> Result<Self, Malformed> {
        let is_there = bool::read(fields)?;
        let pair = (u64::read(fields)?, u64::read(fields)?);
        Ok(is_there.then_some(pair))
    }
}
