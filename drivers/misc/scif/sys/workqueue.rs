// SPDX-License-Identifier: GPL-2.0

//! Work queues that belong to the module.
//!
//! The kernel's Rust code only knows the system's queues, and those outlive a module: an item that
//! is still queued at unload would run freed code. A [`Queue`] runs all of its items and then goes,
//! when it is dropped.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use core::ptr::NonNull;

use kernel::{
    bindings::{
        self,
        wq_flags_WQ_HIGHPRI as WQ_HIGHPRI,
        wq_flags_WQ_PERCPU as WQ_PERCPU,
        wq_flags_WQ_UNBOUND as WQ_UNBOUND,
        wq_flags___WQ_ORDERED as __WQ_ORDERED, //
    },
    prelude::*,
    workqueue::RawWorkItem, //
};

/// A work queue of the module's own.
///
/// Dropping it waits for every item that was enqueued, which may sleep. So:
///
/// - Whatever enqueues from elsewhere (an interrupt, a timer) is stopped first. Items may still
///   enqueue items, themselves included, as long as that ends.
/// - An item never drops the last reference to its own queue: it would wait for itself.
///
/// # Invariants
///
/// `raw` is a valid work queue that is destroyed in `Drop` and nowhere else.
pub(crate) struct Queue {
    raw: NonNull<bindings::workqueue_struct>,
}

// SAFETY: A `workqueue_struct` may be used from any thread.
unsafe impl Send for Queue {}
// SAFETY: All functions called on a `workqueue_struct` through `&self` lock it as they need to.
unsafe impl Sync for Queue {}

impl Queue {
    /// Makes a queue that runs one item at a time, in the order they came in.
    pub(crate) fn ordered(name: &CStr) -> Result<Self> {
        Self::new(name, WQ_UNBOUND | __WQ_ORDERED, 1)
    }

    /// Makes a queue whose items run soon, at high priority, on the CPU that enqueues them, which takes no
    /// interrupt of another one; one after another there, unless one sleeps.
    pub(crate) fn bound_highpri(name: &CStr) -> Result<Self> {
        Self::new(name, WQ_PERCPU | WQ_HIGHPRI, 0)
    }

    /// Makes a queue whose items run at once, at high priority, on any CPU, beside each other.
    pub(crate) fn unbound_highpri(name: &CStr) -> Result<Self> {
        Self::new(name, WQ_UNBOUND | WQ_HIGHPRI, 0)
    }

    /// Makes a queue whose items may take long, on any CPU, beside each other.
    pub(crate) fn background(name: &CStr) -> Result<Self> {
        Self::new(name, WQ_UNBOUND, 0)
    }

    fn new(name: &CStr, flags: u32, most: c_int) -> Result<Self> {
        let format = c"%s".as_char_ptr();
        // SAFETY: The format takes one string; it is copied.
        let raw =
            unsafe { bindings::alloc_workqueue_noprof(format, flags, most, name.as_char_ptr()) };
        // INVARIANT: It has just been allocated.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }

    /// Enqueues an item; from any context.
    ///
    /// What it returns depends on the pointer type: an [`Arc`](kernel::sync::Arc) comes back as
    /// `Err` when that item is in a queue already.
    ///
    /// Delayed items are left out on purpose: their timers would outlive the queue. Use
    /// [`PeriodicTimer`](super::timer::PeriodicTimer).
    pub(crate) fn enqueue<W, const ID: u64>(&self, item: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        self.as_kernels().enqueue(item)
    }

    /// Runs a function once, as an item of its own. Not from interrupts.
    pub(crate) fn spawn(&self, function: impl FnOnce() + Send + 'static) -> Result {
        Ok(self.as_kernels().try_spawn(GFP_KERNEL, function)?)
    }

    fn as_kernels(&self) -> &kernel::workqueue::Queue {
        // SAFETY: By the type invariant the queue is valid, and it stays so while `self` is
        // borrowed.
        unsafe { kernel::workqueue::Queue::from_raw(self.raw.as_ptr()) }
    }

    /// Waits until every item that is in the queue now has run. May sleep.
    pub(crate) fn flush(&self) {
        // SAFETY: By the type invariant the queue is valid.
        unsafe { bindings::__flush_workqueue(self.raw.as_ptr()) };
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the queue is valid and nobody else destroys it.
        unsafe { bindings::destroy_workqueue(self.raw.as_ptr()) };
    }
}

#[kunit_tests(scif_sys_workqueue)]
mod tests {
    use super::*;
    use kernel::{
        impl_has_work, new_work,
        sync::{
            atomic::{
                Atomic,
                Relaxed, //
            },
            Arc,
        },
        workqueue::{
            Work,
            WorkItem, //
        },
    };

    #[pin_data]
    struct Counter {
        runs: Atomic<u32>,
        #[pin]
        work: Work<Self>,
    }

    impl_has_work! {
        impl HasWork<Self> for Counter { self.work }
    }

    impl Counter {
        fn new() -> Result<Arc<Self>> {
            Arc::pin_init(
                pin_init!(Self {
                    runs: Atomic::new(0),
                    work <- new_work!("scif_test::Counter"),
                }),
                GFP_KERNEL,
            )
        }
    }

    impl WorkItem for Counter {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            this.runs.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn flush_waits_for_what_was_enqueued() -> Result {
        let queue = Queue::ordered(c"scif_test")?;
        let counter = Counter::new()?;
        assert!(queue.enqueue(counter.clone()).is_ok());
        queue.flush();
        assert_eq!(counter.runs.load(Relaxed), 1);
        Ok(())
    }

    #[test]
    fn drop_runs_what_is_left() -> Result {
        let queue = Queue::unbound_highpri(c"scif_test")?;
        let counter = Counter::new()?;
        assert!(queue.enqueue(counter.clone()).is_ok());
        drop(queue);
        assert_eq!(counter.runs.load(Relaxed), 1);
        Ok(())
    }
}
