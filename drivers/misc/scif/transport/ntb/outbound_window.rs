// SPDX-License-Identifier: GPL-2.0

//! A memory window that this side makes lead into the peer's memory, on devices on which that is for who
//! uses it.
//!
//! On others it is for the owner of the memory (`aperture.rs`), and there is nothing to do here.

use super::context::PEER;
use crate::sys::ntb::NtbDevice;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// See the head of this file. Dropping it closes the window.
pub(super) struct OutboundWindow {
    device: Arc<NtbDevice>,
    window: u32,
}

impl OutboundWindow {
    /// Makes the window, of `whole` bytes, lead to this many at a bus address of the peer. None, where the
    /// peer does that. May sleep.
    pub(super) fn lead_to(
        device: &Arc<NtbDevice>,
        window: u32,
        (base, len): (u64, u64),
        whole: u64,
    ) -> Result<Option<Self>> {
        if device.translates_inbound() {
            return Ok(None);
        }
        device
            .set_peer_translation(PEER, window, base, len)
            // Some take nothing but all of it.
            .or_else(|_| device.set_peer_translation(PEER, window, base, whole))?;
        Ok(Some(Self {
            device: device.clone(),
            window,
        }))
    }

    /// Makes all windows lead nowhere, as somebody before may have left them. May sleep.
    pub(super) fn close_all(device: &NtbDevice) {
        if device.translates_inbound() {
            return;
        }
        for window in 0..device.peer_mw_count().unwrap_or(0) {
            let _ = device.clear_peer_translation(PEER, window);
        }
    }
}

impl Drop for OutboundWindow {
    fn drop(&mut self) {
        let _ = self.device.clear_peer_translation(PEER, self.window);
    }
}
