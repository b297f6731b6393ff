// SPDX-License-Identifier: GPL-2.0

//! The slot without its contents, and the messages by which peers announce themselves.

use proptest::prelude::*;

use super::config;
use crate::logic::envelope::{
    ChannelId, Envelope, Enveloped, FIELDS, Field, Fields, Malformed, PeerMessage, SEQUENCE_OFFSET,
    ServiceId, VERSION, define_messages, fields_end,
};

define_messages! {
    /// Messages of a service of the tests.
    enum Toy of ServiceId(77);

    /// All sizes of numbers, in an order that needs gaps.
    200 Numbers to channel { a: u16, b: u64, c: u16, d: u32 };
    /// A condition over two fields.
    3 Range { from: u32, below: u32 } if from < below;
}

prop_compose! {
    fn envelope()(service: u16, kind: u8, target: u32, fields: [u8; FIELDS]) -> Envelope {
        Envelope { service: ServiceId(service), kind, target: ChannelId(target), fields }
    }
}

/// An envelope has the bytes of the head in `Documentation/wire-protocol.rst`.
#[test]
fn envelope_header_bytes_match_the_documentation() {
    let slot = Envelope {
        service: ServiceId(0x1234),
        kind: 0x56,
        target: ChannelId(0x789a_bcde),
        fields: [0xff; FIELDS],
    }
    .encode();
    assert_eq!(
        slot[..8],
        [0x56, VERSION, 0x34, 0x12, 0xde, 0xbc, 0x9a, 0x78]
    );
    assert_eq!(slot[8..], [0xff; FIELDS]);
}

#[test]
fn fields_are_aligned_to_their_size() {
    let message = Toy::Numbers {
        channel: ChannelId(1),
        a: 0x0102,
        b: 0x1112_1314_1516_1718,
        c: 0x2122,
        d: 0x3132_3334,
    };
    let envelope = message.envelope();
    let mut fields = [0; FIELDS];
    fields[..2].copy_from_slice(&[2, 1]);
    fields[8..18].copy_from_slice(&[0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x22, 0x21]);
    fields[20..24].copy_from_slice(&[0x34, 0x33, 0x32, 0x31]);
    assert_eq!(envelope.fields, fields);
    assert_eq!(fields_end(&[&[2], &[8], &[2, 4]]), 24);
    assert_eq!(Toy::from_envelope(&envelope), Ok(message));
    assert_eq!(message.envelope().kind, 200);
}

#[test]
fn message_that_breaks_its_condition_is_refused() {
    for (from, below, good) in [(1, 2, true), (2, 2, false), (3, 2, false)] {
        let range = Toy::Range { from, below };
        let expected = if good {
            Ok(range)
        } else {
            Err(Malformed::Field)
        };
        assert_eq!(Toy::from_envelope(&range.envelope()), expected);
    }
}

#[test]
fn fields_beyond_the_envelope_are_dropped() {
    let mut writer = Fields::new([0; FIELDS]);
    for number in 0..8_u64 {
        number.write(&mut writer);
    }
    let mut reader = Fields::new(writer.bytes);
    for number in 0..6 {
        assert_eq!(u64::read(&mut reader), Ok(number));
    }
    assert_eq!(u64::read(&mut reader), Err(Malformed::Field));
    assert_eq!(u16::read(&mut reader), Err(Malformed::Field));
}

#[test]
fn malformed_reasons_are_distinct() {
    let reasons = [Malformed::Version, Malformed::Kind, Malformed::Field].map(Malformed::reason);
    assert!(reasons[0] != reasons[1] && reasons[1] != reasons[2] && reasons[2] != reasons[0]);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn encoded_envelope_decodes_to_itself(envelope in envelope()) {
        prop_assert_eq!(Envelope::decode(&envelope.encode()), Ok(envelope));
    }

    #[test]
    fn any_slot_decodes_or_has_another_version(
        bytes in prop::collection::vec(any::<u8>(), SEQUENCE_OFFSET),
    ) {
        let mut slot = [0; SEQUENCE_OFFSET];
        slot.copy_from_slice(&bytes);
        match Envelope::decode(&slot) {
            Ok(envelope) => prop_assert_eq!(envelope.encode(), slot),
            Err(error) => {
                prop_assert_eq!(error, Malformed::Version);
                prop_assert_ne!(slot[1], VERSION);
            }
        }
        slot[1] = VERSION;
        prop_assert!(Envelope::decode(&slot).is_ok());
    }

    #[test]
    fn no_service_message_decodes_only_in_its_exact_form(
        service: u16,
        target in 1_u32..,
        kind in 129_u8..,
    ) {
        let message = PeerMessage::NoService { service: ServiceId(service) };
        let envelope = message.envelope();
        prop_assert_eq!(envelope.service, ServiceId::PEER);
        prop_assert_eq!((envelope.kind, message.target()), (128, ChannelId::NONE));
        prop_assert_eq!(PeerMessage::from_envelope(&envelope), Ok(message));

        let about_a_channel = Envelope { target: ChannelId(target), ..envelope };
        prop_assert_eq!(PeerMessage::from_envelope(&about_a_channel), Err(Malformed::Field));
        let unknown = Envelope { kind, ..envelope };
        prop_assert_eq!(PeerMessage::from_envelope(&unknown), Err(Malformed::Kind));
        let anothers = Envelope { service: ServiceId::SCIF, ..envelope };
        prop_assert_eq!(PeerMessage::from_envelope(&anothers), Err(Malformed::Kind));
    }
}
