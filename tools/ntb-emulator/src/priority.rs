// SPDX-License-Identifier: GPL-2.0
//! Priority of the emulated devices over CPUs.
//!
//! On a real machine a bridge or an engine takes no CPU from a node. Here the devices share the
//! CPUs of one machine with nodes that poll for completion. At each step a device would wait for
//! its slice of a CPU: two copies by engines, one after the other, then take a third longer. So the
//! threads of this process are scheduled in shorter slices and with a larger share than others.
//! When they wake up, they preempt others.

use std::io;

/// Slices of at most 0.1 ms, the least that the kernel gives.
const SLICE_NS: u64 = 100_000;

/// The same as `nice -n -10`.
const NICE: i32 = -10;

/// Makes the calling thread, and threads that it starts from now on, run before those of other
/// programs. Returns an error if the user may not do that. Older kernels ignore the slices.
pub fn raise() -> io::Result<()> {
    // SAFETY: all fields are integers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of_val(&attributes) as u32;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_nice = NICE;
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the kernel reads as many bytes of it as its size says.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
