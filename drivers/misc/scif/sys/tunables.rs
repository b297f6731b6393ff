// SPDX-License-Identifier: GPL-2.0

//! Current values of the module parameters that an administrator can change at run time.
//!
//! Two parameters that are only set at load are here, too: [`aperture`], because it is a word, and
//! [`allow_flat`], because sysfs shows it.
//!
//! The kernel stores the other parameters on each write to `/sys/module/scif/parameters`, so two
//! reads can differ. A caller that needs the same value twice keeps it. Each value can be any
//! number of its type.

use super::bindings as own;

#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod tests;

/// Returns the longest time in microseconds for which a call for messages or copies polls before it
/// sleeps.
/// Context: any.
pub(crate) fn busy_poll_us() -> u32 {
    // SAFETY: The variable exists as long as the module. It is stored in one piece, and loaded in
    // one piece here.
    unsafe { (&raw const own::scif_tunable_busy_poll_us).read_volatile() }
}

/// Returns the number of bytes up to which the CPU copies; negative for the constants of
/// `rma/transfer_policy.rs`.
/// Context: any.
pub(crate) fn dma_threshold() -> i32 {
    // SAFETY: As above.
    unsafe { (&raw const own::scif_tunable_dma_threshold).read_volatile() }
}

/// Returns the number of bytes up to which this node's engine reads from a peer. The peer's engine
/// writes larger transfers. Negative for the constant of `rma/transfer_policy.rs`.
/// Context: any.
pub(crate) fn push_threshold() -> i32 {
    // SAFETY: As above.
    unsafe { (&raw const own::scif_tunable_push_threshold).read_volatile() }
}

/// Returns the percentage of a resource of all users that one user may have.
/// Context: any.
pub(crate) fn user_share() -> usize {
    // SAFETY: As above.
    unsafe { (&raw const own::scif_tunable_user_share).read_volatile() }.min(100) as usize
}

/// Returns whether peers are trusted with all memory of this machine.
/// Context: any.
pub(crate) fn allow_flat() -> bool {
    // SAFETY: As above; the variable is set before the module is initialised.
    unsafe { (&raw const own::scif_parameter_allow_flat).read_volatile() != 0 }
}

/// Returns the chosen index in `aperture_names` of `tunables.c`: the number of a mode, or 0.
/// Context: any.
pub(crate) fn aperture() -> i32 {
    // SAFETY: As above; the variable is set before the module is initialised.
    unsafe { (&raw const own::scif_parameter_aperture).read_volatile() }
}
