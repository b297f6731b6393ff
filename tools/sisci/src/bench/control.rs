// SPDX-License-Identifier: GPL-2.0

//! The agreement of client and server: numbers, and requests to the server's data interrupt.

/// Number of the server's segment and of both its interrupts; that of the client's is one more.
pub const ID: u32 = 0x5b00;

/// Size of the server's segment in bytes.
pub const LARGEST: usize = 4 << 20;

/// Offset in the client's segment where the server stores the number of the first message, when it
/// is ready.
pub const READY: usize = LARGEST;

/// Size of the client's segment in bytes.
pub const CLIENT: usize = LARGEST + 4096;

/// The group of broadcast segments.
pub const GROUP: u32 = 3;

/// The task of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sends back the number at the end of each message.
    PingPong,
    /// Triggers the client's interrupt for each trigger of its own.
    Interrupts,
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The task.
    pub kind: Kind,
    /// The client's node.
    pub node: u32,
    /// The client's number of segment and interrupt.
    pub id: u32,
    /// The id of the client, so that connections to an earlier client are not used.
    pub client: u32,
    /// Size of a message in bytes.
    pub size: u32,
    /// The number of the first message.
    pub first: u64,
    /// Number of messages.
    pub count: u64,
}

const BYTES: usize = 36;

impl Request {
    /// Returns the bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        let kind: u32 = match self.kind {
            Kind::PingPong => 1,
            Kind::Interrupts => 2,
        };
        let mut bytes = Vec::with_capacity(BYTES);
        for word in [kind, self.node, self.id, self.client, self.size] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes
    }

    /// Decodes received bytes. Returns none if they are no request.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let size = word(16)?;
        let fits = (8..=LARGEST).contains(&(size as usize));
        Some(Self {
            kind: match word(0)? {
                1 if fits => Kind::PingPong,
                2 => Kind::Interrupts,
                _ => return None,
            },
            node: word(4)?,
            id: word(8)?,
            client: word(12)?,
            size,
            first: long(20)?,
            count: long(28)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_request_decodes_to_itself() {
        for kind in [Kind::PingPong, Kind::Interrupts] {
            let request = Request {
                kind,
                node: 8,
                id: ID + 1,
                client: 1234,
                size: 64,
                first: 1 << 40,
                count: 7,
            };
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        assert_eq!(Request::decode(&[1; 36]), None);
        assert_eq!(Request::decode(&[]), None);
    }
}
