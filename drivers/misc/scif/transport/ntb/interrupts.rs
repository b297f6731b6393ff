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
    Arc,
    ArcBorrow, //
};

/// Between two signs of life, and two looks at the scratchpads while there is no session.
pub(super) const TICK_MILLISECONDS: u32 = 100;

/// Doorbells that belong to this vector have been rung. Hard interrupt context.
///
/// Who sleeps is told before they are cleared, which takes as long as his processor takes to wake up; and
/// all are told again afterwards: what has rung in between has raised no other interrupt.
pub(super) fn doorbells_rang(link: &Arc<NtbLink>, vector: u32) {
    let rung = rung(link, vector);
    if rung == 0 {
        return;
    }
    tell(link, rung);
    if let Some(device) = &*link.device.lock() {
        let _ = device.db_clear(rung);
    }
    tell(link, rung);
}

/// Which ones they are, as bits.
fn rung(link: &NtbLink, vector: u32) -> u64 {
    let device = link.device.lock();
    let Some(device) = &*device else { return 0 };
    match device.db_vector_mask(vector) & link.doorbells {
        own if own.count_ones() <= 1 => own,
        // Several doorbells share the vector: only the device knows which it was.
        several => several & device.db_read(),
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
        if over {
            NtbLink::schedule(&this.into());
        }
    }
}
