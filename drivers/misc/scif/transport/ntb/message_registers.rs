// SPDX-License-Identifier: GPL-2.0

//! The message registers of a device: one that holds a message takes no other until its owner has
//! cleared it.
//!
//! So what has come is taken out and kept here, and what does not get through is tried again.
//!
//! Events are raised when the status leaves 0, or as long as it is not 0. So an event masks the next ones
//! until what has come was taken out, all of it. What became of messages of this side is looked at
//! after each, and raises no events.

use super::context::PEER;
use crate::{
    logic::{
        hello::WORDS,
        parts::Registers, //
    },
    sys::ntb::NtbDevice,
};
use kernel::prelude::*;

/// A peer that writes all the time must not keep us here: what it does next raises an event.
const MAX_ROUNDS: usize = 16;

/// See the head of this file.
pub(super) struct MessageRegisters {
    inbits: u64,
    outbits: u64,
    /// The last message of each. There may be more registers than are used.
    words: [u32; WORDS],
}

/// The bit of this register among those of all: the lowest one is that of the first.
fn nth_bit(mut bits: u64, index: usize) -> u64 {
    for _ in 0..index {
        bits &= bits.wrapping_sub(1);
    }
    bits & bits.wrapping_neg()
}

impl MessageRegisters {
    pub(super) fn of(device: &NtbDevice) -> Self {
        Self {
            inbits: device.msg_inbits(),
            outbits: device.msg_outbits(),
            words: [0; WORDS],
        }
    }

    /// Events may come from now on.
    pub(super) fn open(&self, device: &NtbDevice) -> Result {
        device.msg_set_mask(self.outbits | self.inbits)?;
        device.msg_clear_mask(self.inbits)
    }

    /// No more events.
    pub(super) fn close(&self, device: &NtbDevice) {
        let _ = device.msg_set_mask(self.outbits | self.inbits);
    }

    /// Takes out what has come, and lets the next one raise an event.
    pub(super) fn collect(&mut self, device: &NtbDevice) {
        for _ in 0..MAX_ROUNDS {
            let status = device.msg_status();
            if status & !(self.inbits | self.outbits) != 0 {
                // All ones: the device is gone.
                return;
            }
            let arrived = status & self.inbits;
            if arrived == 0 {
                break;
            }
            for (index, word) in self.words.iter_mut().enumerate() {
                if arrived & nth_bit(self.inbits, index) == 0 {
                    continue;
                }
                *word = device.msg_read(index as u32);
            }
            if device.msg_clear(arrived).is_err() {
                return;
            }
        }
        let _ = device.msg_clear_mask(self.inbits);
    }

    /// What came does not count any more.
    pub(super) fn forget(&mut self, device: &NtbDevice) {
        self.collect(device);
        self.words = [0; WORDS];
    }

    /// Says whether it was delivered.
    pub(super) fn write_to(&self, device: &NtbDevice, index: usize, value: u32) -> bool {
        let refused = nth_bit(self.outbits, index);
        let written = device
            .msg_clear(refused)
            .and_then(|()| device.peer_msg_write(PEER, index as u32, value));
        written.is_ok() && device.msg_status() & refused == 0
    }

    /// For an exchange by way of this device.
    pub(super) fn on<'a>(&'a mut self, device: &'a NtbDevice) -> impl Registers + 'a {
        OnDevice {
            registers: self,
            device,
        }
    }
}

/// With the device that they are of.
struct OnDevice<'a> {
    registers: &'a mut MessageRegisters,
    device: &'a NtbDevice,
}

impl Registers for OnDevice<'_> {
    fn read(&mut self, index: usize) -> u32 {
        self.registers.words.get(index).copied().unwrap_or(0)
    }

    fn write(&mut self, index: usize, value: u32) -> bool {
        self.registers.write_to(self.device, index, value)
    }
}
