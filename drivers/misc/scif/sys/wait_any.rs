// SPDX-License-Identifier: GPL-2.0

//! Waiting for any of several wait queues.
//!
//! For who looks at conditions that can't be looked at while the task is set to sleep: what is woken
//! meanwhile is remembered, as `poll` does it.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)

use kernel::{
    bindings,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc, //
    },
    time::Delta,
    types::Opaque, //
};

use super::wait::{
    new_wait_queue,
    WaitQueue, //
};

/// Woken when one of the queues is.
#[pin_data]
struct Alarm {
    rung: Atomic<bool>,
    #[pin]
    waiter: WaitQueue,
}

/// An entry in a queue.
///
/// # Invariants
///
/// `entry` is in the list of `queue`, and its `private` points to an [`Alarm`] that lives longer.
struct Entry {
    entry: KBox<Opaque<bindings::wait_queue_entry>>,
    queue: Arc<WaitQueue>,
}

// SAFETY: An entry may be taken out by another task than the one that put it in: its function does not
// look at the task.
unsafe impl Send for Entry {}

impl Entry {
    fn new(queue: &Arc<WaitQueue>, alarm: &Alarm) -> Result<Self> {
        let entry = KBox::new(Opaque::<bindings::wait_queue_entry>::uninit(), GFP_KERNEL)?;
        // SAFETY: The entry is valid for writes, and stays where it is until `drop` has taken it out.
        unsafe {
            bindings::init_wait_entry(entry.get(), 0);
            (*entry.get()).func = Some(Self::woken);
            (*entry.get()).private = core::ptr::from_ref(alarm).cast_mut().cast();
            bindings::add_wait_queue(queue.as_ptr(), entry.get());
        }
        // INVARIANT: It has just been put there; `WaitAny` drops its entries before the alarm.
        Ok(Self {
            entry,
            queue: queue.clone(),
        })
    }

    /// # Safety
    ///
    /// `entry` is that of an `Entry`. Called with the lock of its queue held, in any context.
    unsafe extern "C" fn woken(
        entry: *mut bindings::wait_queue_entry,
        _mode: c_uint,
        _flags: c_int,
        _key: *mut c_void,
    ) -> c_int {
        // SAFETY: By the type invariant of `Entry`.
        let alarm = unsafe { &*(*entry).private.cast::<Alarm>() };
        alarm.rung.xchg(true, Full);
        alarm.waiter.wake_all();
        0
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is in that queue. Once it is out, `woken` does not run.
        unsafe { bindings::remove_wait_queue(self.queue.as_ptr(), self.entry.get()) };
    }
}

/// See the head of this file.
pub(crate) struct WaitAny {
    // Before the alarm, which they use.
    _entries: KVVec<Entry>,
    alarm: Pin<KBox<Alarm>>,
}

impl WaitAny {
    /// Whatever is woken from now on is noticed. May sleep.
    pub(crate) fn new<'a>(queues: impl Iterator<Item = &'a Arc<WaitQueue>>) -> Result<Self> {
        let alarm = KBox::pin_init(
            pin_init!(Alarm {
                rung: Atomic::new(false),
                waiter <- new_wait_queue!("scif::Alarm::waiter"),
            }),
            GFP_KERNEL,
        )?;
        let mut entries = KVVec::new();
        for queue in queues {
            entries.push(Entry::new(queue, &alarm)?, GFP_KERNEL)?;
        }
        Ok(Self {
            _entries: entries,
            alarm,
        })
    }

    /// Waits until one of the queues has been woken since the last time, or since the beginning. Says
    /// whether that was so, or `timeout` has passed; `ERESTARTSYS` for a signal.
    pub(crate) fn wait(&self, timeout: Option<Delta>) -> Result<bool> {
        let rung = || self.alarm.rung.xchg(false, Full).then_some(());
        match timeout {
            None => self.alarm.waiter.wait(rung).map(|()| true),
            Some(timeout) => {
                let rung = self.alarm.waiter.wait_timeout(timeout, rung)?;
                Ok(rung.is_some())
            }
        }
    }
}

#[kunit_tests(scif_sys_wait_any)]
mod tests {
    use super::*;

    fn queues() -> Result<[Arc<WaitQueue>; 2]> {
        Ok([
            Arc::pin_init(new_wait_queue!("scif_test::WaitAny::a"), GFP_KERNEL)?,
            Arc::pin_init(new_wait_queue!("scif_test::WaitAny::b"), GFP_KERNEL)?,
        ])
    }

    #[test]
    fn any_of_them_ends_the_wait() -> Result {
        let queues = queues()?;
        for queue in &queues {
            let any = WaitAny::new(queues.iter())?;
            assert!(!any.wait(Some(Delta::from_millis(2)))?);
            queue.wake_all();
            assert!(any.wait(Some(Delta::from_secs(30)))?);
            // Once for each time.
            assert!(!any.wait(Some(Delta::from_millis(2)))?);
        }
        Ok(())
    }

    #[test]
    fn nothing_is_left_in_the_queues() -> Result {
        let [first, second] = queues()?;
        drop(WaitAny::new([&first, &second].into_iter())?);
        first.wake_all();
        assert!(Arc::into_unique_or_drop(first).is_some());
        assert!(Arc::into_unique_or_drop(second).is_some());
        Ok(())
    }
}
