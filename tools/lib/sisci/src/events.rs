// SPDX-License-Identifier: LGPL-2.1

//! The events of a resource, in order, until the program asks for them.
//!
//! Beyond [`MOST`] events the newest replaces the last. So a program that does not ask for long
//! still learns the present state. Lock: `inner` is a leaf.

use std::collections::VecDeque;
use std::sync::Condvar;
use std::sync::Mutex;

use crate::deadline::Deadline;
use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::lock::wait;

/// Number of events that are kept.
const MOST: usize = 1024;

struct Inner<E> {
    queue: VecDeque<E>,
    closed: bool,
}

/// A queue of events.
pub struct Events<E> {
    inner: Mutex<Inner<E>>,
    changed: Condvar,
}

impl<E> Events<E> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                queue: VecDeque::new(),
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Adds an event.
    pub fn push(&self, event: E) {
        let mut inner = lock(&self.inner);
        if inner.queue.len() >= MOST {
            inner.queue.pop_back();
        }
        inner.queue.push_back(event);
        self.changed.notify_one();
    }

    /// Waits for the next event. TIMEOUT: none came in time. CANCELLED: the queue was closed.
    pub fn next(&self, deadline: Deadline) -> Result<E> {
        let mut inner = lock(&self.inner);
        loop {
            if inner.closed {
                return Err(Error::CANCELLED);
            }
            if let Some(event) = inner.queue.pop_front() {
                return Ok(event);
            }
            let in_time;
            (inner, in_time) = wait(&self.changed, inner, deadline.instant());
            if !in_time {
                return Err(Error::TIMEOUT);
            }
        }
    }

    /// Closes the queue. All waiters return CANCELLED.
    pub fn close(&self) {
        lock(&self.inner).closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_arrive_in_order_until_closed() {
        let events = Events::new();
        events.push(1);
        events.push(2);
        assert_eq!(events.next(Deadline::after(0)), Ok(1));
        assert_eq!(events.next(Deadline::NEVER), Ok(2));
        assert_eq!(events.next(Deadline::after(0)), Err(Error::TIMEOUT));
        events.close();
        assert_eq!(events.next(Deadline::NEVER), Err(Error::CANCELLED));
    }

    #[test]
    fn full_event_queue_keeps_the_newest_event() {
        let events = Events::new();
        for number in 0..2 * MOST {
            events.push(number);
        }
        let mut last = None;
        while let Ok(number) = events.next(Deadline::after(0)) {
            last = Some(number);
        }
        assert_eq!(last, Some(2 * MOST - 1));
    }
}
