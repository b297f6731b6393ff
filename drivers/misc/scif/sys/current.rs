// SPDX-License-Identifier: GPL-2.0

//! Who is calling.

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

/// Whether the calling task may bind to a port below 1024. Asking is logged as using the right, so ask when
/// it matters only.
pub(crate) fn may_bind_low_ports() -> bool {
    // SAFETY: The number is one of a capability.
    unsafe { bindings::capable(bindings::CAP_NET_BIND_SERVICE as c_int) }
}

/// Whether the calling task has access to the memory of devices, which a kernel that is locked down keeps
/// from everybody. Asking is logged likewise.
pub(crate) fn may_access_devices() -> bool {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_may_access_devices() }
}

/// Whether the calling task may pin memory without a limit. This is not logged.
pub(crate) fn pins_without_limit() -> bool {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_pins_without_limit() }
}

/// Whether the calling task may have what there is without a limit, as one with the right to that, or as a thread of the
/// kernel. This is not logged.
pub(crate) fn has_no_share() -> bool {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_has_no_share() }
}

/// Whether the calling task is being killed: what it does for nobody it should stop doing.
pub(crate) fn is_being_killed() -> bool {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_fatal_signal_pending() }
}

/// Whether a signal can still end a wait of the calling task. One that exits gets no more signals,
/// and a kernel thread none at all: such a task must not wait for what may never come.
pub(crate) fn can_be_killed() -> bool {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_can_be_killed() }
}

/// Lets others run who have waited for long. May sleep.
pub(crate) fn reschedule() {
    // SAFETY: No preconditions but that it may sleep.
    unsafe { own::scif_helper_cond_resched() }
}

/// Names the table of descriptors that the calling task uses, for comparison with what
/// [`FileOperations::flush`](super::chardev::FileOperations::flush) is told.
pub(crate) fn descriptor_table() -> usize {
    // SAFETY: No preconditions.
    unsafe { own::scif_helper_current_files() as usize }
}

/// A user, to tell users apart: that of the limits, not that of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct User(u32);

impl User {
    /// One with this number.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn numbered(id: u32) -> Self {
        Self(id)
    }

    /// That of the calling task.
    pub(crate) fn current() -> Self {
        // SAFETY: No preconditions.
        Self(unsafe { own::scif_helper_current_uid() })
    }
}

/// Bytes of a process's name, with at least one 0 at the end (`TASK_COMM_LEN`).
const NAME_LEN: usize = 16;

/// A process, for people: what it was called and who it was when it was asked.
#[derive(Clone)]
pub(crate) struct Identity {
    /// Its first thread. What is kept of it when it has ended never becomes another process; it is charged to the
    /// memory cgroup of the process.
    process: ARef<Task>,
    /// In the initial namespace.
    pub(crate) uid: u32,
    name: [u8; NAME_LEN],
}

impl Identity {
    /// That of the calling task.
    pub(crate) fn current() -> Self {
        let mut name = [0; NAME_LEN];
        // SAFETY: There is room for so many bytes. The leader of the calling task's group stays as
        // long as the task.
        unsafe { own::scif_helper_current_name(name.as_mut_ptr().cast(), name.len()) };
        Self {
            process: current!().group_leader().into(),
            uid: User::current().0,
            name,
        }
    }

    /// Its PID in the initial namespace, as long as it is there.
    pub(crate) fn pid(&self) -> i32 {
        self.process.tgid()
    }

    /// Its PID as the calling task names processes; 0 if the process is gone, or the task can't name it.
    pub(crate) fn pid_for_reader(&self) -> i32 {
        self.process.tgid_nr_ns(None)
    }

    /// Its name, as one word: what is no visible ASCII character is escaped as `/proc/mounts` does it.
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
/// Tasks that share their memory are the same; a child after `fork` is another one, even with a
/// descriptor that it has inherited. It is compared only: nothing is kept from exiting.
pub(crate) struct Process {
    mm: ARef<Mm>,
}

impl Process {
    /// That of the calling task; `None` for a kernel thread.
    pub(crate) fn current() -> Option<Self> {
        let current = current!();
        let mm: &Mm = current.mm()?;
        Some(Self { mm: mm.into() })
    }

    /// A number that no other address space has as long as this is known.
    pub(crate) fn id(&self) -> usize {
        self.mm.as_raw() as usize
    }

    /// Whether the calling task belongs to it.
    pub(crate) fn is_current(&self) -> bool {
        let current = current!();
        // This holds a reference, so the address cannot be that of a newer one.
        current
            .mm()
            .is_some_and(|mm| ptr::eq(mm.as_raw(), self.mm.as_raw()))
    }
}
