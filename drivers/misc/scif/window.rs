// SPDX-License-Identifier: GPL-2.0

//! Registered windows: memory of this node that the other end of a connection may reach.
//!
//! A window pins pages, has them mapped for the link's device (so that the peer reaches them) and
//! for the DMA engine (so that this end can use them as the local side of a transfer), and is
//! pushed to the peer once, as extents. `register` returns when the peer has taken it: a message
//! sent afterwards never arrives before the window it speaks of.
//!
//! # The life of a window
//!
//! *offered* (the peer has not answered) -> *active* -> *revoked* (unregistered, or its connection
//! closed) -> gone. A revoked window can't be found any more but keeps its pages and its place in
//! the address space until the peer has released it and the last transfer of this end that uses it
//! has ended. If the peer is lost, its hold ends with the session.
//!
//! Locks: `tables` comes after all locks but the leaves, see `scif_main.rs`, and none is taken under
//! it; `revoking` is a leaf.

use crate::{
    connection::Connection,
    local_memory::{
        self,
        Holder,
        LocalMemory,
        LocalPiece, //
    },
    logic::{
        address_space::{
            self,
            Range,
            RangeSource,
            Removal, //
        },
        extents::{
            self,
            Entry,
            Extent,
            Extents, //
        },
        wire::{
            Message,
            Status,
            WindowId,
            EXTENTS_PER_MESSAGE, //
        },
    },
    session::TransportUse,
    sys::{
        dma_map::DmaMapping,
        pages::Pages, //
    },
    turn::Turn,
    users::Users,
};
use kernel::{
    new_mutex, new_spinlock,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
};

/// The window may be read (`SCIF_PROT_READ`).
pub(crate) const PROTECTION_READ: u32 = 1;
/// The window may be written (`SCIF_PROT_WRITE`).
pub(crate) const PROTECTION_WRITE: u32 = 2;

/// Where windows are placed that have no offset of their own choice: away from the small offsets
/// that programs like to fix. Both ends start here, so symmetric programs get equal offsets.
const FIRST_OFFSET: u64 = 1 << 32;

/// A table of extents that owns its memory.
pub(crate) type ExtentTable = Extents<KVVec<Entry>>;

/// See the head of this file.
#[pin_data]
pub(crate) struct Window {
    pub(crate) id: WindowId,
    pub(crate) range: Range,
    pub(crate) protection: u32,
    // The mapping goes before the pages.
    _export: Option<DmaMapping>,
    /// As the peer names the memory.
    bus: ExtentTable,
    pub(crate) memory: LocalMemory,
    /// Transfers of this end.
    #[pin]
    uses: Users,
    /// The peer's answer to the offer: 0 as long as there is none, see [`answer_code`].
    answer: Atomic<u32>,
    /// Whether the peer may still use it.
    held_by_peer: Atomic<bool>,
    /// Whether its place was given back: once, whoever comes last.
    gone: Atomic<bool>,
}

const ANSWER_DONE: u32 = 1;
const ANSWER_NO_MEMORY: u32 = 2;
const ANSWER_OTHER: u32 = 3;

fn answer_code(status: Status) -> u32 {
    match status {
        Status::Done => ANSWER_DONE,
        Status::NoMemory => ANSWER_NO_MEMORY,
        _ => ANSWER_OTHER,
    }
}

/// A window in use, as the local side of a transfer.
pub(crate) struct WindowUse {
    pub(crate) window: Arc<Window>,
    owner: Arc<Connection>,
}

impl Drop for WindowUse {
    fn drop(&mut self) {
        if self.window.uses.leave() {
            self.owner.windows.remove_if_gone(&self.window);
        }
    }
}

struct Tables {
    /// The windows that can be found.
    active: RBTree<u64, Arc<Window>>,
    /// All places that are taken, by offered, active and revoked windows.
    taken: RBTree<u64, Range>,
    /// Where to look for a free place first.
    next: u64,
    /// The connection is closed: no new windows.
    closed: bool,
}

/// The windows of one end of a connection.
#[pin_data]
pub(crate) struct Windows {
    #[pin]
    tables: Mutex<Tables>,
    /// Who offers a window to the peer.
    #[pin]
    offering: Turn,
    /// The windows of which the peer has not said yet that it begins no new uses.
    #[pin]
    revoking: SpinLock<RBTree<u32, ()>>,
}

impl RangeSource for RBTree<u64, Arc<Window>> {
    fn at_or_before(&self, offset: u64) -> Option<Range> {
        entry_at_or_before(self, offset).map(|window| window.range)
    }

    fn at_or_after(&self, offset: u64) -> Option<Range> {
        self.cursor_lower_bound(&offset)
            .map(|cursor| cursor.current().1.range)
    }
}

impl RangeSource for RBTree<u64, Range> {
    fn at_or_before(&self, offset: u64) -> Option<Range> {
        entry_at_or_before(self, offset).copied()
    }

    fn at_or_after(&self, offset: u64) -> Option<Range> {
        self.cursor_lower_bound(&offset)
            .map(|cursor| *cursor.current().1)
    }
}

/// The entry with the greatest key that is at most `key`.
pub(crate) fn entry_at_or_before<V>(tree: &RBTree<u64, V>, key: u64) -> Option<&V> {
    match tree.cursor_lower_bound(&key) {
        Some(cursor) if *cursor.current().0 == key => tree.get(&key),
        Some(cursor) => {
            let previous = *cursor.peek_prev()?.0;
            tree.get(&previous)
        }
        None => {
            let last = *tree.cursor_back()?.current().0;
            tree.get(&last)
        }
    }
}

/// Takes the entry with the least key out.
pub(crate) fn take_first<V>(tree: &mut RBTree<u64, V>) -> Option<V> {
    let first = *tree.cursor_front()?.current().0;
    tree.remove(&first)
}

/// Collects extents into a table, joining those that touch.
pub(crate) fn extent_table(extents: impl Iterator<Item = (u64, u64)>) -> Result<KVVec<Entry>> {
    let mut table: KVVec<Entry> = KVVec::new();
    for (address, len) in extents {
        let extent = Extent::new(address, len).ok_or(EINVAL)?;
        let entry = match table.as_mut_slice().last_mut() {
            None => Entry::first(extent),
            Some(last) => {
                if let Some(joined) = last.extent.join(extent) {
                    last.extent = joined;
                    continue;
                }
                last.after(extent).ok_or(EINVAL)?
            }
        };
        table.push(entry, GFP_KERNEL)?;
    }
    Ok(table)
}

/// Checks a table that [`extent_table`] has made.
pub(crate) fn checked_table(entries: KVVec<Entry>) -> Result<ExtentTable> {
    Extents::new(entries).map_err(|_| EINVAL)
}

impl Window {
    fn new(
        id: WindowId,
        range: Range,
        protection: u32,
        memory: LocalMemory,
        export: Option<DmaMapping>,
    ) -> Result<Arc<Self>> {
        let bus = match &export {
            Some(mapping) => extent_table(mapping.extents())?,
            None => {
                let pages = &memory.pages;
                extent_table(
                    (0..pages.len())
                        .filter_map(|index| Some((pages.phys(index)?, PAGE_SIZE as u64))),
                )?
            }
        };
        let bus = checked_table(bus)?;
        if bus.len() != range.len() {
            return Err(EINVAL);
        }
        Arc::pin_init(
            pin_init!(Self {
                id,
                range,
                protection,
                _export: export,
                bus,
                memory,
                uses <- Users::new(),
                answer: Atomic::new(0),
                held_by_peer: Atomic::new(true),
                gone: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// The peer has let go of the window. May sleep.
    pub(crate) fn released_by_peer(self: &Arc<Self>, owner: &Arc<Connection>) {
        // Fully ordered with the look at the users in `remove_if_gone`; the last user leaves and
        // then looks at this, likewise.
        self.held_by_peer.xchg(false, Full);
        // A peer that releases what was not revoked has no more use for it; so be it.
        owner.windows.remove_if_gone(self);
        owner.wake();
    }

    /// Packed extents for the peer, each as long as can be.
    fn packed(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        let longest = extents::max_packed_len(PAGE_SHIFT as u32).unwrap_or(PAGE_SIZE as u64);
        self.bus.entries().iter().flat_map(move |entry| {
            let (address, len) = (entry.extent.address(), entry.extent.len());
            (0..len.div_ceil(longest)).map(move |index| {
                let skip = index * longest;
                extents::pack(address + skip, longest.min(len - skip), PAGE_SHIFT as u32)
            })
        })
    }
}

impl Windows {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            tables <- new_mutex!(
                Tables {
                    active: RBTree::new(),
                    taken: RBTree::new(),
                    next: FIRST_OFFSET,
                    closed: false,
                },
                "Windows::tables"
            ),
            offering <- Turn::new(),
            revoking <- new_spinlock!(RBTree::new(), "Windows::revoking"),
        })
    }

    /// Reserves a place: at `offset` if `fixed`, else near it, else anywhere.
    fn reserve(&self, offset: i64, len: u64, fixed: bool) -> Result<Range> {
        let wanted = Range::new(offset, len).map_err(|_| EINVAL)?;
        let mut tables = self.tables.lock();
        if tables.closed {
            return Err(ECONNRESET);
        }
        let range = if fixed {
            if address_space::overlaps(&tables.taken, wanted) {
                return Err(EADDRINUSE);
            }
            wanted
        } else {
            let hint = match wanted.start() & !(PAGE_SIZE as u64 - 1) {
                0 => tables.next,
                hint => hint,
            };
            let start = address_space::choose_offset(&tables.taken, hint, len).ok_or(ENOMEM)?;
            Range::from_parts(start, len).map_err(|_| ENOMEM)?
        };
        tables
            .taken
            .try_create_and_insert(range.start(), range, GFP_KERNEL)?;
        if !fixed && offset == 0 {
            tables.next = range.end();
        }
        Ok(range)
    }

    /// Whether there are windows, or revoked ones that are still in use.
    pub(crate) fn has_any(&self) -> bool {
        self.tables.lock().taken.iter().next().is_some()
    }

    fn give_back(&self, range: Range) {
        self.tables.lock().taken.remove(&range.start());
    }

    /// Makes the window findable; not if it was revoked before it came to that.
    fn activate(&self, window: &Arc<Window>) -> Result {
        let mut tables = self.tables.lock();
        if tables.closed || window.uses.is_closed() {
            return Err(ECONNRESET);
        }
        let _none = tables.active.try_create_and_insert(
            window.range.start(),
            window.clone(),
            GFP_KERNEL,
        )?;
        Ok(())
    }

    /// Gives the place of a window back if nothing uses it any more.
    fn remove_if_gone(&self, window: &Arc<Window>) {
        if !window.uses.is_drained() || window.held_by_peer.load(Relaxed) {
            return;
        }
        if !window.gone.xchg(true, Full) {
            self.give_back(window.range);
        }
    }

    /// The windows that hold all of `range`, each taken into use. ENXIO for a gap, EACCES if one
    /// of them does not allow `protection`.
    pub(crate) fn cover(
        &self,
        owner: &Arc<Connection>,
        range: Range,
        protection: u32,
    ) -> Result<KVVec<LocalPiece>> {
        let mut pieces = KVVec::new();
        let mut refused = false;
        {
            let tables = self.tables.lock();
            for piece in address_space::covering(&tables.active, range).map_err(|_| ENXIO)? {
                let window = tables.active.get(&piece.range.start()).ok_or(ENXIO)?;
                if window.protection & protection != protection {
                    refused = true;
                    break;
                }
                pieces.reserve(1, GFP_KERNEL_ACCOUNT)?;
                if !window.uses.enter_unscoped() {
                    return Err(ENXIO);
                }
                let piece = LocalPiece {
                    holder: Holder::Window(WindowUse {
                        window: window.clone(),
                        owner: owner.clone(),
                    }),
                    offset: piece.offset,
                    len: piece.len,
                };
                let _ = pieces.push_within_capacity(piece);
            }
        }
        // Those taken before are let go here, without the lock.
        match refused {
            true => Err(EACCES),
            false => Ok(pieces),
        }
    }

    /// Revokes all windows for good. The peer, which is told that the connection is closed, or is
    /// lost, lets go of them by itself. May sleep.
    pub(crate) fn revoke_all(&self) {
        loop {
            let window = {
                let mut tables = self.tables.lock();
                tables.closed = true;
                take_first(&mut tables.active)
            };
            let Some(window) = window else { return };
            window.uses.close();
            self.remove_if_gone(&window);
        }
    }
}

impl Connection {
    /// Registers `len` bytes of the caller's memory at `address`, both multiples of the page size.
    /// Returns the offset of the window. Killable.
    ///
    /// EAGAIN if the memory can't be pinned for lack of resources or is out of the peer's reach, as
    /// the original driver did; ENOMEM if either side has no memory to keep track of it.
    pub(crate) fn register(
        self: &Arc<Self>,
        address: usize,
        len: u64,
        offset: i64,
        protection: u32,
        fixed: bool,
    ) -> Result<i64> {
        self.check_established()?;
        // One after another, so that a process can't fill the peer with half offers.
        let _turn = self.windows.offering.take()?;
        let range = self.windows.reserve(offset, len, fixed)?;
        let (_session, window) = match self.make_exported(address, range, protection) {
            Ok(made) => made,
            Err(error) => {
                // Nobody has heard of it.
                self.windows.give_back(range);
                return Err(error);
            }
        };
        let mut offered = false;
        match self.offer(&window, &mut offered) {
            Ok(()) => Ok(range.offset()),
            Err(error) => {
                if !offered {
                    self.session.unexport(window.id);
                }
                self.revoke(&window);
                Err(error)
            }
        }
    }

    /// Makes a window and keeps it for the peer. What keeps the session from ending comes with it,
    /// and is to go after it.
    fn make_exported(
        self: &Arc<Self>,
        address: usize,
        range: Range,
        protection: u32,
    ) -> Result<(TransportUse, Arc<Window>)> {
        let pages = usize::try_from(range.len())? >> PAGE_SHIFT;
        let writable = protection & PROTECTION_WRITE != 0;
        let pinned = local_memory::pin(&self.session.fabric, address, pages, writable, true)?;
        // Whoever has a window keeps its mappings, which must not outlive the session.
        let session = self.session.enter_owned().ok_or(ENODEV)?;
        let window = self.make_window(pinned, range, protection)?;
        self.session.export(&window, self)?;
        Ok((session, window))
    }

    fn make_window(
        self: &Arc<Self>,
        pinned: Arc<Pages>,
        range: Range,
        protection: u32,
    ) -> Result<Arc<Window>> {
        let memory = LocalMemory::map(&self.session, pinned)?;
        let export = self
            .session
            .transport
            .export_device()
            .map(|device| DmaMapping::new(&memory.pages, device))
            .transpose()?;
        let id = self.session.new_window_id();
        Window::new(id, range, protection, memory, export)
    }

    /// Pushes the window to the peer and waits for its answer.
    ///
    /// `offered` says afterwards whether the peer has heard of it.
    fn offer(self: &Arc<Self>, window: &Arc<Window>, offered: &mut bool) -> Result {
        let target = self.peer()?.id;
        let count = window.packed().count();
        self.session.post_bulk(&Message::WindowOffer {
            target,
            window: window.id,
            protection: window.protection,
            offset: window.range.start(),
            len: window.range.len(),
            extents: u32::try_from(count)?,
        })?;
        *offered = true;
        let mut packed = window.packed();
        loop {
            let mut extents = [0; EXTENTS_PER_MESSAGE];
            let mut count = 0;
            for (place, extent) in extents.iter_mut().zip(packed.by_ref()) {
                *place = extent.ok_or(EINVAL)?;
                count += 1;
            }
            if count == 0 {
                break;
            }
            self.session.post_bulk(&Message::WindowExtents {
                target,
                window: window.id,
                count,
                extents,
            })?;
        }
        let answer = self
            .waiters()?
            .wait_killable(|| match window.answer.load(Relaxed) {
                // A peer that lets go of the window instead of answering has closed its end, or its
                // node goes: the news of that comes, too.
                0 => self.check_established().err().map(Err),
                answer => Some(Ok(answer)),
            })?;
        match answer? {
            ANSWER_DONE => self.windows.activate(window),
            ANSWER_NO_MEMORY => Err(ENOMEM),
            _ => Err(EAGAIN),
        }
    }

    /// The peer has answered an offer.
    pub(crate) fn window_answered(&self, id: WindowId, status: Status) {
        if let Some(window) = self.session.exported(id) {
            window.answer.store(answer_code(status), Relaxed);
            self.wake();
        }
        if status != Status::Done {
            // The peer does not hold it.
            self.session.unexport(id);
        }
    }

    /// Ends the life of a window that can't be found (any more).
    fn revoke(self: &Arc<Self>, window: &Arc<Window>) {
        window.uses.close();
        let told = self.peer().and_then(|peer| {
            self.session.wait_for_bulk_room();
            self.session.post(&Message::WindowRevoke {
                target: peer.id,
                window: window.id,
                offset: window.range.start(),
            })
        });
        if told.is_err() {
            // With the session over, it is the session that lets go.
            return;
        }
        self.windows.remove_if_gone(window);
    }

    /// Unregisters all windows inside `offset..offset + len`: EINVAL if one is cut, ENXIO if there
    /// is none; then nothing has changed. On return neither end can begin a new use of them.
    pub(crate) fn unregister(self: &Arc<Self>, offset: i64, len: u64) -> Result {
        let range = Range::new(offset, len).map_err(|_| EINVAL)?;
        self.check_established()?;
        // Whoever has a window keeps its mappings, which must not outlive the session.
        let _session = self.session.enter().ok_or(ENODEV)?;
        let mut revoked = KVVec::new();
        let mut noted = KVVec::new();
        {
            let mut tables = self.windows.tables.lock();
            let count = match address_space::removal(&tables.active, range) {
                Ok(windows) => windows.count(),
                Err(Removal::None) => return Err(ENXIO),
                Err(Removal::Cuts) => return Err(EINVAL),
            };
            // With the memory at hand the rest can't fail: all of them go, or none.
            revoked.reserve(count, GFP_KERNEL)?;
            noted.reserve(count, GFP_KERNEL)?;
            for _ in 0..count {
                let _ = noted.push_within_capacity(RBTreeNodeReservation::new(GFP_KERNEL)?);
            }
            let mut start = range.start();
            while let Some(found) = address_space::first_inside(&tables.active, start, range.end())
            {
                start = found.end();
                if let Some(window) = tables.active.remove(&found.start()) {
                    let _ = revoked.push_within_capacity(window);
                }
            }
        }
        for (window, node) in revoked.iter().zip(noted) {
            let replaced = self
                .windows
                .revoking
                .lock()
                .insert(node.into_node(window.id.0, ()));
            drop(replaced);
            self.revoke(window);
        }
        // The peer must not be able to use what the caller thinks is gone. A caller that is being
        // killed does not wait, and a peer that goes does not answer. What the peer has released
        // without ever having used it has come before that: so the memory is the caller's again.
        let waiters = self.waiters()?;
        for window in &revoked {
            let revoking = || self.windows.revoking.lock().get(&window.id.0).is_some();
            let _ = waiters.wait_killable(|| {
                let done = !revoking() || self.check_established().is_err();
                done.then_some(())
            });
            self.window_revoke_done(window.id);
        }
        Ok(())
    }

    /// The peer has taken note that a window was revoked.
    pub(crate) fn window_revoke_done(&self, id: WindowId) {
        let node = self.windows.revoking.lock().remove_node(&id.0);
        if node.is_some() {
            self.wake();
        }
    }
}
