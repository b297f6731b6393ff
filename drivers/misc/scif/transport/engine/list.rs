// SPDX-License-Identifier: GPL-2.0

//! The list of the DMA engines that this node has.
//!
//! Engines are requested when a path is made, up to the number that the administrator wants
//! (`dma_channels`), and kept until the module is unloaded. A stopped engine is removed from the
//! list.
//!
//! A driver may be loaded or bound again later, and another user may release a channel. No event
//! tells of either. So while engines are missing, an owner of a path asks again now and then
//! ([`Engines::are_missing`]). It does not ask again after an engine has hung, until the next path
//! is made, nor while all links rest.
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

/// The engines of this node.
#[pin_data]
pub(crate) struct Engines {
    wanted: usize,
    queues: Arc<WorkQueues>,
    shortage: Arc<Shortage>,
    #[pin]
    list: Mutex<KVec<Listed>>,
    /// Set while all links rest and no engine is requested. Changed under `list`.
    is_resting: Atomic<bool>,
    /// Bytes that stopped engines have copied.
    stopped_bytes: Atomic<u64>,
    /// Failed descriptors of stopped engines.
    stopped_errors: Atomic<u64>,
}

struct Listed {
    // Declared first, so that the timer is stopped before the engine is dropped.
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
    /// Creates an empty list for at most `wanted` engines.
    /// Context: may sleep.
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

    /// Removes stopped engines from the list. Their users keep their references.
    /// Context: may sleep.
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

    /// Returns whether an owner of a path has to ask for engines again now and then.
    /// Context: any.
    pub(crate) fn are_missing(&self) -> bool {
        self.shortage.is_short.load(Relaxed) && !self.shortage.has_hung.load(Relaxed)
    }

    /// Calls `f` like [`Self::for_each_working`], for a new path: engines are requested even if one
    /// has hung before.
    /// Context: may sleep.
    pub(crate) fn for_each_at_first(&self, f: impl FnMut(&Arc<Engine>)) {
        self.shortage.has_hung.store(false, Relaxed);
        self.for_each_working(f);
    }

    /// Requests the missing engines, and calls `f` with each engine of the list, under a lock.
    /// Context: may sleep.
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
            // Does not fail: room was reserved above.
            let _ = list.push_within_capacity(listed);
        }
        self.shortage.is_short.store(false, Relaxed);
        // Pairs with the order in which an engine stops: it sets `stopped` first, then `is_short`.
        // So this function sees `stopped`, or the engine's store to `is_short` comes after the one
        // above.
        barrier::smp_mb(barrier::Full);
        let working = list.iter().filter(|listed| !listed.engine.has_stopped());
        if working.count() < self.wanted {
            self.shortage.is_short.store(true, Relaxed);
        }
        for listed in list.iter() {
            f(&listed.engine);
        }
    }

    /// Shows the bytes that each engine of the list has copied, and the sums over all engines, one
    /// `name value` per line.
    /// Context: may sleep.
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
            // There is no engine, and none has ever copied anything.
            return Ok(());
        }
        writeln!(f, "dma_channels {}", list.len())?;
        writeln!(f, "dma_bytes {bytes}\ndma_errors {errors}")
    }

    /// Stops all engines and gives their channels back. No engine is requested until
    /// [`Self::ask_again`].
    /// Context: may sleep, for seconds if hardware does not answer.
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

    /// Allows paths to request engines again.
    /// Context: may sleep.
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

/// Flags that tell whether to request engines again.
pub(super) struct Shortage {
    /// Set if there are fewer engines than wanted although all available ones were requested, or if
    /// an engine is gone since.
    pub(super) is_short: Atomic<bool>,
    /// Set if an engine has stopped although its driver is bound, or is useless. Requested again,
    /// it would stop again, and its users would have to wait.
    pub(super) has_hung: Atomic<bool>,
    /// Whether the module has logged that an engine is useless.
    has_said: Atomic<bool>,
}

impl Shortage {
    /// Notes that memory can't be mapped for the engine of this name, and logs it once.
    /// Context: may sleep.
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
