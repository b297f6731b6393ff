// SPDX-License-Identifier: GPL-2.0

//! Effects of threads on each other, in every order that the memory model allows (loom).
//!
//! Loom reports a data race, a deadlock or a failed assertion in any of the interleavings.

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::loom_logic::gate::Gate;
use crate::loom_logic::news;
use crate::loom_logic::ring::{Geometry, reaches};
use crate::loom_logic::ring::{WakeRequestState, is_missed};
use crate::loom_logic::ring::{in_first_area, move_at, moved_at};
use crate::loom_logic::stores::{Stores, store_halves};

/// An object behind a gate. Loom finds every access that is not ordered with another one.
struct Thing {
    gate: Gate,
    /// The object itself, one cell for each caller. The owner takes all of them down.
    memory: [UnsafeCell<bool>; 2],
    sleeping: Mutex<()>,
    wake: Condvar,
}

impl Thing {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(),
            memory: [UnsafeCell::new(true), UnsafeCell::new(true)],
            sleeping: Mutex::new(()),
            wake: Condvar::new(),
        })
    }

    /// Uses the object once: enters if the gate is open, touches the object, and wakes the owner if
    /// this was the last caller inside.
    fn use_once(&self, caller: usize) {
        if !self.gate.enter() {
            return;
        }
        self.memory[caller].with_mut(|alive| {
            // SAFETY: Each caller has its own cell, and the owner does not touch the cell while a
            // caller is inside. Loom checks exactly that.
            let alive = unsafe { &mut *alive };
            assert!(*alive, "the gate let a caller in after the end");
        });
        if self.gate.leave() {
            // The lock keeps the owner from falling asleep between its check of the gate and the
            // wake-up, as in the kernel's wait queues.
            let _sleeping = self.sleeping.lock().expect("no panic elsewhere");
            self.wake.notify_all();
        }
    }

    /// Acts as the owner: closes the gate, sleeps until it is idle, and takes the object down.
    fn take_down(&self) {
        self.gate.close();
        let mut sleeping = self.sleeping.lock().expect("no panic elsewhere");
        while !self.gate.is_idle() {
            sleeping = self.wake.wait(sleeping).expect("no panic elsewhere");
        }
        drop(sleeping);
        for memory in &self.memory {
            // SAFETY: The gate is closed and idle, so no caller is inside; loom checks it.
            memory.with_mut(|alive| unsafe { *alive = false });
        }
        assert!(!self.gate.enter());
        assert!(self.gate.is_idle());
    }
}

#[test]
fn no_caller_is_inside_a_closed_and_idle_gate() {
    // Three threads have too many interleavings to run all of them. Few bugs need more than three
    // preemptions. The tests with two threads have no such bound.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let thing = Thing::new();
        let callers: Vec<_> = (0..2)
            .map(|caller| {
                let thing = thing.clone();
                thread::spawn(move || thing.use_once(caller))
            })
            .collect();
        thing.take_down();
        for caller in callers {
            caller.join().expect("the caller ends");
        }
    });
}

#[test]
fn returning_caller_is_refused_or_delays_the_owner() {
    loom::model(|| {
        let thing = Thing::new();
        let caller = {
            let thing = thing.clone();
            thread::spawn(move || {
                thing.use_once(0);
                thing.use_once(0);
            })
        };
        thing.take_down();
        caller.join().expect("the caller ends");
    });
}

#[test]
fn concurrent_leaves_have_exactly_one_last() {
    loom::model(|| {
        let gate = Arc::new(Gate::new());
        assert!(gate.enter() && gate.enter());
        gate.close();
        let other = {
            let gate = gate.clone();
            thread::spawn(move || gate.leave())
        };
        let own = gate.leave();
        let other = other.join().expect("the other one ends");
        assert!(own != other, "one of the two was the last");
        assert!(gate.is_idle());
    });
}

#[test]
fn concurrent_closes_leave_the_gate_closed_and_idle() {
    loom::model(|| {
        let gate = Arc::new(Gate::new());
        assert!(gate.enter());
        let closer = {
            let gate = gate.clone();
            thread::spawn(move || gate.close())
        };
        gate.close();
        let last = gate.leave();
        closer.join().expect("the closer ends");
        assert!(last && gate.is_closed() && gate.is_idle());
    });
}

/// A byte ring as two nodes share it: counters in memory, and the bytes between them.
struct Ring {
    geometry: Geometry,
    memory: Vec<UnsafeCell<u8>>,
    produced: AtomicU32,
    consumed: AtomicU32,
}

impl Ring {
    fn cells(&self, index: u32, len: u32) -> impl Iterator<Item = &UnsafeCell<u8>> {
        self.geometry
            .spans(index, len)
            .into_iter()
            .flat_map(|(offset, len)| &self.memory[offset as usize..(offset + len) as usize])
    }
}

#[test]
fn bytes_are_complete_when_the_counter_is_seen() {
    // The counters wrap, the ring wraps, and the message is longer than the ring.
    const START: u32 = u32::MAX;
    const MESSAGE: [u8; 3] = [7, 8, 9];
    loom::model(|| {
        let ring = Arc::new(Ring {
            geometry: Geometry::new(2).expect("a power of two"),
            memory: (0..2).map(|_| UnsafeCell::new(0)).collect(),
            produced: AtomicU32::new(START),
            consumed: AtomicU32::new(START),
        });
        let producer = {
            let ring = ring.clone();
            thread::spawn(move || {
                let mut produced = ring.produced.load(Relaxed);
                let mut rest = &MESSAGE[..];
                while !rest.is_empty() {
                    let consumed = ring.consumed.load(Acquire);
                    let free = ring.geometry.free(produced, consumed).expect("honest");
                    let (now, later) = rest.split_at(rest.len().min(free as usize));
                    if now.is_empty() {
                        thread::yield_now();
                        continue;
                    }
                    let len = now.len() as u32;
                    for (cell, byte) in ring.cells(produced, len).zip(now) {
                        // SAFETY: The producer owns the free space; loom checks it.
                        cell.with_mut(|cell| unsafe { *cell = *byte });
                    }
                    produced = Geometry::advance(produced, len);
                    ring.produced.store(produced, Release);
                    rest = later;
                }
            })
        };
        let mut consumed = START;
        let mut received = Vec::new();
        while received.len() < MESSAGE.len() {
            let produced = ring.produced.load(Acquire);
            let used = ring.geometry.used(produced, consumed).expect("honest");
            if used == 0 {
                thread::yield_now();
                continue;
            }
            for cell in ring.cells(consumed, used) {
                // SAFETY: The consumer owns the produced bytes; loom checks it.
                received.push(cell.with(|cell| unsafe { *cell }));
            }
            consumed = Geometry::advance(consumed, used);
            ring.consumed.store(consumed, Release);
        }
        producer.join().expect("the producer ends");
        assert_eq!(received, MESSAGE);
    });
}

/// The sender fills the small area, is offered a larger one, and goes on there. Meanwhile the
/// receiver consumes the bytes.
#[test]
fn bytes_are_read_from_the_area_they_were_written_to() {
    const MESSAGE: [u8; 3] = [7, 8, 9];
    loom::model(|| {
        let sizes = [1, 4].map(|size| Geometry::new(size).expect("a power of two"));
        let areas: Arc<Vec<Vec<UnsafeCell<u8>>>> = Arc::new(
            sizes
                .iter()
                .map(|size| (0..size.size()).map(|_| UnsafeCell::new(0)).collect())
                .collect(),
        );
        let produced = Arc::new(AtomicU32::new(0));
        let moved = Arc::new(AtomicU64::new(0));
        let sender = {
            let (areas, produced, moved) = (areas.clone(), produced.clone(), moved.clone());
            thread::spawn(move || {
                for (count, byte) in (0_u32..).zip(MESSAGE) {
                    let area = usize::from(count >= 1);
                    if count == 1 {
                        // Only the following store of the counter orders this store.
                        moved.store(move_at(count), Relaxed);
                    }
                    let place = count & (sizes[area].size() - 1);
                    // SAFETY: The sender owns the bytes that are not produced yet; loom checks it.
                    areas[area][place as usize].with_mut(|cell| unsafe { *cell = byte });
                    produced.store(count + 1, Release);
                }
            })
        };
        let (mut consumed, mut reading) = (0, 0);
        let mut received = Vec::new();
        while received.len() < MESSAGE.len() {
            let count = produced.load(Acquire).wrapping_sub(consumed);
            if count == 0 {
                thread::yield_now();
                continue;
            }
            let word = if reading == 0 { moved.load(Relaxed) } else { 0 };
            match in_first_area(&sizes[reading], consumed, count, moved_at(word)).expect("honest") {
                0 => reading += 1,
                count => {
                    for (offset, len) in sizes[reading].spans(consumed, count) {
                        for cell in &areas[reading][offset as usize..(offset + len) as usize] {
                            // SAFETY: The receiver owns the produced bytes; loom checks it.
                            received.push(cell.with(|cell| unsafe { *cell }));
                        }
                    }
                    consumed = Geometry::advance(consumed, count);
                }
            }
        }
        sender.join().expect("the sender ends");
        assert_eq!(received, MESSAGE);
    });
}

/// A sender and a receiver that is about to sleep store to and load from each other's memory in
/// opposite order. The fences stand for the barriers and for the read over the bus.
#[test]
fn wake_request_racing_with_a_send_is_not_missed() {
    loom::model(|| {
        let produced = Arc::new(AtomicU32::new(u32::MAX));
        let wanted = Arc::new(AtomicU32::new(u32::MAX));
        let doorbell = Arc::new(AtomicBool::new(false));
        let sender = {
            let (produced, wanted, doorbell) = (produced.clone(), wanted.clone(), doorbell.clone());
            thread::spawn(move || {
                let mut before = u32::MAX;
                for after in [0, 1] {
                    produced.store(after, Release);
                    fence(SeqCst);
                    if reaches(wanted.load(Relaxed), before, after) {
                        assert!(!doorbell.swap(true, Release), "it rings once for a request");
                    }
                    before = after;
                }
            })
        };
        // The receiver waits for both bytes.
        wanted.store(1, Relaxed);
        fence(SeqCst);
        let seen = produced.load(Acquire);
        sender.join().expect("the sender ends");
        assert!(
            seen == 1 || doorbell.load(Acquire),
            "the receiver sleeps for ever"
        );
    });
}

/// The memory of a waiting end: the count that the peer has sent, the count at which the peer has
/// to ring, and whether a waiter was woken.
struct Waiters {
    produced: AtomicU32,
    wanted: AtomicU32,
    request: WakeRequestState,
    woken: AtomicBool,
}

impl Waiters {
    /// Models the wake-up request of `endpoint/rings/waking.rs`. Only one thread calls this at a
    /// time.
    fn make(&self, value: u32) {
        let before = match self.request.is_open_at(value) {
            true => None,
            false => {
                self.wanted.store(value, Relaxed);
                fence(SeqCst);
                self.request.replace(value)
            }
        };
        if is_missed(value, before, self.produced.load(Acquire)) {
            self.woken.store(true, SeqCst);
        }
    }

    fn on_doorbell(&self) {
        if self.request.is_answered_at(self.produced.load(Acquire)) {
            self.woken.store(true, SeqCst);
        }
    }
}

/// A waiter sleeps until two bytes have arrived, and does not check again before it is woken.
/// Meanwhile a poller requests a wake-up for the next byte.
#[test]
fn sleeper_is_woken_after_its_wake_request_is_replaced() {
    loom::model(|| {
        let end = Arc::new(Waiters {
            produced: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            request: WakeRequestState::new(),
            woken: AtomicBool::new(false),
        });
        end.make(2);
        let sender = {
            let end = end.clone();
            thread::spawn(move || {
                end.produced.store(2, Release);
                fence(SeqCst);
                if reaches(end.wanted.load(Relaxed), 0, 2) {
                    end.on_doorbell();
                }
            })
        };
        end.make(end.produced.load(Acquire) + 1);
        sender.join().expect("the sender ends");
        assert!(end.woken.load(SeqCst), "it sleeps for ever");
    });
}

/// A poller was delayed after it had seen two bytes. Now four bytes have arrived, and a waiter
/// sleeps until there are eight.
#[test]
fn outdated_wake_request_does_not_leave_a_sleeper_asleep() {
    loom::model(|| {
        let end = Arc::new(Waiters {
            produced: AtomicU32::new(4),
            wanted: AtomicU32::new(0),
            request: WakeRequestState::new(),
            woken: AtomicBool::new(false),
        });
        end.make(8);
        assert!(!end.woken.load(SeqCst));
        let sender = {
            let end = end.clone();
            thread::spawn(move || {
                end.produced.store(8, Release);
                fence(SeqCst);
                if reaches(end.wanted.load(Relaxed), 4, 8) {
                    end.on_doorbell();
                }
            })
        };
        end.make(3);
        sender.join().expect("the sender ends");
        assert!(end.woken.load(SeqCst), "it sleeps for ever");
    });
}

/// The words of one direction of a frame queue (`frames/queue.rs`): a count that one side moves, and
/// the wish of the other side, which sleeps until it is woken.
struct Frames {
    /// The count of filled or posted buffers.
    count: AtomicU32,
    /// The count at which the sleeper is to be woken.
    wish: AtomicU32,
    state: WakeRequestState,
    /// Whether the sleeper was woken since it looked last.
    woken: Mutex<bool>,
    wake: Condvar,
    /// How often the doorbell has rung.
    rings: AtomicU32,
    /// The lock of the publishers, and the count that they have published.
    published: Mutex<u32>,
    /// The read over the bus, behind the store of a wish.
    read_back: fn(),
}

impl Frames {
    fn new(start: u32) -> Arc<Self> {
        Self::with(start, || fence(SeqCst))
    }

    fn with(start: u32, read_back: fn()) -> Arc<Self> {
        Arc::new(Self {
            read_back,
            count: AtomicU32::new(start),
            wish: AtomicU32::new(0),
            state: WakeRequestState::new(),
            woken: Mutex::new(false),
            wake: Condvar::new(),
            rings: AtomicU32::new(0),
            published: Mutex::new(start),
        })
    }

    /// Models `Queue::answer` behind the store of a count, by a sender that publishes or a receiver
    /// that posts.
    fn publish(&self, more: u32) {
        let mut published = self.published.lock().expect("no panic elsewhere");
        let (before, after) = (*published, published.wrapping_add(more));
        self.count.store(after, Release);
        *published = after;
        fence(SeqCst);
        if reaches(self.wish.load(Relaxed), before, after) {
            self.rings.fetch_add(1, Relaxed);
            // The doorbell's interrupt: `Wish::rung`, then the poll is scheduled.
            let _is_answered = self.state.is_answered_at(self.count.load(Acquire));
            *self.woken.lock().expect("no panic elsewhere") = true;
            self.wake.notify_all();
        }
    }

    /// Models `Wish::make`. Returns whether the caller must not sleep.
    fn make(&self, value: u32) -> bool {
        let before = match self.state.is_open_at(value) {
            true => None,
            false => {
                self.wish.store(value, Relaxed);
                (self.read_back)();
                self.state.replace(value)
            }
        };
        let count = self.count.load(Acquire);
        let is_missed = is_missed(value, before, count);
        if is_missed {
            let _is_answered = self.state.is_answered_at(count);
        }
        is_missed
    }

    /// Models `Wish::withdraw`.
    fn withdraw(&self, reached: u32) {
        if self.state.withdraw() {
            self.wish.store(reached, Relaxed);
        }
    }

    /// Returns whether the sleeper was woken since the last call.
    fn was_woken(&self) -> bool {
        std::mem::take(&mut *self.woken.lock().expect("no panic elsewhere"))
    }

    /// Models a poller that takes what is there and sleeps, until it has taken `most`. It looks
    /// again only when it has been woken, or if it must not sleep.
    fn poll(&self, mut taken: u32, most: u32) -> u32 {
        while taken != most {
            self.was_woken();
            let count = self.count.load(Acquire);
            assert!(count.wrapping_sub(taken) <= most.wrapping_sub(taken));
            taken = count;
            if taken == most || self.make(taken.wrapping_add(1)) {
                continue;
            }
            let mut woken = self.woken.lock().expect("no panic elsewhere");
            while !*woken {
                woken = self.wake.wait(woken).expect("no panic elsewhere");
            }
        }
        taken
    }
}

/// A receiver polls, and sleeps between frames. Loom reports a poller that sleeps for ever. The
/// counts wrap.
fn poller_gets_all(read_back: fn()) {
    const START: u32 = u32::MAX - 1;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let frames = Frames::with(START, read_back);
        let sender = {
            let frames = frames.clone();
            thread::spawn(move || {
                frames.publish(1);
                frames.publish(2);
            })
        };
        let all = START.wrapping_add(3);
        assert_eq!(frames.poll(START, all), all);
        sender.join().expect("the sender ends");
        let rings = frames.rings.load(Relaxed);
        assert!(rings <= 2, "{rings} doorbells for two publications");
    });
}

#[test]
fn poller_of_frames_gets_all_that_are_published() {
    poller_gets_all(|| fence(SeqCst));
}

/// A program polls while the wish stands, and sleeps afterwards.
#[test]
fn poller_that_withdraws_its_wish_misses_no_frame() {
    const START: u32 = u32::MAX;
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let frames = Frames::new(START);
        let sender = {
            let frames = frames.clone();
            thread::spawn(move || frames.publish(1))
        };
        frames.make(START.wrapping_add(1));
        frames.withdraw(START);
        let all = START.wrapping_add(1);
        assert_eq!(frames.poll(START, all), all);
        sender.join().expect("the sender ends");
    });
}

#[test]
fn withdrawn_wish_is_answered_by_no_doorbell() {
    loom::model(|| {
        let frames = Frames::new(7);
        assert!(!frames.make(8));
        frames.withdraw(7);
        frames.publish(1);
        assert_eq!(frames.rings.load(Relaxed), 0);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn wish_for_frames_that_is_not_read_back_is_missed() {
    poller_gets_all(|| ());
}

/// Two senders take turns by a lock.
#[test]
fn poller_of_frames_misses_none_of_two_senders() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let frames = Frames::new(u32::MAX);
        let senders = [1, 2].map(|count| {
            let frames = frames.clone();
            thread::spawn(move || frames.publish(count))
        });
        let all = u32::MAX.wrapping_add(3);
        assert_eq!(frames.poll(u32::MAX, all), all);
        for sender in senders {
            sender.join().expect("the sender ends");
        }
    });
}

/// A sender without room stops its queue and wishes for two buffers. Meanwhile the receiver posts
/// them, one after the other.
#[test]
fn sender_without_room_is_woken_when_there_is_room() {
    loom::model(|| {
        let posted = Frames::new(u32::MAX);
        let receiver = {
            let posted = posted.clone();
            thread::spawn(move || {
                posted.publish(1);
                posted.publish(1);
            })
        };
        let wanted = u32::MAX.wrapping_add(2);
        let may_go_on = posted.make(wanted);
        receiver.join().expect("the receiver ends");
        assert!(
            may_go_on || posted.was_woken(),
            "the queue stays stopped for ever"
        );
        assert_eq!(posted.count.load(Acquire), wanted);
    });
}

/// A sender that does not sleep makes its wish for more room than it got before, while a doorbell
/// for the last wish is on its way.
#[test]
fn wish_for_more_room_is_not_taken_for_the_last_one() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let posted = Frames::new(0);
        let receiver = {
            let posted = posted.clone();
            thread::spawn(move || {
                posted.publish(1);
                posted.publish(2);
            })
        };
        let _may_go_on = posted.make(1);
        // The sender fills the first buffer as soon as it is there, and then wants two.
        while posted.count.load(Acquire) == 0 {
            thread::yield_now();
        }
        posted.was_woken();
        let may_go_on = posted.make(3);
        receiver.join().expect("the receiver ends");
        assert!(
            may_go_on || posted.was_woken(),
            "the queue stays stopped for ever"
        );
    });
}

/// Two copies by a CPU, each of one store.
struct Link {
    stores: Stores,
    sent: [AtomicBool; 2],
    complete: [AtomicBool; 2],
    arrived: [AtomicBool; 2],
}

impl Link {
    fn copy(&self, number: usize) {
        self.sent[number].store(true, Relaxed);
        fence(Release);
        self.stores.note();
        self.complete[number].store(true, Release);
    }

    /// Starts an engine. By then, copies that completed before must have arrived.
    fn start_engine(&self) {
        let complete = [0, 1].map(|number| self.complete[number].load(Acquire));
        self.stores.settle(|| {
            fence(SeqCst);
            for number in 0..2 {
                if self.sent[number].load(Relaxed) {
                    self.arrived[number].store(true, Release);
                }
            }
        });
        for (number, complete) in complete.into_iter().enumerate() {
            assert!(
                !complete || self.arrived[number].load(Acquire),
                "the engine overtakes copy {number}"
            );
        }
    }
}

/// Two threads start engines, one of them twice.
#[test]
fn engine_does_not_overtake_a_cpu_copy() {
    let mut model = loom::model::Builder::new();
    // Running all interleavings would take minutes.
    model.preemption_bound = Some(2);
    model.check(|| {
        let flags = || [AtomicBool::new(false), AtomicBool::new(false)];
        let link = Arc::new(Link {
            stores: Stores::new(),
            sent: flags(),
            complete: flags(),
            arrived: flags(),
        });
        let copier = {
            let link = link.clone();
            thread::spawn(move || {
                link.copy(0);
                link.copy(1);
            })
        };
        let starter = {
            let link = link.clone();
            thread::spawn(move || link.start_engine())
        };
        link.start_engine();
        link.start_engine();
        copier.join().expect("the copier ends");
        starter.join().expect("the starter ends");
    });
}

/// The marks of a group and of two of its slots, and the counters that they announce. Other marks
/// are never set.
struct Marked {
    group: AtomicU8,
    slots: [AtomicU8; 2],
    counters: [AtomicU32; 2],
}

impl Marked {
    const NEWS: news::News = news::News::behind(0, 8);

    fn place(&self, at: usize) -> Option<&AtomicU8> {
        let (first, group) = Self::NEWS.places(0);
        match at.checked_sub(first) {
            None => (at == group).then_some(&self.group),
            Some(slot) => self.slots.get(slot),
        }
    }
}

impl news::Marks for Marked {
    fn load(&self, at: usize) -> u64 {
        let mark = |at| self.place(at).map_or(0, |mark| mark.load(Acquire));
        u64::from_le_bytes(std::array::from_fn(|index| mark(at + index)))
    }

    fn store(&self, at: usize, mark: u8) {
        self.place(at)
            .expect("one that is there")
            .store(mark, Relaxed);
        fence(SeqCst);
    }
}

/// Two connections advance and ring, while an earlier doorbell makes the reader check the marks.
#[test]
fn marks_set_while_others_are_taken_are_not_missed() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let marked = Arc::new(Marked {
            group: AtomicU8::new(0),
            slots: [AtomicU8::new(0), AtomicU8::new(0)],
            counters: [AtomicU32::new(0), AtomicU32::new(0)],
        });
        let writers = [0, 1].map(|slot: usize| {
            let marked = marked.clone();
            thread::spawn(move || {
                marked.counters[slot].store(1, Relaxed);
                fence(SeqCst);
                marked.slots[slot].store(1, Relaxed);
                fence(SeqCst);
                marked.group.store(1, Relaxed);
            })
        });
        let mut seen = [0, 0];
        let mut look = || {
            Marked::NEWS.take(&*marked, 0, |slot| {
                seen[slot as usize] = marked.counters[slot as usize].load(Relaxed);
                true
            })
        };
        assert_eq!(look(), None);
        for writer in writers {
            writer.join().expect("the writer ends");
        }
        // The reader answers the doorbell of the last connection.
        assert_eq!(look(), None);
        assert_eq!(seen, [1, 1], "a waiter sleeps for ever");
    });
}

/// Stores a number in halves, while a peer waits for the lower half.
fn reader_of_one_half_sees_the_other(barrier: fn()) {
    loom::model(move || {
        let halves = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let storer = {
            let halves = halves.clone();
            thread::spawn(move || {
                let store = |at: usize, half| {
                    halves[at / 4].store(half, Relaxed);
                    Ok::<_, ()>(())
                };
                store_halves((7 << 32) | 5, store, barrier)
            })
        };
        if halves[0].load(Acquire) == 5 {
            assert_eq!(halves[1].load(Relaxed), 7, "half a number is seen");
        }
        let stored = storer.join().expect("the storer ends");
        assert_eq!(stored, Ok(()));
    });
}

#[test]
fn barrier_keeps_halves_of_a_number_in_order() {
    reader_of_one_half_sees_the_other(|| fence(Release));
}

#[test]
#[should_panic(expected = "half a number is seen")]
fn missing_barrier_lets_halves_of_a_number_overtake() {
    reader_of_one_half_sees_the_other(|| ());
}
