// SPDX-License-Identifier: LGPL-2.1

//! A map of a broadcast segment: stores to it get to all nodes of the group.
//!
//! No bridge copies a store to many nodes. So the map is memory of this process. Each change is
//! stored in a map of each node's segment, or copied there by the driver where the segment can't be
//! mapped. [`crate::store_log`] keeps the order of the changes. Only the changed part of a word is
//! stored, since its neighbours may be another node's to write. A store of the value that was sent
//! last is not seen as a change; a copy by `SCIMemCpy` is always sent. A node that joins the group
//! gets the stores from then on, as with a switch that copies. Stores made while a node is away are
//! lost for that node, and sequences tell the program.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Release;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::EventfdFlags;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::eventfd;
use rustix::event::poll;

use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::mapping::Place;
use crate::members::GroupState;
use crate::members::Member;
use crate::members::Members;
use crate::remote_segment::Imports;
use crate::remote_segment::RemoteSegment;
use crate::store_log::StoreLog;
use crate::threads;

/// A program's map of a broadcast segment.
pub struct BroadcastMap {
    offset: u64,
    size: usize,
    log: Arc<StoreLog>,
    /// The connections that members were last made of.
    joined: Mutex<Option<Imports>>,
    server: Mutex<Option<JoinHandle<()>>>,
    stop: Arc<Stop>,
}

/// A request to end the thread that completes waiting stores.
struct Stop {
    is_wanted: AtomicBool,
    event: OwnedFd,
}

impl BroadcastMap {
    /// Maps the same part of the segments of all members.
    pub fn new(
        segment: &Arc<RemoteSegment>,
        offset: u64,
        size: usize,
        place: Place,
    ) -> Result<Arc<Self>> {
        let map = Arc::new(Self {
            offset,
            size,
            log: StoreLog::new(size, place)?,
            joined: Mutex::new(None),
            server: Mutex::new(None),
            stop: Arc::new(Stop {
                is_wanted: AtomicBool::new(false),
                event: eventfd(0, EventfdFlags::CLOEXEC)?,
            }),
        });
        let made = map
            .join(&segment.imports()?)
            .then_some(())
            .ok_or(Error::NOT_CONNECTED);
        made.and_then(|()| map.start())
            .inspect_err(|_| map.stop())?;
        let this = Arc::downgrade(&map);
        segment.on_look(move |imports| match this.upgrade() {
            Some(map) if !map.stop.is_wanted.load(Acquire) => {
                map.join(imports);
                true
            }
            _ => false,
        });
        Ok(map)
    }

    fn start(&self) -> Result<()> {
        let (log, stop) = (self.log.clone(), self.stop.clone());
        let server = threads::spawn("sisci-broadcast", move || serve(&log, &stop))?;
        *lock(&self.server) = Some(server);
        Ok(())
    }

    /// Returns the address where programs store.
    pub fn address(&self) -> *mut c_void {
        self.log.address()
    }

    /// Makes members of nodes that are none yet. Returns whether there are any members. A node
    /// whose segment can't be mapped is lost or away, and is tried again.
    fn join(&self, imports: &Imports) -> bool {
        let mut joined = lock(&self.joined);
        let is_joined = |joined: &Imports| Arc::ptr_eq(joined, imports);
        if self.stop.is_wanted.load(Acquire) || joined.as_ref().is_some_and(is_joined) {
            return true;
        }
        let members = self.log.members();
        let missing = members.missing(imports);
        let wanted = missing.len();
        let new = missing
            .iter()
            .map(|import| Member::new(import, self.offset, self.size));
        let new: Vec<_> = new.filter_map(Result::ok).collect();
        if new.len() == wanted {
            *joined = Some(imports.clone());
        }
        let all = members.with(new);
        let is_member = !all.is_empty();
        self.log.set_members(all);
        is_member
    }

    /// Copies to the map and sends the bytes, changed or not.
    ///
    /// # Safety
    ///
    /// `from` and the map from `offset` on have `size` bytes.
    pub unsafe fn copy(&self, from: *const c_void, offset: usize, size: usize) {
        // SAFETY: By the contract of this function.
        unsafe { self.log.copy(from.cast(), offset, size) };
    }

    /// Returns when everything that was sent has arrived.
    pub fn read_back(&self) {
        self.log.members().read_back();
    }

    /// Returns the state of the group.
    pub fn group_state(&self) -> GroupState {
        self.log.members().group_state()
    }

    /// Sends for the last time, and unmaps the memory and the members.
    pub fn stop(&self) {
        self.log.unmap();
        self.stop.is_wanted.store(true, Release);
        // There is room for a count of one; only this call writes.
        let _ = rustix::io::write(&self.stop.event, &1u64.to_ne_bytes());
        if let Some(server) = lock(&self.server).take() {
            // The thread does not panic.
            let _ = server.join();
        }
        self.log.end();
        let _joining = lock(&self.joined);
        self.log.set_members(Members::default());
    }
}

/// Lets waiting stores go on in the order in which they came, and checks the open page from time to
/// time.
fn serve(log: &Arc<StoreLog>, stop: &Stop) {
    let mut faults = VecDeque::new();
    while !stop.is_wanted.load(Acquire) {
        let timeout = match faults.is_empty() {
            true => log.next_look(),
            false => Some(Duration::ZERO),
        };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut events = [
            PollFd::from_borrowed_fd(log.protection().as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(stop.event.as_fd(), PollFlags::IN),
        ];
        // The only error is a signal, which this thread never gets.
        let _ = poll(&mut events, timeout.as_ref());
        faults.extend(core::iter::from_fn(|| log.protection().fault()));
        let Some(fault) = faults.pop_front() else {
            log.look();
            continue;
        };
        let waits = |thread| faults.iter().any(|other| other.thread == thread);
        if !log.answer(fault, waits) {
            faults.push_front(fault);
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// A log without members, and a thread that completes the stores that wait.
    struct Served {
        log: Arc<StoreLog>,
        stop: Arc<Stop>,
        server: Option<JoinHandle<()>>,
    }

    impl Served {
        fn new(size: usize) -> Self {
            let log = StoreLog::new(size, Place::Any).unwrap();
            let stop = Arc::new(Stop {
                is_wanted: AtomicBool::new(false),
                event: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
            });
            let (served, until) = (log.clone(), stop.clone());
            let server = threads::spawn("server", move || serve(&served, &until));
            Self {
                log,
                stop,
                server: Some(server.unwrap()),
            }
        }

        fn store(&self, offset: usize, value: u64) {
            let address = self.log.address().wrapping_byte_add(offset).cast::<u64>();
            // SAFETY: The address is in the map.
            unsafe { address.write_unaligned(value) };
        }

        fn load(&self, offset: usize) -> u64 {
            let address = self.log.address().wrapping_byte_add(offset).cast::<u64>();
            // SAFETY: The address is in the map.
            unsafe { address.read_unaligned() }
        }
    }

    impl Drop for Served {
        fn drop(&mut self) {
            self.log.unmap();
            self.stop.is_wanted.store(true, Release);
            rustix::io::write(&self.stop.event, &1u64.to_ne_bytes()).unwrap();
            self.server.take().unwrap().join().unwrap();
            self.log.end();
        }
    }

    const PAGE: usize = 4096;

    #[test]
    fn stores_of_many_threads_are_all_kept() {
        let maps = [Served::new(64 * PAGE), Served::new(64 * PAGE)];
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let maps = &maps;
                scope.spawn(move || {
                    for page in 0..128 {
                        let map = &maps[page % 2];
                        map.store(page / 2 * PAGE + thread * 8, (page * 4 + thread) as u64);
                        crate::store_log::flush();
                    }
                });
            }
        });
        for page in 0..128 {
            for thread in 0..4 {
                let stored = maps[page % 2].load(page / 2 * PAGE + thread * 8);
                assert_eq!(stored, (page * 4 + thread) as u64);
            }
        }
    }

    #[test]
    fn store_across_two_pages_is_kept() {
        let map = Served::new(4 * PAGE);
        std::thread::scope(|scope| {
            // Other threads store in both pages.
            for page in 1..3 {
                let map = &map;
                scope.spawn(move || (0..200).for_each(|i| map.store(page * PAGE + 1024, i)));
            }
            for i in 0..200u64 {
                // The values repeat: half of the stores change nothing.
                map.store(2 * PAGE - 4, i / 2);
                map.store(3 * PAGE - 1, i / 2);
            }
        });
        assert_eq!(map.load(2 * PAGE - 4), 99);
        assert_eq!(map.load(3 * PAGE - 1), 99);
    }

    #[test]
    fn copy_and_stores_to_the_same_page_are_kept_in_order() {
        let map = Served::new(64 * PAGE);
        let from = vec![7u8; 64 * PAGE - 3];
        for i in 0..20 {
            map.store(5 * PAGE, i);
            // SAFETY: `from` and the map have that many bytes.
            unsafe { map.log.copy(from.as_ptr(), 3, from.len()) };
            assert_eq!(map.load(5 * PAGE), 0x0707_0707_0707_0707);
            map.store(5 * PAGE, i);
            assert_eq!(map.load(5 * PAGE), i);
        }
    }

    /// A member sees no flag of a round without the stores, by another thread or in another map,
    /// before the flag.
    #[test]
    fn members_see_stores_in_program_order() {
        const ROUNDS: u64 = 2000;
        let maps = [Served::new(16 * PAGE), Served::new(16 * PAGE)];
        let there: Vec<AtomicU64> = (0..16 * PAGE / 8).map(|_| AtomicU64::new(0)).collect();
        for map in &maps {
            let address = there.as_ptr().cast_mut().cast();
            map.log.set_members(Members::of_memory(address));
        }
        let (seen, early) = (AtomicU64::new(0), AtomicU64::new(0));
        let second = &maps[1];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    while there[0].load(Acquire) != round {
                        std::thread::yield_now();
                    }
                    let places = [9 * PAGE, 8 * PAGE + 8, 15 * PAGE];
                    let is_old = |place: &usize| there[place / 8].load(Acquire) != round;
                    early.fetch_add(
                        places.iter().filter(|place| is_old(place)).count() as u64,
                        Release,
                    );
                    seen.store(round, Release);
                }
            });
            for round in 1..=ROUNDS {
                maps[0].store(9 * PAGE, round);
                scope
                    .spawn(move || second.store(15 * PAGE, round))
                    .join()
                    .unwrap();
                maps[0].store(8 * PAGE + 8, round);
                match round % 3 {
                    0 => crate::store_log::flush(),
                    1 => crate::barrier::store_barrier(),
                    _ => (),
                }
                second.store(0, round);
                while seen.load(Acquire) != round {
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(early.load(Acquire), 0);
    }
}
