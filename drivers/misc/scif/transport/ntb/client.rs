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
    mailbox::Mailbox,
    outbound_window::OutboundWindow,
};
use crate::{
    logic::{
        doorbell_register::DoorbellRegister,
        parts::LEAST_REGISTERS, //
    },
    sys::{
        dma_map,
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
        let name = device.name()?;
        let register = doorbell_register(&device)?;
        let needed = [doorbell::CONTROL, doorbell::HELLO, doorbell::DATA]
            .into_iter()
            .fold(0, |needed, number| needed | doorbell::bit(number));
        let hello_bell = register.to_peer_bits(doorbell::bit(doorbell::HELLO));
        let mailbox = Mailbox::of(&device, hello_bell)
            .filter(|_| register.numbers() & needed == needed)
            .ok_or_else(|| {
                pr_warn!(
                    "{}: it takes a device with {} scratchpads or message registers, and 3 doorbells in each direction\n",
                    &*name,
                    LEAST_REGISTERS
                );
                ENODEV
            })?;
        if device.has_unsafe_registers() {
            pr_warn!(
                "{}: its driver says that scratchpads or doorbells may hang this hardware; they are used all the same\n",
                &*name
            );
        }
        let port = device.port_number().unwrap_or(0);
        let rank = rank(&device, port);
        if device.shares_doorbells() && rank > 1 {
            pr_warn!(
                "{}: it is not one of the first two ports of the switch, whose doorbells are taken by those\n",
                &*name
            );
            return Err(ENODEV);
        }
        let is_exposed = is_exposed(&device);
        if is_exposed && !context.policy.allow_flat {
            pr_err!(
                "{}: the other host says itself where the windows of this bridge lead, and no IOMMU keeps it from any memory of this machine; switch the IOMMU on, or load with allow_flat=1 if it is trusted\n",
                &*name
            );
            return Err(ENODEV);
        }
        let node = context.sink.own_node(rank);
        pr_info!("{}: this is node {} (NTB port {})\n", &*name, node, port);
        let link = NtbLink::new(context, device, name, node, (register, mailbox), is_exposed)?;
        link.links.add(link.clone())?;
        Ok(link)
    }

    fn start(this: ArcBorrow<'_, Self>) -> Result {
        let link: Arc<Self> = this.into();
        let device = link.device().ok_or(ENODEV)?;
        // Whatever somebody before, or the hardware by itself, leaves open.
        close_windows(&device);
        let own = link.register.own_bits();
        device.db_set_mask(device.db_valid_mask())?;
        device.db_clear(own)?;
        device.db_clear_mask(own)?;
        link.inner.lock().mailbox.open(&device)?;
        match device.link_enable() {
            Ok(()) => (),
            // The secondary side of AMD's can only wait for the other one.
            Err(EINVAL) if device.port_number() == Ok(1) => (),
            Err(error) => return Err(error),
        }
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

    fn msg_event(this: ArcBorrow<'_, Self>) {
        interrupts::messages_came(&this.into());
    }
}

/// The number of this side among the ports that the device joins. Port numbers may have gaps; a device that
/// does not tell them has 0 everywhere.
fn rank(device: &NtbDevice, own: u32) -> u16 {
    let lower = (0..device.peer_count().unwrap_or(0))
        .filter(|peer| device.peer_port_number(*peer).is_ok_and(|port| port < own));
    lower.count() as u16
}

/// Nothing keeps the peer from memory of this machine.
fn is_exposed(device: &NtbDevice) -> bool {
    !device.translates_inbound() && !dma_map::has_iommu(&device.dma_device())
}

/// Which doorbells are whose.
fn doorbell_register(device: &NtbDevice) -> Result<DoorbellRegister> {
    let valid = device.db_valid_mask();
    if !device.shares_doorbells() {
        return Ok(DoorbellRegister::of_each(valid));
    }
    let is_lower_port = device.port_number()? < device.peer_port_number(PEER)?;
    Ok(DoorbellRegister::shared(valid, is_lower_port))
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
    link.inner.lock().mailbox.close(device);
    let _ = device.db_set_mask(link.register.own_bits());
    close_windows(device);
    let _ = device.link_disable();
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
