// SPDX-License-Identifier: GPL-2.0
//! IDT's switches (89HPESx) as ntb_hw_idt expects them: two ports with an NT function each, in
//! partitions of their own. The end that uses a window says where it leads to; there are
//! message registers, one doorbell register for all, and one vector.
//!
//! ```text
//! switch               both functions, and what they share
//! bridge               that, as the rest of the emulator sees it
//! block                the registers while a guest accesses them
//! identity             what a function is, and how its BARs are set up
//! map                  where registers are: a function's, and the switch's
//! function             what the registers of one function hold
//! events               what happens to ports and partitions, and who is told
//! ```
//!
//! What the driver does not tell of the hardware, and is decided here:
//!
//! - The doorbell register is one for both: what an end rings it sees itself, and who clears
//!   a bit clears it for both. All permissions (which nothing but an EEPROM or BIOS sets) are
//!   there.
//! - An interrupt for each kind of event that was not there before and is now, in `NTINTSTS` and
//!   not masked; not for more of the same kind.
//! - A message to a full register, or to a port that is not there, is not delivered, and the
//!   sender's status says so.
//! - Before the first translation, a window leads nowhere.
//! - Requester ids are not compared with the mapping table: an engine passes where a processor
//!   does.

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
