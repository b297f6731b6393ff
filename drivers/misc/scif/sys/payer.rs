// SPDX-License-Identifier: GPL-2.0

//! Who pays for the kernel's memory.

/// Whose memory cgroup an allocation is charged to.
///
/// What a process can make this module allocate, it pays for. What a peer makes it allocate is
/// nobody's here; it has to be bounded instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payer {
    /// The calling task's. A thread of the kernel has none: then it is as [`Payer::Nobody`].
    Caller,
    /// Nobody's, also if a process happens to be the one that calls.
    Nobody,
}
