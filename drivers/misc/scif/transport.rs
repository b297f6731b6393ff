// SPDX-License-Identifier: GPL-2.0

//! Moving bytes and bells to one peer; knows no SCIF semantics.
//!
//! The layers above name the peer's memory by *bus addresses* that the peer has told them. A
//! [`Transport`] turns such an address into what can be done with it, a store or a load by the CPU,
//! an address for the DMA engine, or says that it can't be reached: that check is what keeps an
//! address that a hostile peer made up from touching anything but the peer's own aperture.
//!
//! - [`NtbTransport`]: flat mode. One memory window of the NTB, the *aperture*, covers the peer's
//!   memory from a base on; it is mapped write-combining.
//! - [`LoopbackTransport`]: the peer is this node. The direct map of all RAM is the aperture, the
//!   bell a function call.
//!
//! Arena and bounce modes will be further variants; nothing above this file needs to know.
//!
//! All functions may be called in any context.

use crate::{
    engine::Engine,
    sys::{
        direct_map,
        dmaengine::PeerMapping,
        iomap::IoMapping,
        pages::Pages, //
    },
};
use kernel::{
    device::Device,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

/// The bell that announces control messages.
pub(crate) const BELL_CONTROL: u32 = 0;
/// The bell that announces news in the scratchpads, or the end of a session.
pub(crate) const BELL_HELLO: u32 = 1;
/// The first of the bells that announce data of connections.
pub(crate) const BELL_DATA: u32 = 2;
/// No device has more bells than this.
pub(crate) const BELLS: usize = 64;

/// The way to one peer.
pub(crate) enum Transport {
    Ntb(NtbTransport),
    Loopback(LoopbackTransport),
}

/// A peer behind an NTB whose memory is covered by one aperture.
pub(crate) struct NtbTransport {
    /// The device for which memory that the peer reaches is mapped.
    pub(crate) export_device: ARef<Device>,
    /// The aperture as the CPU sees it.
    pub(crate) aperture: IoMapping,
    /// The aperture as the DMA engine sees it.
    pub(crate) engine: Option<EngineAperture>,
    /// The peer's bus address at which the aperture begins.
    pub(crate) base: u64,
    /// The bells that the device has, as bits.
    pub(crate) bells: u64,
}

/// A DMA engine together with its view of an aperture.
pub(crate) struct EngineAperture {
    // Before the engine, so that it is unmapped first.
    pub(crate) mapping: PeerMapping,
    pub(crate) engine: Arc<Engine>,
}

/// This node as its own peer.
pub(crate) struct LoopbackTransport;

impl NtbTransport {
    /// The offset in the aperture of `len` bytes at the peer's `address`.
    fn offset(&self, address: u64, len: usize) -> Result<usize> {
        let offset = usize::try_from(address.checked_sub(self.base).ok_or(EFAULT)?)?;
        let end = offset.checked_add(len).ok_or(EFAULT)?;
        if end > self.aperture.size() {
            return Err(EFAULT);
        }
        Ok(offset)
    }
}

impl Transport {
    /// Whether `len` bytes at `address` can be reached.
    pub(crate) fn reaches(&self, address: u64, len: u64) -> bool {
        match (usize::try_from(len), self) {
            (Ok(len), Transport::Ntb(ntb)) => ntb.offset(address, len).is_ok(),
            (Ok(len), Transport::Loopback(_)) => direct_map::covers(address, len),
            (Err(_), _) => false,
        }
    }

    /// How many bytes of the peer's memory can be reached at most.
    pub(crate) fn reach(&self) -> u64 {
        match self {
            Transport::Ntb(ntb) => ntb.aperture.size() as u64,
            Transport::Loopback(_) => direct_map::end_of_memory(),
        }
    }

    /// Stores `bytes` at the peer's `address`. Posted: see [`Self::flush`].
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result {
        match self {
            Transport::Ntb(ntb) => ntb.aperture.write(ntb.offset(address, bytes.len())?, bytes),
            Transport::Loopback(_) => direct_map::write(address, bytes),
        }
    }

    /// Stores a 32-bit value in one access.
    pub(crate) fn write_u32(&self, address: u64, value: u32) -> Result {
        match self {
            Transport::Ntb(ntb) => ntb.aperture.write_u32(ntb.offset(address, 4)?, value),
            Transport::Loopback(_) => direct_map::write_u32(address, value),
        }
    }

    /// Stores a 64-bit value in one access.
    pub(crate) fn write_u64(&self, address: u64, value: u64) -> Result {
        match self {
            Transport::Ntb(ntb) => ntb.aperture.write_u64(ntb.offset(address, 8)?, value),
            Transport::Loopback(_) => direct_map::write_u64(address, value),
        }
    }

    /// Copies from `pages` to the peer's `address` by CPU.
    pub(crate) fn write_pages(
        &self,
        address: u64,
        pages: &Pages,
        offset: usize,
        len: usize,
    ) -> Result {
        match self {
            Transport::Ntb(ntb) => {
                ntb.aperture
                    .copy_from_pages(ntb.offset(address, len)?, pages, offset, len)
            }
            Transport::Loopback(_) => direct_map::copy_from_pages(address, pages, offset, len),
        }
    }

    /// Copies from the peer's `address` to `pages` by CPU; slow across a bridge.
    pub(crate) fn read_pages(
        &self,
        address: u64,
        pages: &Pages,
        offset: usize,
        len: usize,
    ) -> Result {
        match self {
            Transport::Ntb(ntb) => {
                ntb.aperture
                    .copy_to_pages(ntb.offset(address, len)?, pages, offset, len)
            }
            Transport::Loopback(_) => direct_map::copy_to_pages(address, pages, offset, len),
        }
    }

    /// The page frame behind the peer's page at `address`, for mapping it into a process.
    ///
    /// It stays what it is until the session ends.
    pub(crate) fn page_frame(&self, address: u64) -> Result<u64> {
        match self {
            Transport::Ntb(ntb) => ntb.aperture.page_frame(ntb.offset(address, PAGE_SIZE)?),
            Transport::Loopback(_) => direct_map::page_frame(address),
        }
    }

    /// Whether mappings of the peer's memory are write-combining.
    pub(crate) fn is_write_combined(&self) -> bool {
        match self {
            Transport::Ntb(_) => true,
            Transport::Loopback(_) => false,
        }
    }

    /// Orders the stores before it with the stores and bells after it.
    pub(crate) fn flush(&self) {
        crate::sys::iomap::flush_writes();
    }

    /// The engine for bulk transfers to this peer, if there is one.
    pub(crate) fn engine(&self) -> Option<&Arc<Engine>> {
        match self {
            Transport::Ntb(ntb) => ntb.engine.as_ref().map(|engine| &engine.engine),
            Transport::Loopback(_) => None,
        }
    }

    /// The peer's `address` as the engine must name it.
    pub(crate) fn engine_address(&self, address: u64, len: u64) -> Option<u64> {
        match self {
            Transport::Ntb(ntb) => {
                let offset = ntb.offset(address, usize::try_from(len).ok()?).ok()?;
                ntb.engine
                    .as_ref()?
                    .mapping
                    .address()
                    .checked_add(offset as u64)
            }
            Transport::Loopback(_) => None,
        }
    }

    /// The device for which memory must be mapped before the peer can reach it; none if the peer
    /// uses physical addresses.
    pub(crate) fn export_device(&self) -> Option<&ARef<Device>> {
        match self {
            Transport::Ntb(ntb) => Some(&ntb.export_device),
            Transport::Loopback(_) => None,
        }
    }

    /// The bells that exist, as bits.
    pub(crate) fn bells(&self) -> u64 {
        match self {
            Transport::Ntb(ntb) => ntb.bells,
            Transport::Loopback(_) => u64::from(u32::MAX),
        }
    }

    /// How the peer's memory is reached, for users.
    pub(crate) fn mode(&self) -> &'static str {
        match self {
            Transport::Ntb(_) => "flat",
            Transport::Loopback(_) => "local",
        }
    }
}
