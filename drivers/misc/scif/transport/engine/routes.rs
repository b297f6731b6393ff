// SPDX-License-Identifier: GPL-2.0

//! The engines that reach a peer's memory, each with its view of it.
//!
//! A path is made with those that there are, and others come later. None goes before the path does: who uses one
//! names it by its place, which stays the same, and one that has stopped says so itself.
//!
//! Which engine copies for a channel: of those that work, the one that copies for the fewest.
//!
//! Channels come and go, and many never have anything copied. So it is counted who uses an engine, and nobody
//! counts before he has something to copy.

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

/// Places of a path. An engine that is lost and comes back takes one more: when they are used up, no more come
/// before there is the next session.
const PLACES: usize = 64;

/// See the head of this file.
pub(crate) struct Routes {
    /// Those that are taken come first.
    places: KVec<SetOnce<EngineRoute>>,
    /// The number of the next engine that was not looked at.
    next: Atomic<u64>,
}

impl Routes {
    /// None yet. May sleep.
    pub(crate) fn new() -> Result<Self> {
        let mut this = Self::none();
        for _ in 0..PLACES {
            this.places.push(SetOnce::new(), GFP_KERNEL)?;
        }
        Ok(this)
    }

    /// None, ever.
    pub(crate) fn none() -> Self {
        Self {
            places: KVec::new(),
            next: Atomic::new(0),
        }
    }

    /// All of them, by their places. Any context.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &EngineRoute> {
        self.places.iter().map_while(|place| place.as_ref())
    }

    /// The one at a place. Any context.
    pub(crate) fn get(&self, place: usize) -> Option<&EngineRoute> {
        self.places.get(place)?.as_ref()
    }

    /// The one that is this, if it is one of them. Any context.
    pub(crate) fn same(&self, route: &EngineRoute) -> Option<&EngineRoute> {
        self.iter().find(|other| core::ptr::eq(*other, route))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// Adds what `make` makes of an engine, unless that was tried before; says whether there is one more. Once at a
    /// time, and in the order in which engines were found. May sleep.
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
        // One that can't be had is done without.
        make().is_ok_and(|route| place.populate(route))
    }
}

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
