// SPDX-License-Identifier: LGPL-2.1

//! The order in which the other node, and this one, see stores.
//!
//! A peer's memory is mapped write-combined, and lies behind a bus: the fences of the language order ordinary memory
//! and are not enough. Where there is nothing here for a processor, nothing is mapped on it ([`KNOWN`]).

/// Whether this file knows the processor.
pub const KNOWN: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Stores before it arrive at the peer before those behind it.
#[inline]
pub fn stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: Every x86-64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: A barrier changes nothing.
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    compiler();
}

/// All accesses before it come before all behind it; stores before it are on their way.
#[inline]
pub fn all() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: Every x86-64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_mm_mfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: A barrier changes nothing.
    unsafe {
        std::arch::asm!("dsb osh", options(nostack, preserves_flags));
    }
    compiler();
}

/// What was read before it was there before what is read behind it, and so is what is written then.
#[inline]
pub fn loads() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: A barrier changes nothing.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    // Other processors load in order.
    compiler();
}

/// The language moves no access across it.
#[inline]
fn compiler() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}
