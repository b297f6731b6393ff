// SPDX-License-Identifier: GPL-2.0

//! Pages of memory that another host or a device may use for a long time.
//!
//! The memory has one of these sources, and its users do not depend on which: pinned pages of a
//! process (`pin.rs`), pages that a kernel client lends, or a device's memory, which is mapped
//! differently. It may also be a part of other pages.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)
//!
//! This file has more than 500 lines because contracts of `unsafe` blocks stand beside them.

use kernel::{
    bindings,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc, //
};

use crate::logic::{
    extents::Extent,
    plan::Walk, //
};

use super::{
    bindings as own,
    buffer::KernelRange,
    dma_map,
    extent_table::{
        self,
        ExtentTable, //
    },
    ledger::Ledger,
    pin::{
        Pinned,
        MAX_PAGES, //
    },
    reached::{
        DeviceMemory,
        IoMapping,
        Reached, //
    },
};

/// A range of pages that stay allocated and do not move.
///
/// Their owner and the peer can write to them at any moment. So no Rust reference into them ever
/// exists, and a second read may return something else.
pub(crate) struct Pages {
    source: Source,
    writable: bool,
}

/// The origin of pages, which keeps them.
enum Source {
    Process(Pinned),
    Kernel(Lent),
    Device(IoMapping, ExtentTable),
    /// A part of other pages, which are kept as a whole.
    Part(Arc<Pages>, ExtentTable),
}

/// Pages of the kernel that a client has lent.
///
/// The client keeps them, but a peer that has them mapped may use them for longer. So this holds
/// references, and the pages are not reused before it is dropped. Pages without reference counts,
/// as those of `kmalloc`, can't be held.
///
/// # Invariants
///
/// This owns a reference to each page in `held`.
struct Lent {
    runs: ExtentTable,
    held: KVVec<*mut bindings::page>,
}

impl Lent {
    fn add(&mut self, page: *mut bindings::page) -> Result {
        self.held.reserve(1, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)?;
        self.runs
            .entries
            .reserve(1, GFP_KERNEL_ACCOUNT | __GFP_NOWARN)?;
        // SAFETY: The page is allocated: it holds bytes that a client lends.
        let phys = unsafe { own::scif_helper_page_to_phys(page) };
        let extent = Extent::new(phys, PAGE_SIZE as u64).ok_or(EINVAL)?;
        self.runs.add(extent, true).ok_or(EINVAL)?;
        // SAFETY: The page is allocated: it holds bytes that a client lends.
        if unsafe { own::scif_helper_hold_page(page) } {
            // INVARIANT: The reference has just been taken, and there is room for it.
            let _ = self.held.push_within_capacity(page);
        }
        Ok(())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for page in self.held.iter() {
            // SAFETY: By the type invariant this owns the reference.
            unsafe { own::scif_helper_put_page(*page) };
        }
    }
}

// SAFETY: Pages belong to no thread.
unsafe impl Send for Pages {}
// SAFETY: Through `&self`, only C's copy functions read and write the pages, and the array does not
// change.
unsafe impl Sync for Pages {}

impl Pages {
    /// Pins `count` pages of the calling process, all or none, as [`Pinned::new`] does.
    /// Context: may sleep.
    pub(crate) fn pin(
        address: usize,
        count: usize,
        writable: bool,
        account: Option<&Arc<Ledger>>,
    ) -> Result<Self> {
        Ok(Self {
            source: Source::Process(Pinned::new(address, count, writable, account)?),
            writable,
        })
    }

    /// Finds the pages that hold a range of kernel memory of any alignment, and its offset in them.
    ///
    /// The memory comes from the page allocator, `kmalloc`, `vmalloc` or a module. Nothing is
    /// pinned or charged. The caller must use only the range, because the rest of the pages belongs
    /// to others.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the range is empty.
    /// - `EFAULT`: a part of the range is not memory.
    /// - `ENOMEM`: there is no memory for the list.
    ///
    /// Context: may sleep.
    pub(crate) fn around(memory: &KernelRange) -> Result<(Self, usize)> {
        if memory.len() == 0 {
            return Err(EINVAL);
        }
        let offset = memory.address() % PAGE_SIZE;
        let count = (memory.len() - 1 + offset) / PAGE_SIZE + 1;
        if count > MAX_PAGES {
            return Err(ENOMEM);
        }
        // INVARIANT: No page is held yet.
        let mut lent = Lent {
            runs: ExtentTable::default(),
            held: KVVec::new(),
        };
        let mut at = memory.address() - offset;
        for _ in 0..count {
            // SAFETY: The page at this address holds bytes of `memory`, which is allocated.
            let page = unsafe { own::scif_helper_kernel_page(at as *const c_void) };
            if page.is_null() {
                return Err(EFAULT);
            }
            lent.add(page)?;
            at = at.wrapping_add(PAGE_SIZE);
        }
        let pages = Self {
            source: Source::Kernel(lent),
            writable: true,
        };
        Ok((pages, offset))
    }

    /// Takes `len` bytes of a device's memory at a physical address. Nothing keeps the device: the
    /// client that registers its memory must make sure that the BAR does not change.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: these are not whole pages, or do not lie in one memory BAR of a PCI device.
    ///
    /// Context: may sleep.
    pub(crate) fn of_device(address: u64, len: usize, writable: bool) -> Result<Self> {
        let page = PAGE_SIZE as u64;
        let is_whole_pages = address % page == 0 && len % PAGE_SIZE == 0 && len != 0;
        // SAFETY: The helper takes any range.
        if !is_whole_pages || !unsafe { own::scif_helper_is_device_memory(address, len) } {
            return Err(EINVAL);
        }
        // SAFETY: The range is device memory, as just checked.
        let memory = unsafe { DeviceMemory::new(address, len as u64) };
        Ok(Self {
            source: Source::Device(
                IoMapping::write_combined(memory, len as u64)?,
                extent_table::collect(core::iter::once((address, len as u64)))?,
            ),
            writable,
        })
    }

    /// Returns the pages that these are a part of, or `self`.
    fn whole(&self) -> &Self {
        match &self.source {
            Source::Part(other, _) => other.whole(),
            _ => self,
        }
    }

    /// Returns the mapping of the device's memory, if the pages belong to a device.
    fn device(&self) -> Option<&IoMapping> {
        match &self.whole().source {
            Source::Device(memory, _) => Some(memory),
            _ => None,
        }
    }

    /// Returns whether the pages are memory of a device, and not RAM.
    pub(crate) fn are_of_device(&self) -> bool {
        self.device().is_some()
    }

    /// Returns the attributes with which the pages are mapped for devices.
    pub(super) fn dma_attributes(&self) -> c_ulong {
        if self.are_of_device() {
            dma_map::DEVICE_MEMORY
        } else {
            dma_map::SHARED
        }
    }

    /// Returns the pages of `len` bytes from `from` on, which may be written to if `writable`. The
    /// part keeps all of `whole`.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: these are not whole pages, or not inside of `whole`.
    /// - `EACCES`: `writable` is set, and `whole` is read-only.
    ///
    /// Context: may sleep.
    pub(crate) fn part(
        whole: &Arc<Self>,
        from: u64,
        len: u64,
        writable: bool,
    ) -> Result<Arc<Self>> {
        let page = PAGE_SIZE as u64;
        let end = from.checked_add(len).ok_or(EINVAL)?;
        if from % page != 0 || len % page != 0 || len == 0 || end > whole.size() as u64 {
            return Err(EINVAL);
        }
        if writable && !whole.writable {
            return Err(EACCES);
        }
        if len == whole.size() as u64 && writable == whole.writable {
            return Ok(whole.clone());
        }
        let mut walk = whole.runs().walk(from);
        let mut left = len;
        let runs = core::iter::from_fn(|| {
            let run = (left > 0).then(|| walk.next(left)).flatten()?;
            left -= run.1;
            Some(run)
        });
        let pages = Self {
            source: Source::Part(whole.clone(), extent_table::collect(runs)?),
            writable,
        };
        Ok(Arc::new(pages, GFP_KERNEL_ACCOUNT)?)
    }

    /// Returns the physical addresses, in order and in as few runs as possible.
    pub(crate) fn runs(&self) -> &ExtentTable {
        match &self.source {
            Source::Process(pinned) => &pinned.runs,
            Source::Kernel(lent) => &lent.runs,
            Source::Device(_, runs) | Source::Part(_, runs) => runs,
        }
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> usize {
        self.size() >> PAGE_SHIFT
    }

    /// Returns the number of bytes.
    pub(crate) fn size(&self) -> usize {
        self.runs().len() as usize
    }

    /// Returns whether the pages may be written to.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns whether a kernel client has lent the pages, and takes them back.
    pub(crate) fn are_lent(&self) -> bool {
        matches!(self.whole().source, Source::Kernel(_))
    }

    /// Returns whether the pages can't be reused while this exists, even if their lender frees
    /// them.
    pub(crate) fn are_held(&self) -> bool {
        let whole = self.whole();
        match &whole.source {
            Source::Kernel(lent) => lent.held.len() == whole.len(),
            _ => true,
        }
    }

    /// Stores a number, little-endian: an aligned number in one access, any other in two, the lower
    /// half last.
    ///
    /// # Errors
    ///
    /// - `EACCES`: the pages are read-only.
    /// - `EINVAL`: the number does not lie in one page, or is not aligned to 4 bytes.
    pub(crate) fn store_u64(&self, offset: usize, value: u64) -> Result {
        self.require_writable()?;
        if offset % PAGE_SIZE > PAGE_SIZE - size_of::<u64>() {
            return Err(EINVAL);
        }
        self.for_each_piece(offset, size_of::<u64>(), |piece, _| piece.store_u64(value))
    }

    pub(super) fn require_writable(&self) -> Result {
        if self.writable {
            Ok(())
        } else {
            Err(EACCES)
        }
    }

    /// Splits a range of bytes where the pages do not follow each other; `EINVAL` if it is not all
    /// inside.
    ///
    /// The pieces cover the range in order and without gaps. `f` gets each piece and the number of
    /// bytes before it.
    #[inline]
    pub(super) fn for_each_piece(
        &self,
        offset: usize,
        len: usize,
        mut f: impl FnMut(Reached<'_>, usize) -> Result,
    ) -> Result {
        let (runs, end) = (self.runs(), offset.checked_add(len).ok_or(EINVAL)?);
        if end as u64 > runs.len() {
            return Err(EINVAL);
        }
        let device = self.device();
        let mut done = 0;
        while done < len {
            let (address, found) = runs.at((offset + done) as u64).ok_or(EINVAL)?;
            let found = (found as usize).min(len - done);
            let piece = match device {
                // SAFETY: `self`, which is borrowed, keeps the pages.
                None => unsafe { Reached::in_pages(address, found) },
                Some(memory) => memory.at(address, found)?,
            };
            f(piece, done)?;
            done += found;
        }
        Ok(())
    }
}

#[kunit_tests(scif_sys_pages)]
mod tests {
    use super::*;
    use crate::sys::tests::map_pages;
    use kernel::uaccess::{
        UserPtr,
        UserSlice, //
    };

    impl Pages {
        /// Returns the physical address of a page.
        pub(crate) fn phys(&self, index: usize) -> Option<u64> {
            let offset = (index as u64).checked_mul(PAGE_SIZE as u64)?;
            Some(self.runs().at(offset)?.0)
        }

        /// Copies bytes out of the pages.
        pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result {
            let pointer = to.as_mut_ptr();
            self.for_each_piece(offset, to.len(), |piece, done| {
                // SAFETY: The piece is inside `to`, as `for_each_piece` guarantees.
                unsafe { piece.copy_out(pointer.add(done), false) };
                Ok(())
            })
        }

        /// Copies bytes into the pages. Returns `EACCES` if they are read-only.
        pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result {
            self.require_writable()?;
            let pointer = from.as_ptr();
            self.for_each_piece(offset, from.len(), |piece, done| {
                // SAFETY: The piece is inside `from`, as in `read`, and the pages are writable.
                unsafe { piece.copy_in(pointer.add(done), false) };
                Ok(())
            })
        }
    }

    #[test]
    fn pinned_pages_share_memory_with_the_process() -> Result {
        let address = map_pages(3, true)?;
        let process = |offset| UserSlice::new(UserPtr::from_addr(address + offset), 5);
        let pages = Pages::pin(address, 3, true, Some(&Ledger::new()?))?;
        assert_eq!(pages.len(), 3);
        assert!(pages.phys(2).is_some());
        assert!(pages.phys(3).is_none());
        assert_eq!(pages.runs().len(), 3 * PAGE_SIZE as u64);

        // Writes across the border of two pages, and reads in the process.
        pages.write(PAGE_SIZE - 2, b"scif")?;
        let mut bytes = [0; 5];
        process(PAGE_SIZE - 3).reader().read_slice(&mut bytes)?;
        assert_eq!(&bytes, b"\0scif");

        // Writes in the process, and reads through the pages.
        process(2 * PAGE_SIZE - 3).writer().write_slice(b"links")?;
        pages.read(2 * PAGE_SIZE - 3, &mut bytes)?;
        assert_eq!(&bytes, b"links");

        assert!(pages.read(3 * PAGE_SIZE - 4, &mut bytes).is_err());
        assert!(pages.write(usize::MAX, b"scif").is_err());
        Ok(())
    }

    #[test]
    fn write_to_read_only_pages_is_refused() -> Result {
        let pages = Pages::pin(map_pages(2, false)?, 2, false, None)?;
        assert!(matches!(pages.write(0, b"scif"), Err(e) if e == EACCES));
        let mut bytes = [1; 4];
        pages.read(PAGE_SIZE - 2, &mut bytes)?;
        assert_eq!(bytes, [0; 4]);
        Ok(())
    }

    fn lend(memory: &mut [u8]) -> Result<KernelRange> {
        // SAFETY: The tests drop all pages of the range before the memory, and do not use `memory`
        // meanwhile.
        unsafe { KernelRange::new(memory.as_mut_ptr().cast(), memory.len()) }
    }

    /// Checks two pages of a kind of kernel memory.
    fn check_kernel_pages(memory: &mut [u8]) -> Result {
        let start = memory.as_ptr().align_offset(PAGE_SIZE);
        let memory = memory.get_mut(start..start + 2 * PAGE_SIZE).ok_or(EINVAL)?;
        let (pages, _) = Pages::around(&lend(memory)?)?;
        assert_eq!(pages.size(), 2 * PAGE_SIZE);
        assert!(pages.is_writable());
        pages.write(PAGE_SIZE - 2, b"scif")?;
        pages.store_u64(8, 7)?;
        let mut bytes = [0; 4];
        pages.read(PAGE_SIZE - 2, &mut bytes)?;
        assert_eq!(&bytes, b"scif");
        drop(pages);
        assert_eq!(memory.get(PAGE_SIZE - 2..PAGE_SIZE + 2), Some(&b"scif"[..]));
        assert_eq!(memory.get(8), Some(&7));

        let inner = memory.get_mut(PAGE_SIZE - 1..PAGE_SIZE + 1).ok_or(EINVAL)?;
        let (pages, offset) = Pages::around(&lend(inner)?)?;
        assert_eq!((pages.len(), offset), (2, PAGE_SIZE - 1));
        let (pages, offset) = Pages::around(&lend(&mut inner[1..])?)?;
        assert_eq!((pages.len(), offset), (1, 0));
        Ok(())
    }

    #[test]
    fn part_shares_pages_with_the_whole() -> Result {
        let size = PAGE_SIZE as u64;
        let address = map_pages(5, true)?;
        let whole = Arc::new(Pages::pin(address, 5, true, None)?, GFP_KERNEL)?;
        let part = Pages::part(&whole, size, 3 * size, true)?;
        assert_eq!((part.len(), part.size()), (3, 3 * PAGE_SIZE));
        for index in 0..3 {
            assert_eq!(part.phys(index), whole.phys(index + 1));
        }
        part.write(PAGE_SIZE - 2, b"scif")?;
        let mut bytes = [0; 4];
        whole.read(2 * PAGE_SIZE - 2, &mut bytes)?;
        assert_eq!(&bytes, b"scif");

        let read_only = Pages::part(&whole, 0, 5 * size, false)?;
        assert!(matches!(read_only.write(0, b"scif"), Err(e) if e == EACCES));
        let refused = Pages::part(&read_only, 0, size, true);
        assert!(matches!(refused, Err(e) if e == EACCES));
        let all = Pages::part(&whole, 0, 5 * size, true)?;
        assert!(Arc::ptr_eq(&all, &whole));
        for (from, len) in [
            (0, 0),
            (1, size),
            (0, size + 1),
            (0, 6 * size),
            (5 * size, size),
            (u64::MAX - size + 1, size),
        ] {
            let none = Pages::part(&whole, from, len, true);
            assert!(matches!(none, Err(e) if e == EINVAL));
        }
        // The part keeps the pages.
        drop((all, whole));
        part.read(PAGE_SIZE - 2, &mut bytes)?;
        assert_eq!(&bytes, b"scif");
        Ok(())
    }

    #[test]
    fn kernel_memory_can_be_used_as_pages() -> Result {
        let mut contiguous = KVec::from_elem(0u8, 4 * PAGE_SIZE, GFP_KERNEL)?;
        check_kernel_pages(&mut contiguous)?;
        let (pages, _) = Pages::around(&lend(&mut contiguous)?)?;
        assert_eq!(pages.runs().entries().len(), 1);
        drop(pages);
        let mut scattered = VVec::from_elem(0u8, 4 * PAGE_SIZE, GFP_KERNEL)?;
        check_kernel_pages(&mut scattered)?;
        assert!(matches!(Pages::around(&lend(&mut [])?), Err(e) if e == EINVAL));
        Ok(())
    }
}
