// SPDX-License-Identifier: GPL-2.0

//! Which engine copies for a channel: of those that work, the one that copies for the fewest.
//!
//! Channels come and go, and many never have anything copied. So it is counted who uses an engine, and nobody
//! counts before he has something to copy.

use super::{
    Engine,
    Routes, //
};
use kernel::sync::{
    atomic::Relaxed,
    Arc, //
};

/// A use of an engine, until this is dropped.
///
/// # Invariants
///
/// It is counted in `users` of the engine.
pub(crate) struct ChosenEngine {
    engine: Arc<Engine>,
    /// Among the path's engines.
    pub(crate) place: usize,
}

impl ChosenEngine {
    /// One of these; none if none works. Any context.
    pub(crate) fn among(routes: &Routes) -> Option<Self> {
        loop {
            let routes = routes.iter().enumerate();
            let working = routes.filter(|(_, route)| !route.engine.has_stopped());
            let counted = working.map(|found| (found.1.engine.users.load(Relaxed), found));
            let (users, (place, route)) = counted.min_by_key(|(users, _)| *users)?;
            let counter = &route.engine.users;
            // Others may choose at the same moment.
            if counter
                .cmpxchg(users, users.wrapping_add(1), Relaxed)
                .is_ok()
            {
                // INVARIANT: It was just counted.
                return Some(Self {
                    engine: route.engine.clone(),
                    place,
                });
            }
        }
    }
}

impl Drop for ChosenEngine {
    fn drop(&mut self) {
        self.engine.users.fetch_sub(1, Relaxed);
    }
}
