// SPDX-License-Identifier: GPL-2.0

//! Which DMA engines this node has got.
//!
//! Channels are asked for when a path is made, up to as many as the administrator wants (`dma_channels`), and
//! kept until the module goes. One that has stopped is taken off the list. As long as there are fewer than
//! are wanted, who has a path asks again now and then ([`Engines::are_missing`]): a driver may be loaded later,
//! or bound again, and others may give a channel back, which nobody is told of. Not so after an engine has hung,
//! before the next path is made, and not while all links rest.
//!
//! Lock: `Engines::list`, see `scif_main.rs`.

use super::Engine;
use crate::{
    sync::work_queues::WorkQueues,
    sys::timer::{
        PeriodicTimer,
        Running, //
    },
};
use kernel::{
    fmt,
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        barrier,
        Arc,
        Mutex, //
    }, //
};

/// All engines that this node has got.
#[pin_data]
pub(crate) struct Engines {
    wanted: usize,
    queues: Arc<WorkQueues>,
    shortage: Arc<Shortage>,
    #[pin]
    list: Mutex<KVec<Listed>>,
    /// All links rest: none is asked for. Changed with `list`.
    is_resting: Atomic<bool>,
    /// What those have done that have stopped.
    stopped_bytes: Atomic<u64>,
    stopped_errors: Atomic<u64>,
}

struct Listed {
    // Stopped before the engine may go.
    _watchdog: Running<Engine>,
    engine: Arc<Engine>,
}

impl Listed {
    fn request(queues: &Arc<WorkQueues>, shortage: &Arc<Shortage>) -> Option<Self> {
        let engine = Engine::request(queues, shortage)?;
        Some(Self {
            _watchdog: PeriodicTimer::start(engine.clone()).ok()?,
            engine,
        })
    }
}

impl Engines {
    /// None yet; at most `wanted` later. May sleep.
    pub(crate) fn new(wanted: usize, queues: &Arc<WorkQueues>) -> Result<Arc<Self>> {
        let shortage = Shortage {
            is_short: Atomic::new(false),
            has_hung: Atomic::new(false),
            has_said: Atomic::new(false),
        };
        let shortage = Arc::new(shortage, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                wanted,
                queues: queues.clone(),
                shortage,
                list <- new_mutex!(KVec::new(), "Engines::list"),
                is_resting: Atomic::new(false),
                stopped_bytes: Atomic::new(0),
                stopped_errors: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes those off the list that have stopped: whoever uses them still has them. May sleep.
    fn remove_stopped(&self) {
        loop {
            let stopped = {
                let mut list = self.list.lock();
                let position = list.iter().position(|listed| listed.engine.has_stopped());
                position.and_then(|position| list.remove(position).ok())
            };
            // Dropped without the lock.
            let Some(Listed { engine, .. }) = stopped else {
                return;
            };
            self.count_stopped(&engine);
        }
    }

    /// Whether it is worth while to ask for engines now and then. Any context.
    pub(crate) fn are_missing(&self) -> bool {
        self.shortage.is_short.load(Relaxed) && !self.shortage.has_hung.load(Relaxed)
    }

    /// As [`Self::for_each_working`], for a path that is just being made. May sleep.
    pub(crate) fn for_each_at_first(&self, f: impl FnMut(&Arc<Engine>)) {
        self.shortage.has_hung.store(false, Relaxed);
        self.for_each_working(f);
    }

    /// Asks for those that are missing, and calls `f` with each, under a lock. May sleep.
    pub(crate) fn for_each_working(&self, mut f: impl FnMut(&Arc<Engine>)) {
        self.remove_stopped();
        let mut list = self.list.lock();
        while !self.is_resting.load(Relaxed) && list.len() < self.wanted {
            if list.reserve(1, GFP_KERNEL).is_err() {
                break;
            }
            let Some(listed) = Listed::request(&self.queues, &self.shortage) else {
                break;
            };
            // There is room.
            let _ = list.push_within_capacity(listed);
        }
        self.shortage.is_short.store(false, Relaxed);
        // An engine that stops says first that it has, and then that one is lost: one of the two is seen.
        barrier::smp_mb(barrier::Full);
        let working = list.iter().filter(|listed| !listed.engine.has_stopped());
        if working.count() < self.wanted {
            self.shortage.is_short.store(true, Relaxed);
        }
        for listed in list.iter() {
            f(&listed.engine);
        }
    }

    /// Shows what those that there are have copied, and what all have ever done: a line `name value` for each. May sleep.
    pub(crate) fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = self.stopped_bytes.load(Relaxed);
        let mut errors = self.stopped_errors.load(Relaxed);
        let list = self.list.lock();
        for (index, Listed { engine, .. }) in list.iter().enumerate() {
            let copied = engine.bytes.load(Relaxed);
            bytes += copied;
            errors += engine.errors.load(Relaxed);
            writeln!(f, "engine_{index}_bytes {copied}")?;
        }
        if list.is_empty() && bytes == 0 && errors == 0 {
            // There is none, and there never was one to speak of.
            return Ok(());
        }
        writeln!(f, "dma_channels {}", list.len())?;
        writeln!(f, "dma_bytes {bytes}\ndma_errors {errors}")
    }

    /// Stops them all, and gives them back; none is asked for until [`Self::ask_again`]. May sleep, for
    /// seconds where hardware does not answer.
    pub(crate) fn give_back(&self) {
        let list = {
            let mut list = self.list.lock();
            self.is_resting.store(true, Relaxed);
            core::mem::replace(&mut *list, KVec::new())
        };
        for listed in &list {
            listed.engine.give_back();
            self.count_stopped(&listed.engine);
        }
    }

    /// Paths may ask for engines again. May sleep.
    pub(crate) fn ask_again(&self) {
        let _list = self.list.lock();
        self.is_resting.store(false, Relaxed);
    }

    fn count_stopped(&self, engine: &Engine) {
        self.stopped_bytes.add(engine.bytes.load(Relaxed), Relaxed);
        self.stopped_errors
            .add(engine.errors.load(Relaxed), Relaxed);
    }
}

/// What says whether it is worth while to ask for engines.
pub(super) struct Shortage {
    /// There are fewer than are wanted, although all that there are have been asked for, or one is gone since then.
    pub(super) is_short: Atomic<bool>,
    /// One has stopped although its driver is there: asked for again it would stop again, and who uses it would
    /// have to wait. Or one is useless.
    pub(super) has_hung: Atomic<bool>,
    /// The log has it that one is useless.
    has_said: Atomic<bool>,
}

impl Shortage {
    /// Takes note that memory can't be mapped for the engine of this name. May sleep.
    pub(super) fn note_useless(&self, name: &CStr, error: &Error) {
        self.has_hung.store(true, Relaxed);
        if !self.has_said.xchg(true, Relaxed) {
            pr_warn!(
                "DMA engine {name} is not used: this host's memory can't be mapped for it ({error:?}); \
                 switch the IOMMU on, or load the driver of another engine\n"
            );
        }
    }
}
