// SPDX-License-Identifier: GPL-2.0

//! Sleeping until there is a lull: for as long as others find what there is.
//!
//! Who looks now and then at what nobody is told of has nothing to do as long as others find it all, as they look for
//! something of their own. To wake up for that takes a processor from them, where there are few. So a timer looks, in its
//! interrupt, whether the count of what was found has changed, and wakes the sleeper only when it has not.

use crate::sys::{
    timer::{
        PeriodicTimer,
        Tick, //
    },
    wait::{
        new_wait_queue,
        WaitQueue, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// Who sleeps wakes up when nobody has found anything for so long, which is seen another such period later at most.
const PERIOD: Delta = Delta::from_millis(2);

/// See the head of this file.
#[pin_data]
pub(crate) struct Lull {
    /// What had been found when the timer looked last.
    found: Atomic<u64>,
    is_quiet: Atomic<bool>,
    #[pin]
    sleeper: WaitQueue,
}

impl Lull {
    /// Nobody sleeps.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            found: Atomic::new(0),
            is_quiet: Atomic::new(false),
            sleeper <- new_wait_queue!("scif::Lull"),
        })
    }

    /// A period is over, and so much was found until now. For [`Tick::tick`]; any context.
    pub(crate) fn note(&self, found: u64) {
        if self.found.load(Relaxed) == found {
            self.is_quiet.store(true, Release);
            self.sleeper.wake_all();
        }
        self.found.store(found, Relaxed);
    }

    /// Sleeps until it is quiet, for however long that takes. One thread at a time, with the owner of this, whose ticks
    /// call [`Self::note`], and with what was found until now.
    pub(crate) fn sleep<T: Tick>(&self, owner: &Arc<T>, found: u64) {
        self.found.store(found, Relaxed);
        self.is_quiet.store(false, Relaxed);
        let Ok(timer) = PeriodicTimer::start(owner.clone(), PERIOD) else {
            fsleep(PERIOD);
            return;
        };
        let is_quiet = || self.is_quiet.load(Acquire).then_some(());
        // It may be long, so it is not to count as load: a signal could end it, but nobody sends one to a work item.
        let _ = self.sleeper.wait(is_quiet);
        drop(timer);
    }
}

#[kunit_tests(scif_sync_lull)]
mod tests {
    use super::*;
    use kernel::sync::ArcBorrow;

    /// Something is found in each of the first ticks.
    const FRUITFUL: u64 = 3;

    #[pin_data]
    struct Finder {
        ticks: Atomic<u64>,
        #[pin]
        lull: Lull,
    }

    impl Tick for Finder {
        fn tick(this: ArcBorrow<'_, Self>) {
            let before = this.ticks.fetch_add(1, Relaxed);
            this.lull.note((before + 1).min(FRUITFUL));
        }
    }

    #[test]
    fn it_sleeps_as_long_as_something_is_found() -> Result {
        let finder = Arc::pin_init(
            pin_init!(Finder {
                ticks: Atomic::new(0),
                lull <- Lull::new(),
            }),
            GFP_KERNEL,
        )?;
        finder.lull.sleep(&finder, 0);
        assert!(finder.ticks.load(Relaxed) > FRUITFUL);

        // Nothing more is, so a tick ends it, and nothing before.
        let before = finder.ticks.load(Relaxed);
        finder.lull.sleep(&finder, FRUITFUL);
        assert!(finder.ticks.load(Relaxed) > before);
        Ok(())
    }
}
