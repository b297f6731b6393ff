// SPDX-License-Identifier: GPL-2.0

//! Memory cgroups: who pays for what is allocated on behalf of a process, by others or later.
//!
//! A thread of the kernel has no memory cgroup, so what it allocates is nobody's unless it says whose.
//!
//! C header: [`include/linux/memcontrol.h`](srctree/include/linux/memcontrol.h)

use kernel::{
    alloc::Flags,
    prelude::*, //
};

use super::bindings as own;

/// The memory cgroup of a process; that of nobody for a thread of the kernel, and where there are none.
///
/// # Invariants
///
/// `group` is null, or this owns a reference to it.
pub(crate) struct MemoryGroup {
    group: *mut c_void,
}

// SAFETY: A reference to a memory cgroup may be used, and given back, by any thread.
unsafe impl Send for MemoryGroup {}
// SAFETY: As above; nothing is changed through `&self`.
unsafe impl Sync for MemoryGroup {}

impl MemoryGroup {
    /// That of the calling task.
    pub(crate) fn current() -> Self {
        // INVARIANT: The function returns null, or a reference.
        Self {
            // SAFETY: No preconditions in a task.
            group: unsafe { own::scif_helper_current_memcg() },
        }
    }

    /// Has it pay for what `f` allocates with `GFP_KERNEL_ACCOUNT`, or [`without_waiting`], whichever task this is.
    pub(crate) fn pays_for<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: By the type invariant; it is the task's until this returns, and is kept as long.
        let before = unsafe { own::scif_helper_set_active_memcg(self.group) };
        let result = f();
        // SAFETY: It was the task's before, so somebody keeps it, or it is null.
        unsafe { own::scif_helper_set_active_memcg(before) };
        result
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { own::scif_helper_put_memcg(self.group) };
    }
}

/// Returns flags for memory that a group pays for, and that is not waited for. Who works for all users must not have them
/// wait for a group that is full.
pub(crate) fn without_waiting() -> Flags {
    GFP_NOWAIT | (GFP_KERNEL_ACCOUNT & !GFP_KERNEL)
}
