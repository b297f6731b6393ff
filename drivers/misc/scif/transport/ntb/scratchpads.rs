// SPDX-License-Identifier: GPL-2.0

//! The scratchpads of a device: registers in which a value stays until another one is written.

use super::context::PEER;
use crate::{
    logic::{
        hello::WORDS,
        parts::Registers, //
    },
    sys::ntb::NtbDevice,
};

/// See the head of this file.
pub(super) struct Scratchpads<'a>(pub(super) &'a NtbDevice);

impl Scratchpads<'_> {
    /// A hello that has room in them. May sleep.
    pub(super) fn read_all(&self) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.0.spad_read(index as u32);
        }
        words
    }
}

impl Registers for Scratchpads<'_> {
    fn read(&mut self, index: usize) -> u32 {
        self.0.spad_read(index as u32)
    }

    fn write(&mut self, index: usize, value: u32) -> bool {
        self.0.peer_spad_write(PEER, index as u32, value).is_ok()
    }
}
