// SPDX-License-Identifier: GPL-2.0

//! Memory cgroups, which pay for memory that is allocated later or by another task on behalf of a
//! process.
//!
//! A kernel thread has no memory cgroup, so its allocations are charged to none unless it names
//! one.
//!
//! C header: [`include/linux/memcontrol.h`](srctree/include/linux/memcontrol.h)

use kernel::{
    alloc::Flags,
    prelude::*, //
};

use super::bindings as own;

/// The memory cgroup of a process. It is null for a kernel thread, and on kernels without memory
/// cgroups.
///
/// # Invariants
///
/// `group` is null, or this owns a reference to it.
pub(crate) struct MemoryGroup {
    group: *mut c_void,
}

// SAFETY: Any thread may use a reference to a memory cgroup, and give it back.
unsafe impl Send for MemoryGroup {}
// SAFETY: As above. No method changes anything through `&self`.
unsafe impl Sync for MemoryGroup {}

impl MemoryGroup {
    /// Returns the memory cgroup of the calling task.
    pub(crate) fn current() -> Self {
        // INVARIANT: The helper returns null or a reference.
        Self {
            // SAFETY: No preconditions in a task.
            group: unsafe { own::scif_helper_current_memcg() },
        }
    }

    /// Calls `f`, and makes this group pay for what `f` allocates with `GFP_KERNEL_ACCOUNT` or
    /// [`without_waiting`], whichever task calls.
    pub(crate) fn pays_for<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: By the type invariant. The group is the task's until this returns, and is kept as
        // long.
        let before = unsafe { own::scif_helper_set_active_memcg(self.group) };
        let result = f();
        // SAFETY: `before` was the task's active group until now, so it is null or has another
        // owner.
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

/// Returns flags for memory that a group pays for, without waiting for memory. Code that works for
/// all users must not make them wait for a full group.
pub(crate) fn without_waiting() -> Flags {
    GFP_NOWAIT | (GFP_KERNEL_ACCOUNT & !GFP_KERNEL)
}
