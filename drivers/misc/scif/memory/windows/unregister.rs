// SPDX-License-Identifier: GPL-2.0

//! Unregistering: windows can't be found any more, at this end at once, at the other when it says so.
//!
//! One call may take many windows away. The peer is told of each; the caller is woken when the last answer has
//! come.

use super::Windows;
use crate::{
    logic::{
        address_space::{
            self,
            Range,
            Removal, //
        },
        messages::{
            Message,
            WindowId, //
        },
    },
    memory::window::Window,
    sys::trace, //
};
use kernel::{
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    },
};

/// How many windows, of those that one call unregisters, the peer has not answered for.
pub(super) type Revocation = Atomic<usize>;

impl Windows {
    /// Ends the life of a window that can't be found (any more).
    pub(super) fn revoke(&self, window: &Window) {
        window.uses.close();
        if self.channel.is_over() {
            // With the peer lost, it is the session's end that lets go.
            return;
        }
        self.send_revocation(window, window.range.start());
        self.remove_if_gone(window);
    }

    /// Tells the peer, once, that it must not use the window any more.
    pub(super) fn send_revocation(&self, window: &Window, offset: u64) {
        let reservation = window.revocation.lock().take();
        if let (Ok(target), Some(reservation)) = (self.channel.remote(), reservation) {
            let revoke = Message::WindowRevoke {
                target,
                window: window.id,
                offset,
            };
            self.channel.send(reservation, &revoke);
        }
    }

    /// Revokes many windows. `noted` is where the peer's answers are expected.
    fn revoke_many(
        &self,
        windows: &[Arc<Window>],
        noted: KVVec<RBTreeNodeReservation<u32, Arc<Revocation>>>,
        revocation: &Arc<Revocation>,
    ) {
        for (window, node) in windows.iter().zip(noted) {
            let node = node.into_node(window.id.0, revocation.clone());
            let replaced = self.revoking.lock().insert(node);
            drop(replaced);
            self.revoke(window);
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
        let mut revoked = KVVec::new();
        let mut noted = KVVec::new();
        let revocation;
        {
            let mut tables = self.tables.lock();
            let count = match address_space::removal(&tables.active, range) {
                Ok(count) => count,
                // If the connection has ended meanwhile, which takes windows away, that is said.
                Err(Removal::None) => return Err(self.channel.end_or(ENXIO)),
                Err(Removal::Cuts) => return Err(EINVAL),
            };
            // With the memory at hand the rest can't fail: all of them go, or none. Nobody pays, for a
            // moment only: the control work needs the lock.
            revoked.reserve(count, GFP_KERNEL)?;
            noted.reserve(count, GFP_KERNEL)?;
            for _ in 0..count {
                let _ = noted.push_within_capacity(RBTreeNodeReservation::new(GFP_KERNEL)?);
            }
            revocation = Arc::new(Revocation::new(count), GFP_KERNEL)?;
            let mut start = range.start();
            while let Some(found) = address_space::first_inside(&tables.active, start, range.end())
            {
                start = found.end();
                if let Some(window) = tables.active.remove(&found.start()) {
                    let _ = revoked.push_within_capacity(window);
                }
            }
        }
        self.revoke_many(&revoked, noted, &revocation);
        self.wait_until_revoked(&revoked, &revocation)
    }

    /// The peer must not be able to use what the caller thinks is gone. A caller that is being killed
    /// does not wait, unless its memory is only lent, and a peer that goes does not answer. What the
    /// peer has released without ever having used it has come before that: so the memory is the
    /// caller's again.
    fn wait_until_revoked(&self, revoked: &[Arc<Window>], revocation: &Revocation) -> Result {
        let waiters = self.channel.waiters()?;
        let is_done = || revocation.load(Acquire) == 0;
        let done = || (is_done() || self.channel.check_established().is_err()).then_some(());
        if !self.wait_if_lent(&waiters, done) {
            let _ = waiters.wait_killable(done);
        }
        if !is_done() {
            for window in revoked {
                let node = self.revoking.lock().remove_node(&window.id.0);
                drop(node);
            }
        }
        Ok(())
    }

    /// The peer has taken note that a window was revoked, and has let go of it if it is `released`.
    /// Called by the control work.
    pub(crate) fn revoke_done(&self, id: WindowId, released: bool) {
        let node = self.revoking.lock().remove_node(&id.0);
        if released {
            self.exports.release(id);
        }
        let Some(node) = node else { return };
        let (_, revocation) = node.to_key_value();
        if revocation.fetch_sub(1, Full) == 1 {
            self.channel.wake();
        }
    }
}
