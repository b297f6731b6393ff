// SPDX-License-Identifier: GPL-2.0

//! What tests say in an administrator's place.

use super::{
    busy_poll_us,
    dma_threshold,
    own, //
};

/// Has a test decide, until this is dropped, when what was said before holds again. One test runs at a time.
pub(crate) struct Said {
    busy_poll_us: u32,
    dma_threshold: i32,
}

impl Said {
    /// Has every wait sleep at once, and every transfer go by an engine if there is one.
    pub(crate) fn no_cpu() -> Self {
        let before = Self {
            busy_poll_us: busy_poll_us(),
            dma_threshold: dma_threshold(),
        };
        set(0, 0);
        before
    }
}

impl Drop for Said {
    fn drop(&mut self) {
        set(self.busy_poll_us, self.dma_threshold);
    }
}

fn set(busy_poll_us: u32, dma_threshold: i32) {
    // SAFETY: They are there as long as the module is; who loads them does so in one piece, as this stores them.
    unsafe {
        (&raw mut own::scif_tunable_busy_poll_us).write_volatile(busy_poll_us);
        (&raw mut own::scif_tunable_dma_threshold).write_volatile(dma_threshold);
    }
}
