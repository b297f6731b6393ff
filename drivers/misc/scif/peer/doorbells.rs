// SPDX-License-Identifier: GPL-2.0

//! Who is told of the doorbells of a path.
//!
//! There are fewer doorbells than channels, so who rings for a channel has marked it in this node's control block
//! (`logic/news.rs`), where an interrupt finds it, whichever doorbell it was that rang. So a channel without
//! news costs nothing, however many there are. Marks are fewer, too, and channels share them
//! evenly (`channel_table.rs`). [`MOST_AT_A_TIME`] are told at a time, even of one slot; what is left is for a work item,
//! and whoever looks next goes on there. The work item ends when it has told all once, as a peer may mark for ever.
//!
//! What is not about a channel is told of one doorbell, each time that rings.
//!
//! # What rings while a doorbell is cleared
//!
//! A device interrupts when a doorbell's bit becomes set. The store that clears it takes its time to get
//! there; what rings meanwhile finds it set still, and is wiped out with it, while whoever was told has
//! looked at its memory already. A load from the device in each interrupt would prevent that, and cost more than
//! all the rest of it. So marks are looked at again at the next two ticks, and whoever was told of a doorbell is told
//! again ([`Doorbells::look_again`]; the
//! first may follow at once, with the store still on its way): what almost never happens is late then, and
//! not lost.
//!
//! Lock: `inner`, taken in interrupts; see `scif_main.rs`.

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use crate::{
    logic::{
        control_block::ControlGeometry,
        doorbells::Steering,
        envelope::ChannelId,
        news::{
            Marks,
            News, //
        },
    },
    sync::work_queues::WorkQueues,
    sys::{
        current,
        shared_memory::SharedMemory, //
    },
    transport::{
        doorbell,
        path::Path, //
    },
};
use kernel::{
    cpu::CpuId,
    impl_has_work, new_spinlock_irq, new_work,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        barrier,
        Arc,
        SpinLockIrq, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Who is told that a doorbell has rung.
pub(crate) trait Rung: Send + Sync {
    /// It rang, maybe for another. Hard interrupt context.
    fn rung(&self);
}

/// So many are told at a time with interrupts off.
const MOST_AT_A_TIME: usize = 32;

/// Of what somebody is told.
#[derive(Clone, Copy)]
enum Place {
    /// A doorbell.
    Doorbell(u32),
    /// The news of a channel, by its slot, and then its id.
    Channel(u64),
}

struct Inner {
    /// Who is told of a doorbell.
    of_doorbells: [Option<Arc<dyn Rung>>; doorbell::COUNT],
    /// Who is told of news.
    of_channels: RBTree<u64, Arc<dyn Rung>>,
    /// Those that have rung since the last tick, as bits, and between that and the one before.
    recent: u64,
    older: u64,
    /// The slot that is looked at next; with a channel, it was marked, and those before the channel were told.
    next: u64,
    /// How often all slots were looked at since the first.
    rounds: u32,
    /// The peer can't write to the block any more, and others may.
    is_over: bool,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Doorbells {
    /// Those that exist, as bits.
    existing: u64,
    /// Those of them that announce data, without a gap.
    data: u64,
    steering: Steering,
    /// In which the peer marks channels of this node, and where.
    block: Arc<SharedMemory>,
    pub(crate) news: News,
    /// Where this node marks channels of the peer.
    peer_marks: u64,
    peer_news: News,
    queues: Arc<WorkQueues>,
    #[pin]
    inner: SpinLockIrq<Inner>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Doorbells { self.work }
}

impl WorkItem for Doorbells {
    type Pointer = Arc<Self>;

    /// Goes on until all slots were looked at. Marks that come meanwhile have a doorbell that rings, or wait for the
    /// next tick.
    fn run(this: Arc<Self>) {
        let mut begun = None;
        while let Some(rounds) = this.look_at_some(0) {
            // The first round has begun somewhere.
            if rounds.wrapping_sub(*begun.get_or_insert(rounds)) > 1 {
                return;
            }
            current::reschedule();
        }
    }
}

/// A control block that the peer marks.
struct Marked<'a>(&'a SharedMemory);

// Marks lie in the block, and words of them are aligned, so there are no errors.
impl Marks for Marked<'_> {
    fn load(&self, at: usize) -> u64 {
        self.0.read_u64(at).unwrap_or(0)
    }

    fn store(&self, at: usize, mark: u8) {
        let _ = self.0.write(at, &[mark]);
        barrier::mb(barrier::Full);
    }
}

impl Inner {
    /// Tells who is told of doorbells, as bits.
    fn tell_of_doorbells(&self, numbers: u64) {
        for number in doorbell::numbers(numbers) {
            if let Some(Some(subscriber)) = self.of_doorbells.get(number as usize) {
                subscriber.rung();
            }
        }
    }

    /// Tells those whose channels have the slot of `from`, from there on, and counts them down. Returns the first one for
    /// which nothing was `left`.
    fn tell_of_slot(&mut self, from: u64, left: &mut usize) -> Option<u64> {
        let mut next = self.of_channels.cursor_lower_bound_mut(&from);
        while let Some(cursor) = next {
            let (key, subscriber) = cursor.current();
            if slot_of(*key) != slot_of(from) {
                break;
            }
            if *left == 0 {
                return Some(*key);
            }
            subscriber.rung();
            *left -= 1;
            next = cursor.move_next();
        }
        None
    }
}

fn key(slot: u32, channel: u32) -> u64 {
    u64::from(slot) << u32::BITS | u64::from(channel)
}

fn slot_of(key: u64) -> u32 {
    (key >> u32::BITS) as u32
}

/// A control block, for its news: where it lies, and its geometry.
pub(super) struct Block<T> {
    pub(super) place: T,
    pub(super) geometry: ControlGeometry,
}

impl Doorbells {
    /// Those that are `existing`, as bits, with a peer whose control block, as a bus address of the peer, is `peers`.
    /// May sleep.
    pub(super) fn new(
        existing: u64,
        own: Block<Arc<SharedMemory>>,
        peers: Block<u64>,
        queues: &Arc<WorkQueues>,
    ) -> Result<Arc<Self>> {
        let data = existing >> doorbell::DATA;
        let data = (data & !data.wrapping_add(1)) << doorbell::DATA;
        let peer_news = peers.geometry.news();
        Arc::pin_init(
            pin_init!(Self {
                existing,
                data,
                steering: Steering::new(),
                block: own.place,
                news: own.geometry.news(),
                peer_marks: peers.place + peer_news.start() as u64,
                peer_news,
                queues: queues.clone(),
                inner <- new_spinlock_irq!(
                    Inner {
                        of_doorbells: [const { None }; doorbell::COUNT],
                        of_channels: RBTree::new(),
                        recent: 0,
                        older: 0,
                        next: 0,
                        rounds: 0,
                        is_over: false,
                    },
                    "Doorbells::inner"
                ),
                work <- new_work!("Doorbells::work"),
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

    /// The doorbell that is to wake the caller in the place of `current`, if there is a better one than that: see
    /// `logic/doorbells.rs`. Those of other channels get others. The caller may be on another processor a
    /// moment later, which does not hurt.
    pub(crate) fn better_here(&self, current: u32, channel: u32) -> Option<u32> {
        let processor = CpuId::current().as_u32();
        self.steering.better(self.data, current, processor, channel)
    }

    /// Rings a doorbell of the peer, for its end of a channel. The caller is inside the peer, without which the marks may
    /// not be mapped any more, and what it has written before does not overtake what it writes now. Any context.
    pub(crate) fn ring_for(&self, path: &dyn Path, channel: ChannelId, number: u32) {
        let (slot, group) = self.peer_news.places(self.peer_news.slot(channel.0));
        // The control block was reached when the session began.
        if let Ok(marks) = path.reach(self.peer_marks, self.peer_news.size() as u64) {
            let _ = marks.write_u8(slot, 1);
            // A reader that has not seen this mark does not take away the next one.
            barrier::mb(barrier::Full);
            let _ = marks.write_u8(group, 1);
        }
        path.ring(number);
    }

    /// These rang, as bits. Hard interrupt context, or any other.
    pub(super) fn rang(self: &Arc<Self>, numbers: u64) {
        let processor = CpuId::current().as_u32();
        for number in doorbell::numbers(numbers) {
            self.steering.rings_on(number, processor);
        }
        self.look(numbers);
    }

    /// Tells those of what has rung since the last time but one; returns which doorbells, as bits. Hard
    /// interrupt context, or any other.
    pub(super) fn look_again(self: &Arc<Self>) -> u64 {
        let due = {
            let mut inner = self.inner.lock();
            let recent = core::mem::take(&mut inner.recent);
            let due = recent | core::mem::replace(&mut inner.older, recent);
            inner.tell_of_doorbells(due);
            due
        };
        self.look(0);
        due
    }

    /// Tells who is told of doorbells that have just rung, as bits, and who has news. Hard interrupt context, or any
    /// other.
    fn look(self: &Arc<Self>, rang: u64) {
        if self.look_at_some(rang).is_some() {
            // An error says that the work is pending already.
            let _ = self.queues.work.enqueue(self.clone());
        }
    }

    /// As [`Self::look`], but for what is too much at a time: then it returns the number of the round.
    fn look_at_some(&self, rang: u64) -> Option<u32> {
        let mut inner = self.inner.lock();
        if inner.is_over {
            return None;
        }
        inner.recent |= rang;
        inner.tell_of_doorbells(rang);
        let (from, mut left) = (inner.next, MOST_AT_A_TIME);
        let (mut slot, mut rest) = (slot_of(from), None);
        if from != key(slot, 0) {
            rest = inner.tell_of_slot(from, &mut left);
            // Its mark may be there again, and has its turn after the others.
            slot += 1;
        }
        let mut next = rest;
        if rest.is_none() {
            let stopped = self.news.take(&Marked(&self.block), slot, |slot| {
                // A slot of nobody is work, too.
                let before = left;
                rest = inner.tell_of_slot(key(slot, 0), &mut left);
                left -= usize::from(left == before && left > 0);
                left > 0
            });
            next = stopped.map(|slot| rest.unwrap_or(key(slot, 0)));
        }
        inner.next = next.unwrap_or(0);
        if inner.next <= from {
            inner.rounds = inner.rounds.wrapping_add(1);
        }
        next.map(|_| inner.rounds)
    }

    /// Looks at the block no more: others may get its memory.
    pub(super) fn retire(&self) {
        self.inner.lock().is_over = true;
    }
}

/// Has somebody told, until this is dropped.
pub(crate) struct Subscription {
    doorbells: Arc<Doorbells>,
    place: Place,
}

impl Subscription {
    /// Has `subscriber` told whenever doorbell `number` rings. EINVAL for a number that can't be, EBUSY if another is
    /// told of that.
    pub(crate) fn new(
        doorbells: &Arc<Doorbells>,
        number: u32,
        subscriber: Arc<dyn Rung>,
    ) -> Result<Self> {
        let mut inner = doorbells.inner.lock();
        let place = inner.of_doorbells.get_mut(number as usize);
        let place = place.ok_or(EINVAL)?;
        if place.is_some() {
            return Err(EBUSY);
        }
        *place = Some(subscriber);
        drop(inner);
        Ok(Self {
            doorbells: doorbells.clone(),
            place: Place::Doorbell(number),
        })
    }

    /// Has `subscriber` told of news for this channel of this node, of which nobody else is told. May sleep.
    pub(crate) fn to_channel(
        doorbells: &Arc<Doorbells>,
        id: ChannelId,
        subscriber: Arc<dyn Rung>,
    ) -> Result<Self> {
        let key = key(doorbells.news.slot(id.0), id.0);
        let node = RBTreeNode::new(key, subscriber, GFP_KERNEL_ACCOUNT)?;
        let replaced = doorbells.inner.lock().of_channels.insert(node);
        drop(replaced);
        Ok(Self {
            doorbells: doorbells.clone(),
            place: Place::Channel(key),
        })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut inner = self.doorbells.inner.lock();
        let (doorbell, channel) = match self.place {
            Place::Doorbell(number) => {
                let place = inner.of_doorbells.get_mut(number as usize);
                (place.and_then(Option::take), None)
            }
            Place::Channel(key) => (None, inner.of_channels.remove_node(&key)),
        };
        // Neither goes under the lock.
        drop(inner);
        drop((doorbell, channel));
    }
}
