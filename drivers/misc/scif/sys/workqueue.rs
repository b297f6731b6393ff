// SPDX-License-Identifier: GPL-2.0

//! Work queues of this module.
//!
//! The kernel's Rust code only knows the system's queues, which outlive a module: an item that is
//! still queued at unload would run freed code. The drop of a [`Queue`] runs all of its items and
//! then destroys the queue.
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

/// A work queue of this module.
///
/// The drop waits for all enqueued items, and so may sleep. Rules:
///
/// - Interrupts, timers and other code that enqueues items from outside must be stopped first.
///   Items may still enqueue items, including themselves, if that comes to an end.
/// - An item must never drop the last reference to its own queue, because it would wait for itself.
///
/// # Invariants
///
/// `raw` is a valid work queue, which only `Drop` destroys.
pub(crate) struct Queue {
    raw: NonNull<bindings::workqueue_struct>,
}

// SAFETY: Any thread may use a `workqueue_struct`.
unsafe impl Send for Queue {}
// SAFETY: All functions that take a `workqueue_struct` through `&self` lock it as they need to.
unsafe impl Sync for Queue {}

impl Queue {
    /// Creates a queue that runs one item at a time, in the order of their arrival.
    pub(crate) fn ordered(name: &CStr) -> Result<Self> {
        Self::new(name, WQ_UNBOUND | __WQ_ORDERED, 1)
    }

    /// Creates a queue whose items run soon, at high priority, on the CPU that enqueues them,
    /// without an interrupt of another CPU. On one CPU, an item starts when the previous one ends
    /// or sleeps.
    pub(crate) fn bound_highpri(name: &CStr) -> Result<Self> {
        Self::new(name, WQ_PERCPU | WQ_HIGHPRI, 0)
    }

    /// Creates a queue whose items run at once, at high priority, on any CPU, and in parallel.
    pub(crate) fn unbound_highpri(name: &CStr) -> Result<Self> {
        Self::new(name, WQ_UNBOUND | WQ_HIGHPRI, 0)
    }

    /// Creates a queue whose items may take long, on any CPU, and in parallel.
    pub(crate) fn background(name: &CStr) -> Result<Self> {
        Self::new(name, WQ_UNBOUND, 0)
    }

    fn new(name: &CStr, flags: u32, most: c_int) -> Result<Self> {
        let format = c"%s".as_char_ptr();
        // SAFETY: The format takes one string, which is copied.
        let raw =
            unsafe { bindings::alloc_workqueue_noprof(format, flags, most, name.as_char_ptr()) };
        // INVARIANT: The queue has just been allocated.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }

    /// Enqueues an item.
    ///
    /// The result depends on the pointer type: an [`Arc`](kernel::sync::Arc) comes back as `Err` if
    /// its item is in a queue already.
    ///
    /// There are no delayed items, because their timers would outlive the queue. Use
    /// [`PeriodicTimer`](super::timer::PeriodicTimer) instead.
    /// Context: any.
    pub(crate) fn enqueue<W, const ID: u64>(&self, item: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        self.as_kernels().enqueue(item)
    }

    /// Runs a function once, as an item of its own.
    /// Context: not in interrupts.
    pub(crate) fn spawn(&self, function: impl FnOnce() + Send + 'static) -> Result {
        Ok(self.as_kernels().try_spawn(GFP_KERNEL, function)?)
    }

    fn as_kernels(&self) -> &kernel::workqueue::Queue {
        // SAFETY: By the type invariant the queue is valid, and stays so while `self` is borrowed.
        unsafe { kernel::workqueue::Queue::from_raw(self.raw.as_ptr()) }
    }

    /// Waits until all items that are in the queue now have run.
    /// Context: may sleep.
    pub(crate) fn flush(&self) {
        // SAFETY: By the type invariant the queue is valid.
        unsafe { bindings::__flush_workqueue(self.raw.as_ptr()) };
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the queue is valid, and no other code destroys it.
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
    fn flush_waits_for_enqueued_work() -> Result {
        let queue = Queue::ordered(c"scif_test")?;
        let counter = Counter::new()?;
        assert!(queue.enqueue(counter.clone()).is_ok());
        queue.flush();
        assert_eq!(counter.runs.load(Relaxed), 1);
        Ok(())
    }

    #[test]
    fn queue_drop_runs_remaining_work() -> Result {
        let queue = Queue::unbound_highpri(c"scif_test")?;
        let counter = Counter::new()?;
        assert!(queue.enqueue(counter.clone()).is_ok());
        drop(queue);
        assert_eq!(counter.runs.load(Relaxed), 1);
        Ok(())
    }
}
