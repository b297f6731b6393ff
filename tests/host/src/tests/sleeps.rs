// SPDX-License-Identifier: GPL-2.0

//! Each handshake in which somebody sleeps until somebody else has done something, in every order that the memory
//! model allows (loom): nobody sleeps for ever.
//!
//! The module's code of these takes a kernel or a peer, so what is here is their steps, as the named files have
//! them. A model can be told to leave out one step, and then has to fail: else it would not say anything of that.
//!
//! A read back over the bus, and a barrier between a store to the peer and a load of what the peer stores, are
//! both a full fence here.

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What a model leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The barrier of who wakes, between what it stores and its look at who sleeps.
    BarrierOfWaker,
    /// The barrier of who is about to sleep, or its read back.
    BarrierOfSleeper,
    /// The last look of who is about to sleep.
    LastLook,
    /// The order of two steps: they come the other way round.
    Order,
}

impl Without {
    fn fence_unless(self, what: Without) {
        if self != what {
            fence(SeqCst);
        }
    }
}

/// Sets a flag that is not, and says whether it has; or the other way round. The module has an exchange for that. One
/// that changes nothing counts as a store in loom, of which it does not know that it came before a later one.
fn turn(flag: &AtomicBool, to: bool) -> bool {
    flag.compare_exchange(!to, to, AcqRel, Acquire).is_ok()
}

/// Runs a model with so many switches of threads at bad moments, or any number of them.
fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

// ----- wait queues: sys/wait.rs ----------------------------------------------------------------

/// A wait queue of the kernel, for one waiter.
struct WaitQueue {
    /// Whether the waiter is in the list; read without the lock.
    listed: AtomicBool,
    state: Mutex<Sleep>,
    woken: Condvar,
}

struct Sleep {
    /// Whether the waiter is to sleep when it says so: the state of a task, which a wake-up changes.
    asleep: bool,
    /// How many there are that may still wake it: who is left alone sleeps for ever.
    others: usize,
}

impl WaitQueue {
    fn new(others: usize) -> Self {
        let asleep = false;
        Self {
            listed: AtomicBool::new(false),
            state: Mutex::new(Sleep { asleep, others }),
            woken: Condvar::new(),
        }
    }

    /// As `wait_in_state`. Returns false if it sleeps for ever.
    #[must_use]
    fn wait(&self, without: Without, mut condition: impl FnMut() -> bool) -> bool {
        if condition() {
            return true;
        }
        loop {
            {
                let mut state = self.state.lock().expect("no panic elsewhere");
                self.listed.store(true, Relaxed);
                state.asleep = true;
            }
            // As set_current_state() has it.
            without.fence_unless(Without::BarrierOfSleeper);
            if without != Without::LastLook && condition() {
                break;
            }
            let mut state = self.state.lock().expect("no panic elsewhere");
            while state.asleep {
                if state.others == 0 {
                    return false;
                }
                state = self.woken.wait(state).expect("no panic elsewhere");
            }
            drop(state);
            if without == Without::LastLook && condition() {
                break;
            }
        }
        let mut state = self.state.lock().expect("no panic elsewhere");
        self.listed.store(false, Relaxed);
        state.asleep = false;
        true
    }

    fn wake_all(&self) {
        self.state.lock().expect("no panic elsewhere").asleep = false;
        self.woken.notify_all();
    }

    /// One of the others has done all that it does.
    fn leave(&self) {
        self.state.lock().expect("no panic elsewhere").others -= 1;
        self.woken.notify_all();
    }

    /// As wq_has_sleeper().
    fn has_waiters(&self, without: Without) -> bool {
        without.fence_unless(Without::BarrierOfWaker);
        self.listed.load(Relaxed)
    }
}

/// Whoever changes something, looks whether somebody waits, and wakes only then: `Channel::wake`,
/// `Engine::descriptor_ended`, `Outbox::look`, `Ticket::drop`.
fn look_before_a_wake_up(without: Without) {
    check(None, move || {
        let shared = Arc::new((AtomicU64::new(0), WaitQueue::new(1)));
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (ended, queue) = &*shared;
                ended.store(1, Relaxed);
                if queue.has_waiters(without) {
                    queue.wake_all();
                }
                queue.leave();
            })
        };
        let (ended, queue) = &*shared;
        let woken = queue.wait(without, || ended.load(Relaxed) == 1);
        waker.join().expect("the waker ends");
        assert!(woken, "the waiter sleeps for ever");
    });
}

#[test]
fn a_look_for_waiters_misses_none() {
    look_before_a_wake_up(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_look_for_waiters_takes_a_barrier_before() {
    look_before_a_wake_up(Without::BarrierOfWaker);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_waiter_is_in_the_list_before_it_looks() {
    look_before_a_wake_up(Without::BarrierOfSleeper);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_waiter_looks_once_more() {
    look_before_a_wake_up(Without::LastLook);
}

/// `sync/call_lock.rs`: two calls, one after the other.
fn call_lock(without: Without) {
    check(None, move || {
        let shared = Arc::new((
            AtomicBool::new(false),
            WaitQueue::new(1),
            UnsafeCell::new(0_u32),
        ));
        // The first has it; the second may have to wait.
        assert!(!shared.0.swap(true, AcqRel));
        let second = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (taken, free, bytes) = &*shared;
                let has_it = free.wait(without, || turn(taken, true));
                if has_it {
                    // SAFETY: Whoever has the lock is alone; loom checks it.
                    bytes.with_mut(|bytes| unsafe { *bytes += 1 });
                }
                has_it
            })
        };
        let (taken, free, bytes) = &*shared;
        // SAFETY: As above.
        bytes.with_mut(|bytes| unsafe { *bytes += 1 });
        taken.store(false, Release);
        if free.has_waiters(without) {
            free.wake_all();
        }
        free.leave();
        let has_had_it = second.join().expect("the second ends");
        assert!(has_had_it, "the second sleeps for ever");
    });
}

#[test]
fn a_call_lock_that_is_free_is_taken() {
    call_lock(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_call_lock_takes_a_barrier_before_its_look() {
    call_lock(Without::BarrierOfWaker);
}

/// `WaitAny`: whoever waits for several queues looks at what it waits for while it is not set to sleep. What is
/// woken meanwhile is remembered. With `Order` it forgets that after the look, in place of by the wait.
fn alarm(without: Without) {
    check(None, move || {
        let shared = Arc::new((
            AtomicBool::new(false),
            AtomicBool::new(false),
            WaitQueue::new(1),
        ));
        let waker = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (state, rung, waiter) = &*shared;
                state.store(true, Release);
                rung.swap(true, AcqRel);
                waiter.wake_all();
                waiter.leave();
            })
        };
        let (state, rung, waiter) = &*shared;
        let mut woken = true;
        while woken && !state.load(Acquire) {
            if without == Without::Order {
                rung.store(false, Relaxed);
            }
            woken = waiter.wait(Without::Nothing, || turn(rung, false));
        }
        waker.join().expect("the waker ends");
        assert!(woken, "the waiter sleeps for ever");
    });
}

#[test]
fn what_rings_while_nobody_sleeps_is_remembered() {
    alarm(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn what_rings_is_not_forgotten_after_the_look() {
    alarm(Without::Order);
}

// ----- things that go: sys/shared_table.rs -----------------------------------------------------

/// The last user lets go of a thing; somebody who finds it no more waits until it has gone. With `Order` it is
/// counted as going only after the lock.
fn going(without: Without) {
    check(None, move || {
        let shared = Arc::new((
            Mutex::new(true),
            AtomicU64::new(0),
            WaitQueue::new(1),
            UnsafeCell::new(true),
        ));
        let user = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (entries, going, gone, thing) = &*shared;
                let mut found = entries.lock().expect("no panic elsewhere");
                if without != Without::Order {
                    going.fetch_add(1, Relaxed);
                }
                *found = false;
                drop(found);
                if without == Without::Order {
                    going.fetch_add(1, Relaxed);
                }
                // SAFETY: The last user is alone, but for who waits; loom checks it.
                thing.with_mut(|thing| unsafe { *thing = false });
                going.fetch_sub(1, Release);
                gone.wake_all();
                gone.leave();
            })
        };
        let (entries, going, gone, thing) = &*shared;
        let is_found = *entries.lock().expect("no panic elsewhere");
        if !is_found {
            assert!(gone.wait(without, || going.load(Acquire) == 0));
            // SAFETY: It has gone; loom checks it.
            assert!(!thing.with(|thing| unsafe { *thing }));
        }
        user.join().expect("the user ends");
    });
}

#[test]
fn what_is_found_no_more_is_waited_for() {
    going(Without::Nothing);
}

#[test]
#[should_panic]
fn what_is_found_no_more_counts_as_going() {
    going(Without::Order);
}

// ----- wishes by another doorbell: endpoint/rings/waking.rs, logic/doorbells.rs ----------------

/// The sleeper comes back on another processor, and asks for another doorbell than the one that it has listened to;
/// its wish may stand already. The former has no listener any more. Without `LastLook` he does not look at the counter again.
fn steered_wish(stands: bool, without: Without) {
    check(None, move || {
        struct Ends {
            /// In the sender's memory: the wish, which stood before, and the doorbell by which it is to be answered.
            wanted: AtomicU64,
            doorbell: AtomicU64,
            /// In the sleeper's.
            produced: AtomicU64,
            /// Which doorbell has a listener.
            listens: [AtomicBool; 2],
            woken: AtomicBool,
        }
        let ends = Arc::new(Ends {
            wanted: AtomicU64::new(if stands { 1 } else { 0 }),
            doorbell: AtomicU64::new(0),
            produced: AtomicU64::new(0),
            listens: [AtomicBool::new(true), AtomicBool::new(false)],
            woken: AtomicBool::new(false),
        });
        let sender = {
            let ends = ends.clone();
            thread::spawn(move || {
                ends.produced.store(1, Release);
                without.fence_unless(Without::BarrierOfWaker);
                if ends.wanted.load(Acquire) == 1 {
                    let number = ends.doorbell.load(Relaxed) as usize;
                    if ends.listens[number].load(SeqCst) {
                        ends.woken.store(true, SeqCst);
                    }
                }
            })
        };
        ends.listens[1].store(true, SeqCst);
        // Posted writes arrive in their order.
        ends.doorbell.store(1, Release);
        ends.listens[0].store(false, SeqCst);
        ends.wanted.store(1, Release);
        without.fence_unless(Without::BarrierOfSleeper);
        let seen = without != Without::LastLook && ends.produced.load(Acquire) == 1;
        sender.join().expect("the sender ends");
        assert!(
            seen || ends.woken.load(SeqCst),
            "the receiver sleeps for ever"
        );
    });
}

#[test]
fn a_wish_is_answered_by_the_doorbell_that_goes_with_it() {
    steered_wish(false, Without::Nothing);
    steered_wish(true, Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_wish_is_read_back() {
    steered_wish(false, Without::BarrierOfSleeper);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_counter_leaves_before_the_wish_is_looked_at() {
    steered_wish(false, Without::BarrierOfWaker);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_counter_is_looked_at_after_the_wish() {
    steered_wish(true, Without::LastLook);
}

// ----- slots: rma/staging, logic/staging.rs ----------------------------------------------------

/// The two ends of slots. Whoever fills them rings one who sleeps; whoever empties them rings one who wished for
/// that.
struct Slots {
    /// In the memory of the reader: the sequence numbers of two slots, and the wish.
    headers: [AtomicU64; 2],
    wish: AtomicU64,
    /// In that of the writer: how many were emptied, and the sleeps of the reader.
    emptied: AtomicU64,
    sleeps: AtomicU64,
    answered: AtomicU64,
    /// The number of the slot that comes next, for who looks at a ring.
    next: AtomicU64,
    /// The work item of the reader is queued; whoever would run it sleeps until then.
    queued: AtomicBool,
    work: WaitQueue,
    /// What the writer has noted of what was emptied, and where it waits.
    noted: AtomicU64,
    room: WaitQueue,
}

impl Slots {
    fn new(others: usize) -> Arc<Self> {
        Arc::new(Self {
            headers: [AtomicU64::new(0), AtomicU64::new(0)],
            wish: AtomicU64::new(0),
            emptied: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            next: AtomicU64::new(1),
            queued: AtomicBool::new(false),
            work: WaitQueue::new(others),
            noted: AtomicU64::new(0),
            room: WaitQueue::new(others),
        })
    }

    fn is_filled(&self, sequence: u64) -> bool {
        let header = self.headers.get(sequence as usize - 1);
        header.is_some_and(|header| header.load(Acquire) == sequence)
    }

    /// `Outbox::store`, `Outbox::ring_for`.
    fn fill(&self, sequence: u64, without: Without) {
        self.headers[sequence as usize - 1].store(sequence, Release);
        without.fence_unless(Without::BarrierOfWaker);
        let (sleeps, emptied) = if without == Without::Order {
            let emptied = self.emptied.load(Acquire);
            (self.sleeps.load(Acquire), emptied)
        } else {
            let sleeps = self.sleeps.load(Acquire);
            (sleeps, self.emptied.load(Acquire))
        };
        if sequence == emptied + 1 && self.answered.swap(sleeps, AcqRel) != sleeps {
            self.rung();
        }
    }

    /// `Inbox::rung`.
    fn rung(&self) {
        if self.is_filled(self.next.load(Relaxed)) {
            self.queued.store(true, Release);
            self.work.wake_all();
        }
    }

    /// `Outbox::look`, also when the doorbell has rung.
    fn look(&self) {
        let emptied = self.emptied.load(Acquire);
        let noted = self.noted.load(Relaxed);
        let _ = (emptied > noted).then(|| self.noted.fetch_max(emptied, AcqRel));
        self.room.wake_all();
    }

    /// `Inbox::empty_all`, from one ring to the next, until two slots were emptied; false if it sleeps for ever.
    #[must_use]
    fn empty_two(&self, without: Without) -> bool {
        let mut emptied = 0;
        loop {
            while self.is_filled(emptied + 1) {
                emptied += 1;
                self.next.store(emptied + 1, Relaxed);
            }
            self.emptied.store(emptied, Release);
            if emptied == 2 {
                return true;
            }
            // It falls asleep.
            self.sleeps.fetch_add(1, Release);
            without.fence_unless(Without::BarrierOfSleeper);
            if without != Without::LastLook && self.is_filled(emptied + 1) {
                continue;
            }
            let is_queued = || turn(&self.queued, false);
            if !self.work.wait(Without::Nothing, is_queued) {
                return false;
            }
        }
    }
}

/// One writer fills one slot after the other.
fn inbox(without: Without) {
    check(Some(3), move || {
        let slots = Slots::new(1);
        let writer = {
            let slots = slots.clone();
            thread::spawn(move || {
                slots.fill(1, without);
                slots.fill(2, without);
                slots.work.leave();
            })
        };
        let has_emptied = slots.empty_two(without);
        writer.join().expect("the writer ends");
        assert!(has_emptied, "the reader sleeps for ever");
    });
}

/// Two writers fill a slot each, in any order.
fn inbox_of_two(without: Without) {
    check(Some(2), move || {
        let slots = Slots::new(2);
        let writers: Vec<_> = [1, 2]
            .into_iter()
            .map(|sequence| {
                let slots = slots.clone();
                thread::spawn(move || {
                    slots.fill(sequence, without);
                    slots.work.leave();
                })
            })
            .collect();
        let has_emptied = slots.empty_two(without);
        for writer in writers {
            writer.join().expect("the writer ends");
        }
        assert!(has_emptied, "the reader sleeps for ever");
    });
}

#[test]
fn who_empties_slots_is_rung_when_it_sleeps() {
    inbox(Without::Nothing);
}

#[test]
fn who_empties_slots_is_rung_by_one_of_two() {
    inbox_of_two(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_sleep_is_read_back() {
    inbox(Without::BarrierOfSleeper);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_header_leaves_before_sleeps_are_looked_at() {
    inbox(Without::BarrierOfWaker);
}

#[test]
#[should_panic(expected = "for ever")]
fn slots_are_looked_at_after_a_sleep_was_told() {
    inbox(Without::LastLook);
}

#[test]
#[should_panic(expected = "for ever")]
fn sleeps_are_loaded_before_what_was_emptied() {
    inbox_of_two(Without::Order);
}

/// The writer waits until two slots were emptied (`Outbox::wish_for`, `Outbox::look`); the reader reports each of
/// them, and rings for the one that was wished for (`Inbox::report`, `Inbox::answer`).
fn outbox(without: Without) {
    check(Some(3), move || {
        let slots = Slots::new(1);
        let reader = {
            let slots = slots.clone();
            thread::spawn(move || {
                let mut answered = 0;
                for reported in [1, 2] {
                    slots.emptied.store(reported, Release);
                    without.fence_unless(Without::BarrierOfWaker);
                    let wish = slots.wish.load(Relaxed);
                    if wish > answered && wish <= reported {
                        answered = wish;
                        slots.look();
                    }
                }
                slots.room.leave();
            })
        };
        // It wishes for the first, then for both.
        let woken = [1, 2].into_iter().all(|wish| {
            slots.wish.store(wish, Relaxed);
            without.fence_unless(Without::BarrierOfSleeper);
            if without != Without::LastLook {
                slots.look();
            }
            let is_empty = || slots.noted.load(Acquire) >= wish;
            slots.room.wait(Without::Nothing, is_empty)
        });
        reader.join().expect("the reader ends");
        assert!(woken, "the writer sleeps for ever");
    });
}

#[test]
fn who_fills_slots_is_rung_when_they_are_empty() {
    outbox(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_count_leaves_before_the_wish_for_it_is_looked_at() {
    outbox(Without::BarrierOfWaker);
}

#[test]
#[should_panic(expected = "for ever")]
fn a_wish_for_empty_slots_is_read_back() {
    outbox(Without::BarrierOfSleeper);
}

#[test]
#[should_panic(expected = "for ever")]
fn what_was_emptied_is_looked_at_after_the_wish() {
    outbox(Without::LastLook);
}

// ----- control messages: peer.rs, peer/control.rs ----------------------------------------------

/// A message finds no room (`Peer::post_with`); the peer makes some, and rings; the control work takes note of it
/// (`Control::acknowledge`). With `Order` who posts notes the progress only after it has found no room.
fn post(without: Without) {
    check(Some(3), move || {
        struct Control {
            /// Stored by the peer.
            consumed: AtomicU64,
            /// What is known of it: of whoever has the lock.
            writer: Mutex<u64>,
            progress: AtomicU64,
            waiters: WaitQueue,
        }
        impl Control {
            /// Returns whether there is room.
            fn acknowledge(&self) -> bool {
                let mut known = self.writer.lock().expect("no panic elsewhere");
                let consumed = self.consumed.load(Acquire);
                if consumed != *known {
                    *known = consumed;
                    self.progress.fetch_add(1, Release);
                    self.waiters.wake_all();
                }
                *known > 0
            }
        }
        let control = Arc::new(Control {
            consumed: AtomicU64::new(0),
            writer: Mutex::new(0),
            progress: AtomicU64::new(0),
            waiters: WaitQueue::new(1),
        });
        let peer = {
            let control = control.clone();
            thread::spawn(move || {
                control.consumed.store(1, Release);
                // It rings, and the control work runs.
                control.acknowledge();
                control.waiters.leave();
            })
        };
        let mut woken = true;
        while woken {
            let mut before = control.progress.load(Acquire);
            if control.acknowledge() {
                break;
            }
            if without == Without::Order {
                before = control.progress.load(Acquire);
            }
            let has_moved = || control.progress.load(Acquire) != before;
            woken = control.waiters.wait(Without::Nothing, has_moved);
        }
        peer.join().expect("the peer ends");
        assert!(woken, "the message waits for ever");
    });
}

#[test]
fn a_message_goes_when_there_is_room() {
    post(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn progress_is_noted_before_room_is_looked_for() {
    post(Without::Order);
}

// ----- engines: transport/engine.rs, transport/engine/poller.rs --------------------------------

/// An engine with one job.
struct Engine {
    stopped: AtomicBool,
    /// The jobs that were not released: whether it is there.
    running: Mutex<bool>,
    /// Changed under `running`; read there, too.
    is_over: AtomicBool,
    reaps: AtomicBool,
    queued: AtomicBool,
}

impl Engine {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            stopped: AtomicBool::new(false),
            running: Mutex::new(false),
            is_over: AtomicBool::new(false),
            reaps: AtomicBool::new(false),
            queued: AtomicBool::new(false),
        })
    }

    /// `release_ended`: takes the job out if it is over.
    fn release_ended(&self) {
        let mut running = self.running.lock().expect("no panic elsewhere");
        if *running && self.is_over.load(Relaxed) {
            *running = false;
        }
    }

    fn has_job(&self) -> bool {
        *self.running.lock().expect("no panic elsewhere")
    }
}

/// A job is added while the engine is given back (`add_running`, `give_back`): one of the two ends it. With
/// `LastLook` whoever adds it does not look whether the engine has stopped.
fn engine_that_stops(without: Without) {
    check(None, move || {
        let engine = Engine::new();
        let owner = {
            let engine = engine.clone();
            thread::spawn(move || {
                engine.stopped.store(true, Relaxed);
                *engine.running.lock().expect("no panic elsewhere") = false;
            })
        };
        *engine.running.lock().expect("no panic elsewhere") = true;
        if without != Without::LastLook && engine.stopped.load(Relaxed) {
            *engine.running.lock().expect("no panic elsewhere") = false;
        }
        owner.join().expect("the owner ends");
        assert!(!engine.has_job(), "nobody ends the job");
    });
}

#[test]
fn a_job_ends_when_its_engine_stops() {
    engine_that_stops(Without::Nothing);
}

#[test]
#[should_panic(expected = "nobody ends the job")]
fn a_job_is_ended_by_who_adds_it_too_late() {
    engine_that_stops(Without::LastLook);
}

/// A job ends in an interrupt while somebody polls (`finish`, `poll`): either that poller releases it, or the
/// work item is queued, which does. With `Order` the poller looks for what has ended before it says that it does
/// not poll any more.
fn job_that_ends(without: Without) {
    check(None, move || {
        let engine = Engine::new();
        *engine.running.lock().expect("no panic elsewhere") = true;
        let interrupt = {
            let engine = engine.clone();
            thread::spawn(move || {
                {
                    let _running = engine.running.lock().expect("no panic elsewhere");
                    engine.is_over.store(true, Relaxed);
                }
                if !engine.reaps.load(Relaxed) {
                    engine.queued.store(true, Relaxed);
                }
            })
        };
        if !engine.reaps.swap(true, Acquire) {
            // What has ended is reported here.
            if without == Without::Order {
                engine.release_ended();
            }
            engine.reaps.store(false, Release);
        }
        if without != Without::Order {
            engine.release_ended();
        }
        interrupt.join().expect("the interrupt ends");
        if engine.queued.load(Relaxed) {
            engine.release_ended();
        }
        assert!(!engine.has_job(), "nobody releases the job");
    });
}

#[test]
fn a_job_that_has_ended_is_released() {
    job_that_ends(Without::Nothing);
}

#[test]
#[should_panic(expected = "nobody releases the job")]
fn a_poller_releases_jobs_after_it_has_polled() {
    job_that_ends(Without::Order);
}
