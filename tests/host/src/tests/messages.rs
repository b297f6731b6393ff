// SPDX-License-Identifier: GPL-2.0

//! SCIF's messages: each decodes to itself, no slot does harm, and the documentation describes
//! each.
//!
//! The tests take the messages from the table that defines them.

use proptest::prelude::*;
use proptest::strategy::Union;
use proptest::test_runner::Config;

use super::config;
use crate::logic::envelope::{
    ChannelId, Envelope, Enveloped, FIELDS, Field, Fields, Malformed, SEQUENCE_OFFSET, ServiceId,
    VERSION,
};
use crate::logic::messages::{
    Destination, EXTENTS_IN_ANNEX, EXTENTS_IN_OFFER, Grant, Message, Offer, PushRequest,
    RingAddress, Status, WindowId, message_table,
};

/// A field whose values proptest can generate.
trait Generated: Sized {
    fn generated() -> BoxedStrategy<Self>;
}

macro_rules! arbitrary {
    ($($type:ty),*) => {
        $(
            impl Generated for $type {
                fn generated() -> BoxedStrategy<Self> {
                    any::<Self>().boxed()
                }
            }
        )*
    };
}

arbitrary!(bool, u16, u64, [u64; EXTENTS_IN_OFFER], Option<(u64, u64)>);

impl Generated for u32 {
    /// Small values are frequent, because some conditions ask for them.
    fn generated() -> BoxedStrategy<Self> {
        prop_oneof![any::<u32>(), 0..8_u32].boxed()
    }
}

impl Generated for ChannelId {
    fn generated() -> BoxedStrategy<Self> {
        (1_u32..).prop_map(ChannelId).boxed()
    }
}

impl Generated for WindowId {
    fn generated() -> BoxedStrategy<Self> {
        any::<u32>().prop_map(WindowId).boxed()
    }
}

prop_compose! {
    fn ring()(
        address: u64,
        shift in 0..32_u32,
        doorbell: u32,
        more in 0..32_u32,
    ) -> RingAddress {
        let (size, limit) = (1_u32 << shift, 1_u32 << (shift + more).min(31));
        let address = address.min(u64::MAX - u64::from(size));
        RingAddress { address, size, doorbell, limit }
    }
}

impl Generated for RingAddress {
    fn generated() -> BoxedStrategy<Self> {
        ring().boxed()
    }
}

impl Generated for Destination {
    fn generated() -> BoxedStrategy<Self> {
        let named = (1_u32.., any::<u32>()).prop_map(|(class, name)| Self {
            port: 0,
            class,
            name,
        });
        prop_oneof![any::<u16>().prop_map(Self::of_port), named].boxed()
    }
}

prop_compose! {
    fn grant()(from: u64, len: u64, windows: u32, extents: u64) -> Grant {
        Grant { from, len, windows, extents }
    }
}

impl Generated for Grant {
    fn generated() -> BoxedStrategy<Self> {
        grant().boxed()
    }
}

prop_compose! {
    fn offer()(
        window: u32,
        protection: u32,
        offset: u64,
        len: u64,
        extents: u32,
        wants_answer: bool,
    ) -> Offer {
        Offer { window: WindowId(window), protection, offset, len, extents, wants_answer }
    }
}

impl Generated for Offer {
    fn generated() -> BoxedStrategy<Self> {
        offer().boxed()
    }
}

prop_compose! {
    fn push_request()(
        token: u32,
        ordered: bool,
        source: u64,
        destination: u64,
        len in 1_u64..,
        must: bool,
        window: u32,
    ) -> PushRequest {
        let window = WindowId(window);
        PushRequest { token, ordered, source, destination, len, must, window }
    }
}

impl Generated for PushRequest {
    fn generated() -> BoxedStrategy<Self> {
        push_request().boxed()
    }
}

/// Returns all status values that have a code.
fn statuses() -> Vec<Status> {
    (0..100_u32)
        .filter_map(|code| {
            let mut fields = Fields::new([0; FIELDS]);
            code.write(&mut fields);
            Status::read(&mut Fields::new(fields.bytes)).ok()
        })
        .collect()
}

impl Generated for Status {
    fn generated() -> BoxedStrategy<Self> {
        prop::sample::select(statuses()).boxed()
    }
}

/// A message of the table, with a strategy that makes it.
struct Entry {
    number: u8,
    name: &'static str,
    has_target: bool,
    /// For each field, the sizes of the numbers in it.
    fields: Vec<&'static [usize]>,
    message: BoxedStrategy<Message>,
}

macro_rules! entries {
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
        #[allow(unused_variables, reason = "a condition is about some of the fields")]
        fn entries() -> Vec<Entry> {
            vec![$({
                $(let $target = ChannelId::generated();)?
                $(let $field = <$type as Generated>::generated();)*
                Entry {
                    number: $number,
                    name: stringify!($name),
                    has_target: 0 $(+ { let _ = stringify!($target); 1 })? != 0,
                    fields: vec![$(<$type as Field>::NUMBERS),*],
                    message: ($($target,)? $($field,)*)
                        .prop_map(|($($target,)? $($field,)*)| {
                            $messages::$name { $($target,)? $($field,)* }
                        })
                        .prop_filter("its condition", |message| match *message {
                            $messages::$name { $($target,)? $($field,)* } => {
                                true $(&& ($condition))?
                            }
                            _ => false,
                        })
                        .boxed(),
                }
            }),*]
        }
    };
}

message_table!(entries);

fn message() -> impl Strategy<Value = Message> {
    Union::new(entries().into_iter().map(|entry| entry.message))
}

fn highest() -> u8 {
    entries()
        .iter()
        .map(|entry| entry.number)
        .max()
        .unwrap_or(0)
}

fn decode(slot: &[u8; SEQUENCE_OFFSET]) -> Result<Message, Malformed> {
    Message::from_envelope(&Envelope::decode(slot)?)
}

fn encode(message: &Message) -> [u8; SEQUENCE_OFFSET] {
    message.envelope().encode()
}

/// A slot of random bytes, with a head that gets past the first checks more often than not.
fn slot() -> impl Strategy<Value = [u8; SEQUENCE_OFFSET]> {
    let small = prop_oneof![any::<u8>(), Just(0_u8), 0..8_u8];
    (
        prop::collection::vec(small, SEQUENCE_OFFSET),
        prop_oneof![0..=highest() + 1, any::<u8>()],
        prop_oneof![9 => Just(VERSION), 1 => any::<u8>()],
        prop_oneof![9 => Just(ServiceId::SCIF.0), 1 => any::<u16>()],
        prop_oneof![Just(0_u32), any::<u32>()],
    )
        .prop_map(|(bytes, kind, version, service, target)| {
            let mut slot = [0; SEQUENCE_OFFSET];
            slot.copy_from_slice(&bytes);
            slot[0] = kind;
            slot[1] = version;
            slot[2..4].copy_from_slice(&service.to_le_bytes());
            slot[4..8].copy_from_slice(&target.to_le_bytes());
            slot
        })
}

#[test]
fn zeroed_slot_is_no_message() {
    let mut slot = [0; SEQUENCE_OFFSET];
    assert_eq!(decode(&slot), Err(Malformed::Version));
    slot[1] = VERSION;
    assert_eq!(decode(&slot), Err(Malformed::Kind));
    slot[2] = ServiceId::SCIF.0 as u8;
    assert_eq!(decode(&slot), Err(Malformed::Kind));
    slot[0] = highest() + 1;
    assert_eq!(decode(&slot), Err(Malformed::Kind));
    assert_eq!(decode(&[0xff; SEQUENCE_OFFSET]), Err(Malformed::Version));
}

/// The numbers of the messages are fixed: a number is never given to another message.
#[test]
fn message_numbers_are_unique_and_fixed() {
    let numbers: Vec<_> = entries()
        .iter()
        .map(|entry| (entry.number, entry.name))
        .collect();
    assert_eq!(
        numbers,
        [
            (1, "Connect"),
            (2, "Accept"),
            (3, "Cancel"),
            (4, "Close"),
            (5, "RingWanted"),
            (6, "WindowOffer"),
            (7, "WindowExtents"),
            (8, "WindowRevoke"),
            (9, "MarkRequest"),
            (10, "FenceWait"),
            (11, "Signal"),
            (12, "PushWanted"),
            (13, "StagingOffer"),
            (128, "Refuse"),
            (129, "CloseDone"),
            (130, "RingOffer"),
            (131, "WindowAnswer"),
            (132, "WindowReleased"),
            (134, "FenceAnswer"),
            (135, "WindowRevokeDone"),
            (136, "PushDone"),
            (137, "StagingTaken"),
        ]
    );
}

#[test]
fn messages_report_their_own_kind_and_target() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::new(config());
    for entry in entries() {
        for _ in 0..100 {
            let message = entry.message.new_tree(&mut runner).expect("one").current();
            assert!(format!("{message:?}").starts_with(entry.name));
            assert_eq!(message.envelope().kind, entry.number);
            assert_eq!(message.target() != ChannelId::NONE, entry.has_target);
            let envelope = message.envelope();
            assert_eq!(
                (envelope.service, envelope.kind, envelope.target),
                (ServiceId::SCIF, entry.number, message.target())
            );
        }
    }
}

/// Returns offset and size of each number of each field. Repeated numbers of a field are one row.
fn layout(fields: &[&[usize]]) -> Vec<(usize, usize)> {
    let mut at = 8_usize;
    let mut rows = Vec::new();
    for numbers in fields {
        let repeated = *numbers == [8; EXTENTS_IN_OFFER];
        for (index, size) in numbers.iter().enumerate() {
            at = at.next_multiple_of(*size);
            match rows.last_mut() {
                Some((_, total)) if repeated && index > 0 => *total += size,
                _ => rows.push((at, *size)),
            }
            at += size;
        }
    }
    rows
}

/// The tables of `Documentation/wire-protocol.rst`, one for each message.
#[test]
fn documented_layouts_match_the_messages() {
    let text = include_str!("../../../../Documentation/wire-protocol.rst");
    for entry in entries() {
        let title = format!("\n**{} {}**", entry.number, entry.name);
        let (_, section) = text.split_once(&title).expect(&title);
        let section: Vec<_> = section
            .lines()
            .skip(1)
            .take_while(|line| !line.starts_with("**") && !line.starts_with("----"))
            .collect();
        let rows: Vec<(usize, usize)> = section
            .iter()
            .filter_map(|line| {
                let mut words = line.split_whitespace().map(str::parse);
                Some((words.next()?.ok()?, words.next()?.ok()?))
            })
            .collect();
        assert_eq!(rows, layout(&entry.fields), "{title}");
    }
}

/// Messages have the bytes that the tables of `Documentation/wire-protocol.rst` lead to.
#[test]
fn encoded_messages_match_the_documented_bytes() {
    let bytes = |message: &Message, len: usize| {
        let slot = encode(message);
        assert!(slot[len..].iter().all(|byte| *byte == 0));
        slot[..len].to_vec()
    };
    let connect = Message::Connect {
        source: ChannelId(0x0102_0304),
        source_port: 0x0506,
        to: Destination::of_port(0x0708),
        ring: RingAddress {
            address: 0x1112_1314_1516_1718,
            size: 0x0001_0000,
            doorbell: 0x191a_1b1c,
            limit: 0x0100_0000,
        },
    };
    #[rustfmt::skip]
    assert_eq!(bytes(&connect, 44), [
        1, 16, 1, 0, 0, 0, 0, 0, 4, 3, 2, 1, 6, 5, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0,
        0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0, 0, 1, 0, 0x1c, 0x1b, 0x1a, 0x19,
        0, 0, 0, 1,
    ]);
    let cancel = Message::Cancel {
        source: ChannelId(3),
        to: Destination {
            port: 0,
            class: 0x0102_0304,
            name: 5,
        },
    };
    #[rustfmt::skip]
    assert_eq!(bytes(&cancel, 24), [
        3, 16, 1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 5, 0, 0, 0,
    ]);
    let signal = Message::Signal {
        target: ChannelId(9),
        token: 7,
        senders: None,
        receivers: Some((0x1000, 3)),
    };
    #[rustfmt::skip]
    assert_eq!(bytes(&signal, 56), [
        11, 16, 1, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0,
        3, 0, 0, 0, 0, 0, 0, 0,
    ]);
}

/// Each fault that makes a message malformed is refused by itself.
#[test]
fn invalid_fields_are_refused_one_by_one() {
    let good = Message::Connect {
        source: ChannelId(1),
        source_port: 0,
        to: Destination::of_port(0),
        ring: RingAddress {
            address: 0,
            size: 2,
            doorbell: 0,
            limit: 2,
        },
    };
    let ring = Message::RingOffer {
        target: ChannelId(1),
        address: 0,
        size: 2,
    };
    let extents = Message::WindowExtents {
        target: ChannelId(1),
        window: WindowId(0),
        count: 1,
    };
    let signal = Message::Signal {
        target: ChannelId(1),
        token: 0,
        senders: Some((0, 0)),
        receivers: None,
    };
    let refuse = Message::Refuse {
        target: ChannelId(1),
        reason: Status::Refused,
    };
    let answer = Message::WindowAnswer {
        target: ChannelId(1),
        window: WindowId(0),
        status: Status::Done,
        grant: Grant {
            from: 0,
            len: 0,
            windows: 0,
            extents: 0,
        },
    };
    let offer = Message::WindowOffer {
        target: ChannelId(1),
        offer: Offer {
            window: WindowId(0),
            protection: 0,
            offset: 0,
            len: 0,
            extents: 0,
            wants_answer: false,
        },
        first: [0; EXTENTS_IN_OFFER],
    };
    let revoked = Message::WindowRevokeDone {
        target: ChannelId(1),
        window: WindowId(0),
        released: false,
    };
    let cases: [(&Message, usize, &[u8], bool); 29] = [
        (&good, 8, &[0], false),
        // The message has a port beside a name.
        (&good, 16, &[1], true),
        (&good, 14, &[1, 0, 1], false),
        (&good, 32, &[0], false),
        (&good, 32, &[3], false),
        (&good, 24, &[0xff; 8], false),
        (
            &good,
            24,
            &[0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            true,
        ),
        // The ring is smaller, or its size is no power of two.
        (&good, 40, &[1], false),
        (&good, 40, &[3], false),
        (&good, 40, &[4], true),
        (&ring, 16, &[3], false),
        (&ring, 16, &[0], true),
        (&ring, 8, &[0xff; 8], false),
        (&extents, 12, &[0], false),
        (&extents, 12, &[64], true),
        (&extents, 12, &[65], false),
        (&extents, 13, &[1], false),
        (&signal, 12, &[0], false),
        (&signal, 12, &[2], false),
        (&signal, 32, &[1], true),
        (&signal, 32, &[2], false),
        (&refuse, 8, &[0], false),
        (&refuse, 8, &[1], true),
        (&answer, 12, &[5], true),
        (&answer, 12, &[6], false),
        (&offer, 36, &[1], true),
        (&offer, 36, &[2], false),
        (&revoked, 12, &[1], true),
        (&revoked, 12, &[2], false),
    ];
    for (message, at, bytes, possible) in cases {
        let mut slot = encode(message);
        assert_eq!(decode(&slot), Ok(*message));
        slot[at..at + bytes.len()].copy_from_slice(bytes);
        let decoded = decode(&slot);
        if possible {
            assert!(decoded.is_ok(), "{message:?}, {bytes:?} at {at}");
        } else {
            assert_eq!(
                decoded,
                Err(Malformed::Field),
                "{message:?}, {bytes:?} at {at}"
            );
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: config().cases * 16, ..config() })]

    #[test]
    fn encoded_message_decodes_to_itself(message in message()) {
        prop_assert_eq!(decode(&encode(&message)), Ok(message));
    }

    /// If a slot decodes, the encoding of the message leads to the same message.
    #[test]
    fn any_decoded_slot_encodes_to_the_same_message(slot in slot()) {
        if let Ok(message) = decode(&slot) {
            prop_assert_eq!(decode(&encode(&message)), Ok(message));
        }
    }

    #[test]
    fn message_with_a_wrong_byte_decodes_consistently_or_fails(
        message in message(),
        at in 0..SEQUENCE_OFFSET,
        byte: u8,
    ) {
        let mut slot = encode(&message);
        slot[at] = byte;
        if let Ok(message) = decode(&slot) {
            prop_assert_eq!(decode(&encode(&message)), Ok(message));
        }
    }

    #[test]
    fn message_with_missing_or_extra_target_is_refused(message in message(), other in 1_u32..) {
        let envelope = message.envelope();
        let has_target = message.target() != ChannelId::NONE;
        for target in [ChannelId::NONE, ChannelId(other)] {
            let decoded = Message::from_envelope(&Envelope { target, ..envelope });
            if has_target == (target != ChannelId::NONE) {
                prop_assert_eq!(decoded.map(|message| message.target()), Ok(target));
            } else {
                prop_assert_eq!(decoded, Err(Malformed::Field));
            }
        }
    }

    #[test]
    fn other_versions_and_services_are_refused(message in message(), version: u8, service: u16) {
        prop_assume!(version != VERSION && service != ServiceId::SCIF.0);
        let mut slot = encode(&message);
        slot[1] = version;
        prop_assert_eq!(decode(&slot), Err(Malformed::Version));
        let envelope = Envelope { service: ServiceId(service), ..message.envelope() };
        prop_assert_eq!(Message::from_envelope(&envelope), Err(Malformed::Kind));
    }

    /// Unused bytes are ignored.
    #[test]
    fn bytes_after_the_fields_are_ignored(message in message(), fill: u8) {
        let mut envelope = message.envelope();
        let entries = entries();
        let entry = entries.iter().find(|entry| entry.number == envelope.kind);
        let fields = &entry.expect("an entry").fields;
        let end = crate::logic::envelope::fields_end(fields);
        prop_assert!(end <= FIELDS && envelope.fields[end..].iter().all(|byte| *byte == 0));
        envelope.fields[end..].fill(fill);
        prop_assert_eq!(Message::from_envelope(&envelope), Ok(message));
    }
}
