// SPDX-License-Identifier: GPL-2.0

//! The page by which processes see how a node stands: `struct scif_status_page`.
//!
//! Only the kernel writes to it, each number by one store; processes may look at any moment.

use core::{
    mem::offset_of,
    ptr::NonNull, //
};

use kernel::{
    bindings,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use super::bindings as own;

/// What is in it, as `linux/scif_services.h` lays it out.
#[repr(C)]
pub(crate) struct Fields {
    version: Atomic<u32>,
    pub(crate) node: Atomic<u32>,
    pub(crate) epoch: Atomic<u64>,
    pub(crate) errors: Atomic<u64>,
    pub(crate) boot_id: [Atomic<u64>; 2],
}

static_assert!(size_of::<Fields>() == size_of::<own::scif_status_page>());
static_assert!(offset_of!(Fields, version) == offset_of!(own::scif_status_page, version));
static_assert!(offset_of!(Fields, node) == offset_of!(own::scif_status_page, node));
static_assert!(offset_of!(Fields, epoch) == offset_of!(own::scif_status_page, epoch));
static_assert!(offset_of!(Fields, errors) == offset_of!(own::scif_status_page, errors));
static_assert!(offset_of!(Fields, boot_id) == offset_of!(own::scif_status_page, boot_id));
static_assert!(size_of::<Fields>() <= PAGE_SIZE);

/// A page that begins with [`Fields`]; the rest is zero.
///
/// # Invariants
///
/// `base` is a page of the allocator of pages, which this owns, and in which nothing but [`Fields`] was
/// ever written.
pub(crate) struct StatusPage {
    base: NonNull<Fields>,
}

// SAFETY: The memory belongs to no thread.
unsafe impl Send for StatusPage {}
// SAFETY: All that is accessed through `&self` is atomic.
unsafe impl Sync for StatusPage {}

impl StatusPage {
    /// Of this node; all else is zero. `charged` says whether the calling process pays for it. May sleep.
    pub(crate) fn new(node: u16, charged: bool) -> Result<Self> {
        // SAFETY: No preconditions.
        let base = unsafe { own::scif_helper_alloc_pages_exact(PAGE_SIZE, charged) };
        // INVARIANT: It has just been allocated, and is zeroed.
        let this = Self {
            base: NonNull::new(base.cast::<Fields>()).ok_or(ENOMEM)?,
        };
        this.version.store(own::SCIF_STATUS_VERSION, Relaxed);
        this.node.store(node.into(), Relaxed);
        Ok(this)
    }

    /// The number of its page frame.
    pub(crate) fn frame(&self) -> u64 {
        // SAFETY: By the type invariant the page is in the kernel's linear mapping.
        let phys = unsafe { own::scif_helper_virt_to_phys(self.base.as_ptr().cast()) };
        phys >> PAGE_SHIFT
    }
}

impl core::ops::Deref for StatusPage {
    type Target = Fields;

    fn deref(&self) -> &Fields {
        // SAFETY: By the type invariant it is valid, and aligned as pages are; it was zeroed, which is
        // a value of all the fields, and processes can only read it.
        unsafe { self.base.as_ref() }
    }
}

impl Drop for StatusPage {
    fn drop(&mut self) {
        // SAFETY: By the type invariant this owns the page.
        unsafe { bindings::free_pages_exact(self.base.as_ptr().cast(), PAGE_SIZE) };
    }
}

#[kunit_tests(scif_sys_status_page)]
mod tests {
    use super::*;

    #[test]
    fn a_new_page_names_its_node_and_nothing_else() -> Result {
        for charged in [false, true] {
            let page = StatusPage::new(7, charged)?;
            assert_eq!(page.version.load(Relaxed), own::SCIF_STATUS_VERSION);
            assert_eq!(page.node.load(Relaxed), 7);
            assert_eq!(page.epoch.load(Relaxed), 0);
            assert_eq!(page.errors.load(Relaxed), 0);
            page.epoch.store(3, Relaxed);
            assert_eq!(page.epoch.load(Relaxed), 3);
            assert!(page.frame() != 0);
        }
        Ok(())
    }
}
