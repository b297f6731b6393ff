// SPDX-License-Identifier: GPL-2.0

//! The messages between `scif serve` and its clients, and their bytes.
//!
//! A message is a header of two little-endian 32-bit words, kind and length, then that many
//! bytes. Every kind has an exact form: a message that is longer, shorter or not of that form is refused as a
//! whole, and no length is believed beyond [`LARGEST`]. File content never travels in messages: it
//! goes through registered windows, and a message tells that it is there.
//!
//! ```text
//! client                         server
//! Hello          ->
//!                <-              Hello
//! Ping           ->                             any number of times
//!                <-              Pong           the same bytes
//! Put            ->                             a file for the server
//!                <-              Ready          the server's window
//! Chunk          ->                             after each DMA into the window
//!                <-              Credit         the buffer may be used again
//! End            ->                             all sent; the sender's hash
//!                <-              Done           on disk under its name; the receiver's hash
//! Get            ->                             a file for the client, with its window
//!                <-              Found, Chunk...; then as above with the roles exchanged
//! Bench          ->
//!                <-              Ready          a window to read from and write to
//! ```
//! Either side may send `Failure` instead of any of these and the conversation is over. `Done` with a
//! hash that is not the sender's means that the content was thrown away. Encoding and decoding only; what may follow what is decided in [`crate::server`] and [`crate::transfer`].

mod fields;
mod window;

use fields::Fields;
use fields::Out;

pub use fields::Malformed;
pub use window::Window;

/// The version of the protocol; both sides must have the same.
pub const VERSION: u16 = 1;
/// The most bytes that may follow a header.
pub const LARGEST: usize = 64 * 1024;
/// The bytes of a header.
pub const HEADER: usize = 8;
/// The longest path, as the kernel has it.
pub const LONGEST_PATH: usize = 4096;
/// The longest name of a file.
pub const LONGEST_NAME: usize = 255;
/// The longest text of a failure.
pub const LONGEST_TEXT: usize = 1024;
/// The most bytes of a ping.
pub const LARGEST_PING: usize = LARGEST;

const MAGIC: [u8; 8] = *b"scifserv";

/// A SHA-256.
pub type Hash = [u8; 32];

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first message of either side.
    Hello {
        /// The version the sender speaks.
        version: u16,
    },
    /// The request failed, or is given up.
    Failure {
        /// Why, for a person.
        text: String,
    },
    /// Asks for a [`Message::Pong`].
    Ping {
        /// Any bytes.
        bytes: Vec<u8>,
    },
    /// The answer to [`Message::Ping`].
    Pong {
        /// The bytes that came.
        bytes: Vec<u8>,
    },
    /// Wants to send a file.
    Put {
        /// Its permission bits.
        mode: u32,
        /// Its size.
        size: u64,
        /// Where to: a file, or a directory.
        path: Vec<u8>,
        /// The name to use in a directory.
        name: Vec<u8>,
    },
    /// Wants to have a file.
    Get {
        /// Which.
        path: Vec<u8>,
        /// The window it is to be written to.
        window: Window,
    },
    /// Go ahead, into this window.
    Ready {
        /// The window.
        window: Window,
    },
    /// There is such a file and it comes.
    Found {
        /// Its permission bits.
        mode: u32,
        /// Its size.
        size: u64,
    },
    /// A buffer of the window has been filled.
    Chunk {
        /// Counted from 0.
        sequence: u64,
        /// Bytes in the buffer.
        length: u32,
    },
    /// A buffer of the window may be filled again.
    Credit {
        /// The chunk that was in it.
        sequence: u64,
    },
    /// All has been sent.
    End {
        /// The hash of what has been sent.
        hash: Hash,
    },
    /// All has arrived and is on disk, if the hash is that of [`Message::End`].
    Done {
        /// The hash of what has arrived.
        hash: Hash,
    },
    /// Wants a window to measure with.
    Bench {
        /// Its size.
        size: u32,
    },
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: u32,
    /// The bytes that follow.
    pub length: usize,
}

impl Header {
    /// Decodes a header; the length is in bounds then.
    pub fn decode(bytes: [u8; HEADER]) -> Result<Self, Malformed> {
        let mut fields = Fields(&bytes);
        let kind = fields.u32()?;
        let length = fields.u32()? as usize;
        if length > LARGEST {
            return Err(Malformed("a message too long"));
        }
        Ok(Self { kind, length })
    }
}

impl Message {
    /// The bytes of the message, header and all.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out(vec![0; HEADER]);
        let kind: u32 = match self {
            Self::Hello { version } => {
                out.bytes(&MAGIC);
                out.bytes(&version.to_le_bytes());
                1
            }
            Self::Failure { text } => {
                out.string(cut(text).as_bytes());
                2
            }
            Self::Ping { bytes } => {
                out.bytes(bytes);
                3
            }
            Self::Pong { bytes } => {
                out.bytes(bytes);
                4
            }
            Self::Put {
                mode,
                size,
                path,
                name,
            } => {
                out.u32(*mode);
                out.u64(*size);
                out.string(path);
                out.string(name);
                5
            }
            Self::Get { path, window } => {
                out.string(path);
                window.encode(&mut out);
                6
            }
            Self::Ready { window } => {
                window.encode(&mut out);
                7
            }
            Self::Found { mode, size } => {
                out.u32(*mode);
                out.u64(*size);
                8
            }
            Self::Chunk { sequence, length } => {
                out.u64(*sequence);
                out.u32(*length);
                9
            }
            Self::Credit { sequence } => {
                out.u64(*sequence);
                10
            }
            Self::End { hash } => {
                out.bytes(hash);
                11
            }
            Self::Done { hash } => {
                out.bytes(hash);
                12
            }
            Self::Bench { size } => {
                out.u32(*size);
                13
            }
        };
        let mut bytes = out.0;
        let length = (bytes.len() - HEADER) as u32;
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..HEADER].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Decodes what followed `header`.
    pub fn decode(header: Header, payload: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(payload);
        let message = match header.kind {
            1 => {
                if fields.take(MAGIC.len())? != MAGIC {
                    return Err(Malformed("a greeting of something else"));
                }
                Self::Hello {
                    version: fields.u16()?,
                }
            }
            2 => Self::Failure {
                text: printable(fields.string(LONGEST_TEXT)?),
            },
            3 => Self::Ping {
                bytes: fields.rest().to_vec(),
            },
            4 => Self::Pong {
                bytes: fields.rest().to_vec(),
            },
            5 => Self::Put {
                mode: fields.mode()?,
                size: fields.size()?,
                path: fields.string(LONGEST_PATH)?.to_vec(),
                name: fields.string(LONGEST_NAME)?.to_vec(),
            },
            6 => Self::Get {
                path: fields.string(LONGEST_PATH)?.to_vec(),
                window: Window::decode(&mut fields)?,
            },
            7 => Self::Ready {
                window: Window::decode(&mut fields)?,
            },
            8 => Self::Found {
                mode: fields.mode()?,
                size: fields.size()?,
            },
            9 => Self::Chunk {
                sequence: fields.u64()?,
                length: fields.u32()?,
            },
            10 => Self::Credit {
                sequence: fields.u64()?,
            },
            11 => Self::End {
                hash: fields.array()?,
            },
            12 => Self::Done {
                hash: fields.array()?,
            },
            13 => Self::Bench {
                size: fields.u32()?,
            },
            _ => return Err(Malformed("a message of an unknown kind")),
        };
        if fields.0.is_empty() {
            Ok(message)
        } else {
            Err(Malformed("a message with something behind its end"))
        }
    }

    /// What kind it is, for error messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "Hello",
            Self::Failure { .. } => "Failure",
            Self::Ping { .. } => "Ping",
            Self::Pong { .. } => "Pong",
            Self::Put { .. } => "Put",
            Self::Get { .. } => "Get",
            Self::Ready { .. } => "Ready",
            Self::Found { .. } => "Found",
            Self::Chunk { .. } => "Chunk",
            Self::Credit { .. } => "Credit",
            Self::End { .. } => "End",
            Self::Done { .. } => "Done",
            Self::Bench { .. } => "Bench",
        }
    }
}

/// Text of a peer, without what could play tricks with a terminal.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut clean = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            clean.extend(character.escape_default());
        } else {
            clean.push(character);
        }
    }
    clean
}

/// As much of a text as fits.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
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
            (0..=0o7777u32, size.clone(), bytes(50), bytes(50)).prop_map(
                |(mode, size, path, name)| Message::Put {
                    mode,
                    size,
                    path,
                    name
                }
            ),
            (bytes(50), window()).prop_map(|(path, window)| Message::Get { path, window }),
            window().prop_map(|window| Message::Ready { window }),
            (0..=0o7777u32, size).prop_map(|(mode, size)| Message::Found { mode, size }),
            any::<(u64, u32)>().prop_map(|(sequence, length)| Message::Chunk { sequence, length }),
            any::<u64>().prop_map(|sequence| Message::Credit { sequence }),
            any::<Hash>().prop_map(|hash| Message::End { hash }),
            any::<Hash>().prop_map(|hash| Message::Done { hash }),
            any::<u32>().prop_map(|size| Message::Bench { size }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(message in message()) {
            prop_assert_eq!(decode(&message.encode()), Ok(message));
        }

        #[test]
        fn a_cut_message_is_refused(message in message(), cut in 1usize..40) {
            let bytes = message.encode();
            let end = bytes.len().saturating_sub(cut);
            prop_assert!(decode(&bytes[..end]).is_err());
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(kind in 0u32..16, payload in bytes(200)) {
            let mut bytes = kind.to_le_bytes().to_vec();
            bytes.extend((payload.len() as u32).to_le_bytes());
            bytes.extend(payload);
            // What is accepted has exactly one form.
            if let Ok(message) = decode(&bytes) {
                if !matches!(message, Message::Failure { .. }) {
                    prop_assert_eq!(message.encode(), bytes);
                }
            }
        }
    }

    #[test]
    fn lengths_are_bounded() {
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
    fn text_of_a_peer_cannot_control_the_terminal() {
        let text = "\x1b[2Jgone\n".to_owned();
        let Ok(Message::Failure { text }) = decode(&Message::Failure { text }.encode()) else {
            panic!("not decoded");
        };
        assert_eq!(text, "\\u{1b}[2Jgone\\n");
        let long = "ä".repeat(LONGEST_TEXT);
        assert!(decode(&Message::Failure { text: long }.encode()).is_ok());
    }
}
