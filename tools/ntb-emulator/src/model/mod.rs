// SPDX-License-Identifier: GPL-2.0
//! A model of how long links and DMA engines take on hardware, so that they take as long here. Off
//! unless the configuration has figures.
//!
//! ```text
//! pacer  bells         an engine that waits; doorbells in flight
//! pace   link          when an engine's copies are over; when transfers have passed a link
//! lane                 one direction of a link: one transfer after the other
//! figures              the figures of a link, and of an engine
//! clock  picoseconds   the time, and waiting; times
//! ```
//!
//! Only [`clock`] and its callers know real time. All else is arithmetic, to which the caller
//! passes the time. No operation is over before the model says so. It may be over later, if the
//! machine is too slow or wakes up a thread late; engines make up for that, see [`pace`].
//!
//! Not in the model:
//! - stores and loads of a CPU in a mapped window, which take the time of memory, as only the guest
//!   sees them;
//! - registers of DMA functions;
//! - the time until the effect of a posted write is seen, except for doorbells.

pub mod bells;
pub mod clock;
pub mod figures;
pub mod lane;
pub mod link;
pub mod pace;
pub mod pacer;
pub mod picoseconds;
