// SPDX-License-Identifier: GPL-2.0

//! An NTB device comes and goes, and tells of doorbells and of its link.
//!
//! Nothing is decided here of what it tells: doorbells go to the session that there is, and whatever may
//! change the state of that has the link look at it (`link.rs`).

use kernel::{
    prelude::*,
    str::CString,
    sync::{
        atomic::Relaxed,
        Arc,
        ArcBorrow, //
    },
    time::Delta, //
};

use super::{
    link::NtbLink,
    mailbox::Mailbox,
    reports,
    roster::Roster,
    Context, //
};
use crate::{
    logic::{
        doorbells::DoorbellRegister,
        parts::LEAST_REGISTERS, //
    },
    sys::{
        dma_map::{
            self,
            Guard, //
        },
        ntb::{
            Client,
            NtbDevice, //
        },
        timer::Tick, //
    },
    transport::doorbell,
};

/// What all devices of this client share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) context: Context,
    pub(super) roster: Arc<Roster>,
}

impl Client for NtbLink {
    type Context = Shared;

    fn probe(shared: &Shared, device: NtbDevice) -> Result<Arc<Self>> {
        let context = &shared.context;
        let name = CString::try_from(device.name())?;
        let register = doorbell_register(&device)?;
        let hello = doorbell::bit(doorbell::HELLO);
        let needed = doorbell::bit(doorbell::CONTROL) | hello | doorbell::bit(doorbell::DATA);
        let mailbox = Mailbox::of(&device, register.to_peer_bits(hello))
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
        let guard = guard(&device);
        if let Some(reason) = reports::weakness(guard).filter(|_| !context.policy.allow_flat) {
            pr_err!(
                "{}: the other host says itself where the windows of this bridge lead, and {}, or load with allow_flat=1 if it is trusted\n",
                &*name,
                reason
            );
            return Err(ENODEV);
        }
        let node = context.sink.own_node(rank);
        pr_info!("{}: this is node {} (NTB port {})\n", &*name, node, port);
        Self::new(shared, device, node, register, mailbox, guard)
    }

    fn start(this: ArcBorrow<'_, Self>) -> Result {
        this.roster.add(&this.into())
    }

    fn remove(this: Arc<Self>) {
        let Some(device) = this.roster.remove(&this) else {
            return;
        };
        this.withdraw(&device);
        drop(device);
        this.release_kept();
        pr_info!("{}: gone\n", &*this.name);
    }

    fn link_event(this: ArcBorrow<'_, Self>) {
        this.note_change();
        Self::schedule(this);
    }

    fn db_event(this: ArcBorrow<'_, Self>, vector: u32) {
        doorbells_rang(this, vector);
    }

    /// Has no more of them raise events until they were taken out (`mailbox.rs`).
    fn msg_event(this: ArcBorrow<'_, Self>) {
        if let Some(device) = &*this.device.lock() {
            let _ = device.msg_set_mask(device.msg_inbits());
        }
        Self::schedule(this);
    }
}

/// The number of this side among the ports that the device joins. Port numbers may have gaps; a device that
/// does not tell them has 0 everywhere.
fn rank(device: &NtbDevice, own: u32) -> u16 {
    let lower = (0..device.peer_count().unwrap_or(0))
        .filter(|peer| device.peer_port_number(*peer).is_ok_and(|port| port < own));
    lower.count() as u16
}

/// Returns what keeps the peer to what it is given: the bridge itself, if this side says where its windows lead.
fn guard(device: &NtbDevice) -> Guard {
    if device.translates_inbound() {
        Guard::Whole
    } else {
        dma_map::guard(&device.dma_device())
    }
}

/// Which doorbells are whose.
fn doorbell_register(device: &NtbDevice) -> Result<DoorbellRegister> {
    let valid = device.db_valid_mask();
    if !device.shares_doorbells() {
        return Ok(DoorbellRegister::of_each(valid));
    }
    let is_lower_port = device.port_number()? < device.peer_port_number(0)?;
    Ok(DoorbellRegister::shared(valid, is_lower_port))
}

/// Between two signs of life, and two looks at the mailbox while there is no session.
const TICK_MILLISECONDS: u32 = 100;

/// So often in one interrupt.
const MAX_ROUNDS: usize = 16;

/// Doorbells that belong to this vector have been rung. Hard interrupt context.
///
/// A sleeper is told before they are cleared, which takes as long as his processor takes to wake up; and
/// all are told again afterwards: what has rung in between has raised no other interrupt.
///
/// Where several share the vector there may be an interrupt only when the first of them rings, and none
/// until all are cleared: so this goes on until they are. Doorbells that ring meanwhile are told at the end only: so
/// one interrupt tells twice, however often it has to clear. A peer that never stops to ring is heard
/// again when the link's work has had its turn (`NtbLink::listen_again()`).
fn doorbells_rang(link: ArcBorrow<'_, NtbLink>, vector: u32) {
    let mut before = 0;
    for _ in 0..MAX_ROUNDS {
        let (rung, alone) = rung(&link, vector);
        if rung == 0 {
            // To read them has made sure that those before are cleared.
            tell(link, before);
            return;
        }
        if before == 0 {
            tell(link, rung);
        }
        if let Some(device) = &*link.device.lock() {
            let _ = device.db_clear(link.register.to_own_bits(rung));
        }
        before |= rung;
        if alone {
            tell(link, before);
            return;
        }
    }
    if let Some(device) = &*link.device.lock() {
        let _ = device.db_set_mask(link.register.own_bits());
        link.masked.store(true, Relaxed);
    }
    tell(link, before);
    NtbLink::schedule(link);
}

/// Which ones they are, as bits, and whether none but it can have raised this interrupt.
fn rung(link: &NtbLink, vector: u32) -> (u64, bool) {
    let device = link.device.lock();
    let Some(device) = &*device else {
        return (0, true);
    };
    match device.db_vector_mask(vector) & link.register.own_bits() {
        own if own.count_ones() <= 1 => (link.register.numbers_of(own), true),
        // Several doorbells share the vector: only the device knows which it was.
        several => (link.register.numbers_of(several & device.db_read()), false),
    }
}

fn tell(link: ArcBorrow<'_, NtbLink>, rung: u64) {
    let hello = doorbell::bit(doorbell::HELLO);
    if rung & hello != 0 {
        NtbLink::schedule(link);
    }
    let rung = rung & !hello;
    if rung == 0 {
        return;
    }
    if let Some(session) = &*link.current.lock() {
        session.as_arc_borrow().doorbells(rung);
    }
}

/// Ticks between two looks for engines that are missing.
const ENGINE_TICKS: u32 = 1000 / TICK_MILLISECONDS;

impl Tick for NtbLink {
    const PERIOD: Delta = Delta::from_millis(TICK_MILLISECONDS as i64);

    fn tick(this: ArcBorrow<'_, Self>) {
        this.ticks.add(1, Relaxed);
        let current = this.current.lock();
        let over = match &*current {
            Some(session) => {
                session.as_arc_borrow().tick(TICK_MILLISECONDS);
                session.ended().is_some()
            }
            // Doorbells are lost while a driver is not loaded; looking now and then does not hurt.
            None => true,
        };
        drop(current);
        let is_time = this.ticks.load(Relaxed) % ENGINE_TICKS == 0;
        let is_waited_for = over || this.unsettled.load(Relaxed) || this.masked.load(Relaxed);
        if is_waited_for || is_time && this.context.engines.are_missing() {
            Self::schedule(this);
        }
    }
}
