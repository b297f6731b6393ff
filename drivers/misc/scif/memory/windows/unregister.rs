// SPDX-License-Identifier: GPL-2.0

//! Unregistration: windows can't be found any more, at this end at once, and at the other end when
//! the peer says so.
//!
//! One call may take away many windows. The peer is told of each, and answers in the same order.
//! The caller counts the revocations that were sent until then, and waits for as many answers.

use super::Windows;
use crate::{
    logic::{
        address_space::Range,
        messages::{
            Message,
            WindowId, //
        },
    },
    memory::{
        range_tree::{
            cuts,
            take_inside, //
        },
        window::Window, //
    },
    sys::trace, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Full, //
    },
};

impl Windows {
    /// Tells the peer, once, not to use a window any more. The window can't be found at this end.
    /// If the peer is lost, the end of the session releases the window instead.
    pub(super) fn revoke(&self, window: &Window) {
        if let (Ok(target), Some(reservation)) = (self.channel.remote(), window.take_revocation()) {
            let revoke = Message::WindowRevoke {
                target,
                window: window.id,
                offset: window.registered.range.start(),
            };
            // Counts before sending, so that a caller that waits for as many answers also waits for
            // this one.
            self.revocations.fetch_add(1, Full);
            self.channel.send(reservation, &revoke);
        }
    }

    /// Unregisters all windows inside `range`. On return neither end can begin a new use of them.
    /// After an error nothing has changed.
    ///
    /// # Errors
    ///
    /// - EINVAL: `range` cuts a window.
    /// - ENXIO: there is no window in `range`.
    ///
    /// Context: may sleep, killable.
    pub(crate) fn unregister(&self, range: Range) -> Result {
        let result = self.unregister_untraced(range);
        trace::unregister(|| trace::Window {
            node: self.channel.node(),
            channel: self.channel.id.0,
            offset: range.offset(),
            len: range.len(),
            protection: 0,
            result: trace::errno(&result),
        });
        result
    }

    fn unregister_untraced(&self, range: Range) -> Result {
        self.channel.check_established()?;
        // A window holds its mappings, which must not outlive the session.
        let _inside = self.channel.enter().ok_or(ENODEV)?;
        if cuts(&self.active.lock().windows, range) {
            return Err(EINVAL);
        }
        let mut found = false;
        let next = || take_inside(&mut self.active.lock().windows, range);
        while let Some(window) = next() {
            self.revoke(&window);
            found = true;
        }
        if !found {
            // If the connection has ended meanwhile, which takes windows away, returns the error of
            // that.
            return Err(self.channel.end_or(ENXIO));
        }
        self.wait_until_revoked()
    }

    /// Waits until the peer has answered all revocations sent by now, so that the peer can't use
    /// memory that the caller thinks is free. A caller that is being killed does not wait, unless
    /// its memory is only lent. The wait also ends when the peer goes, which then does not answer.
    /// The answer also releases a window that the peer does not use, before the answer counts. So
    /// the memory of such a window is the caller's again.
    fn wait_until_revoked(&self) -> Result {
        let told = self.revocations.load(Acquire);
        let waiters = self.channel.waiters()?;
        let done = || {
            let is_done = self.revoked.load(Acquire) >= told;
            (is_done || self.channel.check_established().is_err()).then_some(())
        };
        if !self.wait_if_lent(&waiters, done) {
            let _ = waiters.wait_killable(done);
        }
        Ok(())
    }

    /// Handles the peer's answer to a revocation. If `released`, the peer has released the window,
    /// too. An answer without a revocation needs no check: a peer that lies could as well answer
    /// too early.
    /// Context: control work.
    pub(crate) fn revoke_done(&self, id: WindowId, released: bool) {
        if released {
            self.exports.release(id);
        }
        self.revoked.fetch_add(1, Full);
        self.channel.wake();
    }
}
