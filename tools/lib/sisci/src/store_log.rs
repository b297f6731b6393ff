// SPDX-License-Identifier: LGPL-2.1

//! Stores to broadcast maps, in their order.
//!
//! What a program stores in a broadcast map is in memory of its own until this library stores it at the members.
//! So that stores to different pages get there in the order in which they were made, at most one page of all
//! such maps is open, that is, can be stored to. A store elsewhere waits in the kernel until a thread of the map has closed
//! the open page, has stored at the members what was changed in it, and has opened the other. Stores to the open page
//! are sent at a flush, and once in a [`PERIOD`]; a page that does not change in that time is closed.
//!
//! A page that is closed is as it was sent, so only of the open one it is kept how it was.
//!
//! One store may need two pages: its thread waits for each in turn. Both are open then until one has changed.
//!
//! Lock: [`STATE`], a leaf. A flush may be made in the handler of a signal, and a thread may be cancelled in it: so whoever
//! holds it does not allocate, is not interrupted and not cancelled, and touches no memory of the program.

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

/// How often the open page is looked at; and how long one stays open for a thread that has not stored in it yet.
pub const PERIOD: Duration = Duration::from_millis(1);

const WORD: usize = size_of::<u64>();

/// The widest store of a processor, in bytes.
const WIDEST: usize = 256;

/// Bytes that are copied at once: they are in a cache when they are stored at the members.
const PIECE: usize = 64 << 10;

/// Of so many threads it is known for which pages they have waited.
const THREADS: usize = 16;

/// The page that can be stored to, or two.
struct Opened {
    log: Arc<StoreLog>,
    offset: usize,
    len: usize,
    thread: u32,
    since: Instant,
    /// Something was stored since it was opened.
    has_changed: bool,
    /// And since it was looked at.
    is_in_use: bool,
}

/// Where a thread has waited.
#[derive(Clone, Copy)]
struct Waited {
    thread: u32,
    /// The last time, and the time before; 0 if it has stored since.
    addresses: [usize; 2],
}

struct State {
    opened: Option<Opened>,
    /// The words of the open page as they were sent.
    sent: Vec<u64>,
    waited: [Waited; THREADS],
    oldest: usize,
}

static STATE: PerProcess<Mutex<State>> = PerProcess::new(Mutex::new(State::new()));

/// There is an open page.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// How many logs there are: programs without one pay no more than a look.
static LOGS: AtomicUsize = AtomicUsize::new(0);

/// The end of the process and forks are watched. Not a `Once`: a child of a thread beside the one that begins would wait
/// for that.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// See the head of this file.
pub struct StoreLog {
    /// Where the program stores. Locked only while [`STATE`] is.
    area: Mutex<Option<Mapping>>,
    address: usize,
    /// The same memory, where this library stores.
    behind: Mapping,
    size: usize,
    protection: WriteProtection,
    /// Locked only while [`STATE`] is.
    members: Mutex<Arc<Members>>,
}

/// What is held with [`STATE`].
struct Held {
    // They end in this order.
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

/// What it means that stores can't be stopped.
fn protection_error(error: Errno) -> Error {
    match error {
        // It is not there, not for this process, or can't do that.
        Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL => Error::NOT_SUPPORTED,
        error => error.into(),
    }
}

/// Sends what was stored in broadcast maps by this thread, and by those that it has heard of. Async-signal-safe.
#[inline(always)]
pub fn flush() {
    if LOGS.load(Relaxed) != 0 {
        flush_open_page();
    }
}

#[cold]
#[inline(never)]
extern "C" fn flush_open_page() {
    // Stores that went before have found their page open before this looks.
    fence(SeqCst);
    // A child that was made without the functions around a fork has inherited the word, and nothing else.
    if IS_OPEN.load(SeqCst) && process::is_own() {
        hold().state.send();
    }
}

extern "C" fn flush_at_exit() {
    // A child that has not begun with the library has no map.
    if process::is_own() {
        flush();
    }
}

/// In the process that was forked: it has no map of these, and no thread for them. What the parent's other threads
/// had in hand is never looked at: `forget` replaces it.
extern "C" fn after_fork_in_child() {
    LOGS.store(0, Relaxed);
    IS_OPEN.store(false, Relaxed);
}

/// Forgets the parent's, also in a child that was made without the functions around a fork.
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

    /// Stores at the members what has changed in the open page.
    fn send(&mut self) {
        let Some(opened) = &mut self.opened else {
            return;
        };
        let (first, count) = (opened.offset / WORD, self.sent.len());
        // A store across two pages is there before those that came after it.
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
        // Bytes that have changed, one behind the other, for who has no map.
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
                // SAFETY: They are in the log.
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

    /// Closes the open page, and sends what has changed in it.
    fn close(&mut self) {
        let Some(opened) = &self.opened else {
            return;
        };
        // If it is not mapped any more, nothing can be stored in it, and another may be there.
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

    /// Opens these pages of a log that is mapped; none is open.
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

    /// Whether the thread for which a page is open has stored in it, or has had the time to.
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

    /// A thread waits: if it does so at a store that needs two pages, because it has just waited for the other one in vain,
    /// returns an address in the lower of them.
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

/// Bytes of a page.
fn page() -> usize {
    rustix::param::page_size()
}

impl StoreLog {
    /// Makes memory that programs store in. It is `size` bytes long, and so much has the map of each member.
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
            // SAFETY: The functions may be called at any time, and do nothing that is not allowed after a fork.
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

    /// Where programs store.
    pub fn address(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// Stores that wait are told of by it.
    pub fn protection(&self) -> &WriteProtection {
        &self.protection
    }

    /// Whether the program has the map. To be asked with [`STATE`]: it does not go meanwhile.
    fn is_mapped(&self) -> bool {
        lock(&self.area).is_some()
    }

    /// Whether the map has so many bytes from that address on.
    fn has_pages(&self, address: usize, len: usize) -> bool {
        let end = self.address + self.size.next_multiple_of(page());
        address >= self.address && address + len <= end
    }

    fn word(&self, index: usize) -> u64 {
        let words: *const AtomicU64 = self.behind.address().cast();
        // SAFETY: There are so many words, in whole pages that are mapped as long as this is there.
        unsafe { (*words.add(index)).load(Relaxed) }
    }

    // ----- pages --------------------------------------------------------------------------------

    /// Lets a thread store that waits: not yet if it returns false. `moved_on` says that the thread for which a page is
    /// open waits elsewhere.
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
                // It was opened for another thread: all that wait for it are woken.
                let _ = self.protection.release(offset, page());
                return true;
            }
            if !moved_on(opened.thread) && !state.may_close(fault) {
                return false;
            }
        }
        state.close();
        match state.waits_for_two(fault) {
            // In two maps that lie beside each other it can't have both.
            Some(low) if self.has_pages(low - low % page(), 2 * page()) => {
                let low = low - self.address;
                state.open(self, low - low % page(), 2 * page(), fault.thread);
            }
            _ => state.open(self, offset, page(), fault.thread),
        }
        true
    }

    /// When to look at the open page again, if it is one of this map.
    pub fn next_look(&self) -> Option<Duration> {
        let held = hold();
        let opened = held.state.opened.as_ref()?;
        match held.state.is_of(self) {
            false => None,
            true if opened.len > page() => Some(Duration::ZERO),
            true => Some(PERIOD),
        }
    }

    /// Looks at the open page, if it is one of this map.
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
            // Nothing is ordered between two.
            true => opened.has_changed || opened.since.elapsed() >= PERIOD,
            false => !opened.is_in_use,
        };
        if state.opened.as_ref().is_some_and(is_done) {
            state.close();
        }
    }

    /// Copies to the map, and sends that, changed or not, behind all that was stored before.
    ///
    /// # Safety
    ///
    /// Both have so many bytes.
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
    /// That of `copy`.
    unsafe fn copy_piece(&self, from: *const u8, offset: usize, size: usize) {
        // SAFETY: By the contract of this function. The program's memory is touched before anything is held.
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
                // First: what is stored there meanwhile is sent when it is looked for.
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

    /// Those that it is sent to.
    pub fn members(&self) -> Arc<Members> {
        let held = hold();
        let members = lock(&self.members).clone();
        drop(held);
        members
    }

    /// Sends to others from now on.
    pub fn set_members(&self, members: Members) {
        let members = Arc::new(members);
        let held = hold();
        let before = core::mem::replace(&mut *lock(&self.members), members);
        drop(held);
        drop(before);
    }

    // ----- the end ------------------------------------------------------------------------------

    /// Unmaps it for the program: nothing is stored in it any more.
    pub fn unmap(&self) {
        let held = hold();
        let area = lock(&self.area).take();
        // With the state: no page is protected, or opened, that is another map's by now.
        drop(area);
        drop(held);
        self.protection.wake_all();
    }

    /// Sends for the last time; nobody opens pages of it any more.
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
        // All has been sent. In a child there are none to count.
        let _ = LOGS.fetch_update(Relaxed, Relaxed, |logs| logs.checked_sub(1));
    }
}
