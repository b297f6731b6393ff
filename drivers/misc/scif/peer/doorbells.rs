// SPDX-License-Identifier: GPL-2.0

//! The doorbells of a path, and the subscribers that are notified when one rings.
//!
//! There are fewer doorbells than channels. So the peer first marks the channel in this node's
//! control block (`logic/news.rs`), where an interrupt finds the mark, whichever doorbell rang. A
//! channel without news costs nothing, however many channels there are. Slots for marks are fewer
//! than channels, too, and channels share them evenly (`channel_table.rs`). One scan notifies at
//! most [`MOST_AT_A_TIME`] subscribers, even of one slot. A work item does the rest, and the next
//! scan goes on where the last one stopped. The work item ends after one round, as a peer may mark
//! for ever.
//!
//! News that is not about a channel has a doorbell of its own, whose subscriber is notified each
//! time it rings.
//!
//! # Rings while a doorbell is cleared
//!
//! A device interrupts when a doorbell's bit becomes set. The store that clears the bit takes time
//! to reach the device. A ring in between finds the bit set, and is wiped out with it, after the
//! subscriber has read its memory. A load from the device in each interrupt would prevent that, but
//! would cost more than the rest of the interrupt. So the next two ticks read the marks again, and
//! notify the subscriber of the doorbell again ([`Doorbells::look_again`]). One tick is not enough:
//! it may follow at once, with the store still in flight. A ring that is wiped out, which almost
//! never happens, is thus late and not lost.
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

/// A subscriber that is notified when a doorbell has rung.
pub(crate) trait DoorbellHandler: Send + Sync {
    /// Handles a doorbell, which may be meant for another subscriber.
    /// Context: hard interrupt.
    fn on_doorbell(&self);
}

/// Most subscribers that one scan notifies, with interrupts off.
const MOST_AT_A_TIME: usize = 32;

/// The source of the events that a subscriber is notified of.
#[derive(Clone, Copy)]
enum EventSource {
    /// A doorbell.
    Doorbell(u32),
    /// News of a channel, by its key: slot and id.
    Channel(u64),
}

struct Inner {
    /// The subscriber of each doorbell.
    of_doorbells: [Option<Arc<dyn DoorbellHandler>>; doorbell::COUNT],
    /// The subscriber of each channel's news, by the channel's key.
    of_channels: RBTree<u64, Arc<dyn DoorbellHandler>>,
    /// Doorbells that have rung since the last tick, as bits.
    recent: u64,
    older: u64,
    /// Key at which the next scan begins. If the key names a channel, its slot was marked, and the
    /// subscribers before that channel were notified.
    next: u64,
    /// Number of completed rounds over all slots.
    rounds: u32,
    /// Whether the block is retired: the peer can't write to it any more, and its memory may be
    /// reused.
    is_over: bool,
}

/// The doorbells of the path to one peer.
#[pin_data]
pub(crate) struct Doorbells {
    /// The doorbells that exist, as bits.
    existing: u64,
    /// The existing doorbells that announce data, as bits without a gap.
    data: u64,
    steering: Steering,
    /// Control block in which the peer marks channels of this node, at the places of `news`.
    block: Arc<SharedMemory>,
    pub(crate) news: News,
    /// Bus address, on the peer's bus, at which this node marks channels of the peer.
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

    /// Scans until all slots were read. A mark that comes meanwhile has a doorbell that rings, or
    /// waits for the next tick.
    fn run(this: Arc<Self>) {
        let mut begun = None;
        while let Some(rounds) = this.look_at_some(0) {
            // The first round may have begun in the middle.
            if rounds.wrapping_sub(*begun.get_or_insert(rounds)) > 1 {
                return;
            }
            current::reschedule();
        }
    }
}

/// The marks in a control block that the peer writes to.
struct Marked<'a>(&'a SharedMemory);

// Accesses can't fail: marks lie in the block, and words of them are aligned.
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
    /// Notifies the subscribers of the doorbells `numbers`, as bits.
    fn tell_of_doorbells(&self, numbers: u64) {
        for number in doorbell::numbers(numbers) {
            if let Some(Some(subscriber)) = self.of_doorbells.get(number as usize) {
                subscriber.on_doorbell();
            }
        }
    }

    /// Notifies the subscribers in the slot of `from`, starting at `from`, and decrements `left`
    /// for each. Returns the first key that was not served because `left` was 0.
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
            subscriber.on_doorbell();
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

/// The place and the geometry of a control block.
pub(super) struct Block<T> {
    pub(super) place: T,
    pub(super) geometry: ControlGeometry,
}

impl Doorbells {
    /// Creates the doorbells `existing`, as bits. `peers` is the peer's control block, as a bus
    /// address of the peer.
    /// Context: may sleep.
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

    /// Returns whether both the peer and this side have the doorbell `number`.
    pub(crate) fn exists(&self, number: u32) -> bool {
        self.existing & doorbell::bit(number) != 0
    }

    /// Chooses the doorbell for data of the channel with this number. Channels spread over all
    /// doorbells for data.
    pub(crate) fn for_data(&self, channel: u32) -> u32 {
        doorbell::DATA + channel % self.data.count_ones().max(1)
    }

    /// Returns the number of doorbells for data, at least 1.
    pub(crate) fn count_for_data(&self) -> u32 {
        self.data.count_ones().max(1)
    }

    /// Returns whether the doorbell announces data.
    pub(crate) fn is_for_data(&self, number: u32) -> bool {
        self.data & doorbell::bit(number) != 0
    }

    /// Returns a doorbell that wakes the caller better than `current`, if there is one (see
    /// `logic/doorbells.rs`). Different channels get different doorbells. The caller may move to
    /// another CPU a moment later, which does no harm.
    pub(crate) fn better_here(&self, current: u32, channel: u32) -> Option<u32> {
        let processor = CpuId::current().as_u32();
        self.steering.better(self.data, current, processor, channel)
    }

    /// Marks the peer's end of a channel and rings a doorbell of the peer. The caller is inside the
    /// peer, as the marks may not be mapped outside. It has ordered its earlier writes to the peer
    /// before this call.
    /// Context: any.
    pub(crate) fn ring_for(&self, path: &dyn Path, channel: ChannelId, number: u32) {
        let (slot, group) = self.peer_news.places(self.peer_news.slot(channel.0));
        // The control block was reached when the session began.
        if let Ok(marks) = path.reach(self.peer_marks, self.peer_news.size() as u64) {
            let _ = marks.write_u8(slot, 1);
            // A reader that has not seen this mark must not take away the next one.
            barrier::mb(barrier::Full);
            let _ = marks.write_u8(group, 1);
        }
        path.ring(number);
    }

    /// Handles a ring of the doorbells `numbers`, as bits.
    /// Context: any, hard interrupts included.
    pub(super) fn rang(self: &Arc<Self>, numbers: u64) {
        let processor = CpuId::current().as_u32();
        for number in doorbell::numbers(numbers) {
            self.steering.rings_on(number, processor);
        }
        self.look(numbers);
    }

    /// Notifies the subscribers of the doorbells that have rung since the last tick but one.
    /// Returns these doorbells, as bits.
    /// Context: any, hard interrupts included.
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

    /// Notifies the subscribers of the doorbells `rang`, as bits, and those of channels with news.
    /// Context: any, hard interrupts included.
    fn look(self: &Arc<Self>, rang: u64) {
        if self.look_at_some(rang).is_some() {
            // An error means that the work is already pending.
            let _ = self.queues.work.enqueue(self.clone());
        }
    }

    /// Notifies as [`Self::look`] does, but does not schedule the rest. If some is left, returns
    /// the number of the current round.
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
            // The slot may be marked again, and is then served after the others.
            slot += 1;
        }
        let mut next = rest;
        if rest.is_none() {
            let stopped = self.news.take(&Marked(&self.block), slot, |slot| {
                // A slot without subscribers costs time, too, so it counts as one notification.
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

    /// Stops reading the block, whose memory may get another owner.
    pub(super) fn retire(&self) {
        self.inner.lock().is_over = true;
    }
}

/// A subscription, which lasts until it is dropped.
pub(crate) struct Subscription {
    doorbells: Arc<Doorbells>,
    source: EventSource,
}

impl Subscription {
    /// Subscribes to the doorbell `number`.
    ///
    /// # Errors
    ///
    /// - EINVAL: there can be no doorbell with this number.
    /// - EBUSY: the doorbell has a subscriber.
    pub(crate) fn new(
        doorbells: &Arc<Doorbells>,
        number: u32,
        subscriber: Arc<dyn DoorbellHandler>,
    ) -> Result<Self> {
        let mut inner = doorbells.inner.lock();
        let entry = inner.of_doorbells.get_mut(number as usize);
        let entry = entry.ok_or(EINVAL)?;
        if entry.is_some() {
            return Err(EBUSY);
        }
        *entry = Some(subscriber);
        drop(inner);
        Ok(Self {
            doorbells: doorbells.clone(),
            source: EventSource::Doorbell(number),
        })
    }

    /// Subscribes to news of a channel of this node, which has no other subscriber.
    /// Context: may sleep.
    pub(crate) fn to_channel(
        doorbells: &Arc<Doorbells>,
        id: ChannelId,
        subscriber: Arc<dyn DoorbellHandler>,
    ) -> Result<Self> {
        let key = key(doorbells.news.slot(id.0), id.0);
        let node = RBTreeNode::new(key, subscriber, GFP_KERNEL_ACCOUNT)?;
        let replaced = doorbells.inner.lock().of_channels.insert(node);
        drop(replaced);
        Ok(Self {
            doorbells: doorbells.clone(),
            source: EventSource::Channel(key),
        })
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut inner = self.doorbells.inner.lock();
        let (doorbell, channel) = match self.source {
            EventSource::Doorbell(number) => {
                let entry = inner.of_doorbells.get_mut(number as usize);
                (entry.and_then(Option::take), None)
            }
            EventSource::Channel(key) => (None, inner.of_channels.remove_node(&key)),
        };
        // Drops the subscriber without the lock.
        drop(inner);
        drop((doorbell, channel));
    }
}
