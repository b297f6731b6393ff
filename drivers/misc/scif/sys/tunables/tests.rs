// SPDX-License-Identifier: GPL-2.0

//! Module parameters that a test sets.

use super::{
    busy_poll_us,
    dma_threshold,
    own, //
};

/// A setting by a test, which restores the previous values on drop. One test runs at a time.
pub(crate) struct Said {
    busy_poll_us: u32,
    dma_threshold: i32,
}

impl Said {
    /// Makes every wait sleep at once, and every transfer use an engine if there is one.
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
    // SAFETY: The variables exist as long as the module. They are loaded in one piece, and stored
    // in one piece here.
    unsafe {
        (&raw mut own::scif_tunable_busy_poll_us).write_volatile(busy_poll_us);
        (&raw mut own::scif_tunable_dma_threshold).write_volatile(dma_threshold);
    }
}
