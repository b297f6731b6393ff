// SPDX-License-Identifier: LGPL-2.1

//! Events of a resource, in order, until somebody asks for them.
//!
//! Beyond [`MOST`] the newest replaces the last: who does not ask for so long learns at least how
//! it is now. Lock: `inner` is a leaf.

use std::collections::VecDeque;
use std::sync::Condvar;
use std::sync::Mutex;

use crate::deadline::Deadline;
use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::lock::wait;

/// How many are kept.
const MOST: usize = 1024;

struct Inner<E> {
    queue: VecDeque<E>,
    closed: bool,
}

/// See the head of this file.
pub struct Events<E> {
    inner: Mutex<Inner<E>>,
    changed: Condvar,
}

impl<E> Events<E> {
    /// None yet.
    pub fn new() -> Self {
        Self {
            inner: Mutex::new(Inner {
                queue: VecDeque::new(),
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Something has happened.
    pub fn push(&self, event: E) {
        let mut inner = lock(&self.inner);
        if inner.queue.len() >= MOST {
            inner.queue.pop_back();
        }
        inner.queue.push_back(event);
        self.changed.notify_one();
    }

    /// The next event: TIMEOUT if none comes in time, CANCELLED once it is closed.
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

    /// Nothing more is told; whoever waits is told that.
    pub fn close(&self) {
        lock(&self.inner).closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_in_order_and_end() {
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
    fn the_newest_is_kept() {
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
