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
//! A registration watches its range of addresses (`sys/mmu_notifier.rs`). When the process unmaps,
//! moves, protects or discards any of it, forks, execs or exits, the registration is stale from that
//! moment on: no later transfer finds it. That happens inside the memory management, where nothing
//! can be let go, so a work item does that; transfers that have found it before go on with the
//! pages they have, as they would without a cache. The same page is never kept for two processes: a
//! child has an address space of its own, even with the descriptor that it has inherited.
//!
//! # What it costs
//!
//! What is kept counts against the `RLIMIT_MEMLOCK` of the process, and is limited to
//! `reg_cache_limit` MiB and [`MAX_KEPT`] registrations for each connection; what has not been used
//! for longest goes first. No call fails because of the cache: where the limit of the process is
//! reached, what is kept goes (see [`pin`](crate::local_memory::pin)), and a transfer that can't be kept is done
//! without. When memory
//! is short, the kernel gets it back: see `memory_pressure.rs`.
//!
//! # The end
//!
//! A watch itself ends later, by a work item: the kernel makes who ends one wait until the process
//! stops changing its address space, which it need never do.
//!
//! With the connection, whether it is closed or its node is lost, the cache is closed: it lets go of
//! all it keeps and keeps nothing more. Whoever takes a registration out of the table is inside the
//! session until it is gone, so that no mapping for the engine outlives the session.
//!
//! Lock: no registration is made or dropped under `table`, and none is taken under it but those of
//! the watches.

use crate::{
    local_memory::{
        Holder,
        LocalMemory,
        LocalPiece, //
    },
    logic::registrations::{
        find,
        least_recently_used,
        overlapping,
        Kept,
        Pages, //
    },
    node::Fabric,
    session::{
        Session,
        TransportUse, //
    },
    sys::{
        current::Process,
        mmu_notifier::{
            Changed,
            Watch, //
        },
        pages,
    },
};
use kernel::{
    impl_has_work, new_mutex, new_work,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
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

/// How often a registration is begun whose range changes meanwhile: pinning may itself replace a
/// page that is shared until somebody writes to it.
const ATTEMPTS: usize = 3;

/// How many registrations are taken out of the table at once.
const BATCH: usize = 16;

/// What the caches of all connections have done.
pub(crate) struct Counters {
    /// Transfers that found what they need.
    pub(crate) hits: Atomic<u64>,
    /// Transfers that did not.
    pub(crate) misses: Atomic<u64>,
    /// Pages in registrations that exist now, kept or in use.
    pub(crate) pages: Atomic<i64>,
    /// Registrations whose mapping has changed.
    pub(crate) invalidations: Atomic<u64>,
    /// Registrations that made room for others.
    pub(crate) evictions: Atomic<u64>,
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Self {
            hits: Atomic::new(0),
            misses: Atomic::new(0),
            pages: Atomic::new(0),
            invalidations: Atomic::new(0),
            evictions: Atomic::new(0),
        }
    }
}

/// Tells a cache that one of its registrations is stale.
struct Notice {
    #[cfg_attr(not(CONFIG_MMU_NOTIFIER), expect(dead_code))]
    cache: Arc<RegistrationCache>,
}

impl Changed for Notice {
    fn changed(&self) {
        self.cache
            .fabric()
            .registrations
            .invalidations
            .add(1, Relaxed);
        self.cache.schedule();
    }
}

/// A watch that ends by itself, later: that takes as long as the process changes its address space,
/// for which nobody else has to wait.
#[pin_data]
struct Watched {
    #[pin]
    watch: Watch<Notice>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Watched { self.work }
}

impl WorkItem for Watched {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // The last reference, or the last but that of a registration that has not been made.
        drop(this);
    }
}

/// Memory of a process that can serve more than one transfer.
pub(crate) struct Registration {
    pub(crate) memory: LocalMemory,
    pages: Pages,
    _counted: Counted,
    // After the memory, which goes at once.
    watched: Ending,
}

/// Has a watch end where that hurts nobody.
struct Ending(Option<Arc<Watched>>);

impl Ending {
    fn watch(&self) -> Option<&Watch<Notice>> {
        self.0.as_ref().map(|watched| &watched.watch)
    }

    fn is_unchanged(&self) -> bool {
        self.watch().is_some_and(Watch::is_unchanged)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(watched) = self.0.take() {
            let fabric = watched.watch.listener().cache.fabric().clone();
            // It is enqueued once, so this can't fail.
            let _ = fabric.watch_queue.enqueue(watched);
        }
    }
}

/// Pages that are counted as those of a registration.
struct Counted {
    fabric: Arc<Fabric>,
    pages: i64,
}

impl Counted {
    fn new(fabric: &Arc<Fabric>, pages: usize) -> Self {
        let pages = pages as i64;
        fabric.registrations.pages.add(pages, Relaxed);
        Self {
            fabric: fabric.clone(),
            pages,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.fabric.registrations.pages.add(-self.pages, Relaxed);
    }
}

/// A registration in the table.
struct Entry {
    pages: Pages,
    last_use: u64,
    registration: Arc<Registration>,
}

impl Kept for Entry {
    fn pages(&self) -> Pages {
        self.pages
    }

    fn last_use(&self) -> u64 {
        self.last_use
    }
}

struct Table {
    /// In the order of `logic/registrations.rs`.
    kept: KVVec<Entry>,
    /// How many pages there are in all of them.
    pages: usize,
    /// Counts uses.
    clock: u64,
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
    session: Arc<Session>,
    #[pin]
    table: Mutex<Table>,
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
        // When the session is over, `close` sees to it.
        let Some(_session) = this.session.enter() else {
            return;
        };
        let closed = this.table.lock().closed;
        this.remove(|entry| closed || !entry.registration.watched.is_unchanged());
    }
}

impl RegistrationCache {
    pub(crate) fn new(session: &Arc<Session>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                session: session.clone(),
                table <- new_mutex!(
                    Table {
                        kept: KVVec::new(),
                        pages: 0,
                        clock: 0,
                        closed: false,
                    },
                    "RegistrationCache::table"
                ),
                work <- new_work!("RegistrationCache::work"),
            }),
            GFP_KERNEL,
        )
    }

    fn fabric(&self) -> &Arc<Fabric> {
        &self.session.fabric
    }

    fn limit(&self) -> usize {
        self.fabric().settings.kept_pages
    }

    /// Memory of the caller for a transfer, and for later ones: the `len` bytes at `address`. None
    /// if the transfer has to be done without the cache. What keeps the session from ending comes
    /// with it, and goes after it. May sleep; as [`local_memory::pin`], not for calling inside a
    /// session.
    ///
    /// [`local_memory::pin`]: crate::local_memory::pin
    pub(crate) fn get(
        self: &Arc<Self>,
        address: usize,
        len: u64,
        writable: bool,
    ) -> Option<(LocalPiece, TransportUse)> {
        let process = Process::current()?;
        let wanted = Pages::holding(
            process.id(),
            address,
            usize::try_from(len).ok()?,
            writable,
            PAGE_SHIFT as u32,
        )?;
        if wanted.count() > self.limit() {
            return None;
        }
        let counters = &self.fabric().registrations;
        let found = {
            let session = self.session.enter_owned()?;
            self.find(&wanted)
                .map(|registration| (session, registration))
        };
        let (session, registration) = match found {
            Some(found) => {
                counters.hits.add(1, Relaxed);
                found
            }
            None => {
                counters.misses.add(1, Relaxed);
                self.make(wanted)?
            }
        };
        let offset = address.checked_sub(registration.pages.start() << PAGE_SHIFT)?;
        let piece = LocalPiece {
            offset: offset as u64,
            len,
            holder: Holder::Kept(registration),
        };
        Some((piece, session))
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
        if !entry.registration.watched.is_unchanged() {
            return None;
        }
        entry.last_use = clock;
        Some(entry.registration.clone())
    }

    /// Pins memory and keeps it if it can be kept.
    fn make(self: &Arc<Self>, wanted: Pages) -> Option<(TransportUse, Arc<Registration>)> {
        let joined = self.joined(wanted)?;
        let made = self.pin(joined);
        // What was kept beside it may not be there any more.
        let made = match made {
            Err(_) if joined != wanted => self.pin(wanted),
            made => made,
        };
        let (session, registration) = made.ok()?;
        self.keep(&registration);
        Some((session, registration))
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
            .filter(|entry| entry.registration.watched.is_unchanged())
            .try_fold(wanted, |joined, entry| {
                joined.joined(&entry.pages, self.limit())
            });
        Some(joined.unwrap_or(wanted))
    }

    fn pin(self: &Arc<Self>, pages: Pages) -> Result<(TransportUse, Arc<Registration>)> {
        loop {
            match Registration::new(self, pages) {
                // The limit of the process: what it has used lately is worth more.
                Err(error) if error == EAGAIN && self.make_room(pages.count()) => {
                    self.fabric().release_what_ended();
                }
                result => return result,
            }
        }
    }

    /// As [`Self::evict`], outside of the session. Returns whether anything went.
    fn make_room(&self, pages: usize) -> bool {
        let Some(_session) = self.session.enter() else {
            return false;
        };
        self.evict(pages) != 0
    }

    /// Puts a registration into the table, unless it is stale already. The caller keeps the session
    /// from ending.
    fn keep(&self, registration: &Arc<Registration>) {
        let pages = registration.pages;
        loop {
            // What has to go for it goes when the lock is not held.
            let old = {
                let mut table = self.table.lock();
                let place = overlapping(&table.kept, &pages);
                let over =
                    table.pages + pages.count() > self.limit() || table.kept.len() >= MAX_KEPT;
                if !place.is_empty() {
                    table.take(place.start)
                } else if over {
                    self.take_least_recently_used(&mut table)
                } else {
                    self.insert(&mut table, place.start, registration);
                    None
                }
            };
            if old.is_none() {
                return;
            }
        }
    }

    fn insert(&self, table: &mut Table, index: usize, registration: &Arc<Registration>) {
        // Under the lock: it is removed by the work that a later change schedules.
        if table.closed || !registration.watched.is_unchanged() {
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
    /// it was. The caller keeps the session from ending.
    fn evict(&self, pages: usize) -> usize {
        let mut evicted = 0;
        while evicted < pages {
            let old = self.take_least_recently_used(&mut self.table.lock());
            let Some(old) = old else { break };
            evicted += old.pages.count();
        }
        evicted
    }

    /// Lets go of `wanted` of each `total` pages, those first that have not been used for longest.
    /// May sleep.
    pub(crate) fn shed(&self, wanted: usize, total: usize) {
        // What goes with the session needs no help.
        let Some(_session) = self.session.enter() else {
            return;
        };
        let kept = self.table.lock().pages;
        self.evict(kept.saturating_mul(wanted).div_ceil(total.max(1)));
    }

    fn take_least_recently_used(&self, table: &mut Table) -> Option<Arc<Registration>> {
        let old = least_recently_used(&table.kept).and_then(|index| table.take(index))?;
        self.fabric().registrations.evictions.add(1, Relaxed);
        Some(old)
    }

    /// Takes out of the table what is unwanted, and lets it go. The caller keeps the session from
    /// ending.
    fn remove(&self, mut unwanted: impl FnMut(&Entry) -> bool) {
        loop {
            let mut batch = [const { None }; BATCH];
            {
                let mut table = self.table.lock();
                let mut places = batch.iter_mut();
                let mut pages = 0;
                table.kept.retain(|entry| {
                    if unwanted(entry) {
                        if let Some(place) = places.next() {
                            *place = Some(entry.registration.clone());
                            return false;
                        }
                    }
                    pages += entry.pages.count();
                    true
                });
                table.pages = pages;
            }
            if batch.iter().flatten().next().is_none() {
                return;
            }
            // They go here, without the lock.
        }
    }

    /// Lets go of what belongs to the calling process. May sleep.
    pub(crate) fn forget_caller(&self) {
        let Some(process) = Process::current() else {
            return;
        };
        if let Some(_session) = self.session.enter() {
            self.remove(|entry| entry.pages.space() == process.id());
        }
    }

    /// Lets go of everything and keeps nothing any more. May sleep.
    pub(crate) fn close(&self) {
        self.table.lock().closed = true;
        // A session that ends waits for this. One that is over has closed the cache already, unless
        // its peer made it forget the connection too soon; then this comes late, but it comes.
        let _session = self.session.enter();
        self.remove(|_| true);
    }

    /// As [`Self::close`], some time soon.
    pub(crate) fn close_soon(self: &Arc<Self>) {
        self.table.lock().closed = true;
        self.schedule();
    }

    /// Has what is stale let go. Any context.
    fn schedule(self: &Arc<Self>) {
        // An error says that the work is pending already.
        let _ = self.fabric().completion_queue.enqueue(self.clone());
    }
}

impl Registration {
    /// Pins pages of the calling process and watches them, and then maps them; what keeps the session
    /// from ending comes with them. May sleep. EAGAIN if they are more than it may lock.
    fn new(cache: &Arc<RegistrationCache>, pages: Pages) -> Result<(TransportUse, Arc<Self>)> {
        let address = pages.start() << PAGE_SHIFT;
        let notice = Notice {
            cache: cache.clone(),
        };
        let watched = Ending(Some(Arc::try_pin_init(
            try_pin_init!(Watched {
                watch <- Watch::new(address, pages.count() * PAGE_SIZE, notice),
                work <- new_work!("Watched::work"),
            }? Error),
            GFP_KERNEL,
        )?));
        let pin = || {
            watched.watch().ok_or(EINVAL)?.begin();
            pages::Pages::pin(address, pages.count(), pages.is_writable(), true)
        };
        let mut pinned = pin()?;
        for _ in 1..ATTEMPTS {
            if watched.is_unchanged() {
                break;
            }
            // First, because both count.
            drop(pinned);
            pinned = pin()?;
        }
        let pinned = Arc::new(pinned, GFP_KERNEL)?;
        let session = cache.session.enter_owned().ok_or(ENODEV)?;
        let memory = LocalMemory::map(&cache.session, pinned)?;
        let registration = Arc::new(
            Self {
                memory,
                pages,
                _counted: Counted::new(cache.fabric(), pages.count()),
                watched,
            },
            GFP_KERNEL,
        )?;
        Ok((session, registration))
    }
}
