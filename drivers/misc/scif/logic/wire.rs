// SPDX-License-Identifier: GPL-2.0

//! The control messages as they cross the link.
//!
//! A message fills one 64-byte slot of the receiver's control ring:
//!
//! ```text
//!  0  kind      u8     which message
//!  1  version   u8     VERSION
//!  2  -         u16    zero
//!  4  target    u32    the receiver's id of the connection it is about, 0 for none
//!  8  fields    48 B   by kind, little-endian, in the order of the enum's fields
//! 56  sequence  u64    written last; says that the slot is complete (see `slots.rs`)
//! ```
//!
//! A slot is decoded from a private copy; nothing in it is a pointer. Decoding checks the form of
//! each field (known values, no overflow); whether an id exists or an address lies inside the
//! aperture is for the receiver to find out. Unused bytes are zero and ignored.
//!
//! What is not here: who may send what when (`session.rs` and what it calls).

/// Version of this protocol; both sides must have the same.
pub(crate) const VERSION: u8 = 1;

/// Bytes of a slot.
pub(crate) const SLOT_SIZE: usize = 64;

/// Where the sequence number of a slot lies.
pub(crate) const SEQUENCE_OFFSET: usize = 56;

/// Packed extents in one [`Message::WindowExtents`].
pub(crate) const EXTENTS_PER_MESSAGE: usize = 5;

/// A connection as one side knows it: an index with a generation, opaque to the other side.
///
/// Zero is never the id of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(pub(crate) u32);

impl ConnectionId {
    /// The id in messages that are about no connection.
    pub(crate) const NONE: Self = Self(0);
}

/// A window as its owner knows it; unique among the owner's windows of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WindowId(pub(crate) u32);

/// Where the sender of the message wants data of a connection to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingAddress {
    /// Bus address of the ring's memory, at which its header lies.
    pub(crate) address: u64,
    /// Bytes of data in the ring, a power of two.
    pub(crate) size: u32,
    /// Number of the bell that announces data.
    pub(crate) bell: u32,
}

/// Why a connection request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nobody listens on the port.
    NoListener,
    /// The listener's queue is full.
    BacklogFull,
    /// The listener was closed while the request was queued.
    ListenerClosed,
    /// The node had no memory for it.
    NoMemory,
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
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Asks the listener on `port` for a connection.
    Connect {
        source: ConnectionId,
        source_port: u16,
        port: u16,
        ring: RingAddress,
    },
    /// The listener's answer: the connection exists.
    Accept {
        target: ConnectionId,
        source: ConnectionId,
        ring: RingAddress,
    },
    /// The listener's other answer.
    Refuse {
        target: ConnectionId,
        reason: Refusal,
    },
    /// The connector gives up a request that has not been answered.
    Cancel { source: ConnectionId },
    /// The sender's end, which it knows as `source`, is closed: it writes nothing more, and its ring
    /// wants no more data.
    Close {
        target: ConnectionId,
        source: ConnectionId,
    },
    /// Nothing more will be written into the ring of the closed connection.
    CloseDone { target: ConnectionId },
    /// The sender waits for room in the receiver's ring.
    SpaceWanted { target: ConnectionId },
    /// There is room again in the sender's ring.
    SpaceAvailable { target: ConnectionId },
    /// A window was registered; `extents` packed extents follow.
    WindowOffer {
        target: ConnectionId,
        window: WindowId,
        protection: u32,
        offset: u64,
        len: u64,
        extents: u32,
    },
    /// The next `count` extents of the window offered last on this connection.
    WindowExtents {
        target: ConnectionId,
        window: WindowId,
        count: u32,
        extents: [u64; EXTENTS_PER_MESSAGE],
    },
    /// Whether the offered window can be used.
    WindowAnswer {
        target: ConnectionId,
        window: WindowId,
        status: Status,
    },
    /// The window was unregistered: no new use of it may begin.
    WindowRevoke {
        target: ConnectionId,
        window: WindowId,
        offset: u64,
    },
    /// Asks for values to be stored, as (offset, value), once all the receiver's transfers so far
    /// have ended: in a window of the sender, and in one of the receiver. The answer, with
    /// `FenceDone`, says whether they will be.
    Signal {
        target: ConnectionId,
        token: u32,
        senders: Option<(u64, u64)>,
        receivers: Option<(u64, u64)>,
    },
    /// The revoked window can't be found any more; uses that began before may go on.
    WindowRevokeDone {
        target: ConnectionId,
        window: WindowId,
    },
    /// The last use of the window has ended.
    WindowReleased { window: WindowId },
    /// Asks for a mark behind all that the receiver has started on the connection.
    MarkRequest { target: ConnectionId, token: u32 },
    /// The answer: the sequence number of the last transfer started.
    MarkAnswer {
        target: ConnectionId,
        token: u32,
        sequence: u64,
    },
    /// Asks to be told when all the receiver's transfers up to `sequence` have ended.
    FenceWait {
        target: ConnectionId,
        token: u32,
        sequence: u64,
    },
    /// They have.
    FenceDone {
        target: ConnectionId,
        token: u32,
        status: Status,
    },
}

/// Why a slot is not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// Written by a protocol of another version.
    Version,
    /// No such kind of message.
    Kind,
    /// A field has a value that it can't have.
    Field,
}

impl Malformed {
    /// For the log.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Malformed::Version => "a message of another protocol version",
            Malformed::Kind => "a message of unknown kind",
            Malformed::Field => "a message with an impossible field",
        }
    }
}

/// Writes fields one after another.
struct FieldWriter<'a> {
    rest: &'a mut [u8],
}

impl FieldWriter<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let rest = core::mem::take(&mut self.rest);
        // Every message fits (tested for each kind); what would not fit is left out.
        if let Some((head, tail)) = rest.split_at_mut_checked(bytes.len()) {
            head.copy_from_slice(bytes);
            self.rest = tail;
        }
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn ring(&mut self, ring: &RingAddress) -> &mut Self {
        self.u64(ring.address).u32(ring.size).u32(ring.bell)
    }
}

/// Reads fields one after another.
struct FieldReader<'a> {
    rest: &'a [u8],
}

impl FieldReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Field)?;
        self.rest = tail;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn connection(&mut self) -> Result<ConnectionId, Malformed> {
        match self.u32()? {
            0 => Err(Malformed::Field),
            id => Ok(ConnectionId(id)),
        }
    }

    fn window(&mut self) -> Result<WindowId, Malformed> {
        Ok(WindowId(self.u32()?))
    }

    fn ring(&mut self) -> Result<RingAddress, Malformed> {
        let ring = RingAddress {
            address: self.u64()?,
            size: self.u32()?,
            bell: self.u32()?,
        };
        if !ring.size.is_power_of_two() || ring.address.checked_add(u64::from(ring.size)).is_none()
        {
            return Err(Malformed::Field);
        }
        Ok(ring)
    }

    fn refusal(&mut self) -> Result<Refusal, Malformed> {
        match self.u32()? {
            1 => Ok(Refusal::NoListener),
            2 => Ok(Refusal::BacklogFull),
            3 => Ok(Refusal::ListenerClosed),
            4 => Ok(Refusal::NoMemory),
            _ => Err(Malformed::Field),
        }
    }

    fn status(&mut self) -> Result<Status, Malformed> {
        match self.u32()? {
            0 => Ok(Status::Done),
            1 => Ok(Status::NoMemory),
            2 => Ok(Status::OutOfReach),
            3 => Ok(Status::TransferFailed),
            4 => Ok(Status::Unknown),
            _ => Err(Malformed::Field),
        }
    }
}

impl Refusal {
    fn code(self) -> u32 {
        match self {
            Refusal::NoListener => 1,
            Refusal::BacklogFull => 2,
            Refusal::ListenerClosed => 3,
            Refusal::NoMemory => 4,
        }
    }
}

impl Status {
    fn code(self) -> u32 {
        match self {
            Status::Done => 0,
            Status::NoMemory => 1,
            Status::OutOfReach => 2,
            Status::TransferFailed => 3,
            Status::Unknown => 4,
        }
    }
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Message::Connect { .. } => 1,
            Message::Accept { .. } => 2,
            Message::Refuse { .. } => 3,
            Message::Cancel { .. } => 4,
            Message::Close { .. } => 5,
            Message::CloseDone { .. } => 6,
            Message::SpaceWanted { .. } => 7,
            Message::SpaceAvailable { .. } => 8,
            Message::WindowOffer { .. } => 9,
            Message::WindowExtents { .. } => 10,
            Message::WindowAnswer { .. } => 11,
            Message::WindowRevoke { .. } => 12,
            Message::WindowReleased { .. } => 13,
            Message::MarkRequest { .. } => 14,
            Message::MarkAnswer { .. } => 15,
            Message::FenceWait { .. } => 16,
            Message::FenceDone { .. } => 17,
            Message::WindowRevokeDone { .. } => 18,
            Message::Signal { .. } => 19,
        }
    }

    /// The receiver's id of the connection the message is about; NONE if it is about none.
    pub(crate) fn target(&self) -> ConnectionId {
        match *self {
            Message::Connect { .. } | Message::Cancel { .. } | Message::WindowReleased { .. } => {
                ConnectionId::NONE
            }
            Message::Accept { target, .. }
            | Message::Refuse { target, .. }
            | Message::Close { target, .. }
            | Message::CloseDone { target }
            | Message::SpaceWanted { target }
            | Message::SpaceAvailable { target }
            | Message::WindowOffer { target, .. }
            | Message::WindowExtents { target, .. }
            | Message::WindowAnswer { target, .. }
            | Message::WindowRevoke { target, .. }
            | Message::WindowRevokeDone { target, .. }
            | Message::Signal { target, .. }
            | Message::MarkRequest { target, .. }
            | Message::MarkAnswer { target, .. }
            | Message::FenceWait { target, .. }
            | Message::FenceDone { target, .. } => target,
        }
    }

    /// The message as a slot; the sequence number is the caller's to add.
    pub(crate) fn encode(&self) -> [u8; SEQUENCE_OFFSET] {
        let mut slot = [0; SEQUENCE_OFFSET];
        let mut writer = FieldWriter { rest: &mut slot };
        writer
            .bytes(&[self.kind(), VERSION, 0, 0])
            .u32(self.target().0);
        match *self {
            Message::Connect {
                source,
                source_port,
                port,
                ring,
            } => writer.u32(source.0).u16(source_port).u16(port).ring(&ring),
            Message::Accept { source, ring, .. } => writer.u32(source.0).u32(0).ring(&ring),
            Message::Refuse { reason, .. } => writer.u32(reason.code()),
            Message::Cancel { source } | Message::Close { source, .. } => writer.u32(source.0),
            Message::CloseDone { .. }
            | Message::SpaceWanted { .. }
            | Message::SpaceAvailable { .. } => &mut writer,
            Message::WindowOffer {
                window,
                protection,
                offset,
                len,
                extents,
                ..
            } => writer
                .u32(window.0)
                .u32(protection)
                .u64(offset)
                .u64(len)
                .u32(extents),
            Message::WindowExtents {
                window,
                count,
                extents,
                ..
            } => {
                writer.u32(window.0).u32(count);
                for extent in extents {
                    writer.u64(extent);
                }
                &mut writer
            }
            Message::Signal {
                token,
                senders,
                receivers,
                ..
            } => {
                let present = u32::from(senders.is_some()) | (u32::from(receivers.is_some()) << 1);
                writer.u32(present).u32(token);
                for (offset, value) in [senders, receivers].map(Option::unwrap_or_default) {
                    writer.u64(offset).u64(value);
                }
                &mut writer
            }
            Message::WindowAnswer { window, status, .. } => writer.u32(window.0).u32(status.code()),
            Message::WindowRevoke { window, offset, .. } => writer.u32(window.0).u32(0).u64(offset),
            Message::WindowReleased { window } | Message::WindowRevokeDone { window, .. } => {
                writer.u32(window.0)
            }
            Message::MarkRequest { token, .. } => writer.u32(token),
            Message::MarkAnswer {
                token, sequence, ..
            }
            | Message::FenceWait {
                token, sequence, ..
            } => writer.u32(token).u32(0).u64(sequence),
            Message::FenceDone { token, status, .. } => writer.u32(token).u32(status.code()),
        };
        slot
    }

    /// Reads a message from a private copy of a slot.
    pub(crate) fn decode(slot: &[u8; SEQUENCE_OFFSET]) -> Result<Self, Malformed> {
        let mut header = FieldReader { rest: slot };
        let [kind, version, _, _] = header.take::<4>()?;
        if version != VERSION {
            return Err(Malformed::Version);
        }
        let target = header.u32()?;
        let mut fields = header;
        // A message about a connection must name one.
        let target = match (kind, target) {
            (1 | 4 | 13, _) => ConnectionId::NONE,
            (2..=19, 0) => return Err(Malformed::Field),
            (_, id) => ConnectionId(id),
        };
        Ok(match kind {
            1 => Message::Connect {
                source: fields.connection()?,
                source_port: fields.u16()?,
                port: fields.u16()?,
                ring: fields.ring()?,
            },
            2 => Message::Accept {
                target,
                source: fields.connection()?,
                ring: {
                    fields.u32()?;
                    fields.ring()?
                },
            },
            3 => Message::Refuse {
                target,
                reason: fields.refusal()?,
            },
            4 => Message::Cancel {
                source: fields.connection()?,
            },
            5 => Message::Close {
                target,
                source: fields.connection()?,
            },
            6 => Message::CloseDone { target },
            7 => Message::SpaceWanted { target },
            8 => Message::SpaceAvailable { target },
            9 => Message::WindowOffer {
                target,
                window: fields.window()?,
                protection: fields.u32()?,
                offset: fields.u64()?,
                len: fields.u64()?,
                extents: fields.u32()?,
            },
            10 => {
                let window = fields.window()?;
                let count = fields.u32()?;
                let mut extents = [0; EXTENTS_PER_MESSAGE];
                for extent in &mut extents {
                    *extent = fields.u64()?;
                }
                if count == 0 || count as usize > EXTENTS_PER_MESSAGE {
                    return Err(Malformed::Field);
                }
                Message::WindowExtents {
                    target,
                    window,
                    count,
                    extents,
                }
            }
            11 => Message::WindowAnswer {
                target,
                window: fields.window()?,
                status: fields.status()?,
            },
            12 => {
                let window = fields.window()?;
                fields.u32()?;
                Message::WindowRevoke {
                    target,
                    window,
                    offset: fields.u64()?,
                }
            }
            13 => Message::WindowReleased {
                window: fields.window()?,
            },
            14 => Message::MarkRequest {
                target,
                token: fields.u32()?,
            },
            15 | 16 => {
                let token = fields.u32()?;
                fields.u32()?;
                let sequence = fields.u64()?;
                if kind == 15 {
                    Message::MarkAnswer {
                        target,
                        token,
                        sequence,
                    }
                } else {
                    Message::FenceWait {
                        target,
                        token,
                        sequence,
                    }
                }
            }
            17 => Message::FenceDone {
                target,
                token: fields.u32()?,
                status: fields.status()?,
            },
            19 => {
                let present = fields.u32()?;
                let token = fields.u32()?;
                let senders = (fields.u64()?, fields.u64()?);
                let receivers = (fields.u64()?, fields.u64()?);
                if present == 0 || present > 3 {
                    return Err(Malformed::Field);
                }
                Message::Signal {
                    target,
                    token,
                    senders: (present & 1 != 0).then_some(senders),
                    receivers: (present & 2 != 0).then_some(receivers),
                }
            }
            18 => Message::WindowRevokeDone {
                target,
                window: fields.window()?,
            },
            _ => return Err(Malformed::Kind),
        })
    }
}

// The longest message fits: header, window, count and extents.
const _: () = assert!(8 + 8 + 8 * EXTENTS_PER_MESSAGE <= SEQUENCE_OFFSET);
