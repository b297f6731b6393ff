// SPDX-License-Identifier: GPL-2.0

//! Doorbells, link events and ticks of a device, on their way up.
//!
//! Nothing is decided here: doorbells go to the session that there is, and whatever may change its
//! state has the link look at it (`link.rs`).

use super::link::NtbLink;
use crate::{
    sys::timer::Tick,
    transport::{
        doorbell,
        sink::Status, //
    },
};
use kernel::sync::{
    atomic::Relaxed,
    Arc,
    ArcBorrow, //
};

/// Between two signs of life, and two looks at the mailbox while there is no session.
pub(super) const TICK_MILLISECONDS: u32 = 100;

/// So often in one interrupt.
const MAX_ROUNDS: usize = 16;

/// Doorbells that belong to this vector have been rung. Hard interrupt context.
///
/// Who sleeps is told before they are cleared, which takes as long as his processor takes to wake up; and
/// all are told again afterwards: what has rung in between has raised no other interrupt.
///
/// Where several share the vector there may be an interrupt only when the first of them rings, and none
/// until all are cleared: so this goes on until they are. A peer that never stops to ring is heard
/// again when the link's work has had its turn (`NtbLink::listen_again()`).
pub(super) fn doorbells_rang(link: &Arc<NtbLink>, vector: u32) {
    let mut before = 0;
    for _ in 0..MAX_ROUNDS {
        let (rung, alone) = rung(link, vector);
        // To read them has made sure that those before are cleared.
        tell(link, before | rung);
        if rung == 0 {
            return;
        }
        if let Some(device) = &*link.device.lock() {
            let _ = device.db_clear(link.register.to_own_bits(rung));
        }
        if alone {
            tell(link, rung);
            return;
        }
        before = rung;
    }
    if let Some(device) = &*link.device.lock() {
        let _ = device.db_set_mask(link.register.own_bits());
        link.masked.store(true, Relaxed);
    }
    tell(link, before);
    NtbLink::schedule(link);
}

/// Messages have come. Hard interrupt context.
///
/// There are no more events until they were taken out (`message_registers.rs`).
pub(super) fn messages_came(link: &Arc<NtbLink>) {
    if let Some(device) = &*link.device.lock() {
        let _ = device.msg_set_mask(device.msg_inbits());
    }
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

fn tell(link: &Arc<NtbLink>, rung: u64) {
    let hello = doorbell::bit(doorbell::HELLO);
    if rung & hello != 0 {
        NtbLink::schedule(link);
    }
    let current = link.current.lock();
    let Some(session) = &*current else { return };
    for number in doorbell::numbers(rung & !hello) {
        session.as_arc_borrow().doorbell(number);
    }
}

/// Ticks between two looks for engines that are missing.
const ENGINE_TICKS: u32 = 1000 / TICK_MILLISECONDS;

impl Tick for NtbLink {
    fn tick(this: ArcBorrow<'_, Self>) {
        this.ticks.add(1, Relaxed);
        let current = this.current.lock();
        let over = match &*current {
            Some(session) => {
                session.as_arc_borrow().tick(TICK_MILLISECONDS);
                session.status() != Status::Running
            }
            // Doorbells are lost while a driver is not loaded; looking now and then does not hurt.
            None => true,
        };
        drop(current);
        let is_time = this.ticks.load(Relaxed) % ENGINE_TICKS == 0;
        if over || this.unsettled.load(Relaxed) || is_time && this.engines.are_missing() {
            NtbLink::schedule(&this.into());
        }
    }
}
