// SPDX-License-Identifier: GPL-2.0

//! Notification of changes to a range of a process' address space.
//!
//! Some callers keep pages of a process for longer than a call. Meanwhile the process may map
//! something else in their place, or unmap them. Then the kept pages are no longer the pages that
//! the process sees. A [`Watch`] tells its owner of this.
//!
//! # Invariants
//!
//! Between one return of [`Watch::begin`] and the next, [`Watch::is_unchanged`] returns true only
//! while nothing in the range has been unmapped, replaced, moved or protected differently. It
//! returns false before the system call that changes the range returns. So a caller that pins pages
//! after `begin`, and then sees `is_unchanged` return true, has the pages that the process has.
//!
//! It may return false without a reason that the process knows of: `fork`, migration and reclaim
//! are changes, too.
//!
//! # Lock order
//!
//! The memory management calls [`Changed::changed`]. It may hold any of its locks, and may be
//! reclaiming memory. So a lock that `changed` takes must never be held while memory is allocated,
//! or while a `Watch` is created, begun or dropped. `Watch::begun_at` is a leaf.
//!
//! C header: [`include/linux/mmu_notifier.h`](srctree/include/linux/mmu_notifier.h)

use super::bindings as own;
use kernel::{
    container_of,
    error::to_result,
    new_spinlock,
    prelude::*,
    sync::SpinLock,
    types::Opaque, //
};

/// A listener that is told of a change.
pub(crate) trait Changed: Send + Sync + 'static {
    /// Takes note that the range has changed, or is about to, for the first time since
    /// [`Watch::begin`].
    /// Context: inside the memory management, with any of its locks held. It must not sleep, and
    /// must not wait for memory.
    fn changed(&self);
}

/// A watched range of addresses of a process.
///
/// The drop waits for running calls of [`Changed::changed`], and for changes of the address space
/// that are in progress, so it may sleep. A watch does not keep the process from exiting.
///
/// # Invariants
///
/// `subscription` is registered, and only `Drop` removes it.
#[pin_data(PinnedDrop)]
pub(crate) struct Watch<T: Changed> {
    /// Sequence number from `mmu_interval_read_begin`. Any change gives the range another number.
    #[pin]
    begun_at: SpinLock<c_ulong>,
    listener: T,
    // Initialised last: the callback may run as soon as the subscription is registered, and uses
    // the other fields.
    #[pin]
    subscription: Opaque<own::mmu_interval_notifier>,
}

// SAFETY: Any thread may use and remove a subscription.
unsafe impl<T: Changed> Send for Watch<T> {}
// SAFETY: `begun_at` or the C side protect everything that changes after the initialisation.
unsafe impl<T: Changed> Sync for Watch<T> {}

impl<T: Changed> Watch<T> {
    const OPERATIONS: own::mmu_interval_notifier_ops = own::mmu_interval_notifier_ops {
        invalidate: Some(Self::invalidate),
        invalidate_start: None,
        invalidate_finish: None,
    };

    /// Watches `len` bytes of the calling process from `address` on.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the range is empty or overflows.
    /// - `EFAULT`: the caller is a kernel thread.
    ///
    /// Context: may sleep.
    pub(crate) fn new(address: usize, len: usize, listener: T) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // No range has this number, so `is_unchanged` is false before the first `begin`.
            begun_at <- new_spinlock!(0, "Watch::begun_at"),
            listener,
            subscription <- Opaque::try_ffi_init(
                move |subscription: *mut own::mmu_interval_notifier| {
                    if len == 0 || address.checked_add(len).is_none() {
                        return Err(EINVAL);
                    }
                    let task = current!();
                    let mm = task.mm().ok_or(EFAULT)?;
                    // SAFETY: `subscription` is pinned and valid for writes. The address space has
                    // a user, which is this task. The operations are static.
                    to_result(unsafe {
                        own::mmu_interval_notifier_insert(
                            subscription,
                            mm.as_raw(),
                            address,
                            len,
                            &Self::OPERATIONS,
                        )
                    })
                }
            ),
        }? Error)
    }

    /// Restarts the watch: only changes from now on count. Waits for changes that are in progress.
    /// Context: may sleep.
    pub(crate) fn begin(&self) {
        // SAFETY: By the type invariant the subscription is registered.
        let sequence = unsafe { own::mmu_interval_read_begin(self.subscription.get()) };
        *self.begun_at.lock() = sequence;
    }

    /// Returns whether nothing has changed since [`Self::begin`].
    /// Context: any but interrupts.
    pub(crate) fn is_unchanged(&self) -> bool {
        let begun_at = self.begun_at.lock();
        self.is_unchanged_since(*begun_at)
    }

    /// Returns whether the range still has this number. The caller holds `begun_at`.
    fn is_unchanged_since(&self, sequence: c_ulong) -> bool {
        // SAFETY: By the type invariant the subscription is registered. The callback holds the same
        // lock.
        !unsafe { own::scif_helper_mmu_interval_read_retry(self.subscription.get(), sequence) }
    }

    /// # Safety
    ///
    /// `subscription` belongs to a `Watch`, which exists while this runs.
    unsafe extern "C" fn invalidate(
        subscription: *mut own::mmu_interval_notifier,
        _range: *const own::mmu_notifier_range,
        sequence: c_ulong,
    ) -> bool {
        let subscription: *mut Opaque<own::mmu_interval_notifier> = subscription.cast();
        // SAFETY: By the contract of this function. All other fields were initialised before the
        // subscription was registered, and are dropped after its removal.
        let this = unsafe { &*container_of!(subscription, Self, subscription) };
        let begun_at = this.begun_at.lock();
        let first = this.is_unchanged_since(*begun_at);
        // SAFETY: The subscription is valid, and the lock is held.
        unsafe { own::scif_helper_mmu_interval_set_seq(this.subscription.get(), sequence) };
        drop(begun_at);
        if first {
            this.listener.changed();
        }
        // `changed` never sleeps, so this call never has to be repeated.
        true
    }
}

#[pinned_drop]
impl<T: Changed> PinnedDrop for Watch<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant the subscription is registered, and only this removes it.
        unsafe { own::mmu_interval_notifier_remove(self.subscription.get()) };
    }
}

#[kunit_tests(scif_sys_mmu_notifier)]
mod tests {
    use super::*;
    use crate::sys::tests::map_pages;
    use kernel::{
        bindings,
        page::PAGE_SIZE,
        sync::{
            atomic::{
                Atomic,
                Relaxed, //
            },
            Arc, //
        },
    };

    struct Count(Arc<Atomic<u32>>);

    impl Changed for Count {
        fn changed(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn unmap(address: usize, pages: usize) -> Result {
        // SAFETY: Only the test uses the memory of its thread.
        to_result(unsafe { bindings::vm_munmap(address, pages * PAGE_SIZE) })
    }

    #[test]
    fn unmap_inside_the_watched_range_is_reported_once() -> Result {
        let address = map_pages(4, true)?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let watch = KBox::try_pin_init(
            Watch::new(address + PAGE_SIZE, 2 * PAGE_SIZE, Count(count.clone())),
            GFP_KERNEL,
        )?;
        assert!(!watch.is_unchanged());
        watch.begin();
        assert!(watch.is_unchanged());

        // Changes beside the range.
        unmap(address, 1)?;
        unmap(address + 3 * PAGE_SIZE, 1)?;
        assert!(watch.is_unchanged());
        assert_eq!(count.load(Relaxed), 0);

        // Changes in the range are reported once, until the next `begin`.
        unmap(address + 2 * PAGE_SIZE, 1)?;
        assert!(!watch.is_unchanged());
        unmap(address + PAGE_SIZE, 1)?;
        assert!(!watch.is_unchanged());
        assert_eq!(count.load(Relaxed), 1);
        watch.begin();
        assert!(watch.is_unchanged());
        Ok(())
    }

    #[test]
    fn watch_of_an_invalid_range_is_refused() -> Result {
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        for (address, len) in [(PAGE_SIZE, 0), (usize::MAX, 2)] {
            let made =
                KBox::try_pin_init(Watch::new(address, len, Count(count.clone())), GFP_KERNEL);
            assert!(made.is_err());
        }
        Ok(())
    }
}
