// SPDX-License-Identifier: GPL-2.0

//! The calling task: its rights, its signals, and its identity.

use core::{
    fmt::{
        self,
        Write, //
    },
    ptr, //
};

use kernel::{
    bindings,
    mm::Mm,
    prelude::*,
    sync::aref::ARef,
    task::Task, //
};

use super::bindings as own;

/// Calls a function with bottom halves disabled.
pub(crate) fn bottom_halves_disabled<R>(call: impl FnOnce() -> R) -> R {
    // SAFETY: The two calls are a pair.
    unsafe { own::scif_helper_disable_bottom_halves(true) };
    let result = call();
    // SAFETY: As above.
    unsafe { own::scif_helper_disable_bottom_halves(false) };
    result
}

/// Returns whether the calling task may bind to a port below 1024. The check is logged as a use of
/// the capability, so call this only when the answer matters.
pub(crate) fn may_bind_low_ports() -> bool {
    // SAFETY: The number is one of a capability.
    unsafe { bindings::capable(bindings::CAP_NET_BIND_SERVICE as c_int) }
}

/// Returns whether the calling task may access the memory of devices. A kernel that is locked down
/// refuses this to all processes. The check is logged as a use of the capability.
pub(crate) fn may_access_devices() -> bool {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_may_access_devices() }
}

/// Returns whether the calling task may pin memory without a limit. The check is not logged.
pub(crate) fn pins_without_limit() -> bool {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_pins_without_limit() }
}

/// Returns whether no share of a common resource limits the calling task: it has the capability for
/// that, or it is a kernel thread. The check is not logged.
pub(crate) fn has_no_share() -> bool {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_has_no_share() }
}

/// Returns whether the calling task is being killed. It should then stop work whose result no
/// process will see.
pub(crate) fn is_being_killed() -> bool {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_fatal_signal_pending() }
}

/// Returns whether a signal can still end a wait of the calling task. A task that exits gets no
/// more signals, and a kernel thread none at all. Such a task must not wait for an event that may
/// never come.
pub(crate) fn can_be_killed() -> bool {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_can_be_killed() }
}

/// Lets other tasks run that have waited for long.
/// Context: may sleep.
pub(crate) fn reschedule() {
    // SAFETY: The caller may sleep; there are no other preconditions.
    unsafe { own::scif_helper_cond_resched() }
}

/// Names the descriptor table of the calling task, for comparison with the table that
/// [`FileOperations::flush`](super::chardev::FileOperations::flush) is given.
pub(crate) fn descriptor_table() -> usize {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_current_files() as usize }
}

/// A user, to tell users apart: the user that limits apply to, not the one of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct User(u32);

impl User {
    /// Returns the user with this number.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn numbered(id: u32) -> Self {
        Self(id)
    }

    /// Returns the user of the calling task.
    pub(crate) fn current() -> Self {
        // SAFETY: No preconditions.
        Self(unsafe { own::scif_helper_current_uid() })
    }
}

/// Size in bytes of a process's name, with at least one 0 at the end (`TASK_COMM_LEN`).
const NAME_LEN: usize = 16;

/// The identity of a process, for people: its name and user when the identity was taken.
#[derive(Clone)]
pub(crate) struct Identity {
    /// The first thread of the process. It is charged to the memory cgroup of the process, and
    /// never stands for another process, even after its end.
    process: ARef<Task>,
    /// Number of the user in the initial namespace.
    pub(crate) uid: u32,
    name: [u8; NAME_LEN],
}

impl Identity {
    /// Returns the identity of the calling task's process.
    pub(crate) fn current() -> Self {
        let mut name = [0; NAME_LEN];
        // SAFETY: The buffer has as many bytes. The leader of the calling task's group stays as
        // long as the task.
        unsafe { own::scif_helper_current_name(name.as_mut_ptr().cast(), name.len()) };
        Self {
            process: current!().group_leader().into(),
            uid: User::current().0,
            name,
        }
    }

    /// Returns the PID in the initial namespace, as long as the process exists.
    pub(crate) fn pid(&self) -> i32 {
        self.process.tgid()
    }

    /// Returns the PID as the calling task names processes. 0 if the process is gone, or the task
    /// can't name it.
    pub(crate) fn pid_for_reader(&self) -> i32 {
        self.process.tgid_nr_ns(None)
    }

    /// Returns the name as one word. Every byte that is no visible ASCII character is escaped as in
    /// `/proc/mounts`.
    pub(crate) fn name(&self) -> impl fmt::Display + '_ {
        Name(&self.name)
    }
}

struct Name<'a>(&'a [u8; NAME_LEN]);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0.iter().take_while(|byte| **byte != 0) {
            match byte {
                b'\\' => f.write_str("\\134")?,
                0x21..=0x7e => f.write_char(char::from(*byte))?,
                _ => write!(f, "\\{byte:03o}")?,
            }
        }
        Ok(())
    }
}

/// The address space of a process, to tell processes apart.
///
/// Tasks that share their memory are the same process. A child after `fork` is another one, even if
/// it has inherited a descriptor. This is only for comparison, and keeps no process from exiting.
pub(crate) struct Process {
    mm: ARef<Mm>,
}

impl Process {
    /// Returns the process of the calling task; `None` for a kernel thread.
    pub(crate) fn current() -> Option<Self> {
        let current = current!();
        let mm: &Mm = current.mm()?;
        Some(Self { mm: mm.into() })
    }

    /// Returns a number that no other address space has while this exists.
    pub(crate) fn id(&self) -> usize {
        self.mm.as_raw() as usize
    }

    /// Returns whether the calling task belongs to this process.
    pub(crate) fn is_current(&self) -> bool {
        let current = current!();
        // This holds a reference, so a newer address space can't have the same address.
        current
            .mm()
            .is_some_and(|mm| ptr::eq(mm.as_raw(), self.mm.as_raw()))
    }
}
