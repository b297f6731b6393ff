// SPDX-License-Identifier: GPL-2.0
//! What links and DMA engines take on hardware, so that it takes as long here. Off unless
//! the configuration has it.
//!
//! ```text
//! pacer  bells         an engine that waits; doorbells under way
//! pace   link          when an engine's copies are over; what passes a link, and when
//! lane                 one direction of a link: one thing after the other
//! figures              what there is to know of a link, and of an engine
//! clock  picoseconds   what time it is, and waiting; times
//! ```
//!
//! All but [`clock`], and who uses it, is arithmetic: who asks says what time it is. Nothing
//! is over before the model says so. It may be later, if the machine is too slow or wakes
//! somebody late; engines make up for that, see [`pace`].
//!
//! Not in the model: what a processor stores to and loads from a mapped window, which takes
//! what memory takes, as nobody but the guest is asked; registers of DMA functions; and how
//! long it takes until what a posted write has changed is seen, but for doorbells.

pub mod bells;
pub mod clock;
pub mod figures;
pub mod lane;
pub mod link;
pub mod pace;
pub mod pacer;
pub mod picoseconds;
