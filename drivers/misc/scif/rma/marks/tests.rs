// SPDX-License-Identifier: GPL-2.0

//! Access to fence numbers for the tests of fences and of peer reads.

use super::{
    Due,
    FenceState, //
};
use crate::{
    arguments::{
        Direction,
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
    logic::{
        address_space::Range,
        messages::{
            Message,
            PushRequest,
            WindowId, //
        },
    },
    rma::{
        operation::{
            Operation,
            Sides,
            Surroundings, //
        },
        transfers::Transfers, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    },
};

impl FenceState {
    /// Has `ask` request a signal, and calls `f` while another task has taken that signal and has
    /// not given it yet.
    pub(crate) fn while_one_is_given(
        self: ArcBorrow<'_, Self>,
        ask: impl FnOnce() -> Result,
        f: impl FnOnce() -> Result,
    ) -> Result {
        let number = self.begin(false)?;
        ask()?;
        self.numbers.lock().end(number, false, false);
        let Some(Due::Signal(sequence, signal, asker)) = self.take_due(false, true) else {
            return Err(EINVAL);
        };
        f()?;
        self.give(sequence, signal, asker);
        while let Some(Due::Signal(sequence, signal, asker)) = self.take_due(true, true) {
            self.give(sequence, signal, asker);
        }
        Ok(())
    }
}

impl Transfers {
    /// Reads between two windows. The peer is asked to make the copy; if it refuses, this node
    /// makes it. Returns how many transfers [`FenceState::drain_own`] does not wait for: while the
    /// peer is asked, and when the copy is made.
    pub(crate) fn read_by_peer(&self, local: i64, remote: i64, len: u64) -> Result<[u64; 2]> {
        let range = |offset| Range::new(offset, len).map_err(|_| ENXIO);
        let (ours, theirs) = (range(local)?, range(remote)?);
        let sides = Sides {
            local: self.windows.cover(ours, PROTECTION_WRITE, |_| GFP_KERNEL)?,
            remote: self
                .remote_windows
                .cover(theirs, PROTECTION_READ, |_| GFP_KERNEL)?,
        };
        let surroundings = Surroundings::of(&self.channel)?;
        let made = Operation::new(Direction::Read, len, len, false, sides, surroundings);
        let mut operation = made?;
        operation.listener = Some(self.marks.clone());
        operation.is_left_to_peer = Atomic::new(true);
        operation.number = self.marks.begin(true)?.0;
        let operation: Arc<Operation> = operation.into();
        let target = self.channel.remote()?;
        let mut asked = 0;
        let message = |token| {
            asked = self.marks.left_to_peer.load(Relaxed);
            Message::PushWanted {
                target,
                request: PushRequest {
                    token,
                    ordered: false,
                    source: remote as u64,
                    destination: local as u64,
                    len,
                    must: false,
                    window: WindowId::NONE,
                },
            }
        };
        self.policy
            .start_peer_read(&self.channel, &operation, Some(0), message)?;
        let waiters = self.channel.waiters()?;
        waiters.wait_uninterruptible(|| operation.result())?;
        self.marks.drain_own();
        // The completion of a transfer that is left to the peer does not change this.
        let made = operation.is_left_to_peer.load(Relaxed).into();
        Ok([asked, made])
    }
}
