// SPDX-License-Identifier: GPL-2.0

//! Many control messages of which the peer is told once.

use super::Peer;
use crate::transport::doorbell;

/// Messages of which the peer is told when this is dropped.
pub(crate) struct HeldBell<'a>(&'a Peer);

impl Peer {
    /// Until this is dropped the peer is not rung for what is posted, unless half its ring is full. Not
    /// for waiting meanwhile.
    pub(crate) fn hold_bell(&self) -> HeldBell<'_> {
        self.bell.hold();
        HeldBell(self)
    }
}

impl Drop for HeldBell<'_> {
    fn drop(&mut self) {
        if self.0.bell.let_go() {
            self.0.path.ring(doorbell::CONTROL);
        }
    }
}
