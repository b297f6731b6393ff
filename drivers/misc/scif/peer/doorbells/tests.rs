// SPDX-License-Identifier: GPL-2.0

//! Tests of the doorbell interrupt, with a control block that the test marks in the peer's place.

use super::{
    Block,
    DoorbellHandler,
    Doorbells,
    News,
    Subscription,
    MOST_AT_A_TIME, //
};
use crate::{
    logic::{
        control_block::LARGEST,
        envelope::ChannelId, //
    },
    sync::work_queues::WorkQueues,
    sys::shared_memory::{
        MemoryUser,
        Payer,
        SharedMemory, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// One of the doorbells for data, as a bit.
const DATA: u64 = 1 << 2;

/// Number of no CPU.
const ELSEWHERE: u32 = u32::MAX - 1;

struct Counter(Atomic<u32>);

impl DoorbellHandler for Counter {
    fn on_doorbell(&self) {
        self.0.add(1, Relaxed);
    }
}

fn counter() -> Result<Arc<Counter>> {
    Ok(Arc::new(Counter(Atomic::new(0)), GFP_KERNEL)?)
}

fn doorbells(existing: u64) -> Result<Arc<Doorbells>> {
    let block = SharedMemory::new(LARGEST.size(), &MemoryUser::Physical, Payer::None)?;
    let own = Block {
        place: Arc::new(block, GFP_KERNEL)?,
        geometry: LARGEST,
    };
    let peers = Block {
        place: 0,
        geometry: LARGEST,
    };
    Doorbells::new(existing, own, peers, &WorkQueues::new()?)
}

/// Marks a channel as the peer does.
fn mark(doorbells: &Doorbells, channel: u32) -> Result {
    mark_in(&doorbells.block, doorbells.news, channel)
}

fn mark_in(block: &SharedMemory, news: News, channel: u32) -> Result {
    let (slot, group) = news.places(news.slot(channel));
    block.write(news.start() + slot, &[1])?;
    block.write(news.start() + group, &[1])
}

/// A channel that the peer marks again as soon as its subscriber was notified.
struct Marking {
    block: Arc<SharedMemory>,
    news: News,
    id: u32,
    told: Arc<Counter>,
}

impl DoorbellHandler for Marking {
    fn on_doorbell(&self) {
        self.told.on_doorbell();
        let _ = mark_in(&self.block, self.news, self.id);
    }
}

/// Subscribes the counter to the channels with the ids from 1 to `count`.
fn subscribe(
    doorbells: &Arc<Doorbells>,
    count: u32,
    counter: &Arc<Counter>,
) -> Result<KVVec<Subscription>> {
    subscribe_all(doorbells, 1..=count, counter)
}

/// Subscribes the counter to the channels with these ids.
fn subscribe_all(
    doorbells: &Arc<Doorbells>,
    ids: impl Iterator<Item = u32>,
    counter: &Arc<Counter>,
) -> Result<KVVec<Subscription>> {
    let mut subscriptions = KVVec::new();
    for id in ids {
        let subscription = Subscription::to_channel(doorbells, ChannelId(id), counter.clone())?;
        subscriptions.push(subscription, GFP_KERNEL)?;
    }
    Ok(subscriptions)
}

#[kunit_tests(scif_peer_doorbells)]
mod cases {
    use super::*;

    #[test]
    fn data_doorbells_end_at_the_first_missing_one() -> Result {
        let some = doorbells(0b1011_1111)?;
        let for_data = (0..8).filter(|number| some.is_for_data(*number));
        assert!(for_data.eq(2..6));
        assert!((0..5)
            .map(|channel| some.for_data(channel))
            .eq([2, 3, 4, 5, 2]));
        assert!(!doorbells(0b11)?.is_for_data(2));
        Ok(())
    }

    #[test]
    fn interrupt_notifies_subscribers_of_marked_slots_only() -> Result {
        let (doorbells, idle, busy) = (doorbells(0xff)?, counter()?, counter()?);
        let all = subscribe(&doorbells, 10_000, &idle)?;
        let id = ChannelId(10_001);
        let one = Subscription::to_channel(&doorbells, id, busy.clone())?;
        doorbells.rang(DATA);
        assert_eq!((busy.0.load(Relaxed), idle.0.load(Relaxed)), (0, 0));
        mark(&doorbells, id.0)?;
        doorbells.rang(DATA);
        // Two other channels have the same slot.
        assert_eq!((busy.0.load(Relaxed), idle.0.load(Relaxed)), (1, 2));
        doorbells.rang(DATA);
        assert_eq!(busy.0.load(Relaxed), 1);
        drop(one);
        mark(&doorbells, id.0)?;
        doorbells.rang(DATA);
        assert_eq!((busy.0.load(Relaxed), idle.0.load(Relaxed)), (1, 4));
        drop(all);
        assert!(doorbells.inner.lock().of_channels.is_empty());
        Ok(())
    }

    #[test]
    fn marks_in_all_slots_are_handled_in_limited_batches() -> Result {
        const ALL: u32 = 3000;
        let (doorbells, told) = (doorbells(0xff)?, counter()?);
        let _all = subscribe(&doorbells, ALL, &told)?;
        (1..=ALL).try_for_each(|id| mark(&doorbells, id))?;
        assert!(doorbells.look_at_some(0).is_some());
        assert_eq!(told.0.load(Relaxed) as usize, MOST_AT_A_TIME);
        doorbells.rang(DATA);
        doorbells.queues.work.flush();
        assert_eq!(told.0.load(Relaxed), ALL);
        Ok(())
    }

    #[test]
    fn slot_with_many_channels_does_not_starve_other_slots() -> Result {
        const ALL: u32 = 3000;
        const MOST: u32 = MOST_AT_A_TIME as u32;
        let (doorbells, told, other) = (doorbells(0xff)?, counter()?, counter()?);
        let slots = doorbells.news.slots();
        let ids = (1..=ALL).map(|index| index * slots + 1);
        let _all = subscribe_all(&doorbells, ids, &told)?;
        let _other = Subscription::to_channel(&doorbells, ChannelId(2), other.clone())?;
        mark(&doorbells, 1)?;
        for times in 1..=2 {
            assert!(doorbells.look_at_some(0).is_some());
            assert_eq!(told.0.load(Relaxed), times * MOST);
        }
        // Marks that come meanwhile are seen, and the slot is not served anew before others had
        // their turn.
        mark(&doorbells, 1)?;
        mark(&doorbells, 2)?;
        while other.0.load(Relaxed) == 0 {
            assert!(doorbells.look_at_some(0).is_some());
            assert!(told.0.load(Relaxed) < ALL + MOST);
        }
        doorbells.rang(DATA);
        doorbells.queues.work.flush();
        assert_eq!((told.0.load(Relaxed), other.0.load(Relaxed)), (2 * ALL, 1));
        Ok(())
    }

    #[test]
    fn subscriber_that_marks_endlessly_does_not_block_the_worker() -> Result {
        const ALL: u32 = 100;
        let (doorbells, told) = (doorbells(0xff)?, counter()?);
        let mut all = KVVec::new();
        for id in 1..=ALL {
            let marking = Marking {
                block: doorbells.block.clone(),
                news: doorbells.news,
                id,
                told: told.clone(),
            };
            let marking = Arc::new(marking, GFP_KERNEL)?;
            let one = Subscription::to_channel(&doorbells, ChannelId(id), marking)?;
            all.push(one, GFP_KERNEL)?;
            mark(&doorbells, id)?;
        }
        doorbells.rang(DATA);
        doorbells.queues.work.flush();
        let once = told.0.load(Relaxed);
        assert!((ALL..10 * ALL).contains(&once));
        doorbells.queues.work.flush();
        assert_eq!(told.0.load(Relaxed), once);
        // A tick begins a new round.
        doorbells.look_again();
        doorbells.queues.work.flush();
        assert!(told.0.load(Relaxed) >= once + ALL);
        Ok(())
    }

    #[test]
    fn missed_mark_is_found_at_the_next_tick() -> Result {
        let (doorbells, told) = (doorbells(0xff)?, counter()?);
        let _one = subscribe(&doorbells, 1, &told)?;
        mark(&doorbells, 1)?;
        assert_eq!(doorbells.look_again(), 0);
        assert_eq!(told.0.load(Relaxed), 1);
        // The memory now has another owner.
        doorbells.retire();
        mark(&doorbells, 1)?;
        doorbells.look_again();
        assert_eq!(told.0.load(Relaxed), 1);
        Ok(())
    }

    #[test]
    fn better_doorbell_is_one_that_rings_on_this_cpu() -> Result {
        let doorbells = doorbells(0xff)?;
        // The doorbell has not rung.
        assert!(doorbells.better_here(2, 0).is_none());
        doorbells.steering.rings_on(2, ELSEWHERE);
        assert_eq!(doorbells.better_here(2, 0), Some(3));
        assert!(doorbells.better_here(3, 0).is_none());
        Ok(())
    }
}
