// SPDX-License-Identifier: GPL-2.0

//! Tests of the logic as compiled for the kernel: a few cases of the wire format and the user-space
//! interface.
//!
//! `tests/host` has all cases. Logic that works with memory or locks of the kernel is tested
//! together with them: the address space in `memory/range_tree.rs`, planning in
//! `sys/extent_table.rs`, ports in `endpoint/ports.rs`, rings in `endpoint/tests/streams.rs`, gates
//! in `sync/in_flight.rs`.

use super::{
    envelope::{
        ChannelId,
        Envelope,
        Enveloped,
        Malformed,
        PeerMessage,
        ServiceId,
        SEQUENCE_OFFSET,
        VERSION, //
    },
    marks,
    messages::{
        Destination,
        Grant,
        Message,
        Offer,
        PushRequest,
        RingAddress,
        Status,
        WindowId, //
    }, //
};
use kernel::prelude::*;

const SOURCE: ChannelId = ChannelId(0x0102_0304);
const TARGET: ChannelId = ChannelId(0x0a0b_0c0d);
const WINDOW: WindowId = WindowId(0x0506_0708);
const RING: RingAddress = RingAddress {
    address: 0x1122_3344_5566_7788,
    size: 4096,
    doorbell: 3,
    limit: 65536,
};

/// One message of each kind.
const MESSAGES: [Message; 22] = {
    let (source, target, window, ring) = (SOURCE, TARGET, WINDOW, RING);
    let (source_port, port, token, sequence) = (1, 2, 3, u64::MAX);
    let (reason, status) = (Status::NoMemory, Status::Unknown);
    let to = Destination {
        port: 0,
        class: 4,
        name: 5,
    };
    [
        Message::Connect {
            source,
            source_port,
            to,
            ring,
        },
        Message::Accept {
            target,
            source,
            port,
            ring,
        },
        Message::Refuse { target, reason },
        Message::Cancel { source, to },
        Message::Close { target, source },
        Message::CloseDone { target },
        Message::RingWanted { target },
        Message::RingOffer {
            target,
            address: 0x1_0000,
            size: 8192,
        },
        Message::WindowOffer {
            target,
            offer: Offer {
                window,
                protection: 3,
                offset: 0x1000,
                len: u64::MAX,
                extents: 7,
                wants_answer: true,
            },
            first: [5, u64::MAX],
        },
        Message::WindowExtents {
            target,
            window,
            count: 64,
        },
        Message::WindowAnswer {
            target,
            window,
            status,
            grant: Grant {
                from: 6,
                len: u64::MAX,
                windows: 7,
                extents: 8,
            },
        },
        Message::WindowRevoke {
            target,
            window,
            offset: 0x2000,
        },
        Message::WindowReleased { window },
        Message::MarkRequest { target, token },
        Message::FenceWait {
            target,
            token,
            sequence,
        },
        Message::FenceAnswer {
            target,
            token,
            status,
            sequence,
        },
        Message::WindowRevokeDone {
            target,
            window,
            released: true,
        },
        Message::Signal {
            target,
            token,
            senders: None,
            receivers: Some((8, 9)),
        },
        Message::PushWanted {
            target,
            request: PushRequest {
                token,
                ordered: true,
                source: 0x1001,
                destination: u64::MAX,
                len: 9,
                must: true,
                window,
            },
        },
        Message::PushDone { token, status },
        Message::StagingOffer {
            address: 0x3000,
            slots: 4,
            size: 8192,
        },
        Message::StagingTaken { address: 0x4000 },
    ]
};

/// Returns whether a message of this kind is refused because of these bytes in its fields.
fn refuses(message: Message, at: usize, number: u32) -> Result<bool> {
    let mut envelope = message.envelope();
    let field = envelope.fields.get_mut(at..at + 4).ok_or(EINVAL)?;
    field.copy_from_slice(&number.to_le_bytes());
    Ok(Message::from_envelope(&envelope) == Err(Malformed::Field))
}

/// The kinds of [`MESSAGES`], in their order.
const KINDS: [u8; MESSAGES.len()] = [
    1, 2, 128, 3, 4, 129, 5, 130, 6, 7, 131, 8, 132, 9, 10, 134, 135, 11, 12, 136, 13, 137,
];

#[kunit_tests(scif_logic_messages)]
mod message_cases {
    use super::*;

    #[test]
    fn encoded_message_decodes_to_itself() {
        for (message, kind) in MESSAGES.iter().zip(KINDS) {
            assert_eq!(message.envelope().kind, kind);
            let decoded = Envelope::decode(&message.envelope().encode());
            assert!(decoded.is_ok_and(|it| Message::from_envelope(&it) == Ok(*message)));
        }
        let missing = PeerMessage::NoService {
            service: ServiceId::SCIF,
        };
        let decoded = Envelope::decode(&missing.envelope().encode());
        assert!(decoded.is_ok_and(|it| PeerMessage::from_envelope(&it) == Ok(missing)));
    }

    #[test]
    fn message_fields_have_the_offsets_of_the_protocol() {
        let slot = Message::CloseDone { target: TARGET }.envelope().encode();
        assert_eq!(&slot[..8], [129, VERSION, 1, 0, 0x0d, 0x0c, 0x0b, 0x0a]);
        assert!(slot[8..].iter().all(|byte| *byte == 0));
        let [connect, ..] = MESSAGES;
        let slot = connect.envelope().encode();
        assert_eq!(&slot[8..16], [4, 3, 2, 1, 1, 0, 0, 0]);
        assert_eq!(&slot[16..24], [4, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(&slot[24..32], RING.address.to_le_bytes());
    }

    #[test]
    fn invalid_version_service_or_kind_is_refused() -> Result {
        assert!(Envelope::decode(&[0; SEQUENCE_OFFSET]) == Err(Malformed::Version));
        for message in MESSAGES {
            let mut slot = message.envelope().encode();
            let [_, version, ..] = &mut slot;
            *version += 1;
            assert!(Envelope::decode(&slot) == Err(Malformed::Version));
            let envelope = message.envelope();
            let other = Envelope {
                service: ServiceId::PEER,
                ..envelope
            };
            assert!(Message::from_envelope(&other) == Err(Malformed::Kind));
            for kind in (0..=u8::MAX).filter(|kind| !KINDS.contains(kind)) {
                let unknown = Envelope { kind, ..envelope };
                assert!(Message::from_envelope(&unknown) == Err(Malformed::Kind));
            }
            let about_none = Envelope {
                target: ChannelId::NONE,
                ..envelope
            };
            let is_refused = Message::from_envelope(&about_none) == Err(Malformed::Field);
            assert_eq!(is_refused, message.target() != ChannelId::NONE);
        }
        Ok(())
    }

    #[test]
    fn invalid_message_fields_are_refused() -> Result {
        let [connect, accept, refuse, ..] = MESSAGES;
        // Invalid: channel id 0, and a ring whose size is 0 or no power of two.
        assert!(refuses(connect, 0, 0)? && refuses(accept, 0, 0)?);
        assert!(refuses(connect, 24, 0)? && refuses(connect, 24, 4095)?);
        assert!(!refuses(connect, 24, 8192)? && !refuses(connect, 28, u32::MAX)?);
        // Invalid: a ring whose limit is below its size.
        assert!(refuses(connect, 32, 2048)? && refuses(connect, 32, 8191)?);
        // Invalid: a port together with a name.
        assert!(refuses(connect, 4, 0x0001_0001)?);
        // Invalid: a ring beyond the end of all addresses.
        let highest = Message::Connect {
            source: SOURCE,
            source_port: 1,
            to: Destination::of_port(2),
            ring: RingAddress {
                address: u64::MAX - 4095,
                ..RING
            },
        };
        assert!(Message::from_envelope(&highest.envelope()) == Err(Malformed::Field));
        assert!(refuses(refuse, 0, 0)? && refuses(refuse, 0, 6)? && !refuses(refuse, 0, 1)?);
        for message in MESSAGES {
            match message {
                Message::WindowExtents { .. } => {
                    assert!(refuses(message, 4, 0)? && refuses(message, 4, 65)?);
                }
                Message::WindowOffer { .. } => assert!(refuses(message, 28, 2)?),
                Message::WindowAnswer { .. } => assert!(refuses(message, 4, 6)?),
                Message::WindowRevokeDone { .. } => assert!(refuses(message, 4, 2)?),
                // Invalid: a value's presence that is neither 0 nor 1, and a signal without any
                // value.
                Message::Signal { .. } => {
                    assert!(refuses(message, 4, 2)?);
                    assert!(refuses(message, 24, 0)?);
                }
                _ => (),
            }
        }
        Ok(())
    }
}

#[kunit_tests(scif_logic_marks)]
mod mark_cases {
    use super::marks::{
        decode,
        encode,
        origin,
        Numbers,
        Origin,
        Sequence,
        WINDOW, //
    };

    #[test]
    fn watermark_waits_for_the_first_transfer() {
        let mut tracker = Numbers::new();
        for number in 1..=WINDOW {
            assert!(tracker.begin() == Some(Sequence(number)));
        }
        assert!(tracker.begin().is_none());
        for number in 2..=WINDOW {
            assert!(!tracker.end(Sequence(number), false, false));
        }
        assert!(tracker.watermark() == Sequence(0));
        // Ignored: none of these is in flight.
        assert!(
            !tracker.end(Sequence(0), false, false)
                && !tracker.end(Sequence(WINDOW + 1), false, false)
        );
        assert!(tracker.end(Sequence(1), false, false));
        assert!(tracker.watermark() == Sequence(WINDOW) && tracker.is_complete(Sequence(7)));
        assert!(tracker.begin() == Some(Sequence(WINDOW + 1)));
        assert!(!tracker.is_complete(tracker.last_issued()));
    }

    #[test]
    fn forged_future_and_old_marks_are_refused() {
        let last = Sequence((1 << 29) + 5);
        for (number, whose) in [(last, Origin::Own), (Sequence(last.0 - 9), Origin::Peer)] {
            let mark = encode(number, whose);
            assert!(mark > 0);
            assert!(decode(mark, last) == Ok((whose, number)));
        }
        let future = encode(Sequence(last.0 + 1), Origin::Own);
        let old = encode(Sequence(last.0 - (1 << 28) - 1), Origin::Own);
        assert!(decode(future, last).is_err() && decode(old, last).is_err());
        assert!(decode(encode(Sequence(1), Origin::Own), Sequence(0)).is_err());
        for forged in [0, 1, -1, i32::MIN, (1 << 30) - 1] {
            assert!(origin(forged).is_err());
        }
    }
}
