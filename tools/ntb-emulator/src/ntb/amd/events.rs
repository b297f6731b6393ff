// SPDX-License-Identifier: GPL-2.0
//! What a side is told of the link, one event at a time.
//!
//! The driver keeps the last event it was told. If that is "down", it takes a peer that is ready
//! for one that was left behind, so the peer is hidden from then until it has acknowledged "up".

/// The link has come up.
const UP: u32 = 1 << 5;
/// The link has gone down.
const DOWN: u32 = 1 << 6;
/// All events there are.
const ALL: u32 = (1 << 7) - 1;

/// The events of a side.
#[derive(Debug)]
pub(super) struct Events {
    /// INT_STAT.
    status: u32,
    /// INT_MASK.
    mask: u32,
    /// That it has gone down is still to be posted.
    fell: bool,
    /// And that it is up, after that.
    rose: bool,
    /// The driver has been told, or will be, that it went down, and has not acknowledged that it is
    /// up.
    hides: bool,
}

impl Events {
    /// After reset nobody is told of anything.
    pub(super) fn new() -> Self {
        Self {
            status: 0,
            mask: ALL,
            fell: false,
            rose: false,
            hides: false,
        }
    }

    /// INT_STAT.
    pub(super) fn status(&self) -> u32 {
        self.status
    }

    /// INT_MASK.
    pub(super) fn mask(&self) -> u32 {
        self.mask
    }

    /// Whether the driver would not understand a peer that is ready.
    pub(super) fn hides(&self) -> bool {
        self.hides
    }

    /// The link has come up or gone down.
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

    /// The driver clears what it was told.
    pub(super) fn clear(&mut self, events: u32) {
        self.status &= !events;
    }

    /// The driver sets the mask. Returns whether to interrupt.
    #[must_use]
    pub(super) fn set_mask(&mut self, mask: u32) -> bool {
        let lifted = self.mask & !mask;
        self.mask = mask & ALL;
        self.status & lifted != 0
    }

    /// The driver acknowledges events.
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

    /// What a driver does about an event.
    fn handle(events: &mut Events, event: u32) {
        assert_eq!(events.status(), event);
        events.acknowledge(event);
        events.clear(event);
    }

    #[test]
    fn one_event_at_a_time_in_their_order() {
        let mut events = unmasked();
        events.change(false);
        events.change(true);
        assert!(events.post() && !events.post());
        handle(&mut events, DOWN);
        assert!(events.hides());
        assert!(events.post() && events.hides());
        handle(&mut events, UP);
        assert!(!events.hides() && !events.post());
        // Down again before it was told that it is up.
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
    fn what_is_masked_is_not_told_unless_it_has_to_be() {
        let mut events = Events::new();
        for up in [true, false, true] {
            events.change(up);
        }
        assert!(!events.post() && !events.hides());
        assert!(!events.set_mask(0) && !events.post());
        // Masked after it was told the one, it has to be told the other.
        events.change(false);
        assert!(events.post());
        handle(&mut events, DOWN);
        assert!(!events.set_mask(ALL));
        events.change(true);
        assert!(!events.post());
        assert!(!events.set_mask(0) && events.post());
        // Masked while it is there, it interrupts again.
        assert!(!events.set_mask(ALL));
        assert!(events.set_mask(DOWN));
        handle(&mut events, UP);
    }
}
