// SPDX-License-Identifier: LGPL-2.1

//! The flags of `sisci_api.h`; a test in `headers.rs` compares them.

#![allow(missing_docs)] // The header has it.

use crate::error::Error;
use crate::error::Result;

macro_rules! flags {
    ($($name:ident = $value:literal;)*) => {
        $(pub const $name: u32 = $value;)*

        /// All flags, with their names.
        #[cfg(test)]
        pub const ALL: &[(&str, u32)] = &[$((stringify!($name), $value)),*];
    };
}

flags! {
    USE_CALLBACK = 0x0000_0001;
    EMPTY = 0x0000_0002;
    PRIVATE = 0x0000_0004;
    DMA_SOURCE_ONLY = 0x0000_0008;
    FORCE_REMOVE = 0x0000_0020;
    ALLOW_UNICAST = 0x0000_0080;
    LOCK_USER_MEM = 0x0000_0400;
    PHYSICAL = 0x0000_1000;
    BROADCAST = 0x0004_0000;
    AUTO_ID = 0x2000_0000;
    CUDA_BUFFER = 0x0400_0000;
    SHARED = 0x0800_0000;
    BAR = 0x1000_0000;
    ASYNCHRONOUS_CONNECT = 0x0000_2000;
    FORCE_DISCONNECT = 0x0100_0000;
    NOTIFY = 0x0200_0000;
    DMA_WAIT = 0x0000_0004;
    DMA_READ = 0x0000_0010;
    DMA_GLOBAL = 0x0000_0040;
    DMA_SYSDMA = 0x0000_0100;
    DMA_USER_MEM = 0x0000_0200;
    DMA_ADAPTER = 0x0000_0800;
    FIXED_INTNO = 0x0000_0002;
    SHARED_INT = 0x0000_0004;
    COUNTING_INT = 0x0000_0020;
    FIXED_MAP_ADDR = 0x0000_0001;
    READONLY_MAP = 0x0000_0002;
    IO_MAP_IOSPACE = 0x0000_0080;
    BLOCK_READ = 0x0000_8000;
    ERROR_CHECK = 0x0001_0000;
    NO_FLUSH = 0x0002_0000;
    NO_STORE_BARRIER = 0x0008_0000;
    CACHE_FLUSH = 0x0010_0000;
    CACHE_INVALIDATE = 0x0020_0000;
    FAST_BARRIER = 0x0040_0000;
    FLUSH_CPU_BUFFERS_ONLY = 0x0080_0000;
    THREAD_SAFE = 0x0000_4000;
}

/// Hints of transfers: the driver chooses the engine.
pub const DMA_HINTS: u32 = DMA_GLOBAL | DMA_ADAPTER | DMA_SYSDMA;

/// Hints of maps: bridges have no I/O ports to give.
pub const MAP_HINTS: u32 = IO_MAP_IOSPACE;

/// Returns ILLEGAL_FLAG unless all flags are allowed.
pub fn check(flags: u32, allowed: u32) -> Result<()> {
    match flags & !allowed {
        0 => Ok(()),
        _ => Err(Error::ILLEGAL_FLAG),
    }
}
