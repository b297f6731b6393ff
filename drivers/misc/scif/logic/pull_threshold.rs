// SPDX-License-Identifier: GPL-2.0

//! From which size on it is better to have the peer write than to read.
//!
//! Both take a time for each byte, and having it written takes some to ask besides.

/// Who reads is clearly slower if writing takes at most two thirds of the time: less may be chance, and
/// hardly worth the trouble to two nodes.
const CLEARLY: (u64, u64) = (2, 3);

/// It has to be as much faster as this at least, however little asking takes.
const LEAST: u64 = 64 << 10;

/// The size in bytes from which on writing is faster, where `size` bytes took so long to `read` and to
/// `write`, and it takes `asking` to have it done, all in the same unit; none if reading is not clearly
/// slower.
pub(crate) fn even_at(size: u64, (read, write): (u64, u64), asking: u64) -> Option<u64> {
    let (part, whole) = CLEARLY;
    if write.saturating_mul(whole) > read.saturating_mul(part) {
        return None;
    }
    let saved = read.checked_sub(write)?;
    let even = asking.saturating_mul(size).checked_div(saved)?;
    Some(even.max(LEAST))
}
