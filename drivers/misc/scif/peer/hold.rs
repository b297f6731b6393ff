// SPDX-License-Identifier: GPL-2.0

//! One use of a peer's path on behalf of many.
//!
//! Who counts its own uses, and closes at the latest when the peer is lost, need not enter the peer for each
//! of them: it holds the peer from before the first one may begin until after the last one has ended.

use super::Peer;
use core::ops::Deref;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
};

/// A peer whose path is in use until it is let go of. What ends the peer waits for that.
pub(super) struct Hold {
    peer: Arc<Peer>,
    held: Atomic<bool>,
}

impl Hold {
    /// ENODEV if the peer is lost. Any context.
    pub(super) fn new(peer: &Arc<Peer>) -> Result<Self> {
        match peer.in_flight.enter_unscoped() {
            true => Ok(Self {
                peer: peer.clone(),
                held: Atomic::new(true),
            }),
            false => Err(ENODEV),
        }
    }

    /// The path may go. To be called any number of times, the first one counts; any context.
    pub(super) fn let_go(&self) {
        if self.held.xchg(false, Full) {
            self.peer.in_flight.leave();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Deref for Hold {
    type Target = Arc<Peer>;

    fn deref(&self) -> &Arc<Peer> {
        &self.peer
    }
}

#[kunit_tests(scif_peer_hold)]
mod tests {
    use super::*;
    use crate::peer::tests::toy::Bed;

    #[test]
    fn each_lets_go_once() -> Result {
        let bed = Bed::new()?;
        let (first, last) = (Hold::new(&bed.peer)?, Hold::new(&bed.peer)?);
        first.let_go();
        first.let_go();
        drop(first);
        assert!(bed.peer.in_flight.count() > 0);
        drop(last);
        // Waits for all who are inside.
        bed.end()?;
        Ok(())
    }
}
