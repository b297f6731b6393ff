// SPDX-License-Identifier: GPL-2.0
//! Intel's NTBs, back to back, as ntb_hw_intel expects them. The end whose memory is behind a
//! window has its translation. There are scratchpads, and doorbells with a vector each.
//!
//! ```text
//! pair                 the registers of both ends
//! bridge               the pair, as the rest of the emulator sees it
//! block                the registers while a guest accesses them
//! gen3   gen5          the two personalities
//! identity             the differences between personalities
//! register_map         the places of the registers
//! registers            the contents of the registers of one end
//! ```

mod block;
mod bridge;
mod gen3;
mod gen5;
mod identity;
mod pair;
mod register_map;
mod registers;
#[cfg(test)]
mod tests;

pub(super) use pair::Pair;
