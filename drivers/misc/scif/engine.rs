// SPDX-License-Identifier: GPL-2.0

//! The DMA engine of this node, shared by all sessions.
//!
//! The channel is asked for when the first session starts, because the engine's driver may be
//! loaded after this module, and kept until the module goes. Without one every transfer goes by
//! CPU.

use crate::sys::{
    dmaengine::Channel,
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// One channel, and those who wait for room in it.
#[pin_data]
pub(crate) struct Engine {
    pub(crate) channel: Channel,
    /// Woken when descriptors have been completed.
    #[pin]
    pub(crate) room: WaitQueue,
    /// Bytes that the engine has copied.
    pub(crate) bytes: Atomic<u64>,
    /// Descriptors that failed.
    pub(crate) errors: Atomic<u64>,
}

impl Engine {
    /// Takes a channel, if the system has one to give. May sleep.
    pub(crate) fn request() -> Option<Arc<Self>> {
        let channel = Channel::request()?;
        Arc::pin_init(
            pin_init!(Self {
                channel,
                room <- new_wait_queue!("scif::Engine::room"),
                bytes: Atomic::new(0),
                errors: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
        .ok()
    }

    /// Takes note that a descriptor has ended. Soft interrupt context.
    pub(crate) fn descriptor_ended(&self, result: &Result) {
        if result.is_err() {
            self.errors.add(1, Relaxed);
        }
        self.room.wake_all();
    }
}
