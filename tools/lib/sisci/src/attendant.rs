// SPDX-License-Identifier: LGPL-2.1

//! The thread that handles events which no call waits for: new connections, frames, and ends of
//! connections.
//!
//! It waits for all descriptors that it was given, and calls the objects that own them. Such an
//! object may take locks of its own and send, but must never wait for a peer or a program: it would
//! hold up all others.
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

/// Time that a descriptor rests if its owner can't go on now.
const REST: Duration = Duration::from_millis(20);

/// The owner of a descriptor, which the attendant calls.
pub trait Attended: Send + Sync {
    /// Handles bytes to read, the end of the connection, or the end of a rest. Must not wait.
    fn ready(self: Arc<Self>, watch: WatchId);
}

/// The number of a watched descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct WatchId(u64);

#[derive(Default)]
struct Watched {
    last: u64,
    attended: HashMap<u64, Arc<dyn Attended>>,
    /// The descriptors that rest, and until when. The front ends first.
    resting: VecDeque<(Deadline, u64)>,
    stopping: bool,
}

/// The thread and its descriptors.
pub struct Attendant {
    epoll: Descriptor,
    stop: Descriptor,
    watched: Mutex<Watched>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The number of the descriptor that stops the thread.
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
        // Under the lock, as the descriptor may be ready at once.
        let added = epoll::add(&self.epoll, fd, EventData::new_u64(id), EventFlags::IN);
        if let Err(error) = added {
            let attended = watched.attended.remove(&id);
            drop(watched);
            drop(attended);
            return Err(error.into());
        }
        Ok(WatchId(id))
    }

    /// Stops calling the owner. A call in progress may still run.
    pub fn forget(&self, fd: impl AsFd, id: WatchId) {
        // The descriptor may have been forgotten before.
        let _ = epoll::delete(&self.epoll, fd);
        let attended = lock(&self.watched).attended.remove(&id.0);
        drop(attended);
    }

    /// Stops calling the owner for a moment, whatever there is to read, and calls it afterwards in
    /// any case. For an owner that can't go on because a resource is missing.
    pub fn rest(&self, fd: impl AsFd, id: WatchId) {
        let data = EventData::new_u64(id.0);
        // The descriptor may be forgotten at this moment.
        if epoll::modify(&self.epoll, fd, data, EventFlags::empty()).is_ok() {
            let end = (Deadline::in_time(REST), id.0);
            lock(&self.watched).resting.push_back(end);
        }
    }

    /// Calls the owner again whenever there is something to read, after [`Self::rest`].
    pub fn go_on(&self, fd: impl AsFd, id: WatchId) {
        let data = EventData::new_u64(id.0);
        // The descriptor may be forgotten at this moment.
        let _ = epoll::modify(&self.epoll, fd, data, EventFlags::IN);
    }

    /// Takes out the first descriptor whose rest is over.
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
            // A signal can't come, and the attendant owns the descriptor.
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

    /// Calls the owner of a descriptor, if the descriptor is still watched. Returns false once the
    /// thread must stop.
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

    /// Ends the thread and releases all owners. The thread itself must not call this.
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

    /// An owner that rests whenever it is called, three times, and never reads.
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
    fn resting_watcher_is_called_after_its_rest() -> Result<()> {
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
