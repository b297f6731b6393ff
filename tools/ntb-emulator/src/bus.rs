// SPDX-License-Identifier: GPL-2.0
//! Memory as a DMA engine sees it: addresses, and what can be done there.
//!
//! Which memory an address means is decided by who implements [`Bus`], in this program
//! [`crate::address`]; what is to be copied, by who uses it, [`crate::dma::engine`].

/// Why an access to memory failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There is nothing to read.
    Read,
    /// There is nothing that can be written.
    Write,
}

/// What a copy passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// How many bytes go that way.
    pub length: u64,
    /// The number of the NTB function behind which the source is, if it is with a peer.
    pub from: Option<usize>,
    /// The same for the destination.
    pub to: Option<usize>,
}

/// Memory as the engine sees it.
pub trait Bus {
    /// Reads all of `data` or fails.
    fn read(&self, address: u64, data: &mut [u8]) -> Result<(), Fault>;

    /// Writes all of `data` or fails.
    fn write(&self, address: u64, data: &[u8]) -> Result<(), Fault>;

    /// What a copy of at most `length` bytes (which is not 0) would pass, or how it would
    /// fail. It may be another way when it is done.
    fn route(&self, source: u64, destination: u64, length: u64) -> Result<Route, Fault>;

    /// Copies at least 1 and at most `length` bytes (which is not 0), and says how many.
    fn copy(&self, source: u64, destination: u64, length: u64) -> Result<u64, Fault>;
}
