// SPDX-License-Identifier: GPL-2.0

//! Doing something again and again.

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

/// What a [`PeriodicTimer`] calls.
pub(crate) trait Tick: Send + Sync + Sized + 'static {
    /// How long it is between two calls.
    const PERIOD: Delta;

    /// A period is over. A hard interrupt: it must not sleep. Periods that were missed are not made
    /// up for.
    fn tick(this: ArcBorrow<'_, Self>);
}

/// Calls [`Tick::tick`] once a period.
#[pin_data]
pub(crate) struct PeriodicTimer<T: Tick> {
    #[pin]
    timer: HrTimer<Self>,
    target: Arc<T>,
}

/// Lets a timer run until it is dropped.
///
/// Dropping waits for a call that is running, so never drop it inside one, nor with a lock held
/// that `tick` takes. The timer owns a reference to its target: whoever puts this into the target takes it
/// out again, or neither goes away.
pub(crate) type Running<T> = ArcHrTimerHandle<PeriodicTimer<T>>;

impl<T: Tick> PeriodicTimer<T> {
    /// Starts; the first call is one period from now.
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
    fn it_ticks_until_it_is_dropped() -> Result {
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

        // Several periods without a tick, and nobody else holds the target.
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
