// SPDX-License-Identifier: GPL-2.0
//! One end of a link as a PCI function.
//!
//! If the link takes time, so do accesses that trap: the guest's CPU waits for a read, as on
//! hardware. Nothing is locked meanwhile.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::counters::Counters;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::interrupt::Interrupts;
use crate::order::Initiator;
use crate::server::Function;
use crate::server::Layout;
use crate::server::Mapped;

use super::line::Effects;
use super::port::Port;
use super::window::BARS;
use super::window::Backing;
use super::window::Reach;

/// An NTB function of a guest.
pub struct NtbFunction {
    name: String,
    port: Port,
    counters: Arc<Counters>,
}

impl NtbFunction {
    /// Creates the function at one end of a link.
    pub fn new(name: String, port: Port) -> Self {
        let counters = port
            .order()
            .map_or_else(Arc::default, |order| Arc::clone(order.counters()));
        Self {
            name,
            port,
            counters,
        }
    }

    fn count(&self, effects: &Effects) {
        self.counters
            .doorbells
            .fetch_add(effects.doorbells, Relaxed);
        self.counters.dropped.fetch_add(effects.dropped, Relaxed);
    }

    /// Reads through a window, piece by piece. Where there is no memory, it reads all ones.
    fn window_read(&self, window: usize, offset: u64, data: &mut [u8]) {
        let mut at = 0;
        while at < data.len() {
            let rest = &mut data[at..];
            let reach =
                self.port
                    .reach(window, offset + at as u64, rest.len() as u64, Access::Read);
            match reach {
                Reach::Memory {
                    ram,
                    offset,
                    length,
                    pin: _pin,
                } => {
                    let piece = &mut rest[..length as usize];
                    if ram.read(offset, piece).is_err() {
                        piece.fill(0xff);
                    }
                    at += length as usize;
                }
                Reach::LinkDown { .. } | Reach::Nothing => {
                    Counters::count(&self.counters.dropped);
                    rest.fill(0xff);
                    return;
                }
            }
        }
    }
}

fn window_of(bar: usize) -> Option<usize> {
    BARS.iter().position(|index| *index == bar)
}

impl Function for NtbFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn layout(&self) -> Vec<Layout> {
        let mut all = vec![Layout {
            bar: 0,
            size: self.port.registers(),
            mapped: None,
        }];
        let ram = self.port.peer_ram();
        for (window, bar) in self.port.windows().iter().zip(BARS) {
            let mapped = match window.backing {
                Backing::Trapped { .. } => None,
                Backing::Mapped { base } => Some(Mapped {
                    file: ram.as_fd().as_raw_fd(),
                    offset: base,
                    // No page beyond the end of the file may be mapped.
                    length: window.size.min(ram.size() - base),
                }),
            };
            all.push(Layout {
                bar,
                size: window.size,
                mapped,
            });
        }
        all
    }

    fn memory(&self) -> &GuestMemory {
        self.port.memory()
    }

    fn interrupts(&self) -> &Interrupts {
        self.port.interrupts()
    }

    fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    fn config_read(&self, offset: u64, data: &mut [u8]) {
        self.port.config_read(offset, data);
    }

    fn config_write(&self, offset: u64, data: &[u8]) {
        self.port.config_write(offset, data);
    }

    fn bar_read(&self, bar: usize, offset: u64, data: &mut [u8]) {
        match window_of(bar) {
            Some(window) => {
                self.port.push(Initiator::Processor);
                self.window_read(window, offset, data);
                self.port.answer(Initiator::Processor);
                self.port
                    .wait(|crossing, now| crossing.load(now, data.len() as u64));
            }
            None => {
                let effects = self.port.register_read(offset, data);
                self.count(&effects);
                self.port.wait(|crossing, now| match effects.read {
                    0 => crossing.register_read(now),
                    bytes => crossing.load(now, bytes),
                });
            }
        }
    }

    fn bar_write(&self, bar: usize, offset: u64, data: &[u8]) {
        match window_of(bar) {
            Some(window) => {
                let dropped = self.port.write(Initiator::Processor, window, offset, data);
                self.counters.dropped.fetch_add(dropped, Relaxed);
                self.port
                    .wait(|crossing, now| crossing.store(now, data.len() as u64));
            }
            None => {
                let effects = self.port.register_write(offset, data);
                self.count(&effects);
                if effects.written > 0 {
                    self.port
                        .wait(|crossing, now| crossing.store(now, effects.written));
                }
            }
        }
    }

    fn connected(&self) {
        self.port.connect();
    }

    fn reset(&self) {
        self.port.reset();
    }

    fn disconnected(&self) {
        // The link comes first, so that no new access comes through while the rest is taken down.
        self.port.disconnect();
        self.port.memory().clear();
        self.port.interrupts().clear();
    }
}
