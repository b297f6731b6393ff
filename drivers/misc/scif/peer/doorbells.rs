// SPDX-License-Identifier: GPL-2.0

//! Who waits for which doorbell of a path.
//!
//! There are fewer doorbells than channels: those that announce data are shared out, and whoever
//! shares one is told whenever it rings.
//!
//! # What rings while a doorbell is cleared
//!
//! A device interrupts when a doorbell's bit becomes set. The store that clears it takes its time to get
//! there; what rings meanwhile finds it set still, and is wiped out with it, while whoever was told has
//! looked at its memory already. A load from the device in each interrupt would prevent that, and cost more than
//! all the rest of it. So whoever was told is told again at the next two ticks ([`Doorbells::look_again`]; the
//! first may follow at once, with the store still on its way): what almost never happens is late then, and
//! not lost.
//!
//! Lock: `inner`, taken in interrupts; see `scif_main.rs`.

use crate::{
    logic::doorbells::Steering,
    transport::doorbell, //
};
use kernel::{
    cpu::CpuId,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        SpinLockIrq, //
    },
};

/// Who is told of a doorbell.
pub(crate) trait Rung: Send + Sync {
    /// It rang, maybe for another. Hard interrupt context.
    fn rung(&self);
}

/// Those who wait for one doorbell.
type Subscribers = KVec<Arc<dyn Rung>>;

struct Inner {
    subscribers: [Subscribers; doorbell::COUNT],
    /// Those that have rung since the last tick, as bits, and between that and the one before.
    recent: u64,
    older: u64,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Doorbells {
    /// Those that exist, as bits.
    existing: u64,
    /// Those of them that announce data, without a gap.
    data: u64,
    steering: Steering,
    #[pin]
    inner: SpinLockIrq<Inner>,
}

impl Inner {
    fn tell(&self, number: u32) {
        for subscriber in self.subscribers.get(number as usize).into_iter().flatten() {
            subscriber.rung();
        }
    }
}

impl Doorbells {
    pub(super) fn new(existing: u64) -> Result<Arc<Self>> {
        let data = existing >> doorbell::DATA;
        let data = (data & !data.wrapping_add(1)) << doorbell::DATA;
        Arc::pin_init(
            pin_init!(Self {
                existing,
                data,
                steering: Steering::new(),
                inner <- new_spinlock_irq!(
                    Inner {
                        subscribers: [const { Subscribers::new() }; doorbell::COUNT],
                        recent: 0,
                        older: 0,
                    },
                    "Doorbells::inner"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether the peer, and this side, has such a doorbell.
    pub(crate) fn exists(&self, number: u32) -> bool {
        self.existing & doorbell::bit(number) != 0
    }

    /// Chooses the doorbell for data of the channel with this number: they spread over all that
    /// there are.
    pub(crate) fn for_data(&self, channel: u32) -> u32 {
        doorbell::DATA + channel % self.data.count_ones().max(1)
    }

    /// Whether it is one of those that announce data.
    pub(crate) fn is_for_data(&self, number: u32) -> bool {
        self.data & doorbell::bit(number) != 0
    }

    /// One rang. Hard interrupt context, or any other.
    pub(super) fn rang(&self, number: u32) {
        self.steering.rings_on(number, CpuId::current().as_u32());
        let mut inner = self.inner.lock();
        inner.recent |= doorbell::bit(number);
        inner.tell(number);
    }

    /// Tells those of what has rung since the last time but one; returns which doorbells, as bits. Hard
    /// interrupt context, or any other.
    pub(super) fn look_again(&self) -> u64 {
        let mut inner = self.inner.lock();
        let recent = core::mem::take(&mut inner.recent);
        let due = recent | core::mem::replace(&mut inner.older, recent);
        doorbell::numbers(due).for_each(|number| inner.tell(number));
        due
    }

    fn add(&self, number: u32, subscriber: Arc<dyn Rung>) -> Result {
        let mut inner = self.inner.lock();
        let list = inner.subscribers.get_mut(number as usize).ok_or(EINVAL)?;
        Ok(list.push(subscriber, GFP_ATOMIC)?)
    }

    fn remove(&self, number: u32, subscriber: &Arc<dyn Rung>) -> Option<Arc<dyn Rung>> {
        let mut inner = self.inner.lock();
        let list = inner.subscribers.get_mut(number as usize)?;
        let position = list
            .iter()
            .position(|other| core::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(subscriber)))?;
        list.remove(position).ok()
    }
}

/// Has somebody told of a doorbell, until this is dropped.
pub(crate) struct Subscription {
    doorbells: Arc<Doorbells>,
    number: u32,
    subscriber: Arc<dyn Rung>,
}

impl Subscription {
    /// Has `subscriber` told whenever doorbell `number` rings. EINVAL for a number that can't be.
    pub(crate) fn new(
        doorbells: &Arc<Doorbells>,
        number: u32,
        subscriber: Arc<dyn Rung>,
    ) -> Result<Self> {
        doorbells.add(number, subscriber.clone())?;
        Ok(Self {
            doorbells: doorbells.clone(),
            number,
            subscriber,
        })
    }

    /// As this one, for the doorbell that is to wake the caller in the place of `current`, if there is
    /// a better one than that, and its number: see `logic/doorbells.rs`. Those of other channels get others. The
    /// caller may be on another processor a moment later, which does not hurt.
    pub(crate) fn better_here(&self, current: Option<&Self>, channel: u32) -> Option<(Self, u32)> {
        let (doorbells, processor) = (&self.doorbells, CpuId::current().as_u32());
        let current = current.map_or(self.number, |current| current.number);
        let steering = &doorbells.steering;
        let number = steering.better(doorbells.data, current, processor, channel)?;
        // Without memory it stays as it is.
        let better = Self::new(doorbells, number, self.subscriber.clone()).ok()?;
        Some((better, number))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let removed = self.doorbells.remove(self.number, &self.subscriber);
        drop(removed);
    }
}

#[kunit_tests(scif_peer_doorbells)]
mod tests {
    use super::*;
    use kernel::sync::atomic::{
        Atomic,
        Relaxed, //
    };

    /// No processor has this number.
    const ELSEWHERE: u32 = u32::MAX - 1;

    struct Counter(Atomic<u32>);

    impl Rung for Counter {
        fn rung(&self) {
            self.0.add(1, Relaxed);
        }
    }

    fn counter() -> Result<Arc<Counter>> {
        Ok(Arc::new(Counter(Atomic::new(0)), GFP_KERNEL)?)
    }

    #[test]
    fn data_has_doorbells_without_a_gap() -> Result {
        let doorbells = Doorbells::new(0b1011_1111)?;
        let for_data = (0..8).filter(|number| doorbells.is_for_data(*number));
        assert!(for_data.eq(2..6));
        assert!((0..5)
            .map(|channel| doorbells.for_data(channel))
            .eq([2, 3, 4, 5, 2]));
        assert!(!Doorbells::new(0b11)?.is_for_data(2));
        Ok(())
    }

    #[test]
    fn a_better_doorbell_is_heard_until_it_is_replaced() -> Result {
        let (doorbells, counter) = (Doorbells::new(0xff)?, counter()?);
        let first = Subscription::new(&doorbells, 2, counter.clone())?;
        // It has not rung.
        assert!(first.better_here(None, 0).is_none());
        doorbells.steering.rings_on(2, ELSEWHERE);
        let (better, number) = first.better_here(None, 0).ok_or(EINVAL)?;
        assert_eq!(number, 3);
        assert!(first.better_here(Some(&better), 0).is_none());
        doorbells.rang(3);
        assert_eq!(counter.0.load(Relaxed), 1);
        // The first one is heard as before.
        doorbells.rang(2);
        assert_eq!(counter.0.load(Relaxed), 2);
        drop(better);
        doorbells.rang(3);
        assert_eq!(counter.0.load(Relaxed), 2);
        drop(first);
        assert!(Arc::into_unique_or_drop(counter).is_some());
        Ok(())
    }
}
