// SPDX-License-Identifier: GPL-2.0

//! Where the hellos of both sides are: what a device has for a few words before there is memory.
//!
//! Scratchpads, or message registers: a part of a hello at a time, or all of it if there are enough (`logic/parts.rs`).
//!
//! They are registers: each read of one stalls the processor. So this is for the handshake only.
//!
//! # Message registers
//!
//! A value stays in a scratchpad until another one is written. A message register that holds a message takes
//! no other until its owner has cleared it. So what has come is taken out and kept here, and what does not
//! get through is tried again.
//!
//! Events are raised when the status leaves 0, or as long as it is not 0. So an event masks the next ones
//! until what has come was taken out, all of it. What became of messages of this side is looked at
//! after each, and raises no events.

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

/// See the head of this file.
pub(super) struct Mailbox {
    parts: Parts,
    /// None if parts are in scratchpads.
    messages: Option<MessageRegisters>,
    /// The doorbell that tells the peer to look, as a bit of the device.
    bell: u64,
}

impl Mailbox {
    /// That of a device; none if it has too few registers. May sleep.
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

    /// Events may come from now on. May sleep.
    pub(super) fn open(&self, device: &NtbDevice) -> Result {
        match &self.messages {
            Some(registers) => registers.open(device),
            None => Ok(()),
        }
    }

    /// Takes back what was said, as far as it can be; events are over. May sleep.
    pub(super) fn close(&mut self, device: &NtbDevice) {
        if let Some(registers) = &self.messages {
            registers.write_to(device, 0, 0);
            registers.close(device);
        } else {
            let _ = device.peer_spad_write(0, 0);
        }
    }

    /// What the peer has said, at this tick. May sleep.
    pub(super) fn read(
        &mut self,
        device: &NtbDevice,
        now: u32,
        in_session: bool,
    ) -> Result<Hello, NoHello> {
        // A bell that can't be rung is not needed where ticks tell as well.
        let _ = self.exchange(device, now, in_session);
        Hello::decode(self.parts.heard())
    }

    /// Tells the peer, with which there is no session, or begins to. May sleep.
    pub(super) fn write(&mut self, device: &NtbDevice, now: u32, hello: &Hello) -> Result {
        self.parts.say(&hello.encode(), now);
        self.exchange(device, now, false)
    }

    /// The link is down: what the peer has said does not count any more.
    pub(super) fn forget(&mut self, device: Option<&NtbDevice>) {
        self.parts.forget();
        if let (Some(registers), Some(device)) = (&mut self.messages, device) {
            // What came does not count any more.
            registers.collect(device);
            registers.words = [0; MOST_REGISTERS];
        }
    }

    /// Whether [`Self::read`] has to be called after a while though nothing happens.
    pub(super) fn is_unsettled(&self) -> bool {
        self.parts.is_unsettled()
    }

    fn exchange(&mut self, device: &NtbDevice, now: u32, in_session: bool) -> Result {
        if let Some(registers) = &mut self.messages {
            registers.collect(device);
            let mut messages = Messages(registers, device);
            // A message is an event by itself.
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

/// A peer that writes all the time must not keep us here: what it does next raises an event.
const MAX_ROUNDS: usize = 16;

/// See the head of this file.
struct MessageRegisters {
    inbits: u64,
    outbits: u64,
    /// The last message of each. There may be more registers than are used.
    words: [u32; MOST_REGISTERS],
}

/// The bit of this register among those of all: the lowest one is that of the first.
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

    /// Events may come from now on.
    fn open(&self, device: &NtbDevice) -> Result {
        device.msg_set_mask(self.outbits | self.inbits)?;
        device.msg_clear_mask(self.inbits)
    }

    /// No more events.
    fn close(&self, device: &NtbDevice) {
        let _ = device.msg_set_mask(self.outbits | self.inbits);
    }

    /// Takes out what has come, and lets the next one raise an event.
    fn collect(&mut self, device: &NtbDevice) {
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

    /// Says whether it was delivered.
    fn write_to(&self, device: &NtbDevice, index: usize, value: u32) -> bool {
        let refused = nth_bit(self.outbits, index);
        let written = device
            .msg_clear(refused)
            .and_then(|()| device.peer_msg_write(index as u32, value));
        written.is_ok() && device.msg_status() & refused == 0
    }
}

/// Message registers as those of an exchange.
struct Messages<'a>(&'a mut MessageRegisters, &'a NtbDevice);

impl Registers for Messages<'_> {
    fn read(&mut self, index: usize) -> u32 {
        self.0.words.get(index).copied().unwrap_or(0)
    }

    fn write(&mut self, index: usize, value: u32) -> bool {
        self.0.write_to(self.1, index, value)
    }
}
