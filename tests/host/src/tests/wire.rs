// SPDX-License-Identifier: GPL-2.0

//! The control messages: all of them come back, and no slot does harm.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::config;
use crate::logic::wire::{
    ConnectionId, EXTENTS_PER_MESSAGE, Malformed, Message, Refusal, RingAddress, SEQUENCE_OFFSET,
    Status, VERSION, WindowId,
};

/// The kinds of message there are; `message` below makes each of them.
const KINDS: u8 = 19;

fn id() -> impl Strategy<Value = ConnectionId> {
    (1_u32..).prop_map(ConnectionId)
}

fn window() -> impl Strategy<Value = WindowId> {
    any::<u32>().prop_map(WindowId)
}

prop_compose! {
    fn ring()(address: u64, shift in 0..32_u32, bell: u32) -> RingAddress {
        let size = 1_u32 << shift;
        RingAddress { address: address.min(u64::MAX - u64::from(size)), size, bell }
    }
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop::sample::select(vec![
        Refusal::NoListener,
        Refusal::BacklogFull,
        Refusal::ListenerClosed,
        Refusal::NoMemory,
    ])
}

fn status() -> impl Strategy<Value = Status> {
    prop::sample::select(vec![
        Status::Done,
        Status::NoMemory,
        Status::OutOfReach,
        Status::TransferFailed,
        Status::Unknown,
    ])
}

fn message() -> impl Strategy<Value = Message> {
    let count = 1..=EXTENTS_PER_MESSAGE as u32;
    prop_oneof![
        (id(), any::<u16>(), any::<u16>(), ring()).prop_map(|(source, source_port, port, ring)| {
            Message::Connect {
                source,
                source_port,
                port,
                ring,
            }
        }),
        (id(), id(), ring()).prop_map(|(target, source, ring)| Message::Accept {
            target,
            source,
            ring
        }),
        (id(), refusal()).prop_map(|(target, reason)| Message::Refuse { target, reason }),
        id().prop_map(|source| Message::Cancel { source }),
        (id(), id()).prop_map(|(target, source)| Message::Close { target, source }),
        id().prop_map(|target| Message::CloseDone { target }),
        id().prop_map(|target| Message::SpaceWanted { target }),
        id().prop_map(|target| Message::SpaceAvailable { target }),
        (
            id(),
            window(),
            any::<u32>(),
            any::<u64>(),
            any::<u64>(),
            any::<u32>()
        )
            .prop_map(|(target, window, protection, offset, len, extents)| {
                Message::WindowOffer {
                    target,
                    window,
                    protection,
                    offset,
                    len,
                    extents,
                }
            }),
        (id(), window(), count, any::<[u64; EXTENTS_PER_MESSAGE]>()).prop_map(
            |(target, window, count, extents)| Message::WindowExtents {
                target,
                window,
                count,
                extents
            }
        ),
        (id(), window(), status()).prop_map(|(target, window, status)| Message::WindowAnswer {
            target,
            window,
            status
        }),
        (id(), window(), any::<u64>()).prop_map(|(target, window, offset)| {
            Message::WindowRevoke {
                target,
                window,
                offset,
            }
        }),
        (id(), window()).prop_map(|(target, window)| Message::WindowRevokeDone { target, window }),
        (
            id(),
            any::<u32>(),
            any::<Option<(u64, u64)>>(),
            any::<Option<(u64, u64)>>()
        )
            .prop_filter(
                "it is for at least one side",
                |(_, _, senders, receivers)| { senders.is_some() || receivers.is_some() }
            )
            .prop_map(|(target, token, senders, receivers)| Message::Signal {
                target,
                token,
                senders,
                receivers,
            }),
        window().prop_map(|window| Message::WindowReleased { window }),
        (id(), any::<u32>()).prop_map(|(target, token)| Message::MarkRequest { target, token }),
        (id(), any::<u32>(), any::<u64>()).prop_map(|(target, token, sequence)| {
            Message::MarkAnswer {
                target,
                token,
                sequence,
            }
        }),
        (id(), any::<u32>(), any::<u64>()).prop_map(|(target, token, sequence)| {
            Message::FenceWait {
                target,
                token,
                sequence,
            }
        }),
        (id(), any::<u32>(), status()).prop_map(|(target, token, status)| Message::FenceDone {
            target,
            token,
            status
        }),
    ]
}

/// A slot of random bytes, with a header that gets past the first checks more often than not.
fn slot() -> impl Strategy<Value = [u8; SEQUENCE_OFFSET]> {
    let small = prop_oneof![any::<u8>(), Just(0_u8), 0..8_u8];
    (
        prop::collection::vec(small, SEQUENCE_OFFSET),
        prop_oneof![0..=KINDS + 1, any::<u8>()],
        prop_oneof![9 => Just(VERSION), 1 => any::<u8>()],
    )
        .prop_map(|(bytes, kind, version)| {
            let mut slot = [0; SEQUENCE_OFFSET];
            slot.copy_from_slice(&bytes);
            slot[0] = kind;
            slot[1] = version;
            slot
        })
}

#[test]
fn zeroed_slots_are_no_message() {
    let mut slot = [0; SEQUENCE_OFFSET];
    assert_eq!(Message::decode(&slot), Err(Malformed::Version));
    slot[1] = VERSION;
    assert_eq!(Message::decode(&slot), Err(Malformed::Kind));
    slot[0] = KINDS + 1;
    assert_eq!(Message::decode(&slot), Err(Malformed::Kind));
    assert_eq!(
        Message::decode(&[0xff; SEQUENCE_OFFSET]),
        Err(Malformed::Version)
    );
}

#[test]
fn every_kind_can_be_generated() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::new(config());
    let kinds: std::collections::BTreeSet<u8> = (0..1000)
        .map(|_| {
            let tree = message().new_tree(&mut runner).expect("a message");
            tree.current().encode()[0]
        })
        .collect();
    assert!(kinds.into_iter().eq(1..=KINDS));
}

proptest! {
    #![proptest_config(Config { cases: config().cases * 16, ..config() })]

    #[test]
    fn messages_come_back(message in message()) {
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    /// What decodes at all is what its own encoding says.
    #[test]
    fn any_slot_does_no_harm(slot in slot()) {
        if let Ok(message) = Message::decode(&slot) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn a_message_with_a_wrong_byte_does_no_harm(
        message in message(),
        at in 0..SEQUENCE_OFFSET,
        byte: u8,
    ) {
        let mut slot = message.encode();
        slot[at] = byte;
        if let Ok(message) = Message::decode(&slot) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn messages_are_about_a_connection(message in message()) {
        let mut slot = message.encode();
        let about_none = matches!(
            message,
            Message::Connect { .. } | Message::Cancel { .. } | Message::WindowReleased { .. }
        );
        slot[4..8].fill(0);
        prop_assert_eq!(Message::decode(&slot).is_ok(), about_none);
    }

    #[test]
    fn other_versions_are_refused(message in message(), version: u8) {
        prop_assume!(version != VERSION);
        let mut slot = message.encode();
        slot[1] = version;
        prop_assert_eq!(Message::decode(&slot), Err(Malformed::Version));
    }
}
