// SPDX-License-Identifier: LGPL-2.1

//! The order in which all resources of a program are released, so that none needs one that is gone;
//! and the list of all state that a child must forget.

use crate::device::DEVICES;
use crate::dma::QUEUES;
use crate::library;
use crate::life;
use crate::listener;
use crate::local_interrupts;
use crate::local_segment;
use crate::local_segment::LOCAL_SEGMENTS;
use crate::maps::MAPS;
use crate::nodes;
use crate::process::NewProcess;
use crate::remote_interrupts;
use crate::remote_segment::REMOTE_SEGMENTS;
use crate::sequences;
use crate::store_log;

/// Releases all resources that a program has left behind.
pub fn all() {
    sequences::remove_all();
    QUEUES.take_all().iter().for_each(|queue| queue.release());
    MAPS.take_all()
        .iter()
        .for_each(|map| sequences::release_map(map));
    for table in [
        &local_interrupts::INTERRUPTS,
        &local_interrupts::DATA_INTERRUPTS,
    ] {
        table
            .take_all()
            .iter()
            .for_each(|interrupt| interrupt.release());
    }
    for table in [
        &remote_interrupts::INTERRUPTS,
        &remote_interrupts::DATA_INTERRUPTS,
    ] {
        table
            .take_all()
            .iter()
            .for_each(|interrupt| interrupt.release());
    }
    REMOTE_SEGMENTS
        .take_all()
        .iter()
        .for_each(|segment| segment.release());
    LOCAL_SEGMENTS
        .take_all()
        .iter()
        .for_each(|segment| segment.release(true));
    local_segment::disconnect_kept();
    DEVICES.take_all();
}

/// Forgets all state of the parent process. Nothing is dropped: the parent's threads do not exist
/// here, and the parent's peers must notice nothing.
pub fn forget(process: &NewProcess) {
    library::forget(process);
    life::forget(process);
    listener::forget(process);
    nodes::forget(process);
    sequences::forget(process);
    store_log::forget(process);
    QUEUES.forget(process);
    MAPS.forget(process);
    for table in [
        &local_interrupts::INTERRUPTS,
        &local_interrupts::DATA_INTERRUPTS,
    ] {
        table.forget(process);
    }
    for table in [
        &remote_interrupts::INTERRUPTS,
        &remote_interrupts::DATA_INTERRUPTS,
    ] {
        table.forget(process);
    }
    REMOTE_SEGMENTS.forget(process);
    local_segment::forget(process);
    DEVICES.forget(process);
}
