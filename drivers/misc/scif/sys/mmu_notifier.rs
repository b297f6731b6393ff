// SPDX-License-Identifier: GPL-2.0

//! News of changes to a part of a process' address space.
//!
//! Who keeps pages of a process for longer than a call has to hear when the process maps something
//! else in their place, or nothing: the pages it keeps would no longer be those that the process
//! sees. A [`Watch`] says so.
//!
//! # Invariants
//!
//! From the return of [`Watch::begin`] until the next one, [`Watch::is_unchanged`] is true only as
//! long as nothing in the range has been unmapped, replaced, moved or protected otherwise. It is
//! false before the system call that changes it returns, so whoever pins pages between `begin` and
//! a look at `is_unchanged` has the pages that the process has. It may become false without a
//! reason that the process would know of: `fork`, migration and reclaim are changes, too.
//!
//! # Lock order
//!
//! [`Changed::changed`] is called from inside the memory management, which may hold any of its
//! locks and may be reclaiming memory: a lock that it takes must never be held while memory is
//! allocated, or while a `Watch` is made, begun or dropped. `Watch::begun_at` is a leaf.
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

/// Who is told of a change.
pub(crate) trait Changed: Send + Sync + 'static {
    /// The range has changed for the first time since [`Watch::begin`], or is about to. See the
    /// head of this file for the context: it must not sleep, and not wait for memory.
    fn changed(&self);
}

/// A range of addresses of a process that is watched; see the head of the file.
///
/// Dropping it waits for calls of [`Changed::changed`] that are running, and for changes of the
/// address space that are going on: it may sleep. It does not keep the process from exiting.
///
/// # Invariants
///
/// `subscription` is registered, and is removed in `Drop` and nowhere else.
#[pin_data(PinnedDrop)]
pub(crate) struct Watch<T: Changed> {
    /// What `mmu_interval_read_begin` has said: any change gives the range another number.
    #[pin]
    begun_at: SpinLock<c_ulong>,
    listener: T,
    // Last: the callback may come as soon as this has been made, and uses the others.
    #[pin]
    subscription: Opaque<own::mmu_interval_notifier>,
}

// SAFETY: A subscription may be used and removed by any thread.
unsafe impl<T: Changed> Send for Watch<T> {}
// SAFETY: What changes after the initialisation is protected by `begun_at` or by the C side.
unsafe impl<T: Changed> Sync for Watch<T> {}

impl<T: Changed> Watch<T> {
    const OPERATIONS: own::mmu_interval_notifier_ops = own::mmu_interval_notifier_ops {
        invalidate: Some(Self::invalidate),
        invalidate_start: None,
        invalidate_finish: None,
    };

    /// Watches `len` bytes of the calling process from `address` on. May sleep.
    ///
    /// `EINVAL` if that is no range, `EFAULT` for a kernel thread.
    pub(crate) fn new(address: usize, len: usize, listener: T) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            // Until it is begun, nothing is promised: no range has this number.
            begun_at <- new_spinlock!(0, "Watch::begun_at"),
            listener,
            subscription <- Opaque::try_ffi_init(
                move |subscription: *mut own::mmu_interval_notifier| {
                    if len == 0 || address.checked_add(len).is_none() {
                        return Err(EINVAL);
                    }
                    let task = current!();
                    let mm = task.mm().ok_or(EFAULT)?;
                    // SAFETY: `subscription` is pinned and valid for writes; the address space
                    // has a user, which is this task; the operations live for ever.
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

    /// Begins anew: from now on changes count. Waits for those that are going on; may sleep.
    pub(crate) fn begin(&self) {
        // SAFETY: By the type invariant it is registered.
        let sequence = unsafe { own::mmu_interval_read_begin(self.subscription.get()) };
        *self.begun_at.lock() = sequence;
    }

    /// Whether nothing has changed since [`Self::begin`]. Any context but interrupts.
    pub(crate) fn is_unchanged(&self) -> bool {
        let begun_at = self.begun_at.lock();
        self.is_unchanged_since(*begun_at)
    }

    /// Whether the range still has this number; the caller has `begun_at` locked.
    fn is_unchanged_since(&self, sequence: c_ulong) -> bool {
        // SAFETY: By the type invariant it is registered; the callback holds the same lock.
        !unsafe { own::scif_helper_mmu_interval_read_retry(self.subscription.get(), sequence) }
    }

    /// # Safety
    ///
    /// `subscription` is that of a `Watch`, which stays while this runs.
    unsafe extern "C" fn invalidate(
        subscription: *mut own::mmu_interval_notifier,
        _range: *const own::mmu_notifier_range,
        sequence: c_ulong,
    ) -> bool {
        let subscription: *mut Opaque<own::mmu_interval_notifier> = subscription.cast();
        // SAFETY: By the contract of this function. All other fields were initialised before
        // the subscription was made, and are dropped after it was removed.
        let this = unsafe { &*container_of!(subscription, Self, subscription) };
        let begun_at = this.begun_at.lock();
        let first = this.is_unchanged_since(*begun_at);
        // SAFETY: The subscription is valid, and the lock is held.
        unsafe { own::scif_helper_mmu_interval_set_seq(this.subscription.get(), sequence) };
        drop(begun_at);
        if first {
            this.listener.changed();
        }
        // It never has to sleep, so it never has to be asked again.
        true
    }
}

#[pinned_drop]
impl<T: Changed> PinnedDrop for Watch<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant it is registered, and nobody else removes it.
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
        // SAFETY: Nobody uses the memory of the test's thread but the test.
        to_result(unsafe { bindings::vm_munmap(address, pages * PAGE_SIZE) })
    }

    #[test]
    fn unmapping_is_a_change() -> Result {
        let address = map_pages(4, true)?;
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let watch = KBox::try_pin_init(
            Watch::new(address + PAGE_SIZE, 2 * PAGE_SIZE, Count(count.clone())),
            GFP_KERNEL,
        )?;
        assert!(!watch.is_unchanged());
        watch.begin();
        assert!(watch.is_unchanged());

        // Beside the range.
        unmap(address, 1)?;
        unmap(address + 3 * PAGE_SIZE, 1)?;
        assert!(watch.is_unchanged());
        assert_eq!(count.load(Relaxed), 0);

        // In it: told once, until it is begun again.
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
    fn what_is_no_range_is_not_watched() -> Result {
        let count = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        for (address, len) in [(PAGE_SIZE, 0), (usize::MAX, 2)] {
            let made =
                KBox::try_pin_init(Watch::new(address, len, Count(count.clone())), GFP_KERNEL);
            assert!(made.is_err());
        }
        Ok(())
    }
}
