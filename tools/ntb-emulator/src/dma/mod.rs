// SPDX-License-Identifier: GPL-2.0
//! A DMA function: a PLX engine of one channel (10b5:87d0), for the driver plx_dma.
//!
//! [`descriptor`] and [`registers`] are the formats, [`engine`] executes, and this file makes a PCI
//! function of them. [`crate::bus::Bus`] finds the memory of an address.

pub mod descriptor;
pub mod engine;
pub mod registers;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::address::GuestBus;
use crate::counters::Counters;
use crate::guest_memory::GuestMemory;
use crate::interrupt::Interrupts;
use crate::model::pacer::Pacer;
use crate::pci::Bar;
use crate::pci::Capabilities;
use crate::pci::ConfigSpace;
use crate::pci::Identity;
use crate::pci::Signalling;
use crate::server::Function;
use crate::server::Layout;

use self::engine::Engine;

const BAR_SIZE: u64 = 0x4000;

/// A DMA function of a guest.
pub struct DmaFunction {
    name: String,
    config: Mutex<ConfigSpace>,
    engine: Engine<GuestBus>,
    memory: Arc<GuestMemory>,
    interrupts: Arc<Interrupts>,
    counters: Arc<Counters>,
}

impl DmaFunction {
    /// Creates a function that finds memory through `bus`; `memory` must be the one that the bus
    /// uses. With a pacer the function takes its time. The caller must run [`Self::run`] on a
    /// thread.
    pub fn new(
        name: String,
        memory: Arc<GuestMemory>,
        bus: GuestBus,
        pacer: Option<Pacer>,
    ) -> Self {
        let interrupts = Arc::new(Interrupts::msix(1));
        let counters = Arc::new(Counters::default());
        Self {
            name,
            config: Mutex::new(ConfigSpace::new(&Identity {
                vendor: 0x10b5,
                device: 0x87d0,
                class: 0x08_80_00,
                revision: 0xca,
                bars: vec![Bar {
                    index: 0,
                    size: BAR_SIZE,
                    prefetchable: false,
                }],
                signalling: Signalling::Msix {
                    vectors: 1,
                    table: 0x2000,
                    pending: 0x3000,
                },
                capabilities: Capabilities::default(),
            })),
            engine: Engine::new(bus, pacer, Arc::clone(&interrupts), Arc::clone(&counters)),
            memory,
            interrupts,
            counters,
        }
    }

    /// Executes descriptors for ever.
    pub fn run(&self) -> ! {
        self.engine.run()
    }
}

impl Function for DmaFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn layout(&self) -> Vec<Layout> {
        vec![Layout {
            bar: 0,
            size: BAR_SIZE,
            mapped: None,
        }]
    }

    fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    fn config_read(&self, offset: u64, data: &mut [u8]) {
        self.config.lock().read(offset, data);
    }

    fn config_write(&self, offset: u64, data: &[u8]) {
        self.config.lock().write(offset, data);
    }

    fn bar_read(&self, _bar: usize, offset: u64, data: &mut [u8]) {
        self.engine.read(offset, data);
    }

    fn bar_write(&self, _bar: usize, offset: u64, data: &[u8]) {
        self.engine.write(offset, data);
    }

    fn connected(&self) {}

    fn reset(&self) {
        self.engine.reset();
        self.interrupts.reset();
        self.config.lock().reset();
    }

    fn disconnected(&self) {
        self.engine.reset();
        self.interrupts.clear();
        self.memory.clear();
        self.config.lock().reset();
    }
}
