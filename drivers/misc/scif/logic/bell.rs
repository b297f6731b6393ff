// SPDX-License-Identifier: GPL-2.0

//! When to ring for messages that were posted: at once, or once for many.
//!
//! Whoever has several things to say *holds* the bell meanwhile: what is posted then, by whomever, is
//! rung for when the last holder lets go. So each message that somebody is to hear of is followed by a
//! ring, at once or soon, and many cost one.

use super::{
    atomic::AtomicU64,
    update::update, //
};

/// Set while there is something to ring for; the bits above count the holders.
const DUE: u64 = 1;
const HOLDER: u64 = 2;

/// See the head of this file.
pub(crate) struct Bell {
    state: AtomicU64,
}

impl Bell {
    /// Held by nobody.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
        }
    }

    /// Something was posted. Says whether the caller rings for it; if not, a holder does.
    #[must_use = "nobody else rings"]
    pub(crate) fn wanted(&self) -> bool {
        update(&self.state, |state| {
            (state >= HOLDER).then_some(state | DUE)
        })
        .is_none()
    }

    /// Holds it. Each needs a [`Self::let_go`].
    pub(crate) fn hold(&self) {
        self.state.fetch_add(HOLDER);
    }

    /// Holds it no more. Says whether the caller rings for what was posted meanwhile.
    #[must_use = "nobody else rings"]
    pub(crate) fn let_go(&self) -> bool {
        let before = update(&self.state, |state| match state.checked_sub(HOLDER)? {
            DUE => Some(0),
            others => Some(others),
        });
        before == Some(HOLDER | DUE)
    }
}
