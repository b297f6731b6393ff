// SPDX-License-Identifier: LGPL-2.1

//! The store barrier of this processor.

#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::Ordering::SeqCst;
#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::fence;

/// All stores so far go out before those that follow, also those to write-combined memory.
#[inline]
pub fn store_barrier() {
    // It orders stores behind stores, and empties the buffers of write-combined memory.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: The instruction is one of each processor of this kind.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    fence(SeqCst);
}
