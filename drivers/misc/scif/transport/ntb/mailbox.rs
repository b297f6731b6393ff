// SPDX-License-Identifier: GPL-2.0

//! The mailbox: registers of a device through which both sides exchange hellos before there is
//! shared memory.
//!
//! The registers are scratchpads or message registers. A hello is transferred part by part, or at
//! once if there are enough registers (`logic/parts.rs`). Each read of a register stalls the CPU,
//! so the mailbox is only for the handshake.
//!
//! # Message registers
//!
//! A scratchpad keeps a value until another one is written. A message register that holds a message
//! accepts no other until its owner has cleared it. So received messages are read and kept here,
//! and a refused message is tried again.
//!
//! Depending on the hardware, an event is raised when the status leaves 0, or as long as it is not
//! 0. So an event masks further ones until all received messages were read. The status of this
//! side's own messages is checked after each write, and raises no events.

use kernel::prelude::*;

use crate::{
    logic::{
        hello::{
            Hello,
            NoHello, //
        },
        parts::{
            Parts,
            Registers,
            LEAST_REGISTERS,
            MOST_REGISTERS, //
        },
    },
    sys::{
        ntb::NtbDevice,
        random, //
    },
};

/// The registers of a device for the exchange of hellos.
pub(super) struct Mailbox {
    parts: Parts,
    /// The message registers, or `None` if the exchange uses scratchpads.
    messages: Option<MessageRegisters>,
    /// The doorbell that announces parts to the peer, as a bit of the device.
    bell: u64,
}

impl Mailbox {
    /// Creates the mailbox of a device, or returns `None` if it has too few registers.
    /// Context: may sleep.
    pub(super) fn of(device: &NtbDevice, bell: u64) -> Option<Self> {
        let scratchpads = device.spad_count() as usize;
        let messages = device.msg_count() as usize;
        let by_messages = scratchpads < LEAST_REGISTERS;
        let registers = if by_messages { messages } else { scratchpads };
        (registers >= LEAST_REGISTERS).then(|| Self {
            parts: Parts::new(registers, random() as u32),
            messages: by_messages.then(|| MessageRegisters::of(device)),
            bell,
        })
    }

    /// Enables events.
    /// Context: may sleep.
    pub(super) fn open(&self, device: &NtbDevice) -> Result {
        match &self.messages {
            Some(registers) => registers.open(device),
            None => Ok(()),
        }
    }

    /// Withdraws this side's hello, as far as possible, and disables events.
    /// Context: may sleep.
    pub(super) fn close(&mut self, device: &NtbDevice) {
        if let Some(registers) = &self.messages {
            registers.write_to(device, 0, 0);
            registers.close(device);
        } else {
            let _ = device.peer_spad_write(0, 0);
        }
    }

    /// Exchanges parts at this tick, and returns the peer's hello.
    /// Context: may sleep.
    pub(super) fn read(
        &mut self,
        device: &NtbDevice,
        now: u32,
        in_session: bool,
    ) -> Result<Hello, NoHello> {
        // If the doorbell can't be rung, the peer's next tick reads the registers as well.
        let _ = self.exchange(device, now, in_session);
        Hello::decode(self.parts.heard())
    }

    /// Starts to send this hello to the peer. There is no session.
    /// Context: may sleep.
    pub(super) fn write(&mut self, device: &NtbDevice, now: u32, hello: &Hello) -> Result {
        self.parts.say(&hello.encode(), now);
        self.exchange(device, now, false)
    }

    /// Forgets the peer's hello, as the link is down.
    pub(super) fn forget(&mut self, device: Option<&NtbDevice>) {
        self.parts.forget();
        if let (Some(registers), Some(device)) = (&mut self.messages, device) {
            // Discards the messages that have come.
            registers.collect(device);
            registers.words = [0; MOST_REGISTERS];
        }
    }

    /// Returns whether [`Self::read`] has to be called after a while even without an event.
    pub(super) fn is_unsettled(&self) -> bool {
        self.parts.is_unsettled()
    }

    fn exchange(&mut self, device: &NtbDevice, now: u32, in_session: bool) -> Result {
        if let Some(registers) = &mut self.messages {
            registers.collect(device);
            let mut messages = Messages(registers, device);
            // A message raises an event by itself, so no doorbell is needed.
            self.parts.exchange(&mut messages, now, in_session);
        } else if self
            .parts
            .exchange(&mut Scratchpads(device), now, in_session)
        {
            device.peer_db_set(self.bell)?;
        }
        Ok(())
    }
}

/// Scratchpads as the registers of an exchange.
struct Scratchpads<'a>(&'a NtbDevice);

impl Registers for Scratchpads<'_> {
    fn read(&mut self, index: usize) -> u32 {
        self.0.spad_read(index as u32)
    }

    fn write(&mut self, index: usize, value: u32) -> bool {
        self.0.peer_spad_write(index as u32, value).is_ok()
    }
}

/// Limit of rounds in one call, so that a peer that writes all the time can't keep this CPU here.
/// Its next message raises an event.
const MAX_ROUNDS: usize = 16;

/// The message registers of a device, and the messages received.
struct MessageRegisters {
    inbits: u64,
    outbits: u64,
    /// The last message of each register. The device may have more registers than are used.
    words: [u32; MOST_REGISTERS],
}

/// Returns the bit of a register in a mask of all registers, the lowest one for index 0.
fn nth_bit(mut bits: u64, index: usize) -> u64 {
    for _ in 0..index {
        bits &= bits.wrapping_sub(1);
    }
    bits & bits.wrapping_neg()
}

impl MessageRegisters {
    fn of(device: &NtbDevice) -> Self {
        Self {
            inbits: device.msg_inbits(),
            outbits: device.msg_outbits(),
            words: [0; MOST_REGISTERS],
        }
    }

    /// Enables events for received messages.
    fn open(&self, device: &NtbDevice) -> Result {
        device.msg_set_mask(self.outbits | self.inbits)?;
        device.msg_clear_mask(self.inbits)
    }

    /// Disables all events.
    fn close(&self, device: &NtbDevice) {
        let _ = device.msg_set_mask(self.outbits | self.inbits);
    }

    /// Reads the received messages, and enables the next event.
    fn collect(&mut self, device: &NtbDevice) {
        for _ in 0..MAX_ROUNDS {
            let status = device.msg_status();
            if status & !(self.inbits | self.outbits) != 0 {
                // All bits are set: the device is gone.
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

    /// Writes a message. Returns whether it was delivered.
    fn write_to(&self, device: &NtbDevice, index: usize, value: u32) -> bool {
        let refused = nth_bit(self.outbits, index);
        let written = device
            .msg_clear(refused)
            .and_then(|()| device.peer_msg_write(index as u32, value));
        written.is_ok() && device.msg_status() & refused == 0
    }
}

/// Message registers as the registers of an exchange.
struct Messages<'a>(&'a mut MessageRegisters, &'a NtbDevice);

impl Registers for Messages<'_> {
    fn read(&mut self, index: usize) -> u32 {
        self.0.words.get(index).copied().unwrap_or(0)
    }

    fn write(&mut self, index: usize, value: u32) -> bool {
        self.0.write_to(self.1, index, value)
    }
}
