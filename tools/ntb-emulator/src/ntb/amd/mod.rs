// SPDX-License-Identifier: GPL-2.0
//! AMD's NTB, as ntb_hw_amd expects it: a primary and a secondary side in one chip, whose registers
//! both sides reach, eight scratchpads and sixteen doorbells of a vector each for both.
//!
//! ```text
//! chip                 both sides, and what is between them
//! bridge               that, as the rest of the emulator sees it
//! block                the registers while a guest accesses them
//! identity             what a function is
//! map                  where registers are
//! side                 what the registers of one side hold
//! events               what a side is told of the link
//! ```
//!
//! What the driver does not tell of the hardware, and is decided here:
//!
//! - A window leads where the registers of its own side say, which the driver of the other side
//!   writes. Reset clears the registers of the side that was reset: what the other one had opened
//!   for it is closed then, and where its own memory was open it still is.
//! - A limit of 0 closes a window; one behind the end of the window is that end.
//! - A doorbell interrupts when it is there and not masked and was not so before: not when it is
//!   rung again. After reset all are masked.
//! - Events are those of the link alone, never of power states or of the other side's reset. They
//!   are posted one at a time, as the driver takes no other, the next when the one before has been
//!   cleared, and those that are masked are not posted at all.
//! - After the link went down a side does not see the other one to be ready until its driver has
//!   acknowledged that the link is up. If it did earlier, the driver would take it for what was
//!   left behind, and clear what nobody sets again.

mod block;
mod bridge;
mod chip;
mod events;
mod identity;
mod map;
mod side;
#[cfg(test)]
mod tests;

pub(super) use chip::Chip;
