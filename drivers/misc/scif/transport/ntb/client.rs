// SPDX-License-Identifier: GPL-2.0

//! An NTB device comes and goes, and tells of doorbells and of its link.

use super::{
    context::{
        Context,
        PEER, //
    },
    interrupts,
    link::NtbLink,
    mailbox::Mailbox,
    roster::Roster, //
};
use crate::{
    logic::{
        doorbells::DoorbellRegister,
        parts::LEAST_REGISTERS, //
    },
    sys::{
        dma_map,
        ntb::{
            Client,
            NtbDevice, //
        },
    },
    transport::doorbell,
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

/// What all devices of this client share.
pub(super) struct Shared {
    pub(super) context: Context,
    pub(super) roster: Arc<Roster>,
}

/// The link of a device, and the roster that it is on.
pub(super) struct Attached {
    link: Arc<NtbLink>,
    roster: Arc<Roster>,
}

impl Client for Attached {
    type Context = Shared;

    fn probe(shared: &Shared, device: NtbDevice) -> Result<Arc<Self>> {
        let context = &shared.context;
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
        let attached = Self {
            link,
            roster: shared.roster.clone(),
        };
        let this = Arc::new(attached, GFP_KERNEL)?;
        this.link.links.add(this.link.clone())?;
        Ok(this)
    }

    fn start(this: ArcBorrow<'_, Self>) -> Result {
        this.roster.add(&this.link)
    }

    fn remove(this: Arc<Self>) {
        let link = &this.link;
        link.links.remove(link);
        let Some(device) = this.roster.remove(link) else {
            return;
        };
        link.withdraw(&device);
        drop(device);
        link.release_kept();
        pr_info!("{}: gone\n", &*link.name);
    }

    fn link_event(this: ArcBorrow<'_, Self>) {
        NtbLink::schedule(&this.link);
    }

    fn db_event(this: ArcBorrow<'_, Self>, vector: u32) {
        interrupts::doorbells_rang(&this.link, vector);
    }

    fn msg_event(this: ArcBorrow<'_, Self>) {
        interrupts::messages_came(&this.link);
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
