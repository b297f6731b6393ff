// SPDX-License-Identifier: GPL-2.0

//! Where the hellos of both sides are: what a device has for a few words before there is memory.
//!
//! - Scratchpads that hold all of a hello: word by word.
//! - Fewer of them, or message registers: a part at a time (`logic/parts.rs`).
//!
//! They are registers: each read of one stalls the processor. So this is for the handshake only.

use super::{
    context::PEER,
    message_registers::MessageRegisters,
    scratchpads::Scratchpads, //
};
use crate::{
    logic::{
        hello::{
            Hello,
            NoHello,
            WORDS, //
        },
        parts::{
            Parts,
            LEAST_REGISTERS, //
        },
    },
    sys::{
        ntb::NtbDevice,
        random, //
    },
};
use kernel::prelude::*;

/// See the head of this file.
enum Kind {
    Whole,
    InParts(Parts),
    InMessages(Parts, MessageRegisters),
}

/// See the head of this file.
pub(super) struct Mailbox {
    kind: Kind,
    /// The doorbell that tells the peer to look, as a bit of the device.
    bell: u64,
    /// The peer has still to be told something, or to answer.
    unsettled: bool,
}

/// When something happens, and what for.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// In ticks.
    pub(super) now: u32,
    /// There is a session with the peer.
    pub(super) in_session: bool,
}

impl Mailbox {
    /// That of a device; none if it has too few registers. May sleep.
    pub(super) fn of(device: &NtbDevice, bell: u64) -> Option<Self> {
        let scratchpads = device.spad_count() as usize;
        let messages = device.msg_count() as usize;
        let parts = |registers| Parts::new(registers, random::number() as u32);
        let kind = if scratchpads >= WORDS {
            Kind::Whole
        } else if scratchpads >= LEAST_REGISTERS {
            Kind::InParts(parts(scratchpads))
        } else if messages >= LEAST_REGISTERS {
            Kind::InMessages(parts(messages), MessageRegisters::of(device))
        } else {
            return None;
        };
        Some(Self {
            kind,
            bell,
            unsettled: false,
        })
    }

    /// Events may come from now on. May sleep.
    pub(super) fn open(&self, device: &NtbDevice) -> Result {
        match &self.kind {
            Kind::InMessages(_, registers) => registers.open(device),
            Kind::Whole | Kind::InParts(_) => Ok(()),
        }
    }

    /// Takes back what was said, as far as it can be; events are over. May sleep.
    pub(super) fn close(&mut self, device: &NtbDevice) {
        match &mut self.kind {
            Kind::Whole | Kind::InParts(_) => {
                let _ = device.peer_spad_write(PEER, 0, 0);
            }
            Kind::InMessages(_, registers) => {
                registers.write_to(device, 0, 0);
                registers.close(device);
            }
        }
    }

    /// What the peer has said. May sleep.
    pub(super) fn read(&mut self, device: &NtbDevice, moment: Moment) -> Result<Hello, NoHello> {
        let words = match &self.kind {
            Kind::Whole => Scratchpads(device).read_all(),
            Kind::InParts(_) | Kind::InMessages(..) => {
                // A bell that can't be rung is not needed where ticks tell as well.
                let _ = self.exchange(device, moment);
                match &self.kind {
                    Kind::InParts(parts) | Kind::InMessages(parts, _) => *parts.heard(),
                    Kind::Whole => [0; WORDS],
                }
            }
        };
        Hello::decode(&words)
    }

    /// Tells the peer, or begins to. May sleep.
    pub(super) fn write(&mut self, device: &NtbDevice, hello: &Hello, moment: Moment) -> Result {
        let words = hello.encode();
        match &mut self.kind {
            Kind::Whole => {
                for (index, word) in words.into_iter().enumerate() {
                    device.peer_spad_write(PEER, index as u32, word)?;
                }
                device.peer_db_set(self.bell)
            }
            Kind::InParts(parts) | Kind::InMessages(parts, _) => {
                parts.say(&words, moment.now);
                self.exchange(device, moment)
            }
        }
    }

    /// The link is down: what the peer has said does not count any more.
    pub(super) fn forget(&mut self, device: Option<&NtbDevice>) {
        match &mut self.kind {
            Kind::Whole => (),
            Kind::InParts(parts) => parts.forget(),
            Kind::InMessages(parts, registers) => {
                parts.forget();
                if let Some(device) = device {
                    registers.forget(device);
                }
            }
        }
    }

    /// Whether [`Self::read`] has to be called after a while though nothing happens.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    fn exchange(&mut self, device: &NtbDevice, moment: Moment) -> Result {
        let Moment { now, in_session } = moment;
        let exchanged = match &mut self.kind {
            Kind::Whole => return Ok(()),
            Kind::InParts(parts) => parts.exchange(&mut Scratchpads(device), now, in_session),
            Kind::InMessages(parts, registers) => {
                registers.collect(device);
                parts.exchange(&mut registers.on(device), now, in_session)
            }
        };
        self.unsettled = exchanged.unsettled;
        match (&self.kind, exchanged.told) {
            (Kind::InParts(_), true) => device.peer_db_set(self.bell),
            // A message is an event by itself.
            _ => Ok(()),
        }
    }
}
