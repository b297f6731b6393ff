// SPDX-License-Identifier: GPL-2.0

//! Pinning of a process' memory, and the limits that it is charged to.
//!
//! Memory that is pinned with an account is charged twice:
//!
//! - to the address space (`VmPin`), as RDMA, vDPA and io_uring do;
//! - to the user of the calling task, in the counter that io_uring, AF_XDP and others use. An
//!   address space ends with its process, but pinned memory stays as long as any process has the
//!   descriptor. Without the user's count, a chain of processes could pin everything.
//!
//! Neither charge may exceed the caller's `RLIMIT_MEMLOCK`. With CAP_IPC_LOCK there is no limit,
//! and the user is not charged, so that a privileged process does not use up the user's limit.
//!
//! Huge pages are pinned as such. Their cost does not depend on the number of small pages in them.
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

/// Number of small pages that are pinned at once, and between two checks for signals.
const CHUNK: usize = 512;

/// Largest number of pages of one object: 1 TiB of small pages. Scattered pages reach a lower limit
/// first: their table is one allocation of less than 2 GiB.
pub(super) const MAX_PAGES: usize = (i32::MAX as usize) / size_of::<u64>();

/// A charge for pages, which counts against limits until it is dropped.
///
/// # Invariants
///
/// `pages` are charged to the `pinned_vm` of `mm`. If `user` is not null, they are charged to its
/// `locked_vm`, too, and this owns a reference to `user`.
struct Charge {
    // Declared before `mm`, so that it is dropped first: its key is the address of `mm`.
    account: Share<usize, Account>,
    mm: ARef<Mm>,
    user: *mut bindings::user_struct,
    pages: usize,
}

// SAFETY: Any thread may give a charge back.
unsafe impl Send for Charge {}
// SAFETY: No method changes anything through `&self`.
unsafe impl Sync for Charge {}

impl Charge {
    /// Charges the calling task.
    ///
    /// # Errors
    ///
    /// - `EAGAIN`: the limit would be exceeded.
    /// - `EFAULT`: the caller is a kernel thread.
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
        // INVARIANT: The pages have just been charged.
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
        // This takes no lock of the process: the process can hold its locks as long as it likes,
        // and this may run on behalf of all processes.
        //
        // SAFETY: By the type invariant. The process may be gone, but not its `mm`, to which this
        // holds a reference.
        unsafe { own::scif_helper_uncharge_pinned(self.mm.as_raw(), self.pages, self.user) };
    }
}

/// Pinned pages of a process.
///
/// # Invariants
///
/// `runs` holds physical addresses. Each page of them was pinned with `FOLL_LONGTERM`, and for
/// writing if `writable`.
pub(super) struct Pinned {
    /// Physical addresses of the pages.
    pub(super) runs: ExtentTable,
    writable: bool,
    // Declared last, so the charge is given back after the pages have been unpinned.
    _charge: Option<Charge>,
}

/// A buffer for the pages of one chunk.
type Chunk = KVec<*mut bindings::page>;

/// Unpins pages that follow each other.
///
/// # Safety
///
/// Each page was pinned, for writing if `writable`, and the owner of that pin gives it up.
unsafe fn unpin(address: u64, len: u64, writable: bool) {
    // SAFETY: By the contract of this function. Pages are only marked dirty if they were pinned for
    // writing.
    unsafe { own::scif_helper_unpin(address, (len >> PAGE_SHIFT) as usize, writable) };
}

impl Pinned {
    /// Pins `count` pages of the calling process, all or none.
    ///
    /// With an `account`, the pages are charged, and recorded in that ledger.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `address` is not the start of a page, or `count` is 0.
    /// - `EFAULT`: a part of the range is not mapped, or not with the requested access. Or the
    ///   caller is a kernel thread.
    /// - `EAGAIN`: `RLIMIT_MEMLOCK` is exceeded, and the process has no `CAP_IPC_LOCK`. The
    ///   original SCIF driver returned this error, too.
    /// - `ENOMEM`: there is no memory, or `count` is too large.
    /// - `EINTR`: the process is being killed.
    ///
    /// Context: may sleep.
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

        // Charges first, so that the limit also bounds the array.
        let charge = match account {
            Some(ledger) => Some(Charge::to_caller(count, ledger)?),
            None => None,
        };
        // INVARIANT: There are no pages yet.
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

    /// Pins at least one and up to `left` more pages from `address` on. Returns how many it pinned.
    fn pin_more(&mut self, address: usize, left: usize, chunk: &mut Chunk) -> Result<usize> {
        // Number of pages since the last address at which a huge page may begin.
        let skipped = (address >> PAGE_SHIFT) % CHUNK;
        let wanted = left.min(CHUNK - skipped);
        if wanted < CHUNK {
            return self.pin_each(address, wanted, chunk);
        }
        self.make_room(1)?;
        let page = self.pin_into(address, 1, chunk)?;
        let first = *page.first().ok_or(EFAULT)?;
        // SAFETY: `first` has just been pinned.
        let (start, count) = unsafe {
            (
                own::scif_helper_page_to_phys(first),
                own::scif_helper_pin_folio(first, left),
            )
        };
        // INVARIANT: The pages have just been pinned.
        self.keep(start, count)?;
        match count {
            1 => Ok(1 + self.pin_each(address + PAGE_SIZE, wanted - 1, chunk)?),
            count => Ok(count),
        }
    }

    /// Reserves room for `count` more runs. The table grows with the pinned pages, so that a
    /// made-up length costs nothing.
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
            // SAFETY: The page has just been pinned.
            let address = unsafe { own::scif_helper_page_to_phys(*page) };
            // Handles all pages after an error, too, so that pages that can't be kept are unpinned.
            kept = kept.and(self.keep(address, 1));
        }
        kept.map(|()| pinned.len())
    }

    /// Adds pages that have just been pinned to the table, which has room. On an error, unpins
    /// them.
    fn keep(&mut self, address: u64, count: usize) -> Result {
        let len = (count << PAGE_SHIFT) as u64;
        let added = Extent::new(address, len).and_then(|extent| self.runs.add(extent, true));
        if added.is_none() {
            // SAFETY: This function owns the pins, as the table did not take them.
            unsafe { unpin(address, len, self.writable) };
        }
        added.ok_or(EINVAL)
    }

    /// Pins at least one and up to `wanted` pages. Returns the pinned pages.
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
        // SAFETY: `room` is an array of that many pointers. The range does not need to be mapped.
        let pinned = unsafe {
            bindings::pin_user_pages_fast(address, wanted as c_int, flags, room.as_mut_ptr())
        };
        // On an error, the caller drops `self`, which unpins all earlier pages.
        to_result(pinned)?;
        match pinned {
            0 => Err(EFAULT),
            // The call never pins more pages than requested.
            count => room.get(..count as usize).ok_or(EFAULT),
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for entry in self.runs.entries() {
            // SAFETY: By the type invariant the pages are pinned. The table is not used again.
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
    fn failed_pin_charges_nothing() -> Result {
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
        // The pages are not writable, and the last page of the second range is not mapped.
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

    /// A calling task without CAP_IPC_LOCK and with a limit of its own, until this is dropped.
    struct Unprivileged {
        task: *mut bindings::task_struct,
        before: *const bindings::cred,
        limit: usize,
    }

    impl Unprivileged {
        /// Sets a limit that leaves the user `room` pages to pin beyond those it has pinned.
        fn new(room: usize) -> Result<Self> {
            // SAFETY: Prepared credentials belong to the caller of `prepare_creds`. A task may
            // change its own credentials, and no other code uses the limits of the test's thread.
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

    /// Returns how many pages the user of the calling task has pinned. No other process pins pages
    /// while tests run, at boot or when a module is loaded.
    fn user_pages() -> usize {
        // SAFETY: No preconditions.
        unsafe { own::scif_helper_user_pinned() }
    }

    /// Returns the number of recorded processes, and the sum of their pages.
    fn written_down(ledger: &Ledger) -> (usize, usize) {
        let pages = ledger.iter().map(|account| account.pages.load(Relaxed));
        pages.fold((0, 0), |(count, sum), pages| (count + 1, sum + pages))
    }

    #[test]
    fn pin_account_exists_while_pages_are_pinned() -> Result {
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
    fn pin_charges_process_and_unprivileged_user() -> Result {
        let (address, ledger) = (map_pages(4, true)?, Ledger::new()?);
        let before = user_pages();
        // A privileged process has no limit, and is not charged to the user.
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
        // Memory without an account has no limit.
        let uncounted = Pinned::new(address, 4, true, None)?;
        assert_eq!((charged_pages(), user_pages()), (3, before + 3));
        drop((some, uncounted));
        assert_eq!((charged_pages(), user_pages()), (1, before + 1));
        // The charge goes back to the charged user, whatever the credentials of the task are by
        // then.
        drop(unprivileged);
        drop(more);
        assert_eq!((charged_pages(), user_pages()), (0, before));
        Ok(())
    }
}
