// SPDX-License-Identifier: LGPL-2.1

//! Everything that a program has left behind, released in an order in which nothing needs what has
//! gone before.

use crate::device::DEVICES;
use crate::dma::QUEUES;
use crate::local_interrupts;
use crate::local_segment;
use crate::local_segment::LOCAL_SEGMENTS;
use crate::maps::MAPS;
use crate::remote_interrupts;
use crate::remote_segment::REMOTE_SEGMENTS;
use crate::sequences;

/// See the head of this file.
pub fn all() {
    sequences::remove_all();
    QUEUES.take_all().iter().for_each(|queue| queue.release());
    MAPS.take_all().iter().for_each(|map| map.release());
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
