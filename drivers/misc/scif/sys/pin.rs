// SPDX-License-Identifier: GPL-2.0

//! Memory of a process, pinned for as long as another host or a device may use it.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use kernel::{
    bindings,
    error::to_result,
    mm::Mm,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::aref::ARef,
    uaccess::UserPtr, //
};

use super::{
    bindings as own,
    current, //
};

/// How many pages are pinned between two looks at the signals: 2 MiB.
const CHUNK: usize = 512;

/// The most pages that one object takes: their array is one allocation, of less than 2 GiB.
const MAX_PAGES: usize = (i32::MAX as usize) / size_of::<*mut bindings::page>();

/// A range of pinned pages of a process, which stay where they are and stay allocated.
///
/// The process can still write to them, and so can the peer, at any moment: there is never a Rust
/// reference into them, and whatever is read here may be different when it is read again.
///
/// # Invariants
///
/// - Each of `pages` was pinned with `FOLL_LONGTERM`, and for writing if `writable`.
/// - `charged` pages are charged to the `pinned_vm` of `mm`.
pub(crate) struct PinnedPages {
    pages: KVVec<*mut bindings::page>,
    writable: bool,
    charged: usize,
    mm: ARef<Mm>,
}

// SAFETY: Pinned pages belong to no thread; an `Mm` may be used and released by any.
unsafe impl Send for PinnedPages {}
// SAFETY: Through `&self` the pages are only read and written by C's copy functions, and the array
// does not change.
unsafe impl Sync for PinnedPages {}

impl PinnedPages {
    /// Pins `count` pages of the calling process, all or none.
    ///
    /// With `account` they count towards its `RLIMIT_MEMLOCK`: what is pinned for all devices
    /// (`VmPin`) may not be more. May sleep.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: `address` is not the start of a page, or `count` is 0.
    /// - `EFAULT`: not all of it is mapped, or not with the access that is wanted.
    /// - `EAGAIN`: `RLIMIT_MEMLOCK` is exceeded, and the process has no `CAP_IPC_LOCK`. The
    ///   original SCIF driver said so, too.
    /// - `ENOMEM`: there is no memory.
    /// - `EINTR`: the process is being killed.
    pub(crate) fn pin(address: usize, count: usize, writable: bool, account: bool) -> Result<Self> {
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
        let task = current!();
        let mm: &Mm = task.mm().ok_or(EFAULT)?;

        // INVARIANT: No pages, and nothing charged.
        let mut this = Self {
            pages: KVVec::new(),
            writable,
            charged: 0,
            mm: mm.into(),
        };

        // First the limit, so that it also bounds the array.
        if account {
            // SAFETY: `mm` is valid.
            if !unsafe { own::scif_helper_charge_pinned(this.mm.as_raw(), count) } {
                return Err(EAGAIN);
            }
            // INVARIANT: They have just been charged.
            this.charged = count;
        }
        let mut flags = bindings::FOLL_LONGTERM as c_uint;
        if writable {
            flags |= bindings::FOLL_WRITE as c_uint;
        }
        while this.pages.len() < count {
            if current::is_being_killed() {
                return Err(EINTR);
            }

            let done = this.pages.len();
            let wanted = (count - done).min(CHUNK);
            // It grows with what is pinned, so that a length that somebody made up costs nothing.
            if this.pages.spare_capacity_mut().len() < wanted {
                let more = done.max(CHUNK).min(count - done);
                this.pages
                    .reserve(more, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)?;
            }
            let room = &mut this.pages.spare_capacity_mut()[..wanted];
            // SAFETY: `room` is an array of that many pointers; the range is in no need of being
            // mapped.
            let pinned = unsafe {
                bindings::pin_user_pages_fast(
                    address + (done << PAGE_SHIFT),
                    wanted as c_int,
                    flags,
                    room.as_mut_ptr().cast(),
                )
            };
            // None at all, or an error: what has been pinned so far goes with `this`.
            to_result(pinned)?;
            if pinned == 0 {
                return Err(EFAULT);
            }
            // INVARIANT: These have just been pinned.
            //
            // SAFETY: That many elements have been written, and there is room for them.
            unsafe { this.pages.inc_len((pinned as usize).min(wanted)) };
        }
        Ok(this)
    }

    /// How many pages there are.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// How many bytes there are.
    pub(crate) fn size(&self) -> usize {
        self.pages.len() << PAGE_SHIFT
    }

    /// Whether the pages may be written to.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// The physical address of a page.
    pub(crate) fn phys(&self, index: usize) -> Option<u64> {
        let page = *self.pages.get(index)?;
        // SAFETY: By the type invariant the page is valid.
        Some(unsafe { own::scif_helper_page_to_phys(page) })
    }

    /// The number of a page's frame, for mapping it into another process.
    pub(crate) fn pfn(&self, index: usize) -> Option<u64> {
        self.phys(index).map(|phys| phys >> PAGE_SHIFT)
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result {
        let pointer = to.as_mut_ptr();
        self.for_each_piece(offset, to.len(), |piece| {
            // SAFETY: The piece is inside its page, and its place inside `to`; `for_each_piece`
            // says so.
            unsafe {
                own::scif_helper_copy_from_page(
                    pointer.add(piece.done).cast(),
                    piece.page,
                    piece.offset,
                    piece.len,
                )
            };
            Ok(())
        })
    }

    /// Stores a number, little-endian: in one piece where it is aligned, else in two, the lower half
    /// last. `EACCES` when the pages are read-only, `EINVAL` when it does not lie in one page.
    pub(crate) fn store_u64(&self, offset: usize, value: u64) -> Result {
        self.require_writable()?;
        if offset % 4 != 0 {
            return Err(EINVAL);
        }
        self.for_each_piece(offset, size_of::<u64>(), |piece| {
            if piece.len != size_of::<u64>() {
                return Err(EINVAL);
            }
            // SAFETY: The piece lies in its page, and is aligned to 4 bytes.
            unsafe { own::scif_helper_store_u64(piece.page, piece.offset, value) };
            Ok(())
        })
    }

    /// Copies bytes in. `EACCES` when the pages are read-only.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result {
        self.require_writable()?;
        let pointer = from.as_ptr();
        self.for_each_piece(offset, from.len(), |piece| {
            // SAFETY: As in `read`. The page is writable.
            unsafe {
                own::scif_helper_copy_to_page(
                    piece.page,
                    piece.offset,
                    pointer.add(piece.done).cast(),
                    piece.len,
                )
            };
            Ok(())
        })
    }

    /// Copies bytes of these pages to other pages, from one mapping to the other.
    ///
    /// When both are the same pages, ranges that overlap give mixed contents.
    pub(crate) fn copy_to(
        &self,
        offset: usize,
        to: &PinnedPages,
        to_offset: usize,
        len: usize,
    ) -> Result {
        to.require_writable()?;
        to.check(to_offset, len)?;
        self.for_each_piece(offset, len, |from| {
            to.for_each_piece(to_offset + from.done, from.len, |piece| {
                // SAFETY: Both pieces are inside their pages; the page written to is writable.
                unsafe {
                    own::scif_helper_copy_page_to_page(
                        piece.page,
                        piece.offset,
                        from.page,
                        from.offset + piece.done,
                        piece.len,
                    )
                };
                Ok(())
            })
        })
    }

    /// Copies bytes to user space. May sleep. `EFAULT` when not all could be.
    pub(crate) fn copy_to_user(&self, offset: usize, to: UserPtr, len: usize) -> Result {
        self.for_each_piece(offset, len, |piece| {
            // SAFETY: The piece is inside its page; C checks the address of user space.
            let left = unsafe {
                own::scif_helper_copy_page_to_user(
                    to.wrapping_byte_add(piece.done).as_mut_ptr(),
                    piece.page,
                    piece.offset,
                    piece.len,
                )
            };
            if left == 0 {
                Ok(())
            } else {
                Err(EFAULT)
            }
        })
    }

    /// Copies bytes from user space. May sleep. `EFAULT` when not all could be, `EACCES` when the
    /// pages are read-only.
    pub(crate) fn copy_from_user(&self, offset: usize, from: UserPtr, len: usize) -> Result {
        self.require_writable()?;
        self.for_each_piece(offset, len, |piece| {
            // SAFETY: The piece is inside its page, which is writable; C checks the address of user
            // space.
            let left = unsafe {
                own::scif_helper_copy_page_from_user(
                    piece.page,
                    piece.offset,
                    from.wrapping_byte_add(piece.done).as_const_ptr(),
                    piece.len,
                )
            };
            if left == 0 {
                Ok(())
            } else {
                Err(EFAULT)
            }
        })
    }

    pub(super) fn require_writable(&self) -> Result {
        if self.writable {
            Ok(())
        } else {
            Err(EACCES)
        }
    }

    fn check(&self, offset: usize, len: usize) -> Result {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Cuts a range of bytes at the borders of the pages; `EINVAL` where it is not all inside.
    ///
    /// Each piece is inside its page; together they are the range, in order, without gaps.
    pub(super) fn for_each_piece(
        &self,
        offset: usize,
        len: usize,
        mut f: impl FnMut(Piece) -> Result,
    ) -> Result {
        self.check(offset, len)?;
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let inside = at % PAGE_SIZE;
            let piece = Piece {
                page: *self.pages.get(at >> PAGE_SHIFT).ok_or(EINVAL)?,
                offset: inside,
                len: (PAGE_SIZE - inside).min(len - done),
                done,
            };
            f(piece)?;
            done += piece.len;
        }
        Ok(())
    }

    /// The pages, for a table of them. The pointer may be used as long as `self` exists.
    pub(super) fn as_array(&self) -> *mut *mut bindings::page {
        // C takes them as mutable and does not write to them.
        self.pages.as_ptr().cast_mut()
    }
}

/// A part of a range of bytes that is in one page.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) page: *mut bindings::page,
    /// Where it begins in the page.
    pub(super) offset: usize,
    pub(super) len: usize,
    /// Where it begins in the range.
    pub(super) done: usize,
}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        if !self.pages.is_empty() {
            // SAFETY: By the type invariant these are pinned, and pages are only marked dirty
            // when they were pinned for writing.
            unsafe {
                bindings::unpin_user_pages_dirty_lock(
                    self.pages.as_mut_ptr(),
                    self.pages.len(),
                    self.writable,
                )
            };
        }
        if self.charged != 0 {
            // The process may be gone; its `mm` is not, as this holds a reference. No lock of the
            // process is taken: it can hold those for as long as it likes, and this may run on
            // behalf of all.
            //
            // SAFETY: `mm` is valid, and these pages are charged to it by the type invariant.
            unsafe { own::scif_helper_uncharge_pinned(self.mm.as_raw(), self.charged) };
        }
    }
}

#[kunit_tests(scif_sys_pin)]
pub(super) mod tests {
    use super::*;

    /// Maps that many pages into the test's thread, and returns where.
    pub(in crate::sys) fn map_pages(count: usize, writable: bool) -> Result<usize> {
        let access = own::PROT_READ | if writable { own::PROT_WRITE } else { 0 };
        // SAFETY: This runs in the thread of a KUnit test, which `kunit_test` belongs to; KUnit
        // gives that thread an address space, and takes it away in the end.
        let address = unsafe {
            bindings::kunit_vm_mmap(
                (*bindings::get_current()).kunit_test,
                core::ptr::null_mut(),
                0,
                count * PAGE_SIZE,
                access as usize,
                (own::MAP_PRIVATE | own::MAP_ANONYMOUS) as usize,
                0,
            )
        };
        // An error comes as an address, too.
        if address == 0 || address % PAGE_SIZE != 0 {
            return Err(ENOMEM);
        }
        Ok(address)
    }

    fn charged_pages() -> usize {
        let current = current!();
        let Some(mm) = current.mm() else {
            return 0;
        };
        // SAFETY: The address space is valid.
        unsafe { own::scif_helper_pinned(mm.as_raw()) }
    }

    #[test]
    fn pinned_pages_are_those_of_the_process() -> Result {
        let address = map_pages(3, true)?;
        let start = UserPtr::from_addr(address);
        let pages = PinnedPages::pin(address, 3, true, true)?;
        assert_eq!(pages.len(), 3);
        assert_eq!(charged_pages(), 3);
        assert!(pages.phys(2).is_some());
        assert!(pages.phys(3).is_none());

        // Across the border of two pages, and seen from the process.
        pages.write(PAGE_SIZE - 2, b"scif")?;
        let mut bytes = [0; 4];
        kernel::uaccess::UserSlice::new(start.wrapping_byte_add(PAGE_SIZE - 2), 4)
            .reader()
            .read_slice(&mut bytes)?;
        assert_eq!(&bytes, b"scif");

        // From the process, and back to it.
        pages.copy_to_user(PAGE_SIZE - 2, start.wrapping_byte_add(3 * PAGE_SIZE - 4), 4)?;
        let mut bytes = [0; 5];
        pages.read(3 * PAGE_SIZE - 5, &mut bytes)?;
        assert_eq!(&bytes, b"\0scif");
        pages.copy_from_user(5, start.wrapping_byte_add(PAGE_SIZE - 1), 3)?;
        pages.read(4, &mut bytes)?;
        assert_eq!(&bytes, b"\0cif\0");

        pages.copy_to(4, &pages, 2 * PAGE_SIZE - 2, 5)?;
        pages.read(2 * PAGE_SIZE - 2, &mut bytes)?;
        assert_eq!(&bytes, b"\0cif\0");

        assert!(pages.read(3 * PAGE_SIZE - 4, &mut bytes).is_err());
        assert!(pages.write(usize::MAX, b"scif").is_err());
        drop(pages);
        assert_eq!(charged_pages(), 0);
        Ok(())
    }

    #[test]
    fn what_cannot_be_pinned_is_refused_whole() -> Result {
        let address = map_pages(2, false)?;
        assert!(matches!(
            PinnedPages::pin(address, 0, false, true),
            Err(e) if e == EINVAL
        ));
        assert!(matches!(
            PinnedPages::pin(address + 1, 1, false, true),
            Err(e) if e == EINVAL
        ));
        assert!(matches!(
            PinnedPages::pin(address, usize::MAX / PAGE_SIZE, false, true),
            Err(e) if e == EFAULT
        ));
        assert!(matches!(
            PinnedPages::pin(address, MAX_PAGES + 1, false, true),
            Err(e) if e == ENOMEM
        ));
        // Not writable, and the last one of these is not mapped.
        assert!(matches!(
            PinnedPages::pin(address, 2, true, true),
            Err(e) if e == EFAULT
        ));
        assert!(matches!(
            PinnedPages::pin(address, 4096, false, true),
            Err(e) if e == EFAULT
        ));
        assert_eq!(charged_pages(), 0);

        let pages = PinnedPages::pin(address, 2, false, false)?;
        assert_eq!(charged_pages(), 0);
        assert!(matches!(pages.write(0, b"scif"), Err(e) if e == EACCES));
        let mut bytes = [1; 4];
        pages.read(PAGE_SIZE - 2, &mut bytes)?;
        assert_eq!(bytes, [0; 4]);
        Ok(())
    }
}
