// SPDX-License-Identifier: GPL-2.0

//! The aperture over our memory, as the peer gets it.
//!
//! Flat mode: one memory window of the device leads to all memory of this machine, from bus address
//! 0 on. What a device demands of windows, sizes and alignments, is known here only.

use super::context::PEER;
use crate::{
    logic::hello::Mode,
    sys::{
        direct_map,
        dma_map,
        ntb::NtbDevice, //
    },
};
use kernel::{
    fmt,
    prelude::*, //
};

/// See the head of this file.
#[derive(Clone, Copy)]
pub(super) struct Aperture {
    pub(super) window: u32,
    pub(super) base: u64,
    pub(super) len: u64,
    /// The size of the memory window.
    whole: u64,
}

/// Why a device has no aperture to offer.
pub(super) enum Unsuitable {
    /// There is an IOMMU, and nobody has allowed to let the peer past it.
    Iommu,
    /// No window covers the memory.
    TooSmall { needed: u64, largest: u64 },
    /// The device says no.
    Device(Error),
}

impl From<Error> for Unsuitable {
    fn from(error: Error) -> Self {
        Self::Device(error)
    }
}

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iommu => f.write_str(
                "behind an IOMMU only flat mode is there so far, which lets the peer reach all memory; load with allow_flat=1 to accept that",
            ),
            Self::TooSmall { needed, largest } => write!(
                f,
                "no memory window covers the {} MiB of this machine (the largest has {} MiB), and smaller ones can't be used yet",
                needed >> 20,
                largest >> 20
            ),
            Self::Device(error) => write!(f, "can't offer a link: {error:?}"),
        }
    }
}

impl Aperture {
    /// The mode of all apertures that are offered here.
    pub(super) const MODE: Mode = Mode::Flat;

    /// Chooses a memory window that can lead to all of our memory. May sleep.
    pub(super) fn choose(device: &NtbDevice, allow_flat: bool) -> Result<Self, Unsuitable> {
        if dma_map::has_iommu(&device.dma_device()) && !allow_flat {
            return Err(Unsuitable::Iommu);
        }
        let needed = direct_map::end_of_memory();
        let mut largest = 0;
        for window in 0..device.mw_count(PEER)? {
            let align = device.mw_align(PEER, window)?;
            largest = largest.max(align.max_size);
            if align.max_size >= needed {
                let len = needed
                    .checked_next_multiple_of(align.size.max(1))
                    .unwrap_or(align.max_size);
                return Ok(Self {
                    window,
                    base: 0,
                    len: len.min(align.max_size),
                    whole: align.max_size,
                });
            }
        }
        Err(Unsuitable::TooSmall { needed, largest })
    }

    /// Lets the peer in. Not before it has shown a fresh nonce: it has then let go of all memory
    /// that it was told of in an earlier session. May sleep.
    pub(super) fn open(&mut self, device: &NtbDevice) -> Result {
        if device
            .set_translation(PEER, self.window, self.base, self.len)
            .is_ok()
        {
            return Ok(());
        }
        // Some hardware takes nothing but the whole window.
        device.set_translation(PEER, self.window, self.base, self.whole)?;
        self.len = self.whole;
        Ok(())
    }

    /// Lets the peer in no more: from here on one that is merely slow writes nowhere, if the
    /// hardware can do that. Says whether it is so. May sleep.
    pub(super) fn close(self, device: &NtbDevice) -> bool {
        device.clear_translation(PEER, self.window).is_ok()
    }
}
