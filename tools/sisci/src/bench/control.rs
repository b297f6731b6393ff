// SPDX-License-Identifier: GPL-2.0

//! What client and server agree on: numbers, and requests, which go to the server's data interrupt.

/// Of the server's segment and both its interrupts; the client's are one more.
pub const ID: u32 = 0x5b00;

/// The bytes of the server's segment.
pub const LARGEST: usize = 4 << 20;

/// Where in the client's segment the server puts the number of the first message, when it is ready.
pub const READY: usize = LARGEST;

/// The bytes of the client's segment.
pub const CLIENT: usize = LARGEST + 4096;

/// The group of broadcast segments.
pub const GROUP: u32 = 3;

/// What the server is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Send back the number at the end of each message.
    PingPong,
    /// Trigger the client's interrupt for each of the own.
    Interrupts,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub kind: Kind,
    /// The client's node.
    pub node: u32,
    /// Its number of segment and interrupt.
    pub id: u32,
    /// Which client it is, so that what was connected to another one is not used.
    pub client: u32,
    /// Bytes of a message.
    pub size: u32,
    /// The number of the first message.
    pub first: u64,
    /// How many there are.
    pub count: u64,
}

const BYTES: usize = 36;

impl Request {
    /// As it is sent.
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

    /// As it comes; none if it is not one.
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
    fn requests_arrive_as_they_were() {
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
