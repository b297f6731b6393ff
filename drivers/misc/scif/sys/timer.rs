// SPDX-License-Identifier: GPL-2.0

//! Periodic timers.

use kernel::{
    impl_has_hr_timer,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    time::{
        hrtimer::{
            ArcHrTimerHandle,
            HrTimer,
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerPointer,
            HrTimerRestart,
            RelativeMode, //
        },
        Delta,
        Monotonic, //
    },
};

/// A target of a [`PeriodicTimer`].
pub(crate) trait Tick: Send + Sync + Sized + 'static {
    /// Time between two calls.
    const PERIOD: Delta;

    /// Handles the end of a period. Missed periods are not made up for.
    /// Context: hard interrupt.
    fn tick(this: ArcBorrow<'_, Self>);
}

/// A timer that calls [`Tick::tick`] once per period.
#[pin_data]
pub(crate) struct PeriodicTimer<T: Tick> {
    #[pin]
    timer: HrTimer<Self>,
    target: Arc<T>,
}

/// A handle that keeps a timer running until it is dropped.
///
/// The drop waits for a running call, so never drop it inside a call, or with a lock held that
/// `tick` takes. The timer owns a reference to its target. If the target owns this handle, it has
/// to be taken out of the target again, or neither is ever freed.
pub(crate) type Running<T> = ArcHrTimerHandle<PeriodicTimer<T>>;

impl<T: Tick> PeriodicTimer<T> {
    /// Starts a timer. The first call is one period from now.
    pub(crate) fn start(target: Arc<T>) -> Result<Running<T>> {
        let timer = Arc::pin_init(
            pin_init!(Self {
                timer <- HrTimer::new(),
                target,
            }),
            GFP_KERNEL,
        )?;
        Ok(timer.start(T::PERIOD))
    }
}

impl<T: Tick> HrTimerCallback for PeriodicTimer<T> {
    type Pointer<'a> = Arc<Self>;

    fn run(
        this: ArcBorrow<'_, Self>,
        mut context: HrTimerCallbackContext<'_, Self>,
    ) -> HrTimerRestart {
        T::tick(this.target.as_arc_borrow());
        context.forward_now(T::PERIOD);
        HrTimerRestart::Restart
    }
}

impl_has_hr_timer! {
    impl{T: Tick} HasHrTimer<Self> for PeriodicTimer<T> {
        mode: RelativeMode<Monotonic>, field: self.timer
    }
}

#[kunit_tests(scif_sys_timer)]
mod tests {
    use super::*;
    use crate::sys::wait::{
        new_wait_queue,
        WaitQueue, //
    };
    use kernel::sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    };

    #[pin_data]
    struct Ticks {
        count: Atomic<i32>,
        #[pin]
        queue: WaitQueue,
    }

    impl Tick for Ticks {
        const PERIOD: Delta = Delta::from_millis(2);

        fn tick(this: ArcBorrow<'_, Self>) {
            this.count.fetch_add(1, Release);
            this.queue.wake_all();
        }
    }

    #[test]
    fn periodic_timer_ticks_until_dropped() -> Result {
        let ticks = Arc::pin_init(
            pin_init!(Ticks {
                count: Atomic::new(0),
                queue <- new_wait_queue!("scif_test::Ticks"),
            }),
            GFP_KERNEL,
        )?;
        let timer = PeriodicTimer::start(ticks.clone())?;
        let seen = ticks
            .queue
            .wait_killable_timeout(Delta::from_secs(30), || {
                (ticks.count.load(Acquire) >= 3).then_some(())
            })?;
        assert_eq!(seen, Some(()));
        drop(timer);

        // No tick comes in several periods, and the target has no other reference.
        let count = ticks.count.load(Acquire);
        let more = ticks
            .queue
            .wait_killable_timeout(Delta::from_millis(20), || {
                (ticks.count.load(Acquire) != count).then_some(())
            })?;
        assert_eq!(more, None);
        assert!(Arc::into_unique_or_drop(ticks).is_some());
        Ok(())
    }
}
