// SPDX-License-Identifier: GPL-2.0

//! Waiting for a condition, waiting on several queues at once, and busy waiting.
//!
//! A [`WaitQueue`] differs from [`kernel::sync::CondVar`]: it needs no lock around the condition,
//! can be woken from interrupts, tells a signal from a timeout, and can be polled. The caller
//! passes the condition as a closure, so that no wake-up is lost between the check and the sleep.
//!
//! This file has more than 500 lines because its tests wait in each of these ways.
//!
//! C header: [`include/linux/wait.h`](srctree/include/linux/wait.h)

use core::{
    marker::PhantomPinned,
    pin::Pin,
    ptr, //
};
use kernel::{
    bindings,
    current,
    prelude::*,
    processor::cpu_relax,
    sync::{
        atomic::{
            Atomic,
            Full, //
        },
        Arc,
        LockClassKey, //
    },
    task::{
        might_sleep,
        TASK_INTERRUPTIBLE,
        TASK_NORMAL,
        TASK_UNINTERRUPTIBLE, //
    },
    time::{
        msecs_to_jiffies,
        Delta,
        Instant,
        Monotonic, //
    },
    types::Opaque, //
};

use super::{
    bindings as own,
    tunables, //
};

/// `TASK_KILLABLE`, which has no constant in the kernel's Rust code.
const TASK_KILLABLE: c_int = TASK_UNINTERRUPTIBLE | bindings::TASK_WAKEKILL as c_int;

/// `MAX_SCHEDULE_TIMEOUT`: no timeout.
const FOREVER: c_long = c_long::MAX;

/// Makes an initialiser of a [`WaitQueue`] with a lock class of its own.
macro_rules! new_wait_queue {
    ($name:literal) => {
        $crate::sys::wait::WaitQueue::new(::kernel::c_str!($name), ::kernel::static_lock_class!())
    };
}
pub(crate) use new_wait_queue;

/// A list of waiting tasks.
///
/// Wake it after the condition has changed. The conditions of the woken tasks see what was written
/// before [`WaitQueue::wake_all`].
///
/// A queue with waiters can't be destroyed: waiters borrow it, and pollers do so through
/// [`PollContext`](super::chardev::PollContext).
///
/// # Invariants
///
/// `head` is an initialised `wait_queue_head`.
#[pin_data]
pub(crate) struct WaitQueue {
    #[pin]
    head: Opaque<bindings::wait_queue_head>,
    /// Forbids moves, since the list in `head` points to itself.
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: A `wait_queue_head` may be used from any thread.
unsafe impl Send for WaitQueue {}
// SAFETY: A `wait_queue_head` has a lock of its own that all functions below take.
unsafe impl Sync for WaitQueue {}

impl WaitQueue {
    /// Creates an initialiser. Call [`new_wait_queue`], which adds the lock class.
    pub(crate) fn new(name: &'static CStr, key: Pin<&'static LockClassKey>) -> impl PinInit<Self> {
        pin_init!(Self {
            // INVARIANT: This initialises `head`.
            //
            // SAFETY: `slot` is valid for writes, and `name` and `key` are static.
            head <- Opaque::ffi_init(|slot| unsafe {
                bindings::__init_waitqueue_head(slot, name.as_char_ptr(), key.as_ptr())
            }),
            _pin: PhantomPinned,
        })
    }

    /// Wakes all waiters.
    /// Context: any, including hard interrupts and held spinlocks.
    pub(crate) fn wake_all(&self) {
        // SAFETY: By the type invariant `head` is initialised. The null key stands for all events.
        unsafe { bindings::__wake_up(self.head.get(), TASK_NORMAL, 0, ptr::null_mut()) };
    }

    /// Returns whether a task waits or polls. If this returns false, a waiter that begins later
    /// sees everything that was written before this call.
    /// Context: any.
    pub(crate) fn has_waiters(&self) -> bool {
        // SAFETY: By the type invariant `head` is initialised.
        unsafe { own::scif_helper_has_waiters(self.head.get()) }
    }

    /// Waits until `condition` returns a value, or a signal arrives (`ERESTARTSYS`).
    ///
    /// As in all waiting functions, `condition` runs while the task is set to sleep. It may take
    /// spinlocks, but must not sleep: it takes no mutex, touches no user memory, and does not
    /// allocate with `GFP_KERNEL`.
    /// Context: may sleep.
    pub(crate) fn wait<T>(&self, condition: impl FnMut() -> Option<T>) -> Result<T> {
        self.wait_in_state(TASK_INTERRUPTIBLE, FOREVER, condition)?
            .ok_or(ERESTARTSYS)
    }

    /// Waits as [`WaitQueue::wait`] does. Returns `Ok(None)` when `timeout` has passed.
    /// Context: may sleep.
    pub(crate) fn wait_timeout<T>(
        &self,
        timeout: Delta,
        condition: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        self.wait_in_state(TASK_INTERRUPTIBLE, jiffies(timeout), condition)
    }

    /// Waits as [`WaitQueue::wait`] does, but only a signal that kills the process ends the wait.
    /// Then no code of the process sees the `ERESTARTSYS`.
    ///
    /// Nothing ends the wait of a task that exits or of a kernel thread, so check
    /// [`can_be_killed`](super::current::can_be_killed) first.
    /// Context: may sleep.
    pub(crate) fn wait_killable<T>(&self, condition: impl FnMut() -> Option<T>) -> Result<T> {
        self.wait_in_state(TASK_KILLABLE, FOREVER, condition)?
            .ok_or(ERESTARTSYS)
    }

    /// Waits as [`WaitQueue::wait`] does, but no signal ends the wait. For conditions that become
    /// true in bounded time.
    /// Context: may sleep.
    pub(crate) fn wait_uninterruptible<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        loop {
            // Signals are ignored in this state, so there is no error.
            if let Ok(Some(value)) =
                self.wait_in_state(TASK_UNINTERRUPTIBLE, FOREVER, &mut condition)
            {
                return value;
            }
        }
    }

    /// Waits as [`WaitQueue::wait_killable`] does. Returns `Ok(None)` when `timeout` has passed.
    /// Context: may sleep.
    pub(crate) fn wait_killable_timeout<T>(
        &self,
        timeout: Delta,
        condition: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        self.wait_in_state(TASK_KILLABLE, jiffies(timeout), condition)
    }

    /// Waits as [`WaitQueue::wait_killable_timeout`] does, but no signal ends the wait.
    /// Context: may sleep.
    pub(crate) fn wait_uninterruptible_timeout<T>(
        &self,
        timeout: Delta,
        condition: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        // Signals are ignored in this state, so there is no error.
        self.wait_in_state(TASK_UNINTERRUPTIBLE, jiffies(timeout), condition)
            .unwrap_or(None)
    }

    fn wait_in_state<T>(
        &self,
        state: c_int,
        mut timeout: c_long,
        mut condition: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>> {
        might_sleep();

        // Checks before the setup of a wait, because most conditions are already true.
        if let Some(value) = condition() {
            return Ok(Some(value));
        }

        let entry = Opaque::<bindings::wait_queue_entry>::uninit();
        // SAFETY: `entry` is valid for writes.
        unsafe { bindings::init_wait_entry(entry.get(), 0) };

        let result = loop {
            // SAFETY: `head` and `entry` are initialised. `entry` does not move before
            // `finish_wait` below has taken it off the list.
            let interrupted =
                unsafe { bindings::prepare_to_wait_event(self.head.get(), entry.get(), state) };

            // Checks the condition after the line above has set the task's state, so that no later
            // wake-up is lost.
            if let Some(value) = condition() {
                break Ok(Some(value));
            }
            if interrupted != 0 {
                break Err(ERESTARTSYS);
            }
            if timeout == 0 {
                break Ok(None);
            }
            // SAFETY: Any task that may sleep may call this.
            timeout = unsafe { bindings::schedule_timeout(timeout) };
        };

        // SAFETY: `entry` is on the list of `head`. This call also sets the task's state back to
        // running.
        unsafe { bindings::finish_wait(self.head.get(), entry.get()) };
        result
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::wait_queue_head {
        self.head.get()
    }
}

/// Converts a timeout to jiffies, rounded up so that no wait ends early. A negative timeout becomes
/// 0.
fn jiffies(timeout: Delta) -> c_long {
    let millis = timeout.as_millis_ceil().clamp(0, i64::from(i32::MAX)) as u32;

    // Avoids `FOREVER`, which means no timeout.
    c_long::try_from(msecs_to_jiffies(millis)).map_or(FOREVER - 1, |j| j.min(FOREVER - 1))
}

/// A flag and a queue that are set and woken when any queue of a [`WaitAny`] is woken.
#[pin_data]
struct Alarm {
    rung: Atomic<bool>,
    #[pin]
    waiter: WaitQueue,
}

/// An entry in a wait queue.
///
/// # Invariants
///
/// `entry` is in the list of `queue`, and its `private` points to an [`Alarm`] that lives longer.
struct Entry {
    entry: KBox<Opaque<bindings::wait_queue_entry>>,
    queue: Arc<WaitQueue>,
}

// SAFETY: Any task may remove an entry, whichever task added it: the entry's function does not use
// the task.
unsafe impl Send for Entry {}

impl Entry {
    fn new(queue: &Arc<WaitQueue>, alarm: &Alarm) -> Result<Self> {
        let entry = KBox::new(Opaque::<bindings::wait_queue_entry>::uninit(), GFP_KERNEL)?;
        // SAFETY: The entry is valid for writes, and does not move before `drop` has removed it.
        unsafe {
            bindings::init_wait_entry(entry.get(), 0);
            (*entry.get()).func = Some(Self::woken);
            (*entry.get()).private = core::ptr::from_ref(alarm).cast_mut().cast();
            bindings::add_wait_queue(queue.as_ptr(), entry.get());
        }
        // INVARIANT: The entry has just been added. `WaitAny` drops its entries before the alarm.
        Ok(Self {
            entry,
            queue: queue.clone(),
        })
    }

    /// # Safety
    ///
    /// `entry` belongs to an `Entry`. The caller holds the lock of its queue, in any context.
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
        // SAFETY: By the type invariant the entry is in that queue. After its removal, `woken` does
        // not run.
        unsafe { bindings::remove_wait_queue(self.queue.as_ptr(), self.entry.get()) };
    }
}

/// A wait on any of several wait queues.
///
/// For callers whose conditions can't be checked while the task is set to sleep. Wake-ups during
/// the check are remembered, as `poll` does it.
pub(crate) struct WaitAny {
    // Declared before the alarm, which the entries use, so that they are dropped first.
    _entries: KVVec<Entry>,
    alarm: Pin<KBox<Alarm>>,
}

impl WaitAny {
    /// Begins to notice wake-ups of `queues`.
    /// Context: may sleep.
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

    /// Waits until one of the queues has been woken since the last call, or since [`Self::new`].
    ///
    /// Returns false if `timeout` has passed, and `ERESTARTSYS` for a signal.
    /// Context: may sleep.
    pub(crate) fn wait(&self, timeout: Option<Delta>) -> Result<bool> {
        let rung = || self.alarm.rung.xchg(false, Full).then_some(());
        let limit = timeout.map_or(FOREVER, jiffies);
        let waiter = &self.alarm.waiter;
        let rung = waiter.wait_in_state(TASK_INTERRUPTIBLE, limit, rung)?;
        Ok(rung.is_some())
    }
}

/// Upper limit in microseconds for busy waiting, whatever the administrator sets.
const LONGEST_US: u32 = 10_000;

/// Returns how long a waiter polls before it sleeps: the parameter `busy_poll_us`.
/// Context: any.
pub(crate) fn busy_poll() -> Delta {
    Delta::from_micros(tunables::busy_poll_us().min(LONGEST_US).into())
}

/// Checks `condition` repeatedly for at most `limit`, and returns whether it has become true.
/// Returns false early if another task needs the CPU, or a signal is pending.
/// Context: process, no locks held.
pub(crate) fn busy_wait(limit: Delta, condition: impl Fn() -> bool) -> bool {
    if limit.is_zero() {
        return false;
    }
    let start = Instant::<Monotonic>::now();
    loop {
        if condition() {
            return true;
        }
        // SAFETY: The helper may be called in any context.
        let is_wanted = unsafe { own::scif_helper_need_resched() };
        if is_wanted || current!().signal_pending() || start.elapsed() >= limit {
            return false;
        }
        cpu_relax();
    }
}

#[kunit_tests(scif_sys_wait)]
mod tests {
    use super::*;
    use crate::sys::workqueue::Queue;
    use kernel::{
        impl_has_work, new_work,
        sync::{
            atomic::{
                Acquire,
                Atomic,
                Release, //
            },
            Arc, //
        },
        workqueue::{
            Work,
            WorkItem, //
        },
    };

    /// A work item that sets a flag and wakes a queue.
    #[pin_data]
    struct Waker {
        set: Atomic<i32>,
        #[pin]
        queue: WaitQueue,
        #[pin]
        work: Work<Self>,
    }

    impl_has_work! {
        impl HasWork<Self> for Waker { self.work }
    }

    impl Waker {
        fn new() -> Result<Arc<Self>> {
            Arc::pin_init(
                pin_init!(Self {
                    set: Atomic::new(0),
                    queue <- new_wait_queue!("scif_test::Waker"),
                    work <- new_work!("scif_test::Waker"),
                }),
                GFP_KERNEL,
            )
        }

        fn value(&self) -> Option<i32> {
            Some(self.set.load(Acquire)).filter(|v| *v != 0)
        }
    }

    impl WorkItem for Waker {
        type Pointer = Arc<Self>;

        fn run(this: Arc<Self>) {
            this.set.store(7, Release);
            this.queue.wake_all();
        }
    }

    #[test]
    fn timeout_ends_every_kind_of_wait() -> Result {
        let waker = Waker::new()?;
        let short = Delta::from_millis(2);
        assert_eq!(
            waker.queue.wait_killable_timeout(short, || waker.value())?,
            None
        );
        assert_eq!(
            waker.queue.wait_killable_timeout(short, || waker.value())?,
            None
        );
        assert_eq!(
            waker
                .queue
                .wait_uninterruptible_timeout(short, || waker.value()),
            None
        );
        assert_eq!(
            waker
                .queue
                .wait_killable_timeout(Delta::from_millis(-1), || waker.value())?,
            None
        );
        Ok(())
    }

    #[test]
    fn wake_up_ends_the_wait() -> Result {
        let work = Queue::ordered(c"scif_test")?;
        let waker = Waker::new()?;
        assert!(work.enqueue(waker.clone()).is_ok());
        let seen = waker
            .queue
            .wait_killable_timeout(Delta::from_secs(30), || waker.value())?;
        assert_eq!(seen, Some(7));
        assert_eq!(waker.queue.wait(|| waker.value())?, 7);
        assert_eq!(waker.queue.wait_killable(|| waker.value())?, 7);
        assert_eq!(waker.queue.wait_uninterruptible(|| waker.value()), 7);
        Ok(())
    }

    fn queues() -> Result<[Arc<WaitQueue>; 2]> {
        Ok([
            Arc::pin_init(new_wait_queue!("scif_test::WaitAny::a"), GFP_KERNEL)?,
            Arc::pin_init(new_wait_queue!("scif_test::WaitAny::b"), GFP_KERNEL)?,
        ])
    }

    #[test]
    fn wake_up_of_any_queue_ends_wait_any() -> Result {
        let queues = queues()?;
        for queue in &queues {
            let any = WaitAny::new(queues.iter())?;
            assert!(!any.wait(Some(Delta::from_millis(2)))?);
            queue.wake_all();
            assert!(any.wait(Some(Delta::from_secs(30)))?);
            // Each wake-up ends one wait.
            assert!(!any.wait(Some(Delta::from_millis(2)))?);
        }
        Ok(())
    }

    #[test]
    fn dropped_wait_any_leaves_no_entry_in_its_queues() -> Result {
        let [first, second] = queues()?;
        drop(WaitAny::new([&first, &second].into_iter())?);
        first.wake_all();
        assert!(Arc::into_unique_or_drop(first).is_some());
        assert!(Arc::into_unique_or_drop(second).is_some());
        Ok(())
    }
}
