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
/// until all are cleared: so this goes on until they are. A peer that never stops to ring is left to
/// the interrupt that lifting the mask raises.
pub(super) fn doorbells_rang(link: &Arc<NtbLink>, vector: u32) {
    for _ in 0..MAX_ROUNDS {
        let (rung, alone) = rung(link, vector);
        if rung == 0 {
            return;
        }
        tell(link, rung);
        if let Some(device) = &*link.device.lock() {
            let _ = device.db_clear(link.register.to_own_bits(rung));
        }
        tell(link, rung);
        if alone {
            return;
        }
    }
    if let Some(device) = &*link.device.lock() {
        let own = link.register.own_bits();
        let _ = device.db_set_mask(own);
        let _ = device.db_clear_mask(own);
    }
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
        if over || this.unsettled.load(Relaxed) {
            NtbLink::schedule(&this.into());
        }
    }
}
