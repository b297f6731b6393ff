// SPDX-License-Identifier: GPL-2.0

//! The messages between `scif serve` and its clients, and their bytes.
//!
//! A message is a header of two little-endian 32-bit words, kind and length, and then that many
//! bytes. Every kind has an exact form: a message of another form or length is refused as a whole,
//! and no length is accepted beyond [`LARGEST`]. File content never travels in messages. It goes
//! through registered windows, and a message tells that it is there.
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
//! Raw            ->                             this many messages of one size follow
//!                <-              Go
//! bytes          ->                             without any header
//!                <-              bytes          each message back; or Go, when all have come
//! Accept         ->                             this many connections follow
//!                <-              Listening      on this port
//! Go             ->                             they have all been made
//!                <-              Go             and are closed here
//! Ring           ->                             a ring of `libscif_ring` is to be made
//!                <-              Go             and carries another conversation, the last one
//! ```
//! Either side may send `Failure` instead of any message, and the conversation is over. `Done` with
//! another hash than the sender's means that the content was thrown away. This module only encodes
//! and decodes. [`crate::server`] and [`crate::transfer`] decide which message may follow which.

mod fields;
mod raw;
mod window;

use fields::Fields;
use fields::Out;

pub use fields::Malformed;
pub use raw::Raw;
pub use window::Window;

/// The version of the protocol; both sides must have the same.
pub const VERSION: u16 = 1;
/// Largest number of bytes behind a header.
pub const LARGEST: usize = 64 * 1024;
/// Size of a header in bytes.
pub const HEADER: usize = 8;
/// The longest path, as in the kernel.
pub const LONGEST_PATH: usize = 4096;
/// The longest name of a file.
pub const LONGEST_NAME: usize = 255;
/// The longest text of a failure.
pub const LONGEST_TEXT: usize = 1024;
/// Largest number of bytes of a ping.
pub const LARGEST_PING: usize = LARGEST;

const MAGIC: [u8; 8] = *b"scifserv";

/// A SHA-256 hash.
pub type Hash = [u8; 32];

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first message of either side.
    Hello {
        /// The version of the sender.
        version: u16,
    },
    /// The request has failed, or the sender gives it up.
    Failure {
        /// The reason, for a person.
        text: String,
    },
    /// Asks for a [`Message::Pong`].
    Ping {
        /// Any bytes.
        bytes: Vec<u8>,
    },
    /// The answer to [`Message::Ping`].
    Pong {
        /// The bytes of the ping.
        bytes: Vec<u8>,
    },
    /// Asks to send a file.
    Put {
        /// The permission bits of the file.
        mode: u32,
        /// The size of the file.
        size: u64,
        /// The target: a file, or a directory.
        path: Vec<u8>,
        /// The name of the file in a directory.
        name: Vec<u8>,
    },
    /// Asks for a file.
    Get {
        /// The path.
        path: Vec<u8>,
        /// The window to write the file to.
        window: Window,
    },
    /// Accepts the request; the content goes into this window.
    Ready {
        /// The window.
        window: Window,
    },
    /// Announces the requested file.
    Found {
        /// The permission bits of the file.
        mode: u32,
        /// The size of the file.
        size: u64,
    },
    /// Announces that a buffer of the window was filled.
    Chunk {
        /// The number of the chunk, counted from 0.
        sequence: u64,
        /// Number of bytes in the buffer.
        length: u32,
    },
    /// Allows to fill a buffer of the window again.
    Credit {
        /// The number of the chunk that was in the buffer.
        sequence: u64,
    },
    /// Ends the content.
    End {
        /// The hash of the sent content.
        hash: Hash,
    },
    /// Confirms that all has arrived and is on disk, if the hash is that of [`Message::End`].
    Done {
        /// The hash of the received content.
        hash: Hash,
    },
    /// Asks for a window for measurements.
    Bench {
        /// The size of the window.
        size: u32,
    },
    /// Announces messages for measurements.
    Raw(Raw),
    /// Accepts a request; or confirms that all is done.
    Go,
    /// Asks to make connections for a measurement.
    Accept {
        /// Number of connections.
        count: u32,
    },
    /// Asks to measure over a ring.
    Ring,
    /// Accepts connections.
    Listening {
        /// The port.
        port: u16,
    },
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: u32,
    /// Number of bytes that follow.
    pub length: usize,
}

impl Header {
    /// Decodes a header. The length of the result is in bounds.
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
    /// Encodes the message, with its header.
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
            Self::Raw(raw) => {
                raw.encode(&mut out);
                14
            }
            Self::Go => 15,
            Self::Accept { count } => {
                out.u32(*count);
                16
            }
            Self::Listening { port } => {
                out.bytes(&port.to_le_bytes());
                17
            }
            Self::Ring => 18,
        };
        let mut bytes = out.0;
        let length = (bytes.len() - HEADER) as u32;
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..HEADER].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Decodes the bytes behind `header`.
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
            14 => Self::Raw(Raw::decode(&mut fields)?),
            15 => Self::Go,
            16 => Self::Accept {
                count: fields.u32()?,
            },
            17 => Self::Listening {
                port: fields.u16()?,
            },
            18 => Self::Ring,
            _ => return Err(Malformed("a message of an unknown kind")),
        };
        if fields.0.is_empty() {
            Ok(message)
        } else {
            Err(Malformed("a message with something behind its end"))
        }
    }

    /// Returns the kind of the message, for error messages.
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
            Self::Raw(_) => "Raw",
            Self::Go => "Go",
            Self::Accept { .. } => "Accept",
            Self::Listening { .. } => "Listening",
            Self::Ring => "Ring",
        }
    }
}

/// Returns text of a peer without characters that a terminal would interpret.
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

/// Returns as much of a text as fits.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
