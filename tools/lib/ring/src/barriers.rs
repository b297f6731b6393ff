// SPDX-License-Identifier: LGPL-2.1

//! The order in which this node and the other node see stores.
//!
//! A peer's memory is mapped write-combined and lies behind a bus. The fences of the language order
//! ordinary memory and are not enough. A ring maps nothing on a CPU architecture that this file has
//! no barriers for ([`KNOWN`]).

/// Whether this file has barriers for the CPU.
pub const KNOWN: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Stores before the barrier arrive at the peer before stores behind it.
#[inline]
pub fn stores() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: Every x86-64 CPU has the instruction.
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

/// All accesses before the barrier come before all accesses behind it; stores before it are on
/// their way.
#[inline]
pub fn all() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: Every x86-64 CPU has the instruction.
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

/// Reads before the barrier come before reads and writes behind it.
#[inline]
pub fn loads() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: A barrier changes nothing.
    unsafe {
        std::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    // Other CPUs load in order.
    compiler();
}

/// Keeps the compiler from moving accesses across it.
#[inline]
fn compiler() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}
