// SPDX-License-Identifier: GPL-2.0
//! AMD's NTB, as ntb_hw_amd expects it. A primary and a secondary side are in one chip, whose
//! registers both sides reach. Each side has eight scratchpads, and sixteen doorbells of a vector
//! each.
//!
//! ```text
//! chip                 both sides, and the state between them
//! bridge               the chip, as the rest of the emulator sees it
//! block                the registers while a guest accesses them
//! identity             the identity of a function
//! map                  the places of registers
//! side                 the contents of the registers of one side
//! events               the link events that a side is told of
//! ```
//!
//! The driver does not tell everything about the hardware. This is decided here:
//!
//! - A window has its translation in the registers of its own side, which the driver of the other
//!   side writes. Reset clears the registers of the side that was reset. That closes the memory
//!   that the other side had opened for it; its own memory stays open for the other side.
//! - A limit of 0 closes a window. A limit behind the end of the window counts as that end.
//! - A doorbell interrupts when it becomes pending and unmasked, not when it is rung again. After
//!   reset all are masked.
//! - Events are those of the link alone, never of power states or of the other side's reset. They
//!   are posted one at a time, as the driver takes no other. The next one is posted when the one
//!   before was cleared. Masked events are not posted at all.
//! - After the link went down, a side does not see that the other one is ready until its driver has
//!   acknowledged that the link is up. If the driver saw it earlier, it would take the ready bit
//!   for a stale one and clear it, and no driver would set it again.

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
