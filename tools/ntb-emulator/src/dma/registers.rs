// SPDX-License-Identifier: GPL-2.0
//! The registers of one PLX DMA function, and the ring that they describe.
//!
//! This is pure state, without threads or memory. [`super::engine`] asks what to do next and
//! reports the result.
//!
//! Two events must not get lost. If a start arrives while the engine finds the next descriptor not
//! valid yet, the engine must look again. If an interrupt status bit is raised again after the
//! guest last read it, the bit survives the guest's clearing: the new interrupt is still in flight
//! and must find the bit set.

use super::descriptor;
use crate::mmio::Located;
use crate::mmio::RegisterBlock;
use crate::mmio::merge;

const PAUSE: u16 = 1 << 0;
const ABORT: u16 = 1 << 1;
const WRITE_BACK: u16 = 1 << 2;
const START: u16 = 1 << 3;
const RING_STOP_MODE: u16 = 1 << 4;
const DESCRIPTOR_MODE: u16 = 3 << 5;
const DESCRIPTOR_INVALID: u16 = 1 << 8;
const PAUSE_DONE: u16 = 1 << 9;
const ABORT_DONE: u16 = 1 << 10;
const IMMEDIATE_PAUSE_DONE: u16 = 1 << 12;
const SETTINGS: u16 = PAUSE | ABORT | WRITE_BACK | RING_STOP_MODE | DESCRIPTOR_MODE;
const STATUS: u16 = DESCRIPTOR_INVALID | PAUSE_DONE | ABORT_DONE | IMMEDIATE_PAUSE_DONE;
/// This bit is in the upper half of the 32-bit control register.
const IN_PROGRESS: u16 = 1 << 14;

const ERROR: u16 = 1 << 0;
const INVALID: u16 = 1 << 1;
const DONE: u16 = 1 << 2;

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// The ring's address, bits 31:0.
    Ring,
    /// The ring's address, bits 63:32.
    RingHigh,
    /// The next descriptor's address, bits 31:0.
    Next,
    /// The number of descriptors in the ring.
    Count,
    /// The number of descriptors to prefetch: stored only.
    Prefetch,
    /// Start, pause, abort, and their results.
    Control,
    /// The transfer size; its bit 14 says that a copy is in progress.
    Control2,
    /// The conditions that interrupt.
    InterruptControl,
    /// The conditions that occurred.
    InterruptStatus,
}

/// The next descriptor to execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The address.
    pub address: u64,
    /// The address of the descriptor after it, which may be the same.
    pub next: u64,
    /// Whether the engine writes the descriptor back.
    pub write_back: bool,
}

/// The result of executing a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The descriptor was executed, successfully or not.
    Executed {
        /// Whether the guest wants an interrupt.
        interrupt: bool,
    },
    /// The descriptor is not valid.
    NotValid,
    /// The descriptor could not be read or written back.
    RingFault,
    /// The guest has aborted the copy.
    Aborted,
}

/// The registers.
#[derive(Debug, Default)]
pub struct Registers {
    ring: u32,
    ring_high: u32,
    next: u32,
    count: u32,
    prefetch: u32,
    settings: u16,
    status: u16,
    control2: u16,
    interrupt_control: u16,
    interrupt_status: u16,
    /// Bits raised since the guest last read the interrupt status.
    unread: u16,
    running: bool,
    /// Whether the guest has started the engine again since the engine last began a descriptor.
    started_again: bool,
    busy: bool,
}

impl Registers {
    /// Returns the next descriptor, if there is one to execute; [`Self::finish`] must follow. A
    /// ring that makes no sense stops the engine: then the result is `Err`, and whether to
    /// interrupt.
    pub fn begin(&mut self) -> Result<Option<Slot>, bool> {
        if !self.running || self.settings & (PAUSE | ABORT) != 0 {
            return Ok(None);
        }
        self.started_again = false;
        let ring = (u64::from(self.ring_high) << 32) | u64::from(self.ring);
        let into = u64::from(self.next.wrapping_sub(self.ring));
        let sane = ring % descriptor::SIZE == 0
            && into % descriptor::SIZE == 0
            && into / descriptor::SIZE < u64::from(self.count);
        match ring.checked_add(into).filter(|_| sane) {
            Some(address) => {
                self.busy = true;
                Ok(Some(Slot {
                    address,
                    next: ring.wrapping_add(u64::from(self.following().wrapping_sub(self.ring))),
                    write_back: self.settings & WRITE_BACK != 0,
                }))
            }
            None => {
                self.running = false;
                Err(self.condition(ERROR))
            }
        }
    }

    /// Reports the result of the descriptor. Returns whether to interrupt the guest.
    pub fn finish(&mut self, end: End) -> bool {
        self.busy = false;
        let interrupt = match end {
            End::Executed { interrupt } => {
                self.next = self.following();
                if interrupt {
                    self.raise(DONE);
                }
                interrupt
            }
            End::NotValid if self.started_again => false,
            End::NotValid => {
                self.running = false;
                self.status |= DESCRIPTOR_INVALID;
                self.condition(INVALID)
            }
            End::RingFault => {
                self.running = false;
                self.condition(ERROR)
            }
            End::Aborted => false,
        };
        self.acknowledge_stop();
        interrupt
    }

    /// Returns the value of `next` behind the present descriptor.
    fn following(&self) -> u32 {
        let into = self.next.wrapping_sub(self.ring);
        let index = u64::from(into) / descriptor::SIZE + 1;
        if index < u64::from(self.count) {
            self.next.wrapping_add(descriptor::SIZE as u32)
        } else {
            self.ring
        }
    }

    /// Returns whether the engine works on a descriptor.
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// Returns whether the guest wants to abort a copy.
    pub fn wants_abort(&self) -> bool {
        self.settings & ABORT != 0
    }

    /// Resets all but the fact that the engine works on a descriptor.
    pub fn reset(&mut self) {
        *self = Self {
            busy: self.busy,
            ..Self::default()
        };
    }

    fn raise(&mut self, bit: u16) {
        self.interrupt_status |= bit;
        self.unread |= bit;
    }

    /// Raises a condition, which interrupts only if enabled. Returns whether it does.
    fn condition(&mut self, bit: u16) -> bool {
        let enabled = self.interrupt_control & bit != 0;
        if enabled {
            self.raise(bit);
        }
        enabled
    }

    fn acknowledge_stop(&mut self) {
        if self.busy {
            return;
        }
        if self.settings & PAUSE != 0 {
            self.status |= PAUSE_DONE;
        }
        if self.settings & ABORT != 0 {
            self.status |= ABORT_DONE;
        }
    }

    fn write_control(&mut self, value: u16, mask: u16) {
        let before = self.settings;
        self.settings = (before & !mask | value & mask) & SETTINGS;
        self.status &= !(value & STATUS);
        if value & START != 0 {
            self.running = true;
            self.started_again = true;
        }
        if self.settings & !before & (PAUSE | ABORT) != 0 {
            self.running = false;
            self.acknowledge_stop();
        }
    }
}

impl RegisterBlock for Registers {
    type Register = Register;

    fn locate(&self, offset: u64) -> Option<Located<Register>> {
        let (register, start, width) = match offset {
            0x214..=0x217 => (Register::Ring, 0x214, 4),
            0x218..=0x21b => (Register::RingHigh, 0x218, 4),
            0x21c..=0x21f => (Register::Next, 0x21c, 4),
            0x220..=0x223 => (Register::Count, 0x220, 4),
            0x234..=0x237 => (Register::Prefetch, 0x234, 4),
            0x238..=0x239 => (Register::Control, 0x238, 2),
            0x23a..=0x23b => (Register::Control2, 0x23a, 2),
            0x23c..=0x23d => (Register::InterruptControl, 0x23c, 2),
            0x23e..=0x23f => (Register::InterruptStatus, 0x23e, 2),
            _ => return None,
        };
        Some(Located {
            register,
            start,
            width,
        })
    }

    fn read(&mut self, register: Register) -> u64 {
        match register {
            Register::Ring => self.ring.into(),
            Register::RingHigh => self.ring_high.into(),
            Register::Next => self.next.into(),
            Register::Count => self.count.into(),
            Register::Prefetch => self.prefetch.into(),
            Register::Control => {
                let start = if self.running { START } else { 0 };
                (self.settings | self.status | start).into()
            }
            Register::Control2 => {
                let progress = if self.busy { IN_PROGRESS } else { 0 };
                (self.control2 | progress).into()
            }
            Register::InterruptControl => self.interrupt_control.into(),
            Register::InterruptStatus => {
                self.unread = 0;
                self.interrupt_status.into()
            }
        }
    }

    fn write(&mut self, register: Register, value: u64, mask: u64) {
        let merge32 = |old: u32| merge(old.into(), value, mask) as u32;
        let merge16 = |old: u16| merge(old.into(), value, mask) as u16;
        match register {
            Register::Ring => self.ring = merge32(self.ring),
            Register::RingHigh => self.ring_high = merge32(self.ring_high),
            Register::Next => self.next = merge32(self.next),
            Register::Count => self.count = merge32(self.count),
            Register::Prefetch => self.prefetch = merge32(self.prefetch),
            Register::Control => self.write_control(value as u16, mask as u16),
            Register::Control2 => self.control2 = merge16(self.control2) & !IN_PROGRESS,
            Register::InterruptControl => {
                self.interrupt_control = merge16(self.interrupt_control);
            }
            Register::InterruptStatus => {
                self.interrupt_status &= !(value as u16 & !self.unread);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmio;

    const RESET: u16 = 0x1700;
    const STARTED: u16 = 0x174c;

    fn write16(registers: &mut Registers, offset: u64, value: u16) {
        mmio::write(registers, offset, &value.to_le_bytes());
    }

    fn write32(registers: &mut Registers, offset: u64, value: u32) {
        mmio::write(registers, offset, &value.to_le_bytes());
    }

    fn read16(registers: &mut Registers, offset: u64) -> u16 {
        let mut data = [0; 2];
        mmio::read(registers, offset, &mut data);
        u16::from_le_bytes(data)
    }

    fn read32(registers: &mut Registers, offset: u64) -> u32 {
        let mut data = [0; 4];
        mmio::read(registers, offset, &mut data);
        u32::from_le_bytes(data)
    }

    /// Returns registers as the driver sets a channel up.
    fn ring_of(count: u32) -> Registers {
        let mut registers = Registers::default();
        write32(&mut registers, 0x238, RESET.into());
        write32(&mut registers, 0x214, 0x8000_1000);
        write32(&mut registers, 0x218, 0x12);
        write32(&mut registers, 0x21c, 0x8000_1000);
        write32(&mut registers, 0x220, count);
        write32(&mut registers, 0x234, 8);
        registers
    }

    fn address(registers: &mut Registers) -> Option<u64> {
        registers.begin().unwrap().map(|slot| slot.address)
    }

    #[test]
    fn descriptor_address_wraps_around_the_ring() {
        let mut registers = ring_of(2);
        assert_eq!(registers.begin(), Ok(None));
        write16(&mut registers, 0x238, STARTED);
        for expected in [0x12_8000_1000, 0x12_8000_1010, 0x12_8000_1000] {
            assert_eq!(address(&mut registers), Some(expected));
            assert!(!registers.finish(End::Executed { interrupt: false }));
        }
        assert_eq!(read32(&mut registers, 0x21c), 0x8000_1010);
        registers.begin().unwrap().unwrap();
        registers.finish(End::NotValid);
        assert_eq!(registers.begin(), Ok(None));
        assert_ne!(read16(&mut registers, 0x238) & DESCRIPTOR_INVALID, 0);
    }

    #[test]
    fn start_during_a_descriptor_check_is_not_lost() {
        let mut registers = ring_of(4);
        write16(&mut registers, 0x238, STARTED);
        registers.begin().unwrap().unwrap();
        write16(&mut registers, 0x238, STARTED);
        registers.finish(End::NotValid);
        assert!(address(&mut registers).is_some());
        registers.finish(End::NotValid);
        assert_eq!(registers.begin(), Ok(None));
    }

    #[test]
    fn pause_is_acknowledged_once_idle() {
        let mut registers = ring_of(4);
        write16(&mut registers, 0x238, STARTED);
        registers.begin().unwrap().unwrap();
        write32(&mut registers, 0x238, u32::from(RESET | PAUSE));
        let control = read32(&mut registers, 0x238);
        assert_eq!(control & u32::from(PAUSE_DONE), 0);
        assert_ne!(control & (1 << 30), 0);
        registers.finish(End::Executed { interrupt: false });
        assert_ne!(read16(&mut registers, 0x238) & PAUSE_DONE, 0);
        assert_eq!(registers.begin(), Ok(None));
        // The driver writes the bit again, and then checks whether another bit is set.
        write32(&mut registers, 0x238, u32::from(RESET | PAUSE));
        assert_eq!(read32(&mut registers, 0x238), u32::from(PAUSE));
        // An idle engine acknowledges at once.
        write16(&mut registers, 0x238, STARTED);
        registers.begin().unwrap().unwrap();
        registers.finish(End::NotValid);
        write32(&mut registers, 0x238, u32::from(RESET | PAUSE));
        assert_ne!(read16(&mut registers, 0x238) & PAUSE_DONE, 0);
    }

    #[test]
    fn clearing_status_keeps_events_raised_since_the_read() {
        let mut registers = ring_of(8);
        write16(&mut registers, 0x238, STARTED);
        registers.begin().unwrap().unwrap();
        assert!(registers.finish(End::Executed { interrupt: true }));
        assert_eq!(read16(&mut registers, 0x23e), DONE);
        registers.begin().unwrap().unwrap();
        assert!(registers.finish(End::Executed { interrupt: true }));
        write16(&mut registers, 0x23e, DONE);
        assert_eq!(read16(&mut registers, 0x23e), DONE);
        write16(&mut registers, 0x23e, DONE);
        assert_eq!(read16(&mut registers, 0x23e), 0);
    }

    #[test]
    fn invalid_ring_registers_stop_the_engine() {
        for (offset, value) in [
            (0x220, 0u32),
            (0x214, 0x8000_1008),
            (0x21c, 0x8000_1004),
            (0x21c, 0x8000_1040),
            (0x21c, 0x8000_0ff0),
        ] {
            let mut registers = ring_of(4);
            write16(&mut registers, 0x23c, ERROR);
            write32(&mut registers, offset, value);
            write16(&mut registers, 0x238, STARTED);
            assert_eq!(registers.begin(), Err(true), "{offset:#x}");
            assert_eq!(registers.begin(), Ok(None));
            assert_eq!(read16(&mut registers, 0x23e), ERROR);
        }
    }
}
