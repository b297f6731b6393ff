// SPDX-License-Identifier: GPL-2.0
//! Devices come before processors.
//!
//! On real machines neither a bridge nor an engine takes a processor from a node. Here they share those of one machine with
//! nodes that look for their ends, and would wait for a slice of those each time that they have something to do: copies by
//! two engines, one after the other, then take a third longer. So the threads of this process are scheduled in slices that are
//! shorter than those of others, whom they preempt when they wake up, and with a larger share.

use std::io;

/// Of at most 0.1 ms, the least that the kernel gives.
const SLICE_NS: u64 = 100_000;

/// As `nice -n -10`.
const NICE: i32 = -10;

/// Has the calling thread, and those that it starts from now on, run before those of other programs. An error if that is
/// more than this user may; older kernels know no slices, and take no notice of them.
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
