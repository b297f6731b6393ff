// SPDX-License-Identifier: GPL-2.0

//! Mapping of memory into a process, for memory that is not this kernel's or whose pages another
//! owner keeps.
//!
//! Each mapping gets a file of its own, which no descriptor refers to. The file lives until the
//! last part of the mapping is unmapped, however often the mapping is split or moved. So a mapping
//! does not keep the file open that it was made from. Mappings that are to be revoked together
//! share the address space of one of these files ([`MappedSpace`]).
//!
//! Only the fault handler puts pages into a mapping, never its setup. The handler first makes sure
//! that the pages are not being revoked. So a revocation can't miss any page.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use core::{
    marker::PhantomData,
    ops::Range, //
};

use kernel::{
    bindings,
    fs::File,
    mm::virt::{
        flags,
        VmaNew,
        VmaRef, //
    },
    module::this_module,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

use super::{
    anonymous_file::{
        anonymous_file,
        release, //
    },
    bindings as own,
    reached::Reached,
    shared_memory::SharedMemory, //
};
use crate::LocalModule;

/// Number of pages that one fault maps: those of one page of page tables. With pages of 4 KiB, this
/// is the whole table.
const PAGES_AT_ONCE: u64 = 512;

/// The frame of an existing page, which a process may map.
pub(crate) struct Frame<'a> {
    number: u64,
    /// Set for memory of this module, which is cached even in an area set up for device memory.
    cached: bool,
    _memory: PhantomData<&'a [u8]>,
}

impl<'a> Frame<'a> {
    /// Returns the frame of the first page of `reached`; `EINVAL` where no whole page begins.
    pub(crate) fn of_peer(reached: &Reached<'a>) -> Result<Self> {
        Ok(Self {
            number: reached.page_frame()?,
            cached: false,
            _memory: PhantomData,
        })
    }

    /// Returns the frame of the first page of this module's memory; `EINVAL` if no whole page
    /// begins there.
    pub(crate) fn of_memory(memory: &'a SharedMemory) -> Result<Self> {
        Ok(Self {
            number: memory.reach(0, PAGE_SIZE)?.page_frame()?,
            cached: true,
            _memory: PhantomData,
        })
    }
}

/// An object behind a mapping. It lives as long as the mapping, and owns the memory of all mapped
/// frames: they borrow from it.
pub(crate) trait MappedPages: Send + Sync + Sized + 'static {
    /// Maps the page of the fault, and more pages if it likes. On ENOMEM, the process repeats the
    /// access; on any other error, it gets a SIGBUS.
    /// Context: may sleep.
    fn fault<'m>(&'m self, fault: &Fault<'m>) -> Result;
}

/// Parameters with which a process maps a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Offset in the file in bytes.
    pub(crate) offset: u64,
    /// Length in bytes, in whole pages.
    pub(crate) len: u64,
    /// `MAP_SHARED`.
    pub(crate) shared: bool,
    /// `PROT_READ`.
    pub(crate) read: bool,
    /// `PROT_WRITE`.
    pub(crate) write: bool,
    /// `PROT_EXEC`.
    pub(crate) execute: bool,
}

impl Wanted {
    /// Reads the parameters of an area that is being set up. Execution is not counted as requested
    /// by old programs, for which every readable mapping is also executable.
    pub(crate) fn of(vma: &VmaNew) -> Self {
        // SAFETY: The area is being set up, and no other thread uses it yet.
        unsafe { own::scif_helper_vma_drop_implied_exec(vma.as_ptr()) };
        // SAFETY: The area is valid, and no other thread uses it yet.
        let page = unsafe { (*vma.as_ptr()).vm_pgoff };
        Self {
            // The kernel has checked that the end of the range does not overflow.
            offset: page.wrapping_shl(PAGE_SHIFT as u32) as u64,
            len: (vma.end() - vma.start()) as u64,
            shared: vma.flags() & flags::SHARED != 0,
            read: vma.readable(),
            write: vma.writable(),
            execute: vma.executable(),
        }
    }
}

/// A fault in a mapping. `'m` is a borrow of the object behind the mapping.
///
/// # Invariants
///
/// `vmf` describes a fault that is being handled, in an area that [`MappedFile::attach`] has set
/// up.
pub(crate) struct Fault<'m> {
    vmf: *mut bindings::vm_fault,
    // Makes `'m` invariant, so that it never passes for a shorter lifetime.
    _pages: PhantomData<fn(&'m ()) -> &'m ()>,
}

impl<'m> Fault<'m> {
    /// Returns the number of the missing page, counted from the begin of the file.
    pub(crate) fn page(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { (*self.vmf).__bindgen_anon_1.pgoff as u64 }
    }

    /// Returns the pages around the fault that are worth mapping together with it.
    pub(crate) fn around(&self) -> Range<u64> {
        // SAFETY: By the type invariant. The area does not change while a fault is handled.
        let (first, count) = unsafe {
            let vma = (*self.vmf).__bindgen_anon_1.vma;
            let area = VmaRef::from_raw(vma);
            let bytes = area.end() - area.start();
            ((*vma).vm_pgoff as u64, bytes as u64 >> PAGE_SHIFT)
        };
        let block = self.page() & !(PAGES_AT_ONCE - 1);
        block.max(first)..(block + PAGES_AT_ONCE).min(first + count)
    }

    /// Maps a frame as page `page` of the file, which must be in [`Self::around`]. Does nothing if
    /// a frame is mapped there already.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the page is not in [`Self::around`].
    /// - `ENOMEM`: there is no memory for page tables.
    /// - `EFAULT`: the frame can't be mapped.
    pub(crate) fn map(&self, page: u64, frame: &Frame<'m>) -> Result {
        if !self.around().contains(&page) {
            return Err(EINVAL);
        }
        let number = frame.number as c_ulong;
        // SAFETY: By the type invariant the area is valid, and takes page frames. The address is
        // inside, as just checked. The memory of the frame exists as long as the object behind the
        // mapping.
        let result = unsafe {
            let vma = (*self.vmf).__bindgen_anon_1.vma;
            let bytes = (page - (*vma).vm_pgoff as u64) << PAGE_SHIFT;
            let address = VmaRef::from_raw(vma).start() + bytes as usize;
            if frame.cached {
                own::scif_helper_insert_cached(vma, address, number)
            } else {
                bindings::vmf_insert_pfn(vma, address, number)
            }
        };
        match result {
            bindings::vm_fault_reason_VM_FAULT_NOPAGE => Ok(()),
            bindings::vm_fault_reason_VM_FAULT_OOM => Err(ENOMEM),
            _ => Err(EFAULT),
        }
    }
}

/// A file behind a mapping.
///
/// # Invariants
///
/// `new` has created `file`.
pub(crate) struct MappedFile<T: MappedPages> {
    file: ARef<File>,
    _pages: PhantomData<Arc<T>>,
}

impl<T: MappedPages> MappedFile<T> {
    const OPERATIONS: bindings::file_operations = bindings::file_operations {
        owner: this_module::<LocalModule>().as_ptr(),
        release: Some(release::<T>),
        ..pin_init::zeroed()
    };

    const AREA_OPERATIONS: bindings::vm_operations_struct = bindings::vm_operations_struct {
        fault: Some(Self::fault),
        ..pin_init::zeroed()
    };

    /// Creates a file. `pages` is dropped when the file is released.
    /// Context: may sleep.
    pub(crate) fn new(name: &'static CStr, pages: Arc<T>) -> Result<Self> {
        // SAFETY: The operations are for files with an `Arc<T>`.
        let file = unsafe { anonymous_file(name, &Self::OPERATIONS, pages) }?;
        Ok(Self {
            // INVARIANT: The file has just been created.
            file,
            _pages: PhantomData,
        })
    }

    /// Returns the file's address space, which other files may [join](Self::join).
    pub(crate) fn space(&self) -> MappedSpace {
        // SAFETY: By the type invariant the file is valid, and so is its inode.
        let inode = unsafe { (*self.file.as_ptr()).f_inode };
        // SAFETY: The inode is valid.
        unsafe { bindings::ihold(inode) };
        // INVARIANT: The reference has just been taken.
        MappedSpace { inode }
    }

    /// Makes mappings of this file belong to `space`, so that a revocation of `space` includes
    /// them. The object behind the file keeps `space`.
    pub(crate) fn join(&self, space: impl FnOnce(&T) -> Result<&MappedSpace>) -> Result {
        // SAFETY: By the type invariant the private data of the file is a `T`, which lives as long
        // as the file.
        let space = space(unsafe { &*(*self.file.as_ptr()).private_data.cast::<T>() })?;
        // SAFETY: By the type invariant the file is valid. Nothing of it is mapped yet, since
        // `attach` consumes it. The space is valid by its type invariant, and is borrowed from the
        // object behind the file.
        unsafe { (*self.file.as_ptr()).f_mapping = (*space.inode).i_mapping };
        Ok(())
    }

    /// Makes an area that is being set up a mapping of this file, instead of the file it was made
    /// from.
    ///
    /// The area never gets more access than it has now, even by `mprotect`. It is not inherited by
    /// `fork`, does not grow, and is not dumped.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the mapping is not shared, or is executable.
    pub(crate) fn attach(self, vma: &VmaNew, write_combined: bool) -> Result {
        if vma.flags() & flags::SHARED == 0 || vma.executable() {
            return Err(EINVAL);
        }
        vma.try_clear_mayexec()?;
        if !vma.writable() {
            vma.try_clear_maywrite()?;
        }
        if !vma.readable() {
            vma.try_clear_mayread()?;
        }
        vma.set_io();
        vma.set_dontcopy();
        vma.set_dontexpand();
        vma.set_dontdump();
        // SAFETY: The area is being set up. It is shared, so it can hold page frames. The file and
        // the operations live as long as the area, which takes its own reference to the file.
        unsafe {
            own::scif_helper_vma_set_pfnmap(vma.as_ptr());
            if write_combined {
                own::scif_helper_vma_set_write_combined(vma.as_ptr());
            }
            bindings::vma_set_file(vma.as_ptr(), self.file.as_ptr());
            (*vma.as_ptr()).vm_ops = &Self::AREA_OPERATIONS;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// `vmf` describes a fault in an area that `attach` has set up.
    unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
        // INVARIANT: By the contract of this function.
        let fault = Fault {
            vmf,
            _pages: PhantomData,
        };
        // SAFETY: `new` has created the area's file, whose private data lives as long as the file.
        let pages = unsafe {
            let file = (*(*vmf).__bindgen_anon_1.vma).vm_file;
            &*(*file).private_data.cast::<T>()
        };
        match pages.fault(&fault) {
            Ok(()) => bindings::vm_fault_reason_VM_FAULT_NOPAGE,
            Err(error) if error == ENOMEM => bindings::vm_fault_reason_VM_FAULT_OOM,
            Err(_) => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
        }
    }
}

/// The address space of a file, in which other files may be mapped, too. It keeps neither the
/// mappings nor the objects behind them.
///
/// # Invariants
///
/// `inode` is the inode of a [`MappedFile`], and this owns a reference to it.
pub(crate) struct MappedSpace {
    inode: *mut bindings::inode,
}

// SAFETY: Any thread may use and release an inode.
unsafe impl Send for MappedSpace {}
// SAFETY: `unmap_mapping_range` takes the locks that it needs.
unsafe impl Sync for MappedSpace {}

impl MappedSpace {
    /// Removes all pages from all mappings of this space, in all processes. The next access to a
    /// page causes a fault.
    /// Context: may sleep.
    pub(crate) fn revoke(&self) {
        // SAFETY: The inode is valid by the type invariant, and so is its address space.
        unsafe { bindings::unmap_mapping_range((*self.inode).i_mapping, 0, 0, 1) };
    }
}

impl Drop for MappedSpace {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this owns the reference.
        unsafe { bindings::iput(self.inode) };
    }
}
