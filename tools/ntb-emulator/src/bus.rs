// SPDX-License-Identifier: GPL-2.0
//! Memory as a DMA engine sees it: addresses, and the accesses to them.
//!
//! The implementation of [`Bus`], in this program [`crate::address`], decides which memory an
//! address means. Its caller, [`crate::dma::engine`], decides what is copied.

/// The reason why an access to memory failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is no memory to read.
    Read,
    /// There is no memory that can be written.
    Write,
}

/// The way that a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Number of bytes that take this route.
    pub length: u64,
    /// The index of the NTB function in front of the source, if the source is with a peer.
    pub from: Option<usize>,
    /// The index of the NTB function in front of the destination, if the destination is with a
    /// peer.
    pub to: Option<usize>,
}

/// Memory as the engine sees it.
pub trait Bus {
    /// Reads all of `data` or fails.
    fn read(&self, address: u64, data: &mut [u8]) -> Result<(), Fault>;

    /// Writes all of `data` or fails.
    fn write(&self, address: u64, data: &[u8]) -> Result<(), Fault>;

    /// Returns the way of a copy of at most `length` bytes (which is not 0), or the fault that it
    /// would end with. The way may have changed when the copy is made.
    fn route(&self, source: u64, destination: u64, length: u64) -> Result<Route, Fault>;

    /// Copies at least 1 and at most `length` bytes (which is not 0). Returns how many were copied.
    fn copy(&self, source: u64, destination: u64, length: u64) -> Result<u64, Fault>;
}
