// SPDX-License-Identifier: GPL-2.0
//! IDT's switches (89HPESx) as ntb_hw_idt expects them: two ports with an NT function each, in
//! partitions of their own. The end that uses a window sets its translation. There are message
//! registers, one doorbell register for all, and one vector.
//!
//! ```text
//! switch               both functions, and the state that they share
//! bridge               the switch, as the rest of the emulator sees it
//! block                the registers while a guest accesses them
//! identity             the identity of a function, and the setup of its BARs
//! map                  the places of registers: a function's, and the switch's
//! function             the contents of the registers of one function
//! events               the events of ports and partitions, and the partitions that are told
//! ```
//!
//! The driver does not tell everything about the hardware. This is decided here:
//!
//! - Both ends share one doorbell register: an end sees the doorbells that it rings itself, and
//!   clearing a bit clears it for both. All permissions (which only an EEPROM or BIOS sets) are
//!   granted.
//! - A kind of event interrupts when it becomes pending in `NTINTSTS` and unmasked, not when more
//!   events of the same kind follow.
//! - A message to a full register, or to a port that is not present, is not delivered, and the
//!   sender's status reports that.
//! - Before the first translation, a window leads nowhere.
//! - Requester ids are not compared with the mapping table: an engine passes where a CPU does.

mod block;
mod bridge;
mod events;
mod function;
mod identity;
mod map;
mod switch;
#[cfg(test)]
mod tests;

pub(super) use switch::Switch;
