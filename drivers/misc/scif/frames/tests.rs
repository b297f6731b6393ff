// SPDX-License-Identifier: GPL-2.0

//! Frame rings of this node with itself.
//!
//! This file has more than 500 lines because all cases share a bed of a node, its peer and a client.

use super::{
    buffers::{
        Buffers,
        MOST, //
    },
    rings::SLOTS,
    *, //
};
use crate::{
    logic::frame_ring::{
        FILLED,
        META, //
    },
    node::{
        Arrivals,
        Nodes, //
    },
    peer::Common,
    sync::work_queues::WorkQueues,
    sys::{
        current::bottom_halves_disabled,
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
    transport::{
        links::Links,
        loopback::Loopback,
        sink::Sink, //
    }, //
};
use kernel::{
    new_mutex,
    page::PAGE_SIZE,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed, //
        },
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// Id of the node. It shows a reader of the log that a test loses its peer.
const NODE: u16 = u16::MAX;
/// Number of pages that users hold at most.
const MOST_GIVEN: usize = MOST - SLOTS as usize / 2;
/// Time limit of a wait, so that a failing test does not hang.
const LIMIT: Delta = Delta::from_secs(30);

/// A client that records what it is told.
#[pin_data]
struct Record {
    #[pin]
    queues: Mutex<KVec<Arc<Queue>>>,
    rings: Atomic<u32>,
    ups: Atomic<u32>,
    downs: Atomic<u32>,
    removals: Atomic<u32>,
    /// The word that the peer's client has asked for last.
    asked: Atomic<u32>,
    /// The number of slots that the client wants, or 0.
    slots: Atomic<u32>,
    #[pin]
    changed: WaitQueue,
}

impl Record {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                queues <- new_mutex!(KVec::new(), "scif_test::Record::queues"),
                rings: Atomic::new(0),
                ups: Atomic::new(0),
                downs: Atomic::new(0),
                removals: Atomic::new(0),
                asked: Atomic::new(0),
                slots: Atomic::new(0),
                changed <- new_wait_queue!("scif_test::Record::changed"),
            }),
            GFP_KERNEL,
        )
    }

    /// Waits until a count has reached a value.
    fn wait(&self, count: &Atomic<u32>, value: u32) -> Result {
        let reached = || (count.load(Acquire) >= value).then_some(());
        let waited = self.changed.wait_uninterruptible_timeout(LIMIT, reached);
        waited.ok_or(ETIMEDOUT)
    }

    fn count(&self, count: &Atomic<u32>) {
        count.fetch_add(1, Relaxed);
        self.changed.wake_all();
    }
}

impl Client for Record {
    fn up(&self, queues: &[Arc<Queue>]) -> Result {
        let mut own = self.queues.lock();
        for queue in queues {
            own.push(queue.clone(), GFP_KERNEL)?;
        }
        drop(own);
        self.count(&self.ups);
        Ok(())
    }

    fn down(&self) {
        let queues = core::mem::replace(&mut *self.queues.lock(), KVec::new());
        drop(queues);
        self.count(&self.downs);
    }

    fn slots(&self) -> Option<u32> {
        Some(self.slots.load(Relaxed)).filter(|slots| *slots != 0)
    }

    fn asked(&self, word: u32) {
        self.asked.store(word, Relaxed);
        self.changed.wake_all();
    }

    fn remove(&self) {
        self.count(&self.removals);
    }

    fn rung(&self, _queue: usize) {
        self.count(&self.rings);
    }

    fn landed(&self, _queue: usize) {}
}

struct TestDriver(Arc<Record>);

impl Driver for TestDriver {
    fn attach(&self, peer: &PeerInfo) -> Result<Option<Arc<dyn Client>>> {
        if !peer.is_this || peer.queues != QUEUES {
            return Err(EINVAL);
        }
        let client: Arc<dyn Client> = self.0.clone();
        Ok(Some(client))
    }
}

const QUEUES: u32 = 2;

/// A node with frame rings to itself.
struct Bed {
    arrivals: Arc<Arrivals>,
    service: Arc<FrameService>,
    record: Arc<Record>,
    nodes: Arc<Nodes>,
    loopback: Loopback,
    queues: Arc<WorkQueues>,
}

impl Bed {
    /// Creates the node, with its rings joined.
    fn new() -> Result<Self> {
        let queues = WorkQueues::new()?;
        let nodes = Nodes::new(Some(NODE))?;
        let common = Common {
            queues: queues.clone(),
            observer: nodes.clone(),
            heartbeat_timeout: 10_000,
        };
        let arrivals = Arrivals::new(&nodes, common)?;
        let sink: Arc<dyn Sink> = arrivals.clone();
        let loopback = Loopback::start(&sink, &queues, &Links::new()?)?;
        let record = Record::new()?;
        let driver = Arc::new(TestDriver(record.clone()), GFP_KERNEL)?;
        let service = FrameService::new(driver, QUEUES)?;
        arrivals.add_service(service.clone())?;
        record.wait(&record.ups, 1)?;
        Ok(Self {
            arrivals,
            service,
            record,
            nodes,
            loopback,
            queues,
        })
    }

    /// Returns a queue whose buffers are posted, and whose receiver sleeps.
    fn queue(&self, number: usize) -> Result<Arc<Queue>> {
        let queue = self
            .record
            .queues
            .lock()
            .get(number)
            .cloned()
            .ok_or(EINVAL)?;
        // The drop posts the buffers.
        bottom_halves_disabled(|| queue.receiving().map(drop)).ok_or(ENODEV)?;
        bottom_halves_disabled(|| queue.receiving().ok_or(ENODEV)?.sleep())?;
        Ok(queue)
    }

    /// Removes the service.
    fn remove(&self) {
        self.arrivals.remove_service(ServiceId::NET);
        self.service.end();
    }

    /// Removes the service, and ends the node. EBUSY: something holds a link or the node.
    fn end(self) -> Result {
        self.remove();
        let removals = self.record.removals.load(Relaxed);
        let Self {
            arrivals,
            service,
            loopback,
            nodes,
            queues,
            ..
        } = self;
        drop((loopback, arrivals));
        queues.flush_all();
        let has_links = service.links.iter().next().is_some();
        let is_held = Arc::into_unique_or_drop(nodes).is_none();
        match removals == 1 && !has_links && !is_held {
            true => Ok(()),
            false => Err(EBUSY),
        }
    }
}

/// Puts a frame whose bytes count up from `first`, and publishes it.
fn send(queue: &Arc<Queue>, first: u8, len: u32) -> Result {
    bottom_halves_disabled(|| {
        let mut sending = queue.sending().ok_or(ENODEV)?;
        sending.put(len, &[first; META], |from, room| {
            for at in 0..room.size() {
                let byte = first.wrapping_add((from as usize + at) as u8);
                room.store(at, &[byte])?;
            }
            Ok(())
        })?;
        sending.publish()
    })
}

/// Takes a frame that [`send`] has sent. Gives its pages if `gives`. Returns its length and the
/// given pages. `None` if there is no frame. EIO: the frame is another one.
fn receive(queue: &Arc<Queue>, first: u8, gives: bool) -> Result<Option<(u32, KVec<GivenPage>)>> {
    bottom_halves_disabled(|| {
        let mut receiving = queue.receiving().ok_or(ENODEV)?;
        let Some(mut frame) = receiving.take_next()? else {
            return Ok(None);
        };
        let mut is_whole = frame.meta() == &[first; META];
        let (mut bytes, mut given, mut before) = ([0; 64], KVec::new(), 0);
        for piece in 0..frame.count() {
            let len = frame.len(piece);
            let count = len.min(bytes.len());
            let target = bytes.get_mut(..count).ok_or(EINVAL)?;
            frame.copy(piece, len - count, target.into())?;
            for (at, byte) in (before + len - count..).zip(bytes.iter().take(count)) {
                is_whole &= *byte == first.wrapping_add(at as u8);
            }
            before += len;
            if let Some(page) = gives.then(|| frame.give(piece)).flatten() {
                given.push(page, GFP_ATOMIC)?;
            }
        }
        is_whole &= before == frame.total() as usize;
        match is_whole {
            true => Ok(Some((frame.total(), given))),
            false => Err(EIO),
        }
    })
}

#[kunit_tests(scif_frames)]
mod cases {
    use super::*;

    #[test]
    fn frames_arrive_as_they_were_sent_on_each_queue() -> Result {
        let bed = Bed::new()?;
        for number in 0..QUEUES as usize {
            let queue = bed.queue(number)?;
            for (first, len) in [
                (1, 1),
                (2, 60),
                (3, 4096),
                (4, 4097),
                (5, 65549),
                (6, MOST_BYTES),
            ] {
                send(&queue, first, len)?;
                let received = receive(&queue, first, false)?;
                assert_eq!(received.map(|(len, _)| len), Some(len));
            }
            assert!(receive(&queue, 0, false)?.is_none());
        }
        bed.end()
    }

    #[test]
    fn client_is_asked_by_the_peers_client() -> Result {
        let bed = Bed::new()?;
        let queue = bed.queue(0)?;
        for word in [5, 0, u32::MAX] {
            queue.ask(word)?;
            let is_asked = || (bed.record.asked.load(Relaxed) == word).then_some(());
            let asked = bed
                .record
                .changed
                .wait_uninterruptible_timeout(LIMIT, is_asked);
            assert!(asked.is_some());
        }
        drop(queue);
        bed.end()
    }

    #[test]
    fn rings_are_joined_anew_with_the_wanted_slots() -> Result {
        let bed = Bed::new()?;
        let mut ups = bed.record.ups.load(Relaxed);
        for (wanted, slots) in [(32, 32), (1000, 1024), (1, FEWEST_SLOTS), (0, SLOTS)] {
            bed.record.slots.store(wanted, Relaxed);
            bed.queue(0)?.rejoin()?;
            ups += 1;
            bed.record.wait(&bed.record.ups, ups)?;
            let queue = bed.queue(0)?;
            assert_eq!(queue.slots(), slots);
            for first in 0..100 {
                send(&queue, first, 5000)?;
                let received = receive(&queue, first, false)?;
                assert_eq!(received.map(|(len, _)| len), Some(5000));
            }
        }
        bed.end()
    }

    #[test]
    fn wishes_that_were_replaced_do_not_join_the_rings() -> Result {
        let bed = Bed::new()?;
        let link = bed.service.links.iter().next().ok_or(ENODEV)?;
        let before = bed.record.ups.load(Relaxed);
        for wanted in [32, 64].iter().cycle().take(60) {
            bed.record.slots.store(*wanted, Relaxed);
            link.rejoin_later()?;
        }
        bed.record.wait(&bed.record.ups, before + 1)?;
        drop(link);
        let record = bed.record.clone();
        // Waits for the items, which do nothing any more.
        bed.end()?;
        assert!(record.ups.load(Relaxed) < before + 10);
        Ok(())
    }

    #[test]
    fn peer_that_joins_again_and_again_breaks_the_rules() -> Result {
        let bed = Bed::new()?;
        let link = bed.service.links.iter().next().ok_or(ENODEV)?;
        let admitted = (0..1000).take_while(|_| link.admit_join().is_ok());
        assert!((10..1000).contains(&admitted.count()));
        drop(link);
        bed.end()
    }

    #[test]
    fn frame_without_bytes_or_room_is_not_sent() -> Result {
        let bed = Bed::new()?;
        let queue = bed.queue(0)?;
        assert_eq!(send(&queue, 0, 0), Err(EAGAIN));
        assert_eq!(send(&queue, 0, MOST_BYTES + 1), Err(EMSGSIZE));
        let mut sent = 0;
        while send(&queue, 7, MOST_BYTES).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, SLOTS / MOST_BYTES.div_ceil(PAGE_SIZE as u32));
        for _ in 0..sent {
            assert!(receive(&queue, 7, false)?.is_some());
        }
        send(&queue, 8, MOST_BYTES)?;
        assert!(receive(&queue, 8, false)?.is_some());
        drop(queue);
        bed.end()
    }

    #[test]
    fn sleeping_receiver_is_rung_once_and_a_poller_never() -> Result {
        let bed = Bed::new()?;
        let queue = bed.queue(0)?;
        let before = bed.record.rings.load(Acquire);
        send(&queue, 1, 60)?;
        bed.record.wait(&bed.record.rings, before + 1)?;
        for _ in 0..10 {
            send(&queue, 1, 60)?;
        }
        while receive(&queue, 1, false)?.is_some() {
            send(&queue, 1, 60)?;
            assert!(receive(&queue, 1, false)?.is_some());
        }
        bed.queues.flush_all();
        assert_eq!(bed.record.rings.load(Acquire), before + 1);
        // A frame that has come before it sleeps is not missed.
        send(&queue, 2, 60)?;
        let sleep = || bottom_halves_disabled(|| queue.receiving().ok_or(ENODEV)?.sleep());
        assert!(sleep()?);
        assert!(receive(&queue, 2, false)?.is_some());
        assert!(!sleep()?);
        // A receiver that polls instead of sleeping is not rung for the frame.
        bottom_halves_disabled(|| queue.receiving().ok_or(ENODEV)?.stay_awake())?;
        send(&queue, 3, 60)?;
        bed.queues.flush_all();
        assert_eq!(bed.record.rings.load(Acquire), before + 1);
        assert!(receive(&queue, 3, false)?.is_some());
        drop(queue);
        bed.end()
    }

    #[test]
    fn sender_without_room_is_rung_when_there_is_room() -> Result {
        let bed = Bed::new()?;
        let queue = bed.queue(0)?;
        while send(&queue, 3, MOST_BYTES).is_ok() {}
        let wait = || bottom_halves_disabled(|| queue.sending().ok_or(ENODEV)?.wait_for_room(32));
        assert!(!wait()?);
        let before = bed.record.rings.load(Acquire);
        while receive(&queue, 3, false)?.is_some() {}
        bed.record.wait(&bed.record.rings, before + 1)?;
        assert!(wait()?);
        drop(queue);
        bed.end()
    }

    /// A page that its user keeps is not written to, and the rings go on without it.
    #[test]
    fn given_pages_are_not_posted_before_they_are_dropped() -> Result {
        let bed = Bed::new()?;
        let queue = bed.queue(0)?;
        let mut kept = KVec::new();
        // So many frames would use each buffer several times.
        for _ in 0..4 * SLOTS {
            send(&queue, 9, 4096)?;
            let (_, given) = receive(&queue, 9, true)?.ok_or(EINVAL)?;
            for page in given {
                kept.push(page, GFP_KERNEL)?;
            }
            assert!(kept.len() <= MOST_GIVEN);
        }
        assert!(kept.len() >= SLOTS as usize / 2);
        drop(kept);
        let mut again = 0;
        for _ in 0..SLOTS {
            send(&queue, 9, 4096)?;
            again += receive(&queue, 9, true)?.map_or(0, |(_, given)| given.len());
        }
        assert!(again >= SLOTS as usize / 2);
        drop(queue);
        bed.end()
    }

    /// A user keeps pages: the queue gets more, up to its limit, and returns them afterwards.
    #[test]
    fn queue_that_is_short_of_buffers_grows_for_a_while() -> Result {
        let bed = Bed::new()?;
        let queue = bed.queue(0)?;
        let (mut kept, mut refusals) = (KVec::new(), 0);
        while refusals < 2 {
            send(&queue, 7, 4096)?;
            let (_, given) = receive(&queue, 7, true)?.ok_or(EINVAL)?;
            match given.into_iter().next() {
                Some(page) => {
                    kept.push(page, GFP_KERNEL)?;
                    refusals = 0;
                }
                None => {
                    // The item that adds buffers has run then.
                    bed.queues.work.flush();
                    refusals += 1;
                }
            }
        }
        assert_eq!(kept.len(), MOST_GIVEN);
        drop(kept);
        let is_grown = || bottom_halves_disabled(|| queue.receiver.lock().buffers.is_unsettled());
        assert!(is_grown());
        for _ in 0..3000 {
            if !is_grown() {
                break;
            }
            fsleep(Delta::from_millis(10));
        }
        assert!(!is_grown());
        // The item that has freed the last buffers ends the timer.
        bed.queues.work.flush();
        assert!(queue.timer.lock().is_none());
        send(&queue, 8, MOST_BYTES)?;
        assert!(receive(&queue, 8, true)?.is_some());
        drop(queue);
        bed.end()
    }

    /// In a small ring, the pages of one more frame would be all that is left for the peer.
    #[test]
    fn given_pages_leave_room_for_the_largest_frame() -> Result {
        const SLOTS: u32 = 32;
        let bed = Bed::new()?;
        let peer = bed.nodes.peer(NODE)?;
        let inside = peer.enter().ok_or(ENODEV)?;
        let mut buffers = Buffers::new(peer.path(), SLOTS, usize::MAX)?;
        let mut kept = KVec::new();
        let mut posted = 0;
        while let Some(_address) = buffers.post(posted) {
            posted += 1;
        }
        assert_eq!(posted, SLOTS as usize);
        // They are given before one is taken back, as those of a frame are.
        let mut is_given = [false; SLOTS as usize];
        for (slot, is_given) in is_given.iter_mut().enumerate() {
            if let Some(page) = buffers.give(buffers.in_slot(slot)?) {
                kept.push(page, GFP_KERNEL)?;
                *is_given = true;
            }
        }
        for (slot, is_given) in is_given.into_iter().enumerate() {
            buffers.taken(buffers.in_slot(slot)?, is_given);
        }
        buffers.recover(SLOTS as usize);
        let left = SLOTS as usize - kept.len();
        assert!(!kept.is_empty() && left >= MOST_BYTES.div_ceil(PAGE_SIZE as u32) as usize);
        posted = 0;
        while let Some(_address) = buffers.post(posted) {
            posted += 1;
        }
        assert_eq!(posted, left);
        drop(kept);
        buffers.recover(SLOTS as usize);
        assert!(buffers.post(posted).is_some());
        drop(buffers);
        drop(inside);
        drop(peer);
        bed.end()
    }

    /// The peer counts one more buffer than it was given. The descriptors are those of a frame.
    #[test]
    fn count_beyond_the_posted_buffers_ends_the_session() -> Result {
        let bed = Bed::new()?;
        let queue = bed.queue(0)?;
        send(&queue, 1, 60)?;
        let downs = bed.record.downs.load(Acquire);
        let ours = queue.ours();
        ours.block.write_u32(ours.start + FILLED, SLOTS + 1)?;
        let taken = receive(&queue, 1, false);
        assert!(matches!(taken, Err(EIO)));
        bed.record.wait(&bed.record.downs, downs + 1)?;
        drop(queue);
        let removals = bed.record.removals.load(Acquire);
        bed.remove();
        bed.record.wait(&bed.record.removals, removals + 1)
    }

    #[test]
    fn pages_outlive_the_rings() -> Result {
        let bed = Bed::new()?;
        let queue = bed.queue(0)?;
        send(&queue, 9, 8192)?;
        let (_, given) = receive(&queue, 9, true)?.ok_or(EINVAL)?;
        assert_eq!(given.len(), 2);
        drop(queue);
        bed.end()?;
        drop(given);
        Ok(())
    }

    #[test]
    fn loss_of_the_peer_takes_the_queues_away() -> Result {
        let bed = Bed::new()?;
        let queue = bed.queue(0)?;
        send(&queue, 1, 60)?;
        let downs = bed.record.downs.load(Acquire);
        bed.nodes.peer(NODE)?.fail("a test loses it");
        bed.record.wait(&bed.record.downs, downs + 1)?;
        assert!(queue.sending().is_none() && queue.receiving().is_none());
        drop(queue);
        // The node comes back, with new rings.
        bed.record.wait(&bed.record.ups, 2)?;
        let queue = bed.queue(0)?;
        send(&queue, 2, 60)?;
        assert!(receive(&queue, 2, false)?.is_some());
        drop(queue);
        let removals = bed.record.removals.load(Acquire);
        bed.remove();
        bed.record.wait(&bed.record.removals, removals + 1)
    }
}
