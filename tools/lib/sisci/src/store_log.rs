// SPDX-License-Identifier: LGPL-2.1

//! Stores to broadcast maps, in their order.
//!
//! A program's stores to a broadcast map go to memory of this process, and this library then stores
//! them at the members. So that stores to different pages arrive in the order in which they were
//! made, at most one page of all broadcast maps is open, that is, can be stored to. A store
//! elsewhere waits in the kernel. A thread of that map then closes the open page, stores its
//! changes at the members, and opens the other page. Stores to the open page are sent at a flush,
//! and once in a [`PERIOD`]. A page that does not change in that time is closed.
//!
//! A closed page is equal to its last sent content. So a copy of the sent content is only kept for
//! the open page.
//!
//! One store may need two pages: its thread waits for each in turn. Then both are open until one
//! has changed.
//!
//! Lock: [`STATE`], a leaf. A flush may be made in the handler of a signal, and a thread may be
//! cancelled in it. So a thread that holds the lock does not allocate, can't be interrupted or
//! cancelled, and touches no memory of the program.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;
use std::time::Duration;
use std::time::Instant;

use rustix::io::Errno;

use crate::barrier::store_barrier;
use crate::changes::Part;
use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::mapping::shared_memory;
use crate::members::Members;
use crate::memory;
use crate::process;
use crate::process::NewProcess;
use crate::process::PerProcess;
use crate::threads::Uninterrupted;
use crate::write_protection::Fault;
use crate::write_protection::WriteProtection;

/// The interval at which the open page is checked. Also the longest time that a page stays open for
/// a thread that has not stored in it yet.
pub const PERIOD: Duration = Duration::from_millis(1);

const WORD: usize = size_of::<u64>();

/// The widest store of a CPU, in bytes.
const WIDEST: usize = 256;

/// Bytes that are copied at once, so that they are in a cache when they are stored at the members.
const PIECE: usize = 64 << 10;

/// Number of threads whose last waits are remembered.
const THREADS: usize = 16;

/// The page that can be stored to, or two pages.
struct Opened {
    log: Arc<StoreLog>,
    offset: usize,
    len: usize,
    thread: u32,
    since: Instant,
    /// Whether the program has stored to the page since it was opened.
    has_changed: bool,
    /// Whether the program has stored to the page since it was last checked.
    is_in_use: bool,
}

/// The addresses for which a thread has waited.
#[derive(Clone, Copy)]
struct Waited {
    thread: u32,
    /// The last address, and the one before; 0 if the thread has stored since.
    addresses: [usize; 2],
}

struct State {
    opened: Option<Opened>,
    /// The content of the open page, in words, as it was last sent.
    sent: Vec<u64>,
    waited: [Waited; THREADS],
    oldest: usize,
}

static STATE: PerProcess<Mutex<State>> = PerProcess::new(Mutex::new(State::new()));

/// Whether a page is open.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Number of logs. Programs without a log pay no more than a load.
static LOGS: AtomicUsize = AtomicUsize::new(0);

/// Whether exits and forks of the process are watched. This is no `Once`: a child that another
/// thread forks during the call would wait for ever.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// The memory of a broadcast map that a program stores in.
pub struct StoreLog {
    /// The program's map. Locked only while [`STATE`] is.
    area: Mutex<Option<Mapping>>,
    address: usize,
    /// The same memory, mapped where this library stores.
    behind: Mapping,
    size: usize,
    protection: WriteProtection,
    /// Locked only while [`STATE`] is.
    members: Mutex<Arc<Members>>,
}

/// The guards of [`STATE`].
struct Held {
    // Fields are dropped in this order.
    state: MutexGuard<'static, State>,
    _whole: Uninterrupted,
}

fn hold() -> Held {
    let whole = Uninterrupted::new();
    Held {
        state: lock(&STATE),
        _whole: whole,
    }
}

/// Translates an error of write protection.
fn protection_error(error: Errno) -> Error {
    match error {
        // Write protection is missing, forbidden to this process, or lacks a feature.
        Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL => Error::NOT_SUPPORTED,
        error => error.into(),
    }
}

/// Sends the stores to broadcast maps by this thread, and those that this thread has observed.
/// Async-signal-safe.
#[inline(always)]
pub fn flush() {
    if LOGS.load(Relaxed) != 0 {
        flush_open_page();
    }
}

#[cold]
#[inline(never)]
extern "C" fn flush_open_page() {
    // Earlier stores have found their page open before this load.
    fence(SeqCst);
    // A child made without the fork handlers has inherited the flag, but no map.
    if IS_OPEN.load(SeqCst) && process::is_own() {
        hold().state.send();
    }
}

extern "C" fn flush_at_exit() {
    // A child that has not called the library since the fork has no map.
    if process::is_own() {
        flush();
    }
}

/// Resets the counts in a forked child, which has no broadcast map and no thread for one. The child
/// never reads a state that other threads of the parent were changing: `forget` replaces it.
extern "C" fn after_fork_in_child() {
    LOGS.store(0, Relaxed);
    IS_OPEN.store(false, Relaxed);
}

/// Forgets the state of the parent, also in a child that was made without the fork handlers.
pub fn forget(process: &NewProcess) {
    LOGS.store(0, Relaxed);
    IS_OPEN.store(false, Relaxed);
    STATE.renew(Mutex::new(State::new()), process);
}

impl State {
    const fn new() -> Self {
        Self {
            opened: None,
            sent: Vec::new(),
            waited: [Waited {
                thread: 0,
                addresses: [0; 2],
            }; THREADS],
            oldest: 0,
        }
    }

    /// Stores the changes of the open page at the members.
    fn send(&mut self) {
        let Some(opened) = &mut self.opened else {
            return;
        };
        let (first, count) = (opened.offset / WORD, self.sent.len());
        // A store across two pages is sent before the stores that came after it.
        let across = match opened.len > page() {
            true => {
                let border = page() / WORD;
                border - WIDEST / WORD..count.min(border + WIDEST / WORD)
            }
            false => 0..0,
        };
        let members = lock(&opened.log.members);
        let memory = opened.log.behind.address().cast::<u8>().cast_const();
        let mut has_changed = false;
        // A run of changed bytes, for members without a map.
        let mut changed = 0..0;
        for index in across.chain(0..count) {
            let now = opened.log.word(first + index);
            let before = self.sent[index];
            if now == before {
                continue;
            }
            self.sent[index] = now;
            has_changed = true;
            let part = Part::of(before ^ now);
            // SAFETY: The maps are as long as the log.
            unsafe { members.store(first + index, part, now) };
            if members.have_copies() {
                let bytes = part.bytes((first + index) * WORD);
                if bytes.start == changed.end {
                    changed.end = bytes.end;
                    continue;
                }
                // SAFETY: The bytes are in the log.
                unsafe { members.copy_part(memory, core::mem::replace(&mut changed, bytes)) };
            }
        }
        // SAFETY: As above.
        unsafe { members.copy_part(memory, changed) };
        if has_changed {
            store_barrier();
            opened.has_changed = true;
            opened.is_in_use = true;
        }
    }

    /// Closes the open page, and sends its changes.
    fn close(&mut self) {
        let Some(opened) = &self.opened else {
            return;
        };
        // If the log is not mapped any more, no store can hit it, and another map may be at its
        // address.
        if opened.log.is_mapped() {
            let _ = opened.log.protection.protect(opened.offset, opened.len);
        }
        self.send();
        self.forget();
    }

    fn forget(&mut self) {
        if let Some(opened) = self.opened.take() {
            if opened.has_changed {
                self.has_stored(opened.thread);
            }
        }
        IS_OPEN.store(false, SeqCst);
    }

    /// Opens these pages of a mapped log. No page is open before.
    fn open(&mut self, log: &Arc<StoreLog>, offset: usize, len: usize, thread: u32) {
        let (first, end) = (offset / WORD, (offset + len).min(log.size) / WORD);
        self.sent.clear();
        self.sent.extend((first..end).map(|index| log.word(index)));
        self.opened = Some(Opened {
            log: log.clone(),
            offset,
            len,
            thread,
            since: Instant::now(),
            has_changed: false,
            is_in_use: true,
        });
        IS_OPEN.store(true, SeqCst);
        let _ = log.protection.release(offset, len);
    }

    fn is_of(&self, log: &StoreLog) -> bool {
        let opened = self.opened.as_ref();
        opened.is_some_and(|opened| core::ptr::eq(&*opened.log, log))
    }

    /// Returns whether the thread for which a page is open has stored in it, or has had the time
    /// to.
    fn may_close(&mut self, fault: Fault) -> bool {
        let waits = |opened: &Opened| {
            opened.thread != fault.thread && !opened.has_changed && opened.since.elapsed() < PERIOD
        };
        if self.opened.as_ref().is_some_and(waits) {
            self.send();
        }
        !self.opened.as_ref().is_some_and(waits)
    }

    fn has_stored(&mut self, thread: u32) {
        for waited in &mut self.waited {
            if waited.thread == thread {
                waited.addresses = [0; 2];
            }
        }
    }

    /// Records that a thread waits. If the thread waits for two adjacent pages in turn, it makes a
    /// store across both. Then returns an address in the lower page.
    fn waits_for_two(&mut self, fault: Fault) -> Option<usize> {
        let known = self
            .waited
            .iter()
            .position(|waited| waited.thread == fault.thread);
        let index = known.unwrap_or_else(|| {
            self.oldest = (self.oldest + 1) % THREADS;
            self.waited[self.oldest] = Waited {
                thread: fault.thread,
                addresses: [0; 2],
            };
            self.oldest
        });
        let [last, before] = self.waited[index].addresses;
        self.waited[index].addresses = [fault.address, last];
        let (low, high) = (last.min(fault.address), last.max(fault.address));
        let border = high - high % page();
        let is_across = low < border && border - low <= WIDEST && high - border < WIDEST;
        (is_across && before == fault.address).then_some(low)
    }
}

/// Returns the size of a page.
fn page() -> usize {
    rustix::param::page_size()
}

impl StoreLog {
    /// Creates memory that programs store in. Its size is `size` bytes, and each member's map is as
    /// long.
    pub fn new(size: usize, place: Place) -> Result<Arc<Self>> {
        let len = size.checked_next_multiple_of(page()).ok_or(Error::NOSPC)?;
        let memory = shared_memory(len as u64)?;
        let map = |place| Mapping::new(memory.as_fd(), 0, len, true, place);
        let area = map(place).map_err(memory::map_error)?;
        let behind = map(Place::Any).map_err(memory::map_error)?;
        area.keep_from_children();
        behind.keep_from_children();
        let address = area.address() as usize;
        let protection = WriteProtection::new(address, len).map_err(protection_error)?;
        let room = Vec::with_capacity(2 * page() / WORD);
        let mut held = hold();
        if held.state.sent.capacity() == 0 {
            held.state.sent = room;
        }
        drop(held);
        if !WATCHING.swap(true, Relaxed) {
            // SAFETY: The functions may be called at any time, and do nothing that is forbidden
            // after a fork.
            unsafe {
                libc::atexit(flush_at_exit);
                libc::pthread_atfork(None, None, Some(after_fork_in_child));
            }
        }
        LOGS.fetch_add(1, Relaxed);
        Ok(Arc::new(Self {
            area: Mutex::new(Some(area)),
            address,
            behind,
            size: size.next_multiple_of(WORD),
            protection,
            members: Mutex::new(Arc::default()),
        }))
    }

    /// Returns the address where programs store.
    pub fn address(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// Returns the write protection, which reports the stores that wait.
    pub fn protection(&self) -> &WriteProtection {
        &self.protection
    }

    /// Returns whether the program has the map. Called with [`STATE`] locked: then the map does not
    /// go meanwhile.
    fn is_mapped(&self) -> bool {
        lock(&self.area).is_some()
    }

    /// Returns whether the map has `len` bytes from `address` on.
    fn has_pages(&self, address: usize, len: usize) -> bool {
        let end = self.address + self.size.next_multiple_of(page());
        address >= self.address && address + len <= end
    }

    fn word(&self, index: usize) -> u64 {
        let words: *const AtomicU64 = self.behind.address().cast();
        // SAFETY: The index is in the memory, in whole pages that stay mapped as long as `self`
        // exists.
        unsafe { (*words.add(index)).load(Relaxed) }
    }

    // ----- pages --------------------------------------------------------------------------------

    /// Lets a waiting thread store. Returns false if the thread must wait longer. `moved_on` tells
    /// whether the thread for which a page is open waits elsewhere.
    pub fn answer(self: &Arc<Self>, fault: Fault, moved_on: impl Fn(u32) -> bool) -> bool {
        let offset = fault.address.wrapping_sub(self.address);
        if offset >= self.size.next_multiple_of(page()) {
            return true;
        }
        let offset = offset - offset % page();
        let mut held = hold();
        if !self.is_mapped() {
            return true;
        }
        let state = &mut *held.state;
        if let Some(opened) = &state.opened {
            let pages = opened.offset..opened.offset + opened.len;
            if core::ptr::eq(&*opened.log, &**self) && pages.contains(&offset) {
                // The page was opened for another thread: all threads that wait for it are woken
                // up.
                let _ = self.protection.release(offset, page());
                return true;
            }
            if !moved_on(opened.thread) && !state.may_close(fault) {
                return false;
            }
        }
        state.close();
        match state.waits_for_two(fault) {
            // If the two pages belong to two maps that lie side by side, the store can't have both.
            Some(low) if self.has_pages(low - low % page(), 2 * page()) => {
                let low = low - self.address;
                state.open(self, low - low % page(), 2 * page(), fault.thread);
            }
            _ => state.open(self, offset, page(), fault.thread),
        }
        true
    }

    /// Returns when to check the open page again, if the page is one of this map.
    pub fn next_look(&self) -> Option<Duration> {
        let held = hold();
        let opened = held.state.opened.as_ref()?;
        match held.state.is_of(self) {
            false => None,
            true if opened.len > page() => Some(Duration::ZERO),
            true => Some(PERIOD),
        }
    }

    /// Checks the open page, if the page is one of this map.
    pub fn look(&self) {
        let mut held = hold();
        let state = &mut *held.state;
        if !state.is_of(self) {
            return;
        }
        if let Some(opened) = &mut state.opened {
            opened.is_in_use = false;
        }
        state.send();
        let is_done = |opened: &Opened| match opened.len > page() {
            // There is no order between two open pages.
            true => opened.has_changed || opened.since.elapsed() >= PERIOD,
            false => !opened.is_in_use,
        };
        if state.opened.as_ref().is_some_and(is_done) {
            state.close();
        }
    }

    /// Copies to the map and sends the bytes, changed or not, behind all earlier stores.
    ///
    /// # Safety
    ///
    /// `from` and the map from `offset` on have `size` bytes.
    pub unsafe fn copy(&self, from: *const u8, offset: usize, size: usize) {
        flush();
        let mut done = 0;
        while done < size {
            let piece = PIECE.min(size - done);
            // SAFETY: By the contract of this function.
            unsafe { self.copy_piece(from.add(done), offset + done, piece) };
            done += piece;
        }
    }

    /// # Safety
    ///
    /// The same as for `copy`.
    unsafe fn copy_piece(&self, from: *const u8, offset: usize, size: usize) {
        // SAFETY: By the contract of this function. The program's memory is touched before anything
        // is held.
        let own = unsafe {
            let own = self.behind.address().cast::<u8>().add(offset);
            core::ptr::copy(from, own, size);
            own
        };
        let mut held = hold();
        let State { opened, sent, .. } = &mut *held.state;
        if let Some(opened) = opened
            .as_ref()
            .filter(|opened| core::ptr::eq(&*opened.log, self))
        {
            let end = (opened.offset + sent.len() * WORD).min(offset + size);
            let begin = opened.offset.max(offset);
            if begin < end {
                // First: a store made meanwhile is then sent as a change.
                // SAFETY: The bytes are in both.
                unsafe {
                    let sent = sent.as_mut_ptr().cast::<u8>().add(begin - opened.offset);
                    core::ptr::copy_nonoverlapping(own.add(begin - offset), sent, end - begin);
                }
            }
        }
        let memory = self.behind.address().cast::<u8>().cast_const();
        // SAFETY: The maps are as long as the log.
        unsafe { lock(&self.members).copy(memory, offset..offset + size) };
        store_barrier();
    }

    // ----- members ------------------------------------------------------------------------------

    /// Returns the members that stores are sent to.
    pub fn members(&self) -> Arc<Members> {
        let held = hold();
        let members = lock(&self.members).clone();
        drop(held);
        members
    }

    /// Sends to other members from now on.
    pub fn set_members(&self, members: Members) {
        let members = Arc::new(members);
        let held = hold();
        let before = core::mem::replace(&mut *lock(&self.members), members);
        drop(held);
        drop(before);
    }

    // ----- the end ------------------------------------------------------------------------------

    /// Unmaps the memory for the program: no more stores can be made.
    pub fn unmap(&self) {
        let held = hold();
        let area = lock(&self.area).take();
        // Under the lock: no page is protected or opened that belongs to another map by now.
        drop(area);
        drop(held);
        self.protection.wake_all();
    }

    /// Sends for the last time. No thread opens pages of the log any more.
    pub fn end(&self) {
        let mut held = hold();
        if held.state.is_of(self) {
            held.state.send();
            held.state.forget();
        }
    }
}

impl Drop for StoreLog {
    fn drop(&mut self) {
        // All has been sent. In a child the count is 0 already.
        let _ = LOGS.fetch_update(Relaxed, Relaxed, |logs| logs.checked_sub(1));
    }
}
