// SPDX-License-Identifier: GPL-2.0
//! The link events that a side is told of, one at a time.
//!
//! The driver keeps the last event that it was told of. If that is "down", the driver takes a ready
//! peer for one that was left behind. So the peer is hidden until the driver has acknowledged "up".

/// The link has come up.
const UP: u32 = 1 << 5;
/// The link has gone down.
const DOWN: u32 = 1 << 6;
/// All events.
const ALL: u32 = (1 << 7) - 1;

/// The events of a side.
#[derive(Debug)]
pub(super) struct Events {
    /// INT_STAT.
    status: u32,
    /// INT_MASK.
    mask: u32,
    /// Whether the event "down" must still be posted.
    fell: bool,
    /// Whether the event "up" must be posted after that.
    rose: bool,
    /// Whether the driver was or will be told that the link went down, and has not acknowledged
    /// that the link is up.
    hides: bool,
}

impl Events {
    /// Creates the state after reset, in which no event is told.
    pub(super) fn new() -> Self {
        Self {
            status: 0,
            mask: ALL,
            fell: false,
            rose: false,
            hides: false,
        }
    }

    /// Returns INT_STAT.
    pub(super) fn status(&self) -> u32 {
        self.status
    }

    /// Returns INT_MASK.
    pub(super) fn mask(&self) -> u32 {
        self.mask
    }

    /// Returns whether a ready peer must be hidden from the driver.
    pub(super) fn hides(&self) -> bool {
        self.hides
    }

    /// Handles that the link has come up or gone down.
    pub(super) fn change(&mut self, up: bool) {
        if up {
            self.rose = self.hides || self.mask & UP == 0;
        } else {
            self.rose = false;
            if self.mask & DOWN == 0 {
                self.fell = true;
                self.hides = true;
            }
        }
    }

    /// Posts the next event if there is one. Returns whether to interrupt.
    #[must_use]
    pub(super) fn post(&mut self) -> bool {
        let (next, event) = match self.fell {
            true => (&mut self.fell, DOWN),
            false => (&mut self.rose, UP),
        };
        let posts = *next && self.status == 0 && self.mask & event == 0;
        if posts {
            *next = false;
            self.status = event;
        }
        posts
    }

    /// Clears events on behalf of the driver.
    pub(super) fn clear(&mut self, events: u32) {
        self.status &= !events;
    }

    /// Sets the mask on behalf of the driver. Returns whether to interrupt.
    #[must_use]
    pub(super) fn set_mask(&mut self, mask: u32) -> bool {
        let lifted = self.mask & !mask;
        self.mask = mask & ALL;
        self.status & lifted != 0
    }

    /// Acknowledges events on behalf of the driver.
    pub(super) fn acknowledge(&mut self, events: u32) {
        if events & UP != 0 {
            self.hides = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmasked() -> Events {
        let mut events = Events::new();
        assert!(!events.set_mask(0));
        events
    }

    /// Handles an event as a driver does.
    fn handle(events: &mut Events, event: u32) {
        assert_eq!(events.status(), event);
        events.acknowledge(event);
        events.clear(event);
    }

    #[test]
    fn link_events_are_posted_one_at_a_time_in_order() {
        let mut events = unmasked();
        events.change(false);
        events.change(true);
        assert!(events.post() && !events.post());
        handle(&mut events, DOWN);
        assert!(events.hides());
        assert!(events.post() && events.hides());
        handle(&mut events, UP);
        assert!(!events.hides() && !events.post());
        // The link is down again before the driver was told that it is up.
        events.change(false);
        assert!(events.post());
        events.change(true);
        events.change(false);
        handle(&mut events, DOWN);
        assert!(events.post());
        handle(&mut events, DOWN);
        assert!(!events.post() && events.hides());
        events.change(true);
        assert!(events.post());
        handle(&mut events, UP);
        assert!(!events.hides());
    }

    #[test]
    fn masked_event_is_dropped_unless_its_counterpart_was_posted() {
        let mut events = Events::new();
        for up in [true, false, true] {
            events.change(up);
        }
        assert!(!events.post() && !events.hides());
        assert!(!events.set_mask(0) && !events.post());
        // If the driver masks events after it was told that the link is down, it must still be told
        // that it is up.
        events.change(false);
        assert!(events.post());
        handle(&mut events, DOWN);
        assert!(!events.set_mask(ALL));
        events.change(true);
        assert!(!events.post());
        assert!(!events.set_mask(0) && events.post());
        // A pending event that is masked interrupts again when it is unmasked.
        assert!(!events.set_mask(ALL));
        assert!(events.set_mask(DOWN));
        handle(&mut events, UP);
    }
}
