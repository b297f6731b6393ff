// SPDX-License-Identifier: GPL-2.0

//! Tests that exactly the encoded messages can be decoded.

use super::*;
use proptest::prelude::*;

fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
    let (header, payload) = bytes
        .split_first_chunk()
        .ok_or(Malformed("a header too short"))?;
    let header = Header::decode(*header)?;
    let payload = payload
        .get(..header.length)
        .ok_or(Malformed("a message too short"))?;
    Message::decode(header, payload)
}

fn window() -> impl Strategy<Value = Window> {
    (
        0..i64::MAX / 2,
        Window::SMALLEST..=Window::LARGEST,
        1..=Window::MOST,
    )
        .prop_map(|(offset, buffer, buffers)| Window {
            offset,
            buffer,
            buffers,
        })
}

fn bytes(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..=longest)
}

fn message() -> impl Strategy<Value = Message> {
    let size = 0..=i64::MAX as u64;
    prop_oneof![
        any::<u16>().prop_map(|version| Message::Hello { version }),
        "[ -~]{0,40}".prop_map(|text| Message::Failure { text }),
        bytes(100).prop_map(|bytes| Message::Ping { bytes }),
        bytes(100).prop_map(|bytes| Message::Pong { bytes }),
        (0..=0o7777u32, size.clone(), bytes(50), bytes(50)).prop_map(|(mode, size, path, name)| {
            Message::Put {
                mode,
                size,
                path,
                name,
            }
        }),
        (bytes(50), window()).prop_map(|(path, window)| Message::Get { path, window }),
        window().prop_map(|window| Message::Ready { window }),
        (0..=0o7777u32, size).prop_map(|(mode, size)| Message::Found { mode, size }),
        any::<(u64, u32)>().prop_map(|(sequence, length)| Message::Chunk { sequence, length }),
        any::<u64>().prop_map(|sequence| Message::Credit { sequence }),
        any::<Hash>().prop_map(|hash| Message::End { hash }),
        any::<Hash>().prop_map(|hash| Message::Done { hash }),
        any::<u32>().prop_map(|size| Message::Bench { size }),
        (1..=Raw::LARGEST, any::<u64>(), any::<(bool, bool)>()).prop_map(
            |(size, count, (back, polling))| Message::Raw(Raw {
                size,
                count,
                back,
                polling
            })
        ),
        Just(Message::Go),
        any::<u32>().prop_map(|count| Message::Accept { count }),
        Just(Message::Ring),
        any::<u16>().prop_map(|port| Message::Listening { port }),
    ]
}

proptest! {
    #[test]
    fn encoded_message_decodes_to_itself(message in message()) {
        prop_assert_eq!(decode(&message.encode()), Ok(message));
    }

    #[test]
    fn truncated_message_is_refused(message in message(), cut in 1usize..40) {
        let bytes = message.encode();
        let end = bytes.len().saturating_sub(cut);
        prop_assert!(decode(&bytes[..end]).is_err());
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(kind in 0u32..20, payload in bytes(200)) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend(payload);
        // Each accepted message has exactly one form.
        if let Ok(message) = decode(&bytes) {
            if !matches!(message, Message::Failure { .. }) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}

#[test]
fn lengths_beyond_the_limits_are_refused() {
    let mut header = [0; HEADER];
    header[0] = 3;
    header[4..].copy_from_slice(&(LARGEST as u32 + 1).to_le_bytes());
    assert!(Header::decode(header).is_err());
    for (buffer, buffers, offset) in [
        (0, 1, 0),
        (4096, 0, 0),
        (4096, 65, 0),
        (u32::MAX, 1, 0),
        (u32::MAX, u32::MAX, 0),
        (4096, 1, -1),
        (4096, 1, i64::MAX),
    ] {
        let window = Window {
            offset,
            buffer,
            buffers,
        };
        assert!(decode(&Message::Ready { window }.encode()).is_err());
    }
}

#[test]
fn text_of_a_peer_is_escaped_and_shortened() {
    let text = "\x1b[2Jgone\n".to_owned();
    let Ok(Message::Failure { text }) = decode(&Message::Failure { text }.encode()) else {
        panic!("not decoded");
    };
    assert_eq!(text, "\\u{1b}[2Jgone\\n");
    let long = "ä".repeat(LONGEST_TEXT);
    assert!(decode(&Message::Failure { text: long }.encode()).is_ok());
}
