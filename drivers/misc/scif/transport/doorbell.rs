// SPDX-License-Identifier: GPL-2.0

//! What the doorbells of a path are for.

/// Announces control messages.
pub(crate) const CONTROL: u32 = 0;
/// Announces news in the scratchpads, or the end of a session.
pub(crate) const HELLO: u32 = 1;
/// The first of those that announce data, which services share out.
pub(crate) const DATA: u32 = 2;
/// No path has more than this.
pub(crate) const COUNT: usize = 64;

/// The doorbells that are set among bits.
pub(crate) fn numbers(mut bits: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let first = bits.trailing_zeros();
        bits &= bits.checked_sub(1)?;
        Some(first)
    })
}

/// A doorbell as a bit; none for a number that is too large.
pub(crate) fn bit(doorbell: u32) -> u64 {
    1u64.checked_shl(doorbell).unwrap_or(0)
}
