// SPDX-License-Identifier: GPL-2.0
//! What the registers of one NT function hold.

use super::map::BARS;
use super::map::MESSAGES;

/// NTCTL: completions pass, that is, the driver wants the link up.
pub(super) const COMPLETIONS: u32 = 1 << 1;
/// NTINTSTS: a message, or one that could not be delivered.
pub(super) const MESSAGE: u32 = 1 << 0;
/// NTINTSTS: a doorbell.
pub(super) const DOORBELL: u32 = 1 << 1;
/// NTINTSTS: an event of the switch.
pub(super) const EVENT: u32 = 1 << 3;
/// NTINTMSK: what can be masked.
const MASKABLE: u32 = 0x8b;
/// MSGSTS: what there is.
const ALL_MESSAGES: u32 = 0x000f_000f;
/// MSGSTS: where the bits of what has come in are.
const IN: usize = 16;
/// BARSETUP: what a driver can change, the partition that a window leads to.
const PARTITION: u32 = 7 << 13;
const PARTITION_AT: u32 = 13;
/// BARLIMIT: what is not kept, and taken for ones.
const LIMIT_LOW: u64 = 0x3ff;

/// The registers of one function.
#[derive(Debug)]
pub(super) struct Function {
    /// NTCTL.
    pub(super) control: u32,
    interrupt_mask: u32,
    /// NTINTSTS, as far as it is kept.
    event: bool,
    /// What has been told of NTINTSTS.
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
    /// The registers after reset, with that setup of the BARs.
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

    /// Back to the state after reset.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.setup.map(|setup| setup & !PARTITION));
    }

    /// NTINTSTS, while these doorbells are rung.
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

    /// Whether there is something in NTINTSTS that was not there before, and is to interrupt.
    pub(super) fn interrupts_now(&mut self, doorbells: u32) -> bool {
        let status = self.interrupts(doorbells) & !self.interrupt_mask;
        let risen = status & !self.told;
        self.told = status;
        risen != 0
    }

    /// A driver writes NTINTSTS.
    pub(super) fn clear_interrupts(&mut self, bits: u32) {
        self.event &= bits & EVENT == 0;
    }

    /// NTINTMSK.
    pub(super) fn interrupt_mask(&self) -> u32 {
        self.interrupt_mask
    }

    /// A driver writes NTINTMSK.
    pub(super) fn set_interrupt_mask(&mut self, mask: u32) {
        self.interrupt_mask = mask & MASKABLE;
    }

    /// An event of the switch is to be told.
    pub(super) fn tell(&mut self) {
        self.event = true;
    }

    /// MSGSTS.
    pub(super) fn messages(&self) -> u32 {
        self.messages
    }

    /// A driver writes MSGSTS.
    pub(super) fn clear_messages(&mut self, bits: u32) {
        self.messages &= !bits;
    }

    /// MSGSTSMSK.
    pub(super) fn message_mask(&self) -> u32 {
        self.message_mask
    }

    /// A driver writes MSGSTSMSK.
    pub(super) fn set_message_mask(&mut self, mask: u32) {
        self.message_mask = mask & ALL_MESSAGES;
    }

    /// A message comes in. Returns whether there was room for it.
    pub(super) fn deliver(&mut self, register: usize, word: u32, partition: u32) -> bool {
        let bit = 1 << (IN + register);
        let free = self.messages & bit == 0;
        if free {
            self.messages |= bit;
            self.inbox[register] = (word, partition);
        }
        free
    }

    /// A message of this function could not be delivered.
    pub(super) fn not_delivered(&mut self, register: usize) {
        self.messages |= 1 << register;
    }

    /// BARSETUPx.
    pub(super) fn setup(&self, bar: usize) -> u32 {
        self.setup[bar]
    }

    /// A driver writes BARSETUPx.
    pub(super) fn set_setup(&mut self, bar: usize, value: u32) {
        self.setup[bar] = (self.setup[bar] & !PARTITION) | (value & PARTITION);
    }

    /// BARLIMITx.
    pub(super) fn limit(&self, bar: usize) -> u32 {
        self.limit[bar]
    }

    /// A driver writes BARLIMITx; that of an odd one is the upper half of the one before.
    pub(super) fn set_limit(&mut self, bar: usize, value: u32) {
        self.limit[bar] = match bar % 2 {
            0 => value & !(LIMIT_LOW as u32),
            _ => value,
        };
    }

    /// BARLTBASEx or BARUTBASEx.
    pub(super) fn base(&self, bar: usize, half: usize) -> u32 {
        self.base[bar][half]
    }

    /// A driver writes BARLTBASEx or BARUTBASEx.
    pub(super) fn set_base(&mut self, bar: usize, half: usize, value: u32) {
        self.base[bar][half] = match half {
            0 => value & !3,
            _ => value,
        };
    }

    /// Where a BAR of 64 bits leads to in a partition, and how many bytes of it may be used
    /// if it is at that address.
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
