// SPDX-License-Identifier: LGPL-2.1

//! Numbers that no other process can guess.

use rustix::io::retry_on_intr;
use rustix::rand::GetRandomFlags;
use rustix::rand::getrandom;

use crate::error::Error;
use crate::error::Result;

/// Returns a random number of 64 bits that is never 0.
pub fn number() -> Result<u64> {
    loop {
        let mut bytes = [0u8; 8];
        // The call waits until the kernel has enough random bytes, and a signal can interrupt it.
        let count = retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
        if count != bytes.len() {
            return Err(Error::SYSTEM);
        }
        match u64::from_ne_bytes(bytes) {
            0 => continue,
            number => return Ok(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_distinct() {
        let numbers: std::collections::BTreeSet<_> = (0..1000).flat_map(|_| number()).collect();
        assert_eq!(numbers.len(), 1000);
        // Both halves differ from number to number.
        let low: std::collections::BTreeSet<_> = numbers.iter().map(|n| *n as u32).collect();
        let high: std::collections::BTreeSet<_> = numbers.iter().map(|n| n >> 32).collect();
        assert!(low.len() > 900 && high.len() > 900);
    }
}
