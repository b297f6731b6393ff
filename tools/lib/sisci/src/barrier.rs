// SPDX-License-Identifier: LGPL-2.1

//! The store barrier of this CPU.

#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::Ordering::SeqCst;
#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::fence;

/// Sends all stores so far before stores that follow, also stores to write-combined memory.
#[inline]
pub fn store_barrier() {
    // The instruction orders stores behind stores, and empties the buffers of write-combined
    // memory.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: Every CPU of this kind has the instruction.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    fence(SeqCst);
}
