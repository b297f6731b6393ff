// SPDX-License-Identifier: GPL-2.0

//! Memory that stays pinned and mapped after a transfer, for later ones: `SCIF_RMA_USECACHE`.
//!
//! Each end of a connection has a cache. What it keeps is a [`Registration`]: pages of one process,
//! for reading or for writing too, mapped for the DMA engine. A transfer that asks for the cache and
//! finds one that holds all it needs, of the calling process and with enough access, uses it; it
//! makes one otherwise. Which one serves is decided in `logic/registrations.rs`.
//!
//! # When the mapping changes
//!
//! A registration that has become stale (`registration.rs`) is found by no later transfer, and a work
//! item lets go of it; transfers that have found it before go on with the pages they have, as they
//! would without a cache. The same page is never kept for two processes: a child has an address space
//! of its own, even with the descriptor that it has inherited.
//!
//! # What it costs
//!
//! What is kept counts against the `RLIMIT_MEMLOCK` of the process, and is limited to
//! `reg_cache_limit` MiB and [`MAX_KEPT`] registrations for each connection; what has not been used
//! for longest goes first. No call fails because of the cache: where the limit of the process is
//! reached, what is kept goes (see `memory/local.rs`), and a transfer that can't be kept is done
//! without. When memory is short, the kernel gets it back: see `caches.rs`.
//!
//! # The end
//!
//! With the connection, whether it is closed or its node is lost, the cache is closed: it lets go of
//! all it keeps and keeps nothing more. Whoever takes a registration out of the table is inside the
//! peer until it is gone, so that no mapping for an engine outlives the session.
//!
//! Lock: no registration is made or dropped under `table`, and no lock is taken under it but those
//! of the watches and of the list of caches.

use super::{
    caches::Caches,
    registration::Registration, //
};
use crate::{
    logic::registrations::{
        find,
        least_recently_used,
        overlapping,
        Entry,
        Pages, //
    },
    memory::local::LocalPiece,
    peer::{
        Peer,
        PeerUse, //
    },
    sync::list::Listed,
    sys::{
        buffer::Buffer,
        current::{
            Process,
            User, //
        },
    },
};
use kernel::{
    impl_has_work, new_mutex, new_work,
    page::PAGE_SHIFT,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// The most registrations that one cache keeps.
const MAX_KEPT: usize = 1024;

#[derive(Default)]
struct Table {
    /// In the order of `logic/registrations.rs`.
    kept: KVVec<Entry<Arc<Registration>>>,
    /// How many pages there are in all of them.
    pages: usize,
    /// Counts uses.
    clock: u64,
    /// Keeps the cache in the list of all.
    listed: Option<Listed<RegistrationCache>>,
    /// Nothing is kept any more.
    closed: bool,
}

impl Table {
    fn take(&mut self, index: usize) -> Option<Arc<Registration>> {
        let entry = self.kept.remove(index).ok()?;
        self.pages = self.pages.saturating_sub(entry.pages.count());
        Some(entry.registration)
    }
}

/// See the head of this file.
#[pin_data]
pub(crate) struct RegistrationCache {
    pub(super) peer: Arc<Peer>,
    pub(super) caches: Arc<Caches>,
    #[pin]
    table: Mutex<Table>,
    /// Held while something is taken out and released, so that a closer waits for that.
    #[pin]
    removing: Mutex<()>,
    /// Lets go of what is stale.
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for RegistrationCache { self.work }
}

impl WorkItem for RegistrationCache {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // When the peer is lost, `close` sees to it.
        if let Some(_inside) = this.peer.enter() {
            this.clean();
        }
    }
}

impl RegistrationCache {
    /// For transfers from and to a peer. May sleep.
    pub(super) fn new(peer: &Arc<Peer>, caches: &Arc<Caches>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                caches: caches.clone(),
                table <- new_mutex!(Table::default(), "RegistrationCache::table"),
                removing <- new_mutex!((), "RegistrationCache::removing"),
                work <- new_work!("RegistrationCache::work"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Has itself listed, unless it is, or is closed.
    fn list(self: &Arc<Self>) -> Result {
        let mut table = self.table.lock();
        if !table.closed && table.listed.is_none() {
            table.listed = Some(self.caches.list.add(self)?);
        }
        Ok(())
    }

    /// Whether it ever has kept something.
    pub(super) fn was_used(&self) -> bool {
        self.table.lock().clock != 0
    }

    /// Lets go of what belongs to the calling process or to its user. May sleep.
    pub(super) fn forget_caller(&self) {
        let Some(process) = Process::current() else {
            return;
        };
        let user = User::current();
        if let Some(_inside) = self.peer.enter() {
            self.remove(|entry| {
                entry.pages.space == process.id() || entry.registration.user == user
            });
            self.release_ended();
        }
    }

    /// Lets go of `wanted` of each `total` pages, those first that have not been used for longest.
    /// May sleep.
    pub(super) fn shed(&self, wanted: usize, total: usize) {
        // What goes with the session needs no help.
        let Some(_inside) = self.peer.enter() else {
            return;
        };
        let kept = self.table.lock().pages;
        self.evict(kept.saturating_mul(wanted).div_ceil(total.max(1)));
    }

    /// Memory of the caller for a transfer, and for later ones. None if the transfer has to be done
    /// without the cache, as always with memory of the kernel. What keeps the peer from ending comes
    /// with it, and goes after it. May sleep; as [`take_pages`], not for calling inside a peer.
    ///
    /// [`take_pages`]: crate::memory::local::take_pages
    pub(super) fn get(
        self: &Arc<Self>,
        memory: &Buffer,
        writable: bool,
    ) -> Option<(LocalPiece, PeerUse)> {
        let process = Process::current()?;
        let address = memory.user_address()?;
        let wanted = Pages::holding(
            process.id(),
            address,
            memory.len(),
            writable,
            PAGE_SHIFT as u32,
        )?;
        if wanted.count() > self.caches.limit {
            return None;
        }
        let inside = self.peer.enter_owned()?;
        let (inside, registration) = if let Some(registration) = self.find(&wanted) {
            self.caches.counters.hits.add(1, Relaxed);
            (inside, registration)
        } else {
            drop(inside);
            self.caches.counters.misses.add(1, Relaxed);
            self.make(wanted)?
        };
        let offset = address.checked_sub(registration.pages.start() << PAGE_SHIFT)?;
        let piece = LocalPiece {
            holder: registration,
            offset: offset as u64,
            len: memory.len() as u64,
        };
        Some((piece, inside))
    }

    fn find(&self, wanted: &Pages) -> Option<Arc<Registration>> {
        let mut table = self.table.lock();
        if table.closed {
            return None;
        }
        let index = find(&table.kept, wanted)?;
        table.clock += 1;
        let clock = table.clock;
        let entry = table.kept.get_mut(index)?;
        // One that is stale is about to be removed.
        if !entry.registration.is_unchanged() {
            return None;
        }
        entry.last_use = clock;
        Some(entry.registration.clone())
    }

    /// Pins memory and keeps it if it can be kept.
    fn make(self: &Arc<Self>, wanted: Pages) -> Option<(PeerUse, Arc<Registration>)> {
        self.list().ok()?;
        let joined = self.joined(wanted)?;
        let made = self.pin(joined);
        // What was kept beside it may not be there any more.
        let made = match made {
            Err(_) if joined != wanted => self.pin(wanted),
            made => made,
        };
        let (inside, registration) = made.ok()?;
        self.keep(&registration);
        Some((inside, registration))
    }

    /// `wanted` and what is kept and overlaps it, as far as the limit allows: two buffers that
    /// overlap would otherwise drive each other out.
    fn joined(&self, wanted: Pages) -> Option<Pages> {
        let table = self.table.lock();
        if table.closed {
            return None;
        }
        let near = table.kept.get(overlapping(&table.kept, &wanted))?;
        let joined = near
            .iter()
            .filter(|entry| entry.registration.is_unchanged())
            .try_fold(wanted, |joined, entry| {
                joined.joined(&entry.pages, self.caches.limit)
            });
        Some(joined.unwrap_or(wanted))
    }

    fn pin(self: &Arc<Self>, pages: Pages) -> Result<(PeerUse, Arc<Registration>)> {
        loop {
            match Registration::new(self, pages) {
                // The limit of the process: what it has used lately is worth more.
                Err(EAGAIN) if self.make_room(pages.count()) => (),
                result => return result,
            }
        }
    }

    /// As [`Self::evict`], outside of the peer. Returns whether anything went.
    fn make_room(&self, pages: usize) -> bool {
        let Some(_inside) = self.peer.enter() else {
            return false;
        };
        let evicted = self.evict(pages) != 0;
        self.release_ended();
        evicted
    }

    /// Releases what ended transfers of the peer hold. The caller is inside the peer. May sleep.
    fn release_ended(&self) {
        for route in self.peer.path().engines().iter() {
            route.engine.poll();
        }
    }

    /// Puts a registration into the table, unless it is stale already. The caller is inside the
    /// peer.
    fn keep(&self, registration: &Arc<Registration>) {
        let pages = registration.pages;
        self.release(|table| {
            let place = overlapping(&table.kept, &pages);
            let over =
                table.pages + pages.count() > self.caches.limit || table.kept.len() >= MAX_KEPT;
            if !place.is_empty() {
                return table.take(place.start);
            }
            if over {
                return self.take_least_recently_used(table);
            }
            self.insert(table, place.start, registration);
            None
        });
    }

    fn insert(&self, table: &mut Table, index: usize, registration: &Arc<Registration>) {
        // Under the lock: it is removed by the work that a later change schedules.
        if table.closed || !registration.is_unchanged() {
            return;
        }
        if table.kept.reserve(1, GFP_KERNEL).is_err() {
            return;
        }
        table.clock += 1;
        let entry = Entry {
            pages: registration.pages,
            last_use: table.clock,
            registration: registration.clone(),
        };
        if table.kept.insert_within_capacity(index, entry).is_ok() {
            table.pages += registration.pages.count();
        }
    }

    /// Lets go of what has not been used for longest, until that is `pages` pages. Returns how many
    /// it was. The caller is inside the peer.
    fn evict(&self, pages: usize) -> usize {
        let mut wanted = pages;
        self.release(|table| {
            let old = (wanted > 0).then(|| self.take_least_recently_used(table))??;
            wanted = wanted.saturating_sub(old.pages.count());
            Some(old)
        })
    }

    fn take_least_recently_used(&self, table: &mut Table) -> Option<Arc<Registration>> {
        let old = least_recently_used(&table.kept).and_then(|index| table.take(index))?;
        self.caches.counters.evictions.add(1, Relaxed);
        Some(old)
    }

    /// Releases the registrations that are `unwanted`. The caller is inside the peer.
    fn remove(&self, unwanted: impl Fn(&Entry<Arc<Registration>>) -> bool) {
        self.release(|table| {
            let index = table.kept.iter().rposition(&unwanted)?;
            table.take(index)
        });
    }

    /// Releases each registration that `take` removes from the table, without the lock of the table. Returns how many
    /// pages they had. The caller is inside the peer.
    fn release(&self, mut take: impl FnMut(&mut Table) -> Option<Arc<Registration>>) -> usize {
        let _removing = self.removing.lock();
        let mut released = 0;
        loop {
            let old = take(&mut self.table.lock());
            let Some(old) = old else { return released };
            released += old.pages.count();
        }
    }

    /// Lets go of what is stale; once it is closed, of everything. The caller is inside the peer.
    fn clean(&self) {
        let closed = self.table.lock().closed;
        self.remove(|entry| closed || !entry.registration.is_unchanged());
        if closed {
            let listed = self.table.lock().listed.take();
            drop(listed);
        }
    }

    /// Lets go of everything and keeps nothing any more. May sleep.
    pub(crate) fn close(&self) {
        self.table.lock().closed = true;
        // A session that ends waits for this. If it is over already, `lost()` closes the cache as well, and waits for
        // `removing`.
        let _inside = self.peer.enter();
        self.clean();
    }

    /// As [`Self::close`], some time soon.
    pub(crate) fn close_soon(self: &Arc<Self>) {
        self.table.lock().closed = true;
        self.schedule();
    }

    /// Has what is stale let go. Any context.
    pub(super) fn schedule(self: &Arc<Self>) {
        // An error says that the work is pending already.
        let _ = self.caches.queues.work.enqueue(self.clone());
    }
}
