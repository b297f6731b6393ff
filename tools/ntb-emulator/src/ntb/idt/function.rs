// SPDX-License-Identifier: GPL-2.0
//! The contents of the registers of one NT function.

use super::map::BARS;
use super::map::MESSAGES;

/// NTCTL: completions pass, that is, the driver wants the link up.
pub(super) const COMPLETIONS: u32 = 1 << 1;
/// NTINTSTS: a message, or a message that could not be delivered.
pub(super) const MESSAGE: u32 = 1 << 0;
/// NTINTSTS: a doorbell.
pub(super) const DOORBELL: u32 = 1 << 1;
/// NTINTSTS: an event of the switch.
pub(super) const EVENT: u32 = 1 << 3;
/// NTINTMSK: the bits that can be masked.
const MASKABLE: u32 = 0x8b;
/// MSGSTS: all bits.
const ALL_MESSAGES: u32 = 0x000f_000f;
/// MSGSTS: the first bit for received messages.
const IN: usize = 16;
/// BARSETUP: the partition that a window leads to; a driver can change nothing else.
const PARTITION: u32 = 7 << 13;
const PARTITION_AT: u32 = 13;
/// BARLIMIT: bits that are not kept, and count as ones.
const LIMIT_LOW: u64 = 0x3ff;

/// The registers of one function.
#[derive(Debug)]
pub(super) struct Function {
    /// NTCTL.
    pub(super) control: u32,
    interrupt_mask: u32,
    /// The part of NTINTSTS that is kept.
    event: bool,
    /// The bits of NTINTSTS that the guest was interrupted for.
    told: u32,
    /// INDBELLMSK.
    pub(super) doorbell_mask: u32,
    /// MSGSTS.
    messages: u32,
    message_mask: u32,
    /// OUTMSGx.
    pub(super) out: [u32; MESSAGES],
    /// INMSGx, and INMSGSRCx.
    pub(super) inbox: [(u32, u32); MESSAGES],
    /// BARSETUPx.
    setup: [u32; BARS],
    limit: [u32; BARS],
    /// BARLTBASEx and BARUTBASEx.
    base: [[u32; 2]; BARS],
    /// NTMTBLADDR.
    pub(super) entry: u32,
    /// GASAADDR.
    pub(super) address: u32,
}

impl Function {
    /// Creates the registers after reset, with that setup of the BARs.
    pub(super) fn new(setup: [u32; BARS]) -> Self {
        Self {
            control: 0,
            interrupt_mask: MASKABLE,
            event: false,
            told: 0,
            doorbell_mask: 0,
            messages: 0,
            message_mask: 0,
            out: [0; MESSAGES],
            inbox: [(0, 0); MESSAGES],
            setup,
            limit: [0; BARS],
            base: [[0; 2]; BARS],
            entry: 0,
            address: 0,
        }
    }

    /// Returns to the state after reset.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.setup.map(|setup| setup & !PARTITION));
    }

    /// Returns NTINTSTS, while these doorbells are rung.
    pub(super) fn interrupts(&self, doorbells: u32) -> u32 {
        let mut status = 0;
        if self.messages & !self.message_mask != 0 {
            status |= MESSAGE;
        }
        if doorbells & !self.doorbell_mask != 0 {
            status |= DOORBELL;
        }
        if self.event {
            status |= EVENT;
        }
        status
    }

    /// Returns whether a new bit of NTINTSTS must interrupt.
    pub(super) fn interrupts_now(&mut self, doorbells: u32) -> bool {
        let status = self.interrupts(doorbells) & !self.interrupt_mask;
        let risen = status & !self.told;
        self.told = status;
        risen != 0
    }

    /// Writes NTINTSTS on behalf of a driver.
    pub(super) fn clear_interrupts(&mut self, bits: u32) {
        self.event &= bits & EVENT == 0;
    }

    /// Returns NTINTMSK.
    pub(super) fn interrupt_mask(&self) -> u32 {
        self.interrupt_mask
    }

    /// Writes NTINTMSK on behalf of a driver.
    pub(super) fn set_interrupt_mask(&mut self, mask: u32) {
        self.interrupt_mask = mask & MASKABLE;
    }

    /// Records an event of the switch for NTINTSTS.
    pub(super) fn tell(&mut self) {
        self.event = true;
    }

    /// Returns MSGSTS.
    pub(super) fn messages(&self) -> u32 {
        self.messages
    }

    /// Writes MSGSTS on behalf of a driver.
    pub(super) fn clear_messages(&mut self, bits: u32) {
        self.messages &= !bits;
    }

    /// Returns MSGSTSMSK.
    pub(super) fn message_mask(&self) -> u32 {
        self.message_mask
    }

    /// Writes MSGSTSMSK on behalf of a driver.
    pub(super) fn set_message_mask(&mut self, mask: u32) {
        self.message_mask = mask & ALL_MESSAGES;
    }

    /// Receives a message. Returns whether there was room for it.
    pub(super) fn deliver(&mut self, register: usize, word: u32, partition: u32) -> bool {
        let bit = 1 << (IN + register);
        let free = self.messages & bit == 0;
        if free {
            self.messages |= bit;
            self.inbox[register] = (word, partition);
        }
        free
    }

    /// Records that a message of this function could not be delivered.
    pub(super) fn not_delivered(&mut self, register: usize) {
        self.messages |= 1 << register;
    }

    /// Returns BARSETUPx.
    pub(super) fn setup(&self, bar: usize) -> u32 {
        self.setup[bar]
    }

    /// Writes BARSETUPx on behalf of a driver.
    pub(super) fn set_setup(&mut self, bar: usize, value: u32) {
        self.setup[bar] = (self.setup[bar] & !PARTITION) | (value & PARTITION);
    }

    /// Returns BARLIMITx.
    pub(super) fn limit(&self, bar: usize) -> u32 {
        self.limit[bar]
    }

    /// Writes BARLIMITx on behalf of a driver. An odd one is the upper half of the one before.
    pub(super) fn set_limit(&mut self, bar: usize, value: u32) {
        self.limit[bar] = match bar % 2 {
            0 => value & !(LIMIT_LOW as u32),
            _ => value,
        };
    }

    /// Returns BARLTBASEx or BARUTBASEx.
    pub(super) fn base(&self, bar: usize, half: usize) -> u32 {
        self.base[bar][half]
    }

    /// Writes BARLTBASEx or BARUTBASEx on behalf of a driver.
    pub(super) fn set_base(&mut self, bar: usize, half: usize, value: u32) {
        self.base[bar][half] = match half {
            0 => value & !3,
            _ => value,
        };
    }

    /// Returns where a BAR of 64 bits leads to in a partition, and how many bytes of it may be used
    /// if the BAR is at that address.
    pub(super) fn translation(&self, bar: usize, address: u64, partition: u64) -> (u64, u64) {
        let whole = |[lower, upper]: [u32; 2]| (u64::from(upper) << 32) | u64::from(lower);
        let leads_to = u64::from((self.setup[bar] & PARTITION) >> PARTITION_AT);
        let last = whole([self.limit[bar], self.limit[bar + 1]]) | LIMIT_LOW;
        let permitted = match last.checked_sub(address) {
            Some(rest) if leads_to == partition => rest.saturating_add(1),
            _ => 0,
        };
        (whole(self.base[bar]), permitted)
    }
}
