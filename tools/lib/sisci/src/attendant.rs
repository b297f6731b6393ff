// SPDX-License-Identifier: LGPL-2.1

//! The thread that looks after what comes unasked: connections, frames, ends.
//!
//! It waits for all descriptors that it was given, and calls who has given them. Who is called may
//! take locks of its own and send, but never waits for a peer or a program: it would hold up all
//! others.
//!
//! Lock: `watched` is a leaf.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::event::epoll;
use rustix::event::epoll::EventData;
use rustix::event::epoll::EventFlags;

use crate::deadline::Deadline;
use crate::descriptors::Descriptor;
use crate::error::Result;
use crate::lock::lock;
use crate::threads;

/// How long one rests that can't go on now.
const REST: Duration = Duration::from_millis(20);

/// Who is called.
pub trait Attended: Send + Sync {
    /// There is something to be read, or the end; or it has rested.
    fn ready(self: Arc<Self>, watch: WatchId);
}

/// A descriptor that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct WatchId(u64);

#[derive(Default)]
struct Watched {
    last: u64,
    attended: HashMap<u64, Arc<dyn Attended>>,
    /// Those that rest, and until when: the first is the first.
    resting: VecDeque<(Deadline, u64)>,
    stopping: bool,
}

/// See the head of this file.
pub struct Attendant {
    epoll: Descriptor,
    stop: Descriptor,
    watched: Mutex<Watched>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The number of the descriptor that ends it.
const STOP: u64 = 0;

impl Attendant {
    /// Starts the thread.
    pub fn start() -> Result<Arc<Self>> {
        let this = Arc::new(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?.into(),
            stop: rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?.into(),
            watched: Mutex::new(Watched::default()),
            thread: Mutex::new(None),
        });
        epoll::add(
            &this.epoll,
            &this.stop,
            EventData::new_u64(STOP),
            EventFlags::IN,
        )?;
        let attendant = this.clone();
        let thread = threads::spawn("sisci-attendant", move || attendant.run())?;
        *lock(&this.thread) = Some(thread);
        Ok(this)
    }

    /// Calls `attended` whenever there is something to read, until [`Self::forget`].
    pub fn watch(&self, fd: impl AsFd, attended: Arc<dyn Attended>) -> Result<WatchId> {
        let mut watched = lock(&self.watched);
        watched.last += 1;
        let id = watched.last;
        watched.attended.insert(id, attended);
        // Under the lock: it may be ready at once.
        let added = epoll::add(&self.epoll, fd, EventData::new_u64(id), EventFlags::IN);
        if let Err(error) = added {
            let attended = watched.attended.remove(&id);
            drop(watched);
            drop(attended);
            return Err(error.into());
        }
        Ok(WatchId(id))
    }

    /// Does not call any more, but for a call that is under way.
    pub fn forget(&self, fd: impl AsFd, id: WatchId) {
        // It may have been forgotten before.
        let _ = epoll::delete(&self.epoll, fd);
        let attended = lock(&self.watched).attended.remove(&id.0);
        drop(attended);
    }

    /// Does not call for a moment whatever there is to read, and calls after it in any case. For one that can't go on for
    /// want of something.
    pub fn rest(&self, fd: impl AsFd, id: WatchId) {
        let data = EventData::new_u64(id.0);
        // It may be forgotten at this moment.
        if epoll::modify(&self.epoll, fd, data, EventFlags::empty()).is_ok() {
            let end = (Deadline::in_time(REST), id.0);
            lock(&self.watched).resting.push_back(end);
        }
    }

    /// Calls again whenever there is something to read, after [`Self::rest`].
    pub fn go_on(&self, fd: impl AsFd, id: WatchId) {
        let data = EventData::new_u64(id.0);
        // It may be forgotten at this moment.
        let _ = epoll::modify(&self.epoll, fd, data, EventFlags::IN);
    }

    /// The first whose rest is over.
    fn rested(&self) -> Option<u64> {
        let resting = &mut lock(&self.watched).resting;
        let (end, _) = resting.front()?;
        end.is_over()
            .then(|| resting.pop_front())?
            .map(|(_, id)| id)
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let first = lock(&self.watched).resting.front().copied();
            let rest = first.and_then(|(end, _)| end.left());
            // A signal can't come, and the descriptor is this object's.
            let _ = epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                rest.as_ref(),
            );
            for event in &events {
                if !self.call(event.data.u64()) {
                    return;
                }
            }
            while let Some(id) = self.rested() {
                if !self.call(id) {
                    return;
                }
            }
        }
    }

    /// Calls who is watched under that number, if anybody is; false once it is to stop.
    fn call(&self, id: u64) -> bool {
        let watched = lock(&self.watched);
        if watched.stopping {
            return false;
        }
        let attended = watched.attended.get(&id).cloned();
        drop(watched);
        if let Some(attended) = attended {
            attended.ready(WatchId(id));
        }
        true
    }

    /// Ends the thread and lets go of all that it looked after. Not for the thread itself.
    pub fn stop(&self) {
        lock(&self.watched).stopping = true;
        // There is room for a count of one.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        let attended = core::mem::take(&mut lock(&self.watched).attended);
        drop(attended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::sync::mpsc::Receiver;
    use std::sync::mpsc::Sender;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    /// Rests whenever it is called, three times, and never reads.
    struct Resting {
        attendant: Arc<Attendant>,
        fd: OwnedFd,
        calls: Mutex<(usize, Sender<Instant>)>,
    }

    impl Attended for Resting {
        fn ready(self: Arc<Self>, watch: WatchId) {
            let mut calls = lock(&self.calls);
            calls.0 += 1;
            if calls.0 < 4 {
                self.attendant.rest(&self.fd, watch);
            } else {
                self.attendant.forget(&self.fd, watch);
            }
            let _ = calls.1.send(Instant::now());
        }
    }

    #[test]
    fn one_that_rests_is_called_after_it() -> Result<()> {
        let attendant = Attendant::start()?;
        let fd = rustix::event::eventfd(1, EventfdFlags::CLOEXEC)?;
        let (sender, called): (_, Receiver<Instant>) = channel();
        let resting = Arc::new(Resting {
            attendant: attendant.clone(),
            fd,
            calls: Mutex::new((0, sender)),
        });
        attendant.watch(&resting.fd, resting.clone())?;
        let times: Vec<_> = (0..4).flat_map(|_| called.recv()).collect();
        assert!(times.windows(2).all(|two| two[1] - two[0] >= REST));
        attendant.stop();
        assert_eq!(lock(&resting.calls).0, 4);
        Ok(())
    }
}
