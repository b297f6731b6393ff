// SPDX-License-Identifier: GPL-2.0

//! Memory that stays pinned and mapped after a transfer, for later transfers: `SCIF_RMA_USECACHE`.
//!
//! Each end of a connection has a cache. It keeps [`Registration`]s: pages of one process, for
//! reading or for writing too, mapped for the DMA engine. A transfer that asks for the cache uses a
//! registration of the calling process that holds all its memory and allows the access. If there is
//! none, the transfer makes one. `logic/registrations.rs` decides which registration serves a
//! transfer.
//!
//! # Changes of the mapping
//!
//! No later transfer finds a registration that has become stale (`registration.rs`), and a work
//! item releases it. Transfers that had found it before go on with the pages they have, as they
//! would without a cache. The same page is never kept for two processes: a child has an address
//! space of its own, even with the descriptor that it has inherited.
//!
//! # Costs
//!
//! Cached memory counts against the `RLIMIT_MEMLOCK` of the process. A cache keeps at most
//! `reg_cache_limit` MiB and [`MAX_KEPT`] registrations, and evicts the least recently used first.
//! No call fails because of the cache. If the limit of the process is reached, cached memory is
//! released (see `memory/local.rs`). A transfer whose memory can't be cached is made without the
//! cache. When the kernel is short of memory, it gets cached memory back: see `caches.rs`.
//!
//! # Closing
//!
//! The cache is closed with the connection, whether the connection is closed or its node is lost. A
//! closed cache releases all registrations and keeps no new ones. A task that takes a registration
//! out of the table is inside the peer until the registration is gone. So no mapping for an engine
//! outlives the session.
//!
//! Lock: no registration is made or dropped under `table`. Only the locks of the watches and of the
//! list of caches are taken under `table`.

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

/// Largest number of registrations that one cache keeps.
const MAX_KEPT: usize = 1024;

#[derive(Default)]
struct Table {
    /// Registrations, in the order of `logic/registrations.rs`.
    kept: KVVec<Entry<Arc<Registration>>>,
    /// Number of pages in all registrations together.
    pages: usize,
    /// Number of uses so far. It serves as the time of a use.
    clock: u64,
    /// Keeps the cache in the list of all caches.
    listed: Option<Listed<RegistrationCache>>,
    /// Whether the cache keeps no registrations any more.
    closed: bool,
}

impl Table {
    fn take(&mut self, index: usize) -> Option<Arc<Registration>> {
        let entry = self.kept.remove(index).ok()?;
        self.pages = self.pages.saturating_sub(entry.pages.count());
        Some(entry.registration)
    }
}

/// The registration cache of one end of a connection.
#[pin_data]
pub(crate) struct RegistrationCache {
    pub(super) peer: Arc<Peer>,
    pub(super) caches: Arc<Caches>,
    #[pin]
    table: Mutex<Table>,
    /// Held while registrations are taken out and released, so that a closer waits for that.
    #[pin]
    removing: Mutex<()>,
    /// Work item that releases stale registrations.
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for RegistrationCache { self.work }
}

impl WorkItem for RegistrationCache {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // If the peer is lost, `close` releases everything.
        if let Some(_inside) = this.peer.enter() {
            this.clean();
        }
    }
}

impl RegistrationCache {
    /// Creates an empty cache for transfers from and to a peer.
    /// Context: may sleep.
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

    /// Adds the cache to the list of all caches, unless it is listed or closed.
    fn list(self: &Arc<Self>) -> Result {
        let mut table = self.table.lock();
        if !table.closed && table.listed.is_none() {
            table.listed = Some(self.caches.list.add(self)?);
        }
        Ok(())
    }

    /// Returns whether the cache ever kept a registration.
    pub(super) fn was_used(&self) -> bool {
        self.table.lock().clock != 0
    }

    /// Releases registrations of the calling process or of its user.
    /// Context: may sleep.
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

    /// Releases `wanted` of each `total` pages, the least recently used registrations first.
    /// Context: may sleep.
    pub(super) fn shed(&self, wanted: usize, total: usize) {
        // If the peer is lost, the end of the session releases everything anyway.
        let Some(_inside) = self.peer.enter() else {
            return;
        };
        let kept = self.table.lock().pages;
        self.evict(kept.saturating_mul(wanted).div_ceil(total.max(1)));
    }

    /// Returns memory of the caller for a transfer, and keeps it for later ones. Returns `None` if
    /// the transfer must be made without the cache, as always with memory of the kernel. A use of
    /// the peer comes with the memory and must be dropped after it.
    /// Context: may sleep; outside of any peer, as for [`take_pages`].
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
        // A stale registration is about to be removed.
        if !entry.registration.is_unchanged() {
            return None;
        }
        entry.last_use = clock;
        Some(entry.registration.clone())
    }

    /// Pins memory, and keeps it if possible.
    fn make(self: &Arc<Self>, wanted: Pages) -> Option<(PeerUse, Arc<Registration>)> {
        self.list().ok()?;
        let joined = self.joined(wanted)?;
        let made = self.pin(joined);
        // Memory of the joined registrations may be unmapped by now, so only the wanted pages are
        // pinned.
        let made = match made {
            Err(_) if joined != wanted => self.pin(wanted),
            made => made,
        };
        let (inside, registration) = made.ok()?;
        self.keep(&registration);
        Some((inside, registration))
    }

    /// Returns `wanted` joined with the overlapping registrations, as far as the limit allows.
    /// Otherwise two overlapping buffers would keep evicting each other.
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
                // The process has reached its limit. Memory that it uses now is worth more than
                // memory that it used before.
                Err(EAGAIN) if self.make_room(pages.count()) => (),
                result => return result,
            }
        }
    }

    /// Evicts registrations as [`Self::evict`] does. The caller is outside of the peer. Returns
    /// whether any was evicted.
    fn make_room(&self, pages: usize) -> bool {
        let Some(_inside) = self.peer.enter() else {
            return false;
        };
        let evicted = self.evict(pages) != 0;
        self.release_ended();
        evicted
    }

    /// Releases the resources of completed transfers of the peer. The caller is inside the peer.
    /// Context: may sleep.
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
        // Checked under the lock, so that the work item of a later change finds the registration.
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

    /// Evicts the least recently used registrations until they have `pages` pages. Returns the
    /// number of pages that were evicted. The caller is inside the peer.
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

    /// Releases each registration that `take` removes from the table, outside of the lock of the
    /// table. Returns the number of their pages. The caller is inside the peer.
    fn release(&self, mut take: impl FnMut(&mut Table) -> Option<Arc<Registration>>) -> usize {
        let _removing = self.removing.lock();
        let mut released = 0;
        loop {
            let old = take(&mut self.table.lock());
            let Some(old) = old else { return released };
            released += old.pages.count();
        }
    }

    /// Releases stale registrations. Once the cache is closed, releases all. The caller is inside
    /// the peer.
    fn clean(&self) {
        let closed = self.table.lock().closed;
        self.remove(|entry| closed || !entry.registration.is_unchanged());
        if closed {
            let listed = self.table.lock().listed.take();
            drop(listed);
        }
    }

    /// Releases all registrations and keeps no new ones.
    /// Context: may sleep.
    pub(crate) fn close(&self) {
        self.table.lock().closed = true;
        // The end of the session waits for this. If the session is over already, `lost()` closes
        // the cache as well, and waits for `removing`.
        let _inside = self.peer.enter();
        self.clean();
    }

    /// Closes the cache as [`Self::close`] does, but in the work item.
    pub(crate) fn close_soon(self: &Arc<Self>) {
        self.table.lock().closed = true;
        self.schedule();
    }

    /// Has the work item release stale registrations.
    /// Context: any.
    pub(super) fn schedule(self: &Arc<Self>) {
        // An error says that the work item is pending already.
        let _ = self.caches.queues.work.enqueue(self.clone());
    }
}
