// SPDX-License-Identifier: GPL-2.0

//! A link gets its device and comes up, and is taken down and gives it back.
//!
//! This ends no session: [`NtbLink::leave`] has the link find no device, upon which it ends the one that
//! there is, as work; [`NtbLink::withdraw`] follows when the peer has had time to let go.

use super::{
    context::PEER,
    interrupts::TICK_MILLISECONDS,
    link::NtbLink,
    outbound_window::OutboundWindow, //
};
use crate::sys::{
    ntb::NtbDevice,
    timer::PeriodicTimer, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::Delta, //
};

impl NtbLink {
    /// Lets the link come up. May sleep.
    pub(super) fn open(self: &Arc<Self>) -> Result {
        let device = self.device().ok_or(ENODEV)?;
        self.prepare(&device)?;
        self.listen(&device)
    }

    /// Has the device as one that no session uses.
    fn prepare(&self, device: &NtbDevice) -> Result {
        let own = self.register.own_bits();
        // A driver before this one, or the hardware by itself, may have left some open.
        close_windows(device);
        device.db_set_mask(device.db_valid_mask())?;
        device.db_clear(own)?;
        device.db_clear_mask(own)?;
        self.inner.lock().mailbox.open(device)
    }

    /// Begins to talk to the peer, by a device that the link finds.
    fn listen(self: &Arc<Self>, device: &NtbDevice) -> Result {
        match device.link_enable() {
            Ok(()) => (),
            // The secondary side of AMD's can only wait for the other one.
            Err(EINVAL) if device.port_number() == Ok(1) => (),
            Err(error) => return Err(error),
        }
        let timer =
            PeriodicTimer::start(self.clone(), Delta::from_millis(TICK_MILLISECONDS.into()))?;
        *self.timer.lock() = Some(timer);
        Self::schedule(self);
        Ok(())
    }

    /// Gives it the device back with which it rested, and lets it come up. May sleep.
    pub(super) fn resume(self: &Arc<Self>, device: Arc<NtbDevice>) {
        // First: as soon as the link finds the device, an event may begin a session.
        let prepared = self.prepare(&device);
        let none = self.device.lock().replace(device.clone());
        drop(none);
        if let Err(error) = prepared.and_then(|()| self.listen(&device)) {
            pr_err!(
                "{}: it does not come up after sleep: {:?}; unbind and bind the driver of the device\n",
                &*self.name,
                error
            );
        }
    }

    /// Has the link find no device, so that it ends what there is; returns the device. May sleep.
    pub(super) fn leave(self: &Arc<Self>) -> Option<Arc<NtbDevice>> {
        let timer = self.timer.lock().take();
        drop(timer);
        let device = self.device.lock().take();
        if let Some(device) = &device {
            // The link clears no doorbell from here on: one that rings must not interrupt again and again.
            let _ = device.db_set_mask(self.register.own_bits());
            let _ = device.msg_set_mask(device.msg_inbits());
        }
        Self::schedule(self);
        device
    }

    /// Takes back what the peer was given, by a device that the link does not find any more. May sleep.
    pub(super) fn withdraw(&self, device: &NtbDevice) {
        self.inner.lock().mailbox.close(device);
        let _ = device.db_set_mask(self.register.own_bits());
        close_windows(device);
        let _ = device.link_disable();
    }
}

/// Lets the peer in nowhere, and this side into the peer, as far as that is for this side.
fn close_windows(device: &NtbDevice) {
    if let Ok(count) = device.mw_count(PEER) {
        for window in 0..count {
            let _ = device.clear_translation(PEER, window);
        }
    }
    OutboundWindow::close_all(device);
}
