// SPDX-License-Identifier: GPL-2.0

//! The parts of a message: numbers are little-endian, and bytes of any number have it in front.

/// Bytes that are no message, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// A message that is being made.
pub struct Out(pub Vec<u8>);

impl Out {
    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A number of 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// A number of 64 bits.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Bytes, with their number in front.
    pub fn string(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.bytes(bytes);
    }
}

/// What is left of a message that is being taken apart.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// That many bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Malformed("a message too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Bytes of a fixed number.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// A number of 16 bits.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// A number of 32 bits.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A number of 64 bits.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The mode of a file.
    pub fn mode(&mut self) -> Result<u32, Malformed> {
        match self.u32()? {
            mode if mode & !0o7777 == 0 => Ok(mode),
            _ => Err(Malformed("a mode that is none")),
        }
    }

    /// The size of a file.
    pub fn size(&mut self) -> Result<u64, Malformed> {
        match self.u64()? {
            size if i64::try_from(size).is_ok() => Ok(size),
            _ => Err(Malformed("a file too large to exist")),
        }
    }

    /// Bytes with their number in front, which is not believed beyond `longest`.
    pub fn string(&mut self, longest: usize) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        if length > longest {
            return Err(Malformed("a text too long"));
        }
        self.take(length)
    }
}
