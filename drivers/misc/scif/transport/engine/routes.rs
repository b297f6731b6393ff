// SPDX-License-Identifier: GPL-2.0

//! The engines that reach a peer's memory, each with its view of that memory.
//!
//! A path starts with the engines that exist, and others may be added later. No engine is removed
//! before the path is dropped. A user names an engine by its place, which never changes, and asks
//! the engine whether it has stopped. The view of an engine that has stopped is
//! unmapped a little later.
//!
//! A channel uses the working engine that copies for the fewest channels.
//!
//! Many channels never have anything copied. So a channel chooses its engine, and is counted as its
//! user, with its first copy.

use super::{Engine, EngineRoute};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SetOnce, //
    }, //
};

/// Number of places of a path. An engine that stops and comes back takes another place. When all
/// places are taken, no engine is added until the next session.
const PLACES: usize = 64;

/// The engines of a path, each at a fixed place.
pub(crate) struct Routes {
    /// The places; occupied ones come first.
    places: KVec<SetOnce<EngineRoute>>,
    /// The [`Engine::instance`] from which on engines have not been tried.
    next: Atomic<u64>,
}

impl Routes {
    /// Creates an empty list with [`PLACES`] places.
    /// Context: may sleep.
    pub(crate) fn new() -> Result<Self> {
        let mut this = Self::none();
        for _ in 0..PLACES {
            this.places.push(SetOnce::new(), GFP_KERNEL)?;
        }
        Ok(this)
    }

    /// Creates a list that never contains an engine.
    pub(crate) fn none() -> Self {
        Self {
            places: KVec::new(),
            next: Atomic::new(0),
        }
    }

    /// Returns all engines in the order of their places.
    /// Context: any.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &EngineRoute> {
        self.places.iter().map_while(|place| place.as_ref())
    }

    /// Returns the engine at a place.
    /// Context: any.
    pub(crate) fn get(&self, place: usize) -> Option<&EngineRoute> {
        self.places.get(place)?.as_ref()
    }

    /// Returns this list's own reference to `route`, if `route` is in the list.
    /// Context: any.
    pub(crate) fn same(&self, route: &EngineRoute) -> Option<&EngineRoute> {
        self.iter().find(|other| core::ptr::eq(*other, route))
    }

    /// Returns the number of engines.
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// Unmaps the views of engines that have stopped.
    /// Context: may sleep.
    pub(crate) fn unmap_stopped(&self) {
        for route in self.iter() {
            route.engine.channel.unmap_if_stopped(&route.view);
        }
    }

    /// Adds the route that `make` creates for an engine, unless that was tried before. Returns
    /// whether a route was added. Callers take turns, and pass engines in the order in which these
    /// were found.
    /// Context: may sleep.
    pub(crate) fn add(
        &self,
        engine: &Arc<Engine>,
        make: impl FnOnce() -> Result<EngineRoute>,
    ) -> bool {
        if engine.instance < self.next.load(Relaxed) {
            return false;
        }
        self.next.store(engine.instance.wrapping_add(1), Relaxed);
        let mut places = self.places.iter();
        let Some(place) = places.find(|place| place.as_ref().is_none()) else {
            return false;
        };
        // If the route can't be created, the path does without this engine.
        make().is_ok_and(|route| place.populate(route))
    }
}

/// A use of an engine by a channel, until dropped.
///
/// # Invariants
///
/// It is counted in `users` of the engine.
pub(crate) struct ChosenEngine {
    engine: Arc<Engine>,
    /// The engine's place in the path's [`Routes`].
    pub(crate) place: usize,
}

impl ChosenEngine {
    /// Chooses the working engine with the fewest users, but none at a place of `but`. Returns `None` if
    /// there is none.
    /// Context: any.
    pub(crate) fn among(routes: &Routes, but: &[usize]) -> Option<Self> {
        loop {
            let routes = routes.iter().enumerate();
            let working =
                routes.filter(|(place, route)| !route.engine.has_stopped() && !but.contains(place));
            let counted = working.map(|found| (found.1.engine.users.load(Relaxed), found));
            let (users, (place, route)) = counted.min_by_key(|(users, _)| *users)?;
            let counter = &route.engine.users;
            // Another channel may choose at the same moment; then this one chooses again.
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
