// SPDX-License-Identifier: GPL-2.0

//! Unregistering: windows can't be found any more, at this end at once, at the other when it says so.
//!
//! One call may take many windows away. The peer is told of each, and answers in the same order: the caller counts what
//! the peer has been told of until then, and waits for as many answers.

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
    /// Tells the peer, once, that it must not use a window any more, which can't be found (any more) here. With the
    /// peer lost, it is the session's end that lets go.
    pub(super) fn revoke(&self, window: &Window) {
        if let (Ok(target), Some(reservation)) = (self.channel.remote(), window.take_revocation()) {
            let revoke = Message::WindowRevoke {
                target,
                window: window.id,
                offset: window.place.range.start(),
            };
            // Before it is sent: one who waits for as many answers as this counts has the answer to this, too.
            self.revocations.fetch_add(1, Full);
            self.channel.send(reservation, &revoke);
        }
    }

    /// Unregisters all windows inside `range`: EINVAL if one is cut, ENXIO if there is none; then
    /// nothing has changed. On return neither end can begin a new use of them. Killable.
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
        // Whoever has a window keeps its mappings, which must not outlive the session.
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
            // If the connection has ended meanwhile, which takes windows away, that is said.
            return Err(self.channel.end_or(ENXIO));
        }
        self.wait_until_revoked()
    }

    /// Waits until the peer has answered for all windows that it was told of by now: it must not be able to use what
    /// the caller thinks is gone. A caller that is being killed does not wait, unless its memory is only lent, and a
    /// peer that goes does not answer. What the peer has released without ever having used it has come before that: so
    /// the memory is the caller's again.
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

    /// The peer has taken note that a window was revoked, and has let go of it if it is `released`. A peer that says so
    /// without being asked could as well say it too early. Called by the control work.
    pub(crate) fn revoke_done(&self, id: WindowId, released: bool) {
        if released {
            self.exports.release(id);
        }
        self.revoked.fetch_add(1, Full);
        self.channel.wake();
    }
}
