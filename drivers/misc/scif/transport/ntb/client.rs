// SPDX-License-Identifier: GPL-2.0

//! The NTB client driver: probe and remove of devices, and their doorbell, link and message events.
//!
//! This file decides nothing about an event. It passes doorbells to the current session. For any
//! event that may change the state of the link, it queues the link's work item (`link.rs`).

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

/// State that all devices of this client share.
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
                    "{}: the bridge is not used: scif needs {} scratchpads or message registers, and 3 doorbells in each direction\n",
                    &*name,
                    LEAST_REGISTERS
                );
                ENODEV
            })?;
        if device.has_unsafe_registers() {
            pr_warn!(
                "{}: its driver warns that scratchpads or doorbells may hang this hardware; scif uses them all the same\n",
                &*name
            );
        }
        let port = device.port_number().unwrap_or(0);
        let rank = rank(&device, port);
        if device.shares_doorbells() && rank > 1 {
            pr_warn!(
                "{}: the bridge is not used: the first two ports of the switch have all doorbells, and this is another port\n",
                &*name
            );
            return Err(ENODEV);
        }
        let guard = guard(&device);
        if let Some(reason) = reports::weakness(guard).filter(|_| !context.policy.allow_flat) {
            pr_err!(
                "{}: the bridge is not used: the other host sets where the windows of this bridge lead, and {}, or load with allow_flat=1 if that host is trusted\n",
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
        this.context.sink.link_gone(&this.shown_name);
        pr_info!("{}: scif has released the bridge\n", &*this.name);
    }

    fn link_event(this: ArcBorrow<'_, Self>) {
        this.note_change();
        Self::schedule(this);
    }

    fn db_event(this: ArcBorrow<'_, Self>, vector: u32) {
        doorbells_rang(this, vector);
    }

    /// Masks the messages until the link's work has read them (`mailbox.rs`).
    fn msg_event(this: ArcBorrow<'_, Self>) {
        if let Some(device) = &*this.device.lock() {
            let _ = device.msg_set_mask(device.msg_inbits());
        }
        Self::schedule(this);
    }
}

/// Returns the number of ports with a lower port number than this side. Port numbers may have gaps.
/// A device without port numbers has 0 on each side.
fn rank(device: &NtbDevice, own: u32) -> u16 {
    let lower = (0..device.peer_count().unwrap_or(0))
        .filter(|peer| device.peer_port_number(*peer).is_ok_and(|port| port < own));
    lower.count() as u16
}

/// Returns the protection from the peer: the bridge itself, if this side sets the translation of
/// its windows, or the IOMMU.
fn guard(device: &NtbDevice) -> Guard {
    if device.translates_inbound() {
        Guard::Whole
    } else {
        dma_map::guard(&device.dma_device())
    }
}

/// Tells which doorbells belong to this side, and which to the peer.
fn doorbell_register(device: &NtbDevice) -> Result<DoorbellRegister> {
    let valid = device.db_valid_mask();
    if !device.shares_doorbells() {
        return Ok(DoorbellRegister::of_each(valid));
    }
    let is_lower_port = device.port_number()? < device.peer_port_number(0)?;
    Ok(DoorbellRegister::shared(valid, is_lower_port))
}

/// Time between two heartbeats, and between two polls of the mailbox while there is no session.
const TICK_MILLISECONDS: u32 = 100;

/// Number of times that one interrupt reads and clears doorbells.
const MAX_ROUNDS: usize = 16;

/// Handles doorbells of this vector.
///
/// The session is told of them twice. It is told before they are cleared, because a sleeper then
/// wakes up while this CPU clears them. It is told of all of them again afterwards: a doorbell that
/// rang in between has raised no interrupt of its own.
///
/// If several doorbells share the vector, some hardware raises an interrupt only for the first that
/// rings, and no other until all are cleared. So this function clears doorbells until none is set.
/// It tells the session of doorbells that ring meanwhile only at the end, so one interrupt tells
/// twice, however often it clears. If the peer never stops ringing, the doorbells are masked until
/// the link's work has run (`NtbLink::listen_again()`).
/// Context: hard interrupt.
fn doorbells_rang(link: ArcBorrow<'_, NtbLink>, vector: u32) {
    let mut before = 0;
    for _ in 0..MAX_ROUNDS {
        let (pending, alone) = pending_doorbells(&link, vector);
        if pending == 0 {
            // This read has also made sure that the device has cleared the earlier ones.
            notify_session(link, before);
            return;
        }
        if before == 0 {
            notify_session(link, pending);
        }
        if let Some(device) = &*link.device.lock() {
            let _ = device.db_clear(link.register.to_own_bits(pending));
        }
        before |= pending;
        if alone {
            notify_session(link, before);
            return;
        }
    }
    if let Some(device) = &*link.device.lock() {
        let _ = device.db_set_mask(link.register.own_bits());
        link.masked.store(true, Relaxed);
    }
    notify_session(link, before);
    NtbLink::schedule(link);
}

/// Returns the doorbells of this vector that are set, as bits. The second value tells whether the
/// vector belongs to a single doorbell.
fn pending_doorbells(link: &NtbLink, vector: u32) -> (u64, bool) {
    let device = link.device.lock();
    let Some(device) = &*device else {
        return (0, true);
    };
    match device.db_vector_mask(vector) & link.register.own_bits() {
        own if own.count_ones() <= 1 => (link.register.numbers_of(own), true),
        // Several doorbells share the vector: only the device knows which of them rang.
        several => (link.register.numbers_of(several & device.db_read()), false),
    }
}

fn notify_session(link: ArcBorrow<'_, NtbLink>, pending: u64) {
    let hello = doorbell::bit(doorbell::HELLO);
    if pending & hello != 0 {
        NtbLink::schedule(link);
    }
    let pending = pending & !hello;
    if pending == 0 {
        return;
    }
    if let Some(session) = &*link.current.lock() {
        session.as_arc_borrow().doorbells(pending);
    }
}

/// Ticks between two requests for missing engines.
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
            // Doorbells are lost while a driver is not loaded, so the link's work checks the
            // mailbox now and then.
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
