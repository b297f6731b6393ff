// SPDX-License-Identifier: GPL-2.0

//! Parameters of the module that an administrator can change while it is loaded, as they are now.
//!
//! Two that are set at load are here, too: [`aperture`], as it is a word, and [`allow_flat`], as others may
//! look at it.
//!
//! The kernel stores the others whenever somebody writes to `/sys/module/scif/parameters`, so two looks at one
//! can differ: whoever needs the same value twice keeps it. They are any number of their type.

use super::bindings as own;

#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod tests;

/// How many microseconds a call for messages or copies stays awake at most before it sleeps. Any context.
pub(crate) fn busy_poll_us() -> u32 {
    // SAFETY: It is there as long as the module is; who stores it does so in one piece, as this loads it.
    unsafe { (&raw const own::scif_tunable_busy_poll_us).read_volatile() }
}

/// Bytes up to which the CPU copies; negative for the constants of `rma/ways.rs`. Any context.
pub(crate) fn dma_threshold() -> i32 {
    // SAFETY: As above.
    unsafe { (&raw const own::scif_tunable_dma_threshold).read_volatile() }
}

/// Bytes up to which this node's engine reads from a peer, beyond which the peer's writes; negative for
/// the constant of `rma/ways.rs`. Any context.
pub(crate) fn push_threshold() -> i32 {
    // SAFETY: As above.
    unsafe { (&raw const own::scif_tunable_push_threshold).read_volatile() }
}

/// Percent of what there is for all users that one of them may have. Any context.
pub(crate) fn user_share() -> usize {
    // SAFETY: As above.
    unsafe { (&raw const own::scif_tunable_user_share).read_volatile() }.min(100) as usize
}

/// Whether peers are trusted with all memory of this machine. Any context.
pub(crate) fn allow_flat() -> bool {
    // SAFETY: As above; it is set before the module is initialised.
    unsafe { (&raw const own::scif_parameter_allow_flat).read_volatile() != 0 }
}

/// Which of `aperture_names` in `tunables.c` was chosen: the number of a mode, or 0. Any context.
pub(crate) fn aperture() -> i32 {
    // SAFETY: As above; it is set before the module is initialised.
    unsafe { (&raw const own::scif_parameter_aperture).read_volatile() }
}
