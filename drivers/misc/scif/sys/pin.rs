// SPDX-License-Identifier: GPL-2.0

//! Pinning memory of a process, and whom it is charged to.
//!
//! What is pinned with an account is charged to two:
//!
//! - to the address space (`VmPin`), as RDMA, vDPA and io_uring do;
//! - to the user of the calling task, in the counter of io_uring, AF_XDP and others. An address space
//!   ends with its process, but what was pinned stays as long as anybody has the descriptor: without
//!   the user's count, a chain of processes could pin everything.
//!
//! Neither may exceed the caller's `RLIMIT_MEMLOCK`. With CAP_IPC_LOCK there is no limit, and the user
//! is not charged, so that a privileged process does not take away the room of others.
//!
//! Memory in huge pages is pinned by these: what that costs does not depend on how many small pages they
//! would be.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use core::ptr;

use kernel::{
    bindings,
    error::to_result,
    mm::Mm,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        atomic::Relaxed,
        Arc, //
    },
};

use crate::logic::extents::Extent;

use super::{
    bindings as own, current,
    extent_table::ExtentTable,
    ledger::{
        Account,
        Ledger, //
    },
    shared_table::Share,
};

/// How many pages are pinned at once, and between two looks at the signals, unless they are huge ones.
const CHUNK: usize = 512;

/// The most pages that one object takes: 1 TiB of small ones. Their table, which is one allocation of less
/// than 2 GiB, ends before that if they are scattered.
pub(super) const MAX_PAGES: usize = (i32::MAX as usize) / size_of::<u64>();

/// Pages that count against limits until this is dropped.
///
/// # Invariants
///
/// `pages` are charged to the `pinned_vm` of `mm`, and to the `locked_vm` of `user` if that is not
/// null; this owns a reference to `user`.
struct Charge {
    // Before the reference to the address space that it names.
    account: Share<usize, Account>,
    mm: ARef<Mm>,
    user: *mut bindings::user_struct,
    pages: usize,
}

// SAFETY: A charge may be given back by any thread.
unsafe impl Send for Charge {}
// SAFETY: Nothing is done through `&self`.
unsafe impl Sync for Charge {}

impl Charge {
    /// Charges the calling task; `EAGAIN` where that would be too much, `EFAULT` for a kernel thread.
    fn to_caller(pages: usize, ledger: &Arc<Ledger>) -> Result<Self> {
        let task = current!();
        let mm: &Mm = task.mm().ok_or(EFAULT)?;
        let account = Account::of_caller(ledger, mm)?;
        let mut user = ptr::null_mut();
        // SAFETY: `mm` is valid, and `user` can be written to.
        if !unsafe { own::scif_helper_charge_pinned(mm.as_raw(), pages, &mut user) } {
            return Err(EAGAIN);
        }
        account.pages.add(pages, Relaxed);
        // INVARIANT: They have just been charged.
        Ok(Self {
            account,
            mm: mm.into(),
            user,
            pages,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.pages.fetch_sub(self.pages, Relaxed);
        // The process may be gone; its `mm` is not, as this holds a reference. No lock of the
        // process is taken: it can hold those for as long as it likes, and this may run on behalf
        // of all.
        //
        // SAFETY: By the type invariant.
        unsafe { own::scif_helper_uncharge_pinned(self.mm.as_raw(), self.pages, self.user) };
    }
}

/// Pinned pages of a process.
///
/// # Invariants
///
/// Each page of `runs`, which are physical addresses, was pinned with `FOLL_LONGTERM`, and for writing if
/// `writable`.
pub(super) struct Pinned {
    /// The physical addresses.
    pub(super) runs: ExtentTable,
    writable: bool,
    // Given back when they have been unpinned.
    _charge: Option<Charge>,
}

/// Where the pages of one chunk are put.
type Chunk = KVec<*mut bindings::page>;

/// Takes back pins of pages that follow each other.
///
/// # Safety
///
/// Each of them was pinned, for writing if `writable`, and whoever had that pin has it no more.
unsafe fn unpin(address: u64, len: u64, writable: bool) {
    // SAFETY: By the contract of this function; pages are only marked dirty when they were pinned for
    // writing.
    unsafe { own::scif_helper_unpin(address, (len >> PAGE_SHIFT) as usize, writable) };
}

impl Pinned {
    /// Pins `count` pages of the calling process, all or none.
    ///
    /// With an `account` they are charged, and written down there; see the head of this file. May sleep.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `address` is not the start of a page, or `count` is 0.
    /// - `EFAULT`: not all of it is mapped, or not with the access that is wanted.
    /// - `EAGAIN`: `RLIMIT_MEMLOCK` is exceeded, and the process has no `CAP_IPC_LOCK`. The
    ///   original SCIF driver said so, too.
    /// - `ENOMEM`: there is no memory.
    /// - `EINTR`: the process is being killed.
    pub(super) fn new(
        address: usize,
        count: usize,
        writable: bool,
        account: Option<&Arc<Ledger>>,
    ) -> Result<Self> {
        if address % PAGE_SIZE != 0 || count == 0 {
            return Err(EINVAL);
        }
        count
            .checked_mul(PAGE_SIZE)
            .and_then(|len| address.checked_add(len))
            .ok_or(EFAULT)?;
        if count > MAX_PAGES {
            return Err(ENOMEM);
        }

        // A kernel thread has no memory to pin.
        if current!().mm().is_none() {
            return Err(EFAULT);
        }

        // First the limit, so that it also bounds the array.
        let charge = match account {
            Some(ledger) => Some(Charge::to_caller(count, ledger)?),
            None => None,
        };
        // INVARIANT: No pages.
        let mut this = Self {
            runs: ExtentTable::default(),
            writable,
            _charge: charge,
        };
        let mut chunk = Chunk::from_elem(ptr::null_mut(), count.min(CHUNK), GFP_KERNEL)?;
        let mut done = 0;
        while done < count {
            if current::is_being_killed() {
                return Err(EINTR);
            }
            done += this.pin_more(address + (done << PAGE_SHIFT), count - done, &mut chunk)?;
        }
        Ok(this)
    }

    /// Pins up to `left` more pages from `address` on; at least one. Returns how many.
    fn pin_more(&mut self, address: usize, left: usize, chunk: &mut Chunk) -> Result<usize> {
        // How far it is to where the next huge page may begin.
        let skipped = (address >> PAGE_SHIFT) % CHUNK;
        let wanted = left.min(CHUNK - skipped);
        if wanted < CHUNK {
            return self.pin_each(address, wanted, chunk);
        }
        self.make_room(1)?;
        let page = self.pin_into(address, 1, chunk)?;
        let first = *page.first().ok_or(EFAULT)?;
        // SAFETY: It has just been pinned.
        let (start, count) = unsafe {
            (
                own::scif_helper_page_to_phys(first),
                own::scif_helper_pin_folio(first, left),
            )
        };
        // INVARIANT: They have just been pinned.
        self.keep(start, count)?;
        match count {
            1 => Ok(1 + self.pin_each(address + PAGE_SIZE, wanted - 1, chunk)?),
            count => Ok(count),
        }
    }

    /// Makes room for so many more runs. It grows with what is pinned, so that a length that somebody made
    /// up costs nothing.
    fn make_room(&mut self, count: usize) -> Result {
        Ok(self
            .runs
            .entries
            .reserve(count, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)?)
    }

    /// Pins up to `wanted` more pages, at most a chunk of them, one by one.
    fn pin_each(&mut self, address: usize, wanted: usize, chunk: &mut Chunk) -> Result<usize> {
        self.make_room(wanted)?;
        let pinned = self.pin_into(address, wanted, chunk)?;
        let mut kept = Ok(());
        for page in pinned {
            // SAFETY: It has just been pinned.
            let address = unsafe { own::scif_helper_page_to_phys(*page) };
            // All of them, so that those that can't be kept are unpinned.
            kept = kept.and(self.keep(address, 1));
        }
        kept.map(|()| pinned.len())
    }

    /// Keeps pages that have just been pinned, for which there is room.
    fn keep(&mut self, address: u64, count: usize) -> Result {
        let len = (count << PAGE_SHIFT) as u64;
        let added = Extent::new(address, len).and_then(|extent| self.runs.add(extent, true));
        if added.is_none() {
            // SAFETY: Nobody else knows of these pins.
            unsafe { unpin(address, len, self.writable) };
        }
        added.ok_or(EINVAL)
    }

    /// Pins up to `wanted` pages, at least one, and says which.
    fn pin_into<'a>(
        &self,
        address: usize,
        wanted: usize,
        chunk: &'a mut Chunk,
    ) -> Result<&'a [*mut bindings::page]> {
        let mut flags = bindings::FOLL_LONGTERM as c_uint;
        if self.writable {
            flags |= bindings::FOLL_WRITE as c_uint;
        }
        let room = chunk.get_mut(..wanted).ok_or(EINVAL)?;
        // SAFETY: `room` is an array of that many pointers; the range is in no need of being
        // mapped.
        let pinned = unsafe {
            bindings::pin_user_pages_fast(address, wanted as c_int, flags, room.as_mut_ptr())
        };
        // None at all, or an error: what has been pinned so far goes with `self`.
        to_result(pinned)?;
        match pinned {
            0 => Err(EFAULT),
            // It does not pin more than it was asked for.
            count => room.get(..count as usize).ok_or(EFAULT),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for entry in self.runs.entries() {
            // SAFETY: By the type invariant these are pinned, and nobody uses the table again.
            unsafe { unpin(entry.extent.address(), entry.extent.len(), self.writable) };
        }
    }
}

#[kunit_tests(scif_sys_pin)]
mod tests {
    use super::*;
    use crate::sys::tests::map_pages;
    use core::ptr::NonNull;

    fn charged_pages() -> usize {
        let current = current!();
        let Some(mm) = current.mm() else {
            return 0;
        };
        // SAFETY: The address space is valid.
        unsafe { own::scif_helper_pinned(mm.as_raw()) }
    }

    #[test]
    fn what_cannot_be_pinned_is_refused_whole() -> Result {
        let (address, ledger) = (map_pages(2, false)?, Ledger::new()?);
        assert!(matches!(
            Pinned::new(address, 0, false, Some(&ledger)),
            Err(e) if e == EINVAL
        ));
        assert!(matches!(
            Pinned::new(address + 1, 1, false, Some(&ledger)),
            Err(e) if e == EINVAL
        ));
        assert!(matches!(
            Pinned::new(address, usize::MAX / PAGE_SIZE, false, Some(&ledger)),
            Err(e) if e == EFAULT
        ));
        assert!(matches!(
            Pinned::new(address, MAX_PAGES + 1, false, Some(&ledger)),
            Err(e) if e == ENOMEM
        ));
        // Not writable, and the last one of these is not mapped.
        assert!(matches!(
            Pinned::new(address, 2, true, Some(&ledger)),
            Err(e) if e == EFAULT
        ));
        assert!(matches!(
            Pinned::new(address, 4096, false, Some(&ledger)),
            Err(e) if e == EFAULT
        ));
        assert_eq!(charged_pages(), 0);

        let pages = Pinned::new(address, 2, false, None)?;
        assert_eq!(pages.runs.len(), 2 * PAGE_SIZE as u64);
        assert_eq!(charged_pages(), 0);
        Ok(())
    }

    /// The calling task without CAP_IPC_LOCK, and with a limit of its own, until it is dropped.
    struct Unprivileged {
        task: *mut bindings::task_struct,
        before: *const bindings::cred,
        limit: usize,
    }

    impl Unprivileged {
        /// `room`: how many pages its user may have pinned beyond those it has.
        fn new(room: usize) -> Result<Self> {
            // SAFETY: Credentials that were prepared belong to who asked; a task may change its
            // own, and nobody else uses the limits of the test's thread.
            unsafe {
                let task = bindings::get_current();
                let new = NonNull::new(bindings::prepare_creds()).ok_or(ENOMEM)?;
                (*new.as_ptr()).cap_effective.val &= !(1 << bindings::CAP_IPC_LOCK);
                let before = (*task).cred;
                (*task).cred = new.as_ptr();
                let limit = &mut (*(*task).signal).rlim[bindings::RLIMIT_MEMLOCK as usize];
                let this = Self {
                    task,
                    before,
                    limit: limit.rlim_cur,
                };
                limit.rlim_cur = (user_pages() + room) << PAGE_SHIFT;
                Ok(this)
            }
        }
    }

    impl Drop for Unprivileged {
        fn drop(&mut self) {
            // SAFETY: As in `new`; the prepared credentials have no other user.
            unsafe {
                let prepared = (*self.task).cred;
                (*self.task).cred = self.before;
                bindings::abort_creds(prepared.cast_mut());
                (*(*self.task).signal).rlim[bindings::RLIMIT_MEMLOCK as usize].rlim_cur =
                    self.limit;
            }
        }
    }

    /// What the user of the calling task has pinned. Others of that user may pin, too, but none does
    /// while tests run at boot or at the loading of a module.
    fn user_pages() -> usize {
        // SAFETY: No preconditions.
        unsafe { own::scif_helper_user_pinned() }
    }

    /// How many processes there are, and what they have.
    fn written_down(ledger: &Ledger) -> (usize, usize) {
        let pages = ledger.iter().map(|account| account.pages.load(Relaxed));
        pages.fold((0, 0), |(count, sum), pages| (count + 1, sum + pages))
    }

    #[test]
    fn an_account_is_there_as_long_as_something_is_pinned() -> Result {
        let (address, ledger) = (map_pages(7, true)?, Ledger::new()?);
        assert_eq!(written_down(&ledger), (0, 0));
        let first = Pinned::new(address, 3, true, Some(&ledger))?;
        let second = Pinned::new(address, 4, true, Some(&ledger))?;
        assert_eq!(written_down(&ledger), (1, 7));
        drop(first);
        assert_eq!(written_down(&ledger), (1, 4));
        let tgid = current!().tgid();
        assert!(ledger.iter().all(|account| account.process.pid() == tgid));
        drop(second);
        assert_eq!(written_down(&ledger), (0, 0));
        Ok(())
    }

    #[test]
    fn process_and_user_are_charged() -> Result {
        let (address, ledger) = (map_pages(4, true)?, Ledger::new()?);
        let before = user_pages();
        // Who has the right is not limited, and takes nothing from the user.
        let privileged = Pinned::new(address, 4, true, Some(&ledger))?;
        assert_eq!((charged_pages(), user_pages()), (4, before));
        drop(privileged);
        assert_eq!((charged_pages(), user_pages()), (0, before));

        let unprivileged = Unprivileged::new(3)?;
        let some = Pinned::new(address, 2, true, Some(&ledger))?;
        assert_eq!((charged_pages(), user_pages()), (2, before + 2));
        assert!(matches!(
            Pinned::new(address, 2, true, Some(&ledger)),
            Err(e) if e == EAGAIN
        ));
        assert_eq!((charged_pages(), user_pages()), (2, before + 2));
        let more = Pinned::new(address, 1, true, Some(&ledger))?;
        // What is not counted is not limited.
        let uncounted = Pinned::new(address, 4, true, None)?;
        assert_eq!((charged_pages(), user_pages()), (3, before + 3));
        drop((some, uncounted));
        assert_eq!((charged_pages(), user_pages()), (1, before + 1));
        // It goes back to who was charged, whoever the task is by then.
        drop(unprivileged);
        drop(more);
        assert_eq!((charged_pages(), user_pages()), (0, before));
        Ok(())
    }
}
