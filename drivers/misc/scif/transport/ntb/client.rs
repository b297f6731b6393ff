// SPDX-License-Identifier: GPL-2.0

//! An NTB device comes and goes, and tells of doorbells and of its link.

use super::{
    context::{
        Context,
        PEER, //
    },
    interrupts::{
        self,
        TICK_MILLISECONDS, //
    },
    link::NtbLink,
};
use crate::{
    logic::hello::WORDS,
    sys::{
        ntb::{
            Client,
            NtbDevice, //
        },
        timer::PeriodicTimer, //
    },
    transport::doorbell,
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    time::Delta,
};

/// How long a driver that is being unbound waits for the peer to let go.
const FAREWELL_MILLISECONDS: u32 = 1000;

impl Client for NtbLink {
    type Context = Context;

    fn probe(context: &Context, device: NtbDevice) -> Result<Arc<Self>> {
        let doorbells = device.db_valid_mask();
        let needed = [doorbell::CONTROL, doorbell::HELLO, doorbell::DATA]
            .into_iter()
            .fold(0, |needed, number| needed | doorbell::bit(number));
        let name = device.name()?;
        if doorbells & needed != needed || (device.spad_count() as usize) < WORDS {
            pr_warn!(
                "{}: it takes a device with {} scratchpads and 3 doorbells\n",
                &*name,
                WORDS
            );
            return Err(ENODEV);
        }
        if !device.translates_inbound() {
            pr_warn!(
                "{}: only its peer can say where its windows lead, which this side can't use\n",
                &*name
            );
            return Err(ENODEV);
        }
        if device.has_unsafe_registers() {
            pr_warn!(
                "{}: its driver says that scratchpads or doorbells may hang this hardware; they are used all the same\n",
                &*name
            );
        }
        let port = device.port_number().unwrap_or(0);
        let node = context.sink.own_node(port as u16);
        pr_info!("{}: this is node {} (NTB port {})\n", &*name, node, port);
        let link = NtbLink::new(context, device, name, node, doorbells)?;
        link.links.add(link.clone())?;
        Ok(link)
    }

    fn start(this: ArcBorrow<'_, Self>) -> Result {
        let link: Arc<Self> = this.into();
        let device = link.device().ok_or(ENODEV)?;
        // Whatever somebody before, or the hardware by itself, leaves open.
        close_windows(&device);
        device.db_clear(link.doorbells)?;
        device.db_clear_mask(link.doorbells)?;
        device.link_enable()?;
        let timer =
            PeriodicTimer::start(link.clone(), Delta::from_millis(TICK_MILLISECONDS.into()))?;
        *link.timer.lock() = Some(timer);
        Self::schedule(&link);
        Ok(())
    }

    fn remove(this: Arc<Self>) {
        this.links.remove(&this);
        let timer = this.timer.lock().take();
        drop(timer);
        let device = this.device();
        // From now on `step` finds no device, and ends what there is.
        let own = this.device.lock().take();
        drop(own);
        this.flush_steps();
        let Some(device) = device else { return };
        wait_for_farewell(&this);
        withdraw(&this, &device);
        this.release_kept();
        pr_info!("{}: gone\n", &*this.name);
    }

    fn link_event(this: ArcBorrow<'_, Self>) {
        Self::schedule(&this.into());
    }

    fn db_event(this: ArcBorrow<'_, Self>, vector: u32) {
        interrupts::doorbells_rang(&this.into(), vector);
    }
}

/// Waits for the peers of ended sessions to let go, for a while.
fn wait_for_farewell(link: &NtbLink) {
    for _ in 0..FAREWELL_MILLISECONDS / 10 {
        if !link.waits_for_farewell() {
            return;
        }
        let _ = link
            .sleep
            .wait_uninterruptible_timeout(Delta::from_millis(10), || None::<()>);
    }
}

/// Takes back what the peer was given.
fn withdraw(link: &NtbLink, device: &NtbDevice) {
    let _ = device.peer_spad_write(PEER, 0, 0);
    let _ = device.db_set_mask(link.doorbells);
    close_windows(device);
    let _ = device.link_disable();
}

/// Lets the peer in nowhere, as far as the device can do that.
fn close_windows(device: &NtbDevice) {
    if let Ok(count) = device.mw_count(PEER) {
        for window in 0..count {
            let _ = device.clear_translation(PEER, window);
        }
    }
}
