// SPDX-License-Identifier: GPL-2.0

//! The fields of a message: numbers are little-endian, and bytes of variable number have their
//! number in front.

/// The error for bytes that are no message, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// A message that is being encoded.
pub struct Out(pub Vec<u8>);

impl Out {
    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends a number of 32 bits.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends a number of 64 bits.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends bytes, with their number in front.
    pub fn string(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.bytes(bytes);
    }
}

/// The rest of a message that is being decoded.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    /// Takes `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(Malformed("a message too short"))?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Takes the rest.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Takes a fixed number of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// Takes a number of 16 bits.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Takes a number of 32 bits.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Takes a number of 64 bits.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Takes the mode of a file.
    pub fn mode(&mut self) -> Result<u32, Malformed> {
        match self.u32()? {
            mode if mode & !0o7777 == 0 => Ok(mode),
            _ => Err(Malformed("a mode that is none")),
        }
    }

    /// Takes the size of a file.
    pub fn size(&mut self) -> Result<u64, Malformed> {
        match self.u64()? {
            size if i64::try_from(size).is_ok() => Ok(size),
            _ => Err(Malformed("a file too large to exist")),
        }
    }

    /// Takes bytes with their number in front. A number above `longest` is an error.
    pub fn string(&mut self, longest: usize) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        if length > longest {
            return Err(Malformed("a text too long"));
        }
        self.take(length)
    }
}
