// SPDX-License-Identifier: GPL-2.0

//! The hellos of both sides in the scratchpads of a device.
//!
//! They are registers: each read of one stalls the processor. So this is for the handshake only.

use super::context::PEER;
use crate::{
    logic::hello::{
        Hello,
        NoHello,
        WORDS, //
    },
    sys::ntb::NtbDevice,
    transport::doorbell,
};
use kernel::prelude::*;

/// What the peer has said. May sleep.
pub(super) fn read_hello(device: &NtbDevice) -> Result<Hello, NoHello> {
    let mut words = [0; WORDS];
    for (index, word) in words.iter_mut().enumerate() {
        *word = device.spad_read(index as u32);
    }
    Hello::decode(&words)
}

/// Tells the peer, and rings for it. May sleep.
pub(super) fn write_hello(device: &NtbDevice, hello: &Hello) -> Result {
    for (index, word) in hello.encode().into_iter().enumerate() {
        device.peer_spad_write(PEER, index as u32, word)?;
    }
    device.peer_db_set(doorbell::bit(doorbell::HELLO))
}
