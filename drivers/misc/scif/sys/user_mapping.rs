// SPDX-License-Identifier: GPL-2.0

//! Memory that is no page of this kernel's, or whose pages somebody else keeps, mapped into a
//! process.
//!
//! Each mapping gets a file of its own, which no descriptor names: it lives until the last part of
//! the mapping is unmapped, however often that is split or moved. So a mapping does not keep the file open
//! that it was made from. Mappings that are to be taken away together share the address space of one of these
//! files ([`MappedSpace`]).
//!
//! Pages come into a mapping in its fault handler only, never while it is set up: then whoever takes
//! them away can't miss any, if the handler first makes sure that they are not
//! being taken away.
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

/// Pages that are mapped together in one fault: they lie in one page of page tables, and with pages
/// of 4 KiB are all of those in it.
const PAGES_AT_ONCE: u64 = 512;

/// A page frame that a process may see: of memory that there is.
pub(crate) struct Frame<'a> {
    number: u64,
    /// It is memory of this module, in an area that may be set up for that of a device.
    cached: bool,
    _memory: PhantomData<&'a [u8]>,
}

impl<'a> Frame<'a> {
    /// The page at which what is reached begins: `EINVAL` where no whole page is.
    pub(crate) fn of_peer(reached: &Reached<'a>) -> Result<Self> {
        Ok(Self {
            number: reached.page_frame()?,
            cached: false,
            _memory: PhantomData,
        })
    }

    /// The first page of memory of this module: `EINVAL` where no whole page is.
    pub(crate) fn of_memory(memory: &'a SharedMemory) -> Result<Self> {
        Ok(Self {
            number: memory.reach(0, PAGE_SIZE)?.page_frame()?,
            cached: true,
            _memory: PhantomData,
        })
    }
}

/// What is behind a mapping. It lives as long, and keeps the memory of all frames that it maps: they borrow from it.
pub(crate) trait MappedPages: Send + Sync + Sized + 'static {
    /// Puts the page of the fault in its place, and others if it likes. An error is a SIGBUS for
    /// the process, but for ENOMEM, with which it tries again. May sleep.
    fn fault<'m>(&'m self, fault: &Fault<'m>) -> Result;
}

/// How a process wants to map a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Where in the file, in bytes.
    pub(crate) offset: u64,
    /// Bytes, in whole pages.
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
    /// Reads it off an area that is being set up. Programs of old, for which all that can be read
    /// can be executed, have not asked for that.
    pub(crate) fn of(vma: &VmaNew) -> Self {
        // SAFETY: The area is being set up, and nobody else has it yet.
        unsafe { own::scif_helper_vma_drop_implied_exec(vma.as_ptr()) };
        // SAFETY: The area is valid, and nobody else has it yet.
        let page = unsafe { (*vma.as_ptr()).vm_pgoff };
        Self {
            // The kernel has checked that the end does not overflow.
            offset: page.wrapping_shl(PAGE_SHIFT as u32) as u64,
            len: (vma.end() - vma.start()) as u64,
            shared: vma.flags() & flags::SHARED != 0,
            read: vma.readable(),
            write: vma.writable(),
            execute: vma.executable(),
        }
    }
}

/// A fault in a mapping, for what is behind that, from which `'m` is borrowed.
///
/// # Invariants
///
/// `vmf` describes a fault that is being handled, in an area that [`MappedFile::attach`] has set up.
pub(crate) struct Fault<'m> {
    vmf: *mut bindings::vm_fault,
    // It is not taken for one with a shorter life.
    _pages: PhantomData<fn(&'m ()) -> &'m ()>,
}

impl<'m> Fault<'m> {
    /// The number of the page that is missing, counted from the file's begin.
    pub(crate) fn page(&self) -> u64 {
        // SAFETY: By the type invariant.
        unsafe { (*self.vmf).__bindgen_anon_1.pgoff as u64 }
    }

    /// The pages around it that are worth being mapped at the same time.
    pub(crate) fn around(&self) -> Range<u64> {
        // SAFETY: By the type invariant; the area does not change while a fault is handled.
        let (first, count) = unsafe {
            let vma = (*self.vmf).__bindgen_anon_1.vma;
            let area = VmaRef::from_raw(vma);
            let bytes = area.end() - area.start();
            ((*vma).vm_pgoff as u64, bytes as u64 >> PAGE_SHIFT)
        };
        let block = self.page() & !(PAGES_AT_ONCE - 1);
        block.max(first)..(block + PAGES_AT_ONCE).min(first + count)
    }

    /// Maps a page frame as this page of the file, which is one of [`Self::around`]. Nothing
    /// happens if there is one already.
    pub(crate) fn map(&self, page: u64, frame: &Frame<'m>) -> Result {
        if !self.around().contains(&page) {
            return Err(EINVAL);
        }
        let number = frame.number as c_ulong;
        // SAFETY: By the type invariant the area is valid, and takes page frames. The address is
        // inside, as just checked. The frame is one of memory that there is as long as what is behind the mapping.
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

/// A file that stands behind a mapping.
///
/// # Invariants
///
/// `file` is a file that `new` has made.
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

    /// Makes a file for what is to be mapped; `pages` is dropped when it goes. May sleep.
    pub(crate) fn new(name: &'static CStr, pages: Arc<T>) -> Result<Self> {
        // SAFETY: The operations are for files with an `Arc<T>`.
        let file = unsafe { anonymous_file(name, &Self::OPERATIONS, pages) }?;
        Ok(Self {
            // INVARIANT: It has just been made.
            file,
            _pages: PhantomData,
        })
    }

    /// Its address space, which others may [join](Self::join).
    pub(crate) fn space(&self) -> MappedSpace {
        // SAFETY: By the type invariant the file is valid, and so is its inode.
        let inode = unsafe { (*self.file.as_ptr()).f_inode };
        // SAFETY: The inode is valid.
        unsafe { bindings::ihold(inode) };
        // INVARIANT: The reference has just been taken.
        MappedSpace { inode }
    }

    /// Has what is mapped of this file taken away with all else in a space, which what is behind the file keeps.
    pub(crate) fn join(&self, space: impl FnOnce(&T) -> Result<&MappedSpace>) -> Result {
        // SAFETY: By the type invariant the file has such data, which live as long.
        let space = space(unsafe { &*(*self.file.as_ptr()).private_data.cast::<T>() })?;
        // SAFETY: By the type invariant the file is valid, and nothing is mapped of it yet: `attach` consumes it. The
        // space is valid by its type invariant, and borrows from what is behind the file.
        unsafe { (*self.file.as_ptr()).f_mapping = (*space.inode).i_mapping };
        Ok(())
    }

    /// Sets an area up to be a mapping of this file instead of the one it was made from.
    ///
    /// What it may do now is all that it may ever do: no `mprotect` gives it more. It is not
    /// inherited by `fork`, does not grow, and is not dumped.
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
        // SAFETY: The area is being set up. It is shared, so it can hold page frames, and both the
        // file and the operations live as long as it does: the area takes a reference of its own.
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
        // SAFETY: The area's file is one that `new` has made, and its data lives as long.
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

/// The address space of a file, in which others may be mapped, too. It does not keep the mappings or what is behind
/// them.
///
/// # Invariants
///
/// `inode` is that of a [`MappedFile`], with a reference of its own.
pub(crate) struct MappedSpace {
    inode: *mut bindings::inode,
}

// SAFETY: An inode may be used and released by any thread.
unsafe impl Send for MappedSpace {}
// SAFETY: `unmap_mapping_range` takes the locks that it needs.
unsafe impl Sync for MappedSpace {}

impl MappedSpace {
    /// Takes all pages out of all mappings, in whatever process they are. The next access to one is a
    /// fault. May sleep.
    pub(crate) fn revoke(&self) {
        // SAFETY: The inode is valid by the type invariant, and so is its address space.
        unsafe { bindings::unmap_mapping_range((*self.inode).i_mapping, 0, 0, 1) };
    }
}

impl Drop for MappedSpace {
    fn drop(&mut self) {
        // SAFETY: The reference is ours, by the type invariant.
        unsafe { bindings::iput(self.inode) };
    }
}
