// SPDX-License-Identifier: GPL-2.0

//! The messages of SCIF, each defined once.
//!
//! Everything that depends on what messages SCIF has comes from one table, [`message_table`]: the
//! enum, how it is put into an envelope and taken out again, and what the tests
//! generate. See `envelope.rs` for the layout that follows from it.
//!
//! What is not here: who may send what when, which is for those to say who send and take them.

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

/// Packed extents in a [`Message::WindowOffer`] itself: no annex for small windows.
pub(crate) const EXTENTS_IN_OFFER: usize = 2;

/// Packed extents in the annex of a message.
pub(crate) const EXTENTS_IN_ANNEX: usize = ANNEX_WORDS;

/// A window as its owner knows it; unique among the owner's windows of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WindowId(pub(crate) u32);

structure_field!(WindowId { 0: u32 });

impl WindowId {
    /// The id of no window.
    pub(crate) const NONE: Self = Self(0);
}

structure_field! {
    /// Where the sender of the message wants data of a connection to be written.
    pub(crate) struct RingAddress {
        /// Bus address of the ring's memory, at which its header lies.
        address: u64,
        /// Bytes of data in the ring, a power of two.
        size: u32,
        /// Number of the doorbell that announces data.
        doorbell: u32,
        /// How large it may become, a power of two.
        limit: u32,
    } if |ring| ring.size.is_power_of_two()
        && ring.limit.is_power_of_two()
        && ring.limit >= ring.size
        && ring.address.checked_add(u64::from(ring.size)).is_some()
}

structure_field! {
    /// Whom a connector wants: the listener on a port, or the one with a name. There is no class 0.
    pub(crate) struct Destination {
        /// 0 if there is a name.
        port: u16,
        /// 0 if there is a port.
        class: u32,
        name: u32,
    } if |to| to.class == 0 || to.port == 0
}

impl Destination {
    /// Names the listener on a port.
    pub(crate) const fn of_port(port: u16) -> Self {
        Self {
            port,
            class: 0,
            name: 0,
        }
    }
}

structure_field! {
    /// The limits up to which the sender remembers windows that the receiver offers.
    pub(crate) struct Grant {
        /// The first bus address of the receiver that the sender reaches, and how many bytes from there on.
        from: u64,
        len: u64,
        /// How many windows.
        windows: u32,
        /// How many packed extents all of them may have together.
        extents: u64,
    }
}

structure_field! {
    /// A window of the sender, as the sender offers it.
    pub(crate) struct Offer {
        window: WindowId,
        protection: u32,
        offset: u64,
        len: u64,
        /// How many packed extents it has. None if the receiver does not reach it.
        extents: u32,
        /// The owner waits for an answer.
        wants_answer: bool,
    }
}

structure_field! {
    /// A copy that the sender wants the receiver to make.
    pub(crate) struct PushRequest {
        /// By which the sender knows it.
        token: u32,
        /// The receiver writes the part in the last cache line of the source last.
        ordered: bool,
        /// Where in windows of the receiver.
        source: u64,
        /// Where in windows of the sender.
        destination: u64,
        len: u64,
        /// The sender can't copy by itself, so it is to be done in whatever way there is.
        must: bool,
        /// The one that the sender has offered for this, in which the destination is; or none.
        window: WindowId,
    } if |request| request.len > 0
}

/// What became of a request for which the sender waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It was carried out.
    Done,
    /// There was no memory for it.
    NoMemory,
    /// It lies outside what this side can reach.
    OutOfReach,
    /// A transfer that it waited for failed.
    TransferFailed,
    /// What it names does not exist (any more).
    Unknown,
    /// Nobody takes it.
    Refused,
}

impl Status {
    /// In the order of their numbers on the wire, which are those of the enum.
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

/// Hands the table to a macro: to [`define_messages`], and to one of the tests' own.
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

            /// The sender's end, which it knows as `source`, is closed: it writes nothing more, and
            /// its ring wants no more data.
            4 Close to target { source: ChannelId };

            /// The sender has more to say than fits the receiver's ring: asks for a larger one, once.
            5 RingWanted to target {};

            /// A window was registered. Of its extents these are the first, then come as many as there is room for
            /// in the message's annex; others follow.
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

            /// Asks for a mark behind all that the receiver has started on the connection.
            9 MarkRequest to target { token: u32 };

            /// Asks to be told when all the receiver's transfers up to `sequence` have ended.
            10 FenceWait to target { token: u32, sequence: u64 };

            /// Asks for values to be stored, as (offset, value), once all the receiver's transfers
            /// so far have ended: in a window of the sender, and in one of the receiver. The
            /// answer, with `FenceAnswer`, says whether they will be.
            11 Signal to target {
                token: u32,
                senders: Option<(u64, u64)>,
                receivers: Option<(u64, u64)>,
            } if senders.is_some() || receivers.is_some();

            /// Asks for bytes in windows of the receiver to be copied into windows of the sender.
            12 PushWanted to target { request: PushRequest };

            /// The sender has slots at `address` in which to put what is for memory of it that the receiver
            /// does not reach (`staging.rs`): this many, for `size` bytes each.
            13 StagingOffer { address: u64, slots: u32, size: u32 };

            /// The listener refuses a request, or there is no such name.
            128 Refuse to target { reason: Status } if reason != Status::Done;

            /// Nothing more will be written into the ring of the closed connection.
            129 CloseDone to target {};

            /// The answer to `RingWanted`: the sender's ring may go on in an area of `size` bytes at `address`, or
            /// stays as it is if `size` is 0.
            130 RingOffer to target {
                address: u64,
                size: u32,
            } if size == 0
                || (size.is_power_of_two() && address.checked_add(u64::from(size)).is_some());

            /// Whether the offered window can be used, if that was asked, or if it can't.
            131 WindowAnswer to target { window: WindowId, status: Status, grant: Grant };

            /// The last use of the window has ended.
            132 WindowReleased { window: WindowId };

            /// The answer to `FenceWait`, when the transfers have ended, to `Signal`, and to `MarkRequest`: then with
            /// the sequence number of the last transfer started.
            134 FenceAnswer to target { token: u32, status: Status, sequence: u64 };

            /// The revoked window can't be found any more. If it was not released with that, uses that
            /// began before go on.
            135 WindowRevokeDone to target { window: WindowId, released: bool };

            /// The answer to `PushWanted`. If it is neither done nor failed, nothing was or will be written.
            136 PushDone { token: u32, status: Status };

            /// The answer to `StagingOffer`: at `address`, the slots that have been emptied are to be counted.
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

/// An offset and a value, or none: whether they are there comes first, as 1 or 0.
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
