// SPDX-License-Identifier: GPL-2.0
//! Intel's NTBs, back to back, as ntb_hw_intel expects them: translation at the end whose
//! memory it is, scratchpads, and doorbells with a vector for each.
//!
//! ```text
//! pair                 the registers of both ends
//! bridge               that, as the rest of the emulator sees it
//! block                while a guest accesses them
//! gen3   gen5          the two personalities
//! identity             what a personality is
//! register_map         where the registers are
//! registers            what the registers of one end hold
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
