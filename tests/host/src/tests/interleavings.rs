// SPDX-License-Identifier: GPL-2.0

//! What threads do to each other, in every order that the memory model allows (loom).
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
use crate::loom_logic::ring::{WishState, is_missed};
use crate::loom_logic::ring::{in_first_area, move_at, moved_at};
use crate::loom_logic::stores::{Stores, store_halves};

/// A thing behind a gate. Loom finds every access that is not ordered with another one.
struct Thing {
    gate: Gate,
    /// The thing itself, one for each caller; the owner takes all of them down.
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

    /// What a caller does, once: it goes in if it may, touches the thing, and wakes the owner if it
    /// was the last.
    fn use_once(&self, caller: usize) {
        if !self.gate.enter() {
            return;
        }
        self.memory[caller].with_mut(|alive| {
            // SAFETY: Each caller has its own cell, and the owner does not touch it while somebody
            // is inside: loom checks exactly that.
            let alive = unsafe { &mut *alive };
            assert!(*alive, "the gate let somebody in after the end");
        });
        if self.gate.leave() {
            // As the kernel's wait queues do: the lock keeps the owner from falling asleep between
            // its look at the gate and the wake-up.
            let _sleeping = self.sleeping.lock().expect("no panic elsewhere");
            self.wake.notify_all();
        }
    }

    /// What the owner does: it closes, sleeps until the gate is idle, and takes the thing down.
    fn take_down(&self) {
        self.gate.close();
        let mut sleeping = self.sleeping.lock().expect("no panic elsewhere");
        while !self.gate.is_idle() {
            sleeping = self.wake.wait(sleeping).expect("no panic elsewhere");
        }
        drop(sleeping);
        for memory in &self.memory {
            // SAFETY: The gate is closed and idle, so that no caller is here; loom checks it.
            memory.with_mut(|alive| unsafe { *alive = false });
        }
        assert!(!self.gate.enter());
        assert!(self.gate.is_idle());
    }
}

#[test]
fn nobody_is_behind_a_closed_and_idle_gate() {
    // Three threads have too many interleavings to look at all of them; few bugs need more than
    // three switches at a bad moment. The tests with two threads have no such bound.
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
fn a_caller_that_comes_back_finds_the_gate_closed_or_delays_the_owner() {
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
fn exactly_one_leaver_is_the_last() {
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
fn two_owners_may_close() {
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

/// A byte ring as two nodes share it: counters in memory, bytes in between.
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
fn bytes_are_complete_when_the_counter_says_so() {
    // Counters that wrap on the way, a ring that wraps, and more bytes than it holds.
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
                        // SAFETY: Free space is the producer's; loom checks it.
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
                // SAFETY: What was produced is the consumer's; loom checks it.
                received.push(cell.with(|cell| unsafe { *cell }));
            }
            consumed = Geometry::advance(consumed, used);
            ring.consumed.store(consumed, Release);
        }
        producer.join().expect("the producer ends");
        assert_eq!(received, MESSAGE);
    });
}

/// The sender fills the small area, is offered a larger one, and goes on there, while the receiver takes
/// out what there is.
#[test]
fn bytes_are_found_in_the_area_that_they_were_written_to() {
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
                        // Nothing orders this but the counter that follows.
                        moved.store(move_at(count), Relaxed);
                    }
                    let place = count & (sizes[area].size() - 1);
                    // SAFETY: What was not produced is the sender's; loom checks it.
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
                            // SAFETY: What was produced is the receiver's; loom checks it.
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

/// Who sends and who is about to sleep look at each other's memory in opposite order; the fences are
/// what the barriers and the read over the bus are.
#[test]
fn no_wish_is_missed() {
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
                        assert!(!doorbell.swap(true, Release), "it rings once for a wish");
                    }
                    before = after;
                }
            })
        };
        // The receiver wants both bytes.
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

/// The memory of an end that waits: what the other end has sent, at which count it is to ring, and whether
/// somebody was woken.
struct Waiters {
    produced: AtomicU32,
    wanted: AtomicU32,
    wish: WishState,
    woken: AtomicBool,
}

impl Waiters {
    /// As `endpoint/rings/waking.rs` does it; one at a time.
    fn make(&self, value: u32) {
        let before = match self.wish.is_open_at(value) {
            true => None,
            false => {
                self.wanted.store(value, Relaxed);
                fence(SeqCst);
                self.wish.replace(value)
            }
        };
        if is_missed(value, before, self.produced.load(Acquire)) {
            self.woken.store(true, SeqCst);
        }
    }

    fn rung(&self) {
        if self.wish.is_answered_at(self.produced.load(Acquire)) {
            self.woken.store(true, SeqCst);
        }
    }
}

/// Somebody sleeps until two bytes are there, and does not look again before it is woken. Meanwhile
/// somebody else polls, and wants to hear of the next one.
#[test]
fn who_sleeps_is_woken_whoever_replaces_its_wish() {
    loom::model(|| {
        let end = Arc::new(Waiters {
            produced: AtomicU32::new(0),
            wanted: AtomicU32::new(0),
            wish: WishState::new(),
            woken: AtomicBool::new(false),
        });
        end.make(2);
        let sender = {
            let end = end.clone();
            thread::spawn(move || {
                end.produced.store(2, Release);
                fence(SeqCst);
                if reaches(end.wanted.load(Relaxed), 0, 2) {
                    end.rung();
                }
            })
        };
        end.make(end.produced.load(Acquire) + 1);
        sender.join().expect("the sender ends");
        assert!(end.woken.load(SeqCst), "it sleeps for ever");
    });
}

/// Somebody who polls was held up since he looked, when two bytes were there; now there are four, and somebody
/// sleeps until there are eight.
#[test]
fn who_wishes_for_what_has_come_does_not_have_others_sleep() {
    loom::model(|| {
        let end = Arc::new(Waiters {
            produced: AtomicU32::new(4),
            wanted: AtomicU32::new(0),
            wish: WishState::new(),
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
                    end.rung();
                }
            })
        };
        end.make(3);
        sender.join().expect("the sender ends");
        assert!(end.woken.load(SeqCst), "it sleeps for ever");
    });
}

/// Two copies by a processor, each of one store.
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

    /// Starts an engine: copies that were complete before have arrived then.
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

/// Two start engines, one of them twice.
#[test]
fn no_engine_overtakes_a_copy_by_the_processor() {
    let mut model = loom::model::Builder::new();
    // All interleavings would take minutes.
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

/// The marks of a group and of two of its slots, and what they are about. All other marks are never there.
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

/// Two connections move on and ring, while an earlier doorbell has the marks looked at.
#[test]
fn no_news_is_missed() {
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
        // The doorbell of the last one.
        assert_eq!(look(), None);
        assert_eq!(seen, [1, 1], "somebody sleeps for ever");
    });
}

/// A number that is stored in halves, and a peer that waits for the lower one.
fn who_sees_one_half_sees_the_other(barrier: fn()) {
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
fn no_half_of_a_number_overtakes_the_other() {
    who_sees_one_half_sees_the_other(|| fence(Release));
}

#[test]
#[should_panic(expected = "half a number is seen")]
fn without_a_barrier_a_half_of_a_number_overtakes_the_other() {
    who_sees_one_half_sees_the_other(|| ());
}
