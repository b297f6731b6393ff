// SPDX-License-Identifier: GPL-2.0

//! Each handshake in which one side sleeps until another side has acted, in every order that the
//! memory model allows (loom). The tests show that no sleeper sleeps for ever.
//!
//! The module's code of these handshakes takes a kernel or a peer. So this file repeats the steps
//! of the code in the named files. A model can be told to leave out one step, and then has to fail.
//! Otherwise the model would not show that the step is needed.
//!
//! A read back over the bus is a full fence here. So is a barrier between a store to the peer and a
//! load of a value that the peer stores.

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// The step that a model leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The waker's barrier between its store and its check for sleepers.
    BarrierOfWaker,
    /// The sleeper's barrier before it sleeps, or its read back.
    BarrierOfSleeper,
    /// The sleeper's last check of the condition before it sleeps.
    LastLook,
    /// The order of two steps: the model swaps them.
    Order,
}

impl Without {
    fn fence_unless(self, step: Without) {
        if self != step {
            fence(SeqCst);
        }
    }
}

/// Sets a flag to `to`, and returns whether the flag had another value.
///
/// The module uses an exchange for this. Loom counts an exchange that changes nothing as a store,
/// and does not know that it came before a later store.
fn turn(flag: &AtomicBool, to: bool) -> bool {
    flag.compare_exchange(!to, to, AcqRel, Acquire).is_ok()
}

/// Runs a model with at most `preemptions` preemptions, or without such a limit.
fn check(preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.check(model);
}

// ----- wait queues: sys/wait.rs ----------------------------------------------------------------

/// A wait queue of the kernel, for one waiter.
struct WaitQueue {
    /// Whether the waiter is in the list. Wakers read this without the lock.
    listed: AtomicBool,
    state: Mutex<Sleep>,
    woken: Condvar,
}

struct Sleep {
    /// Whether the waiter will sleep: the state of a task, which a wake-up changes.
    asleep: bool,
    /// Number of threads that may still wake the waiter. If none is left, the waiter sleeps for
    /// ever.
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

    /// Models `wait_in_state`. Returns false if the waiter sleeps for ever.
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
            // set_current_state() has this barrier.
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

    /// Says that a thread has finished and will wake no more.
    fn leave(&self) {
        self.state.lock().expect("no panic elsewhere").others -= 1;
        self.woken.notify_all();
    }

    /// Models wq_has_sleeper().
    fn has_waiters(&self, without: Without) -> bool {
        without.fence_unless(Without::BarrierOfWaker);
        self.listed.load(Relaxed)
    }
}

/// A waker changes the condition, checks for waiters, and wakes only if there are any:
/// `Channel::wake`, `Engine::descriptor_ended`, `SendSlots::look`, `Ticket::drop`.
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
fn waiter_check_before_wake_up_misses_no_waiter() {
    look_before_a_wake_up(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn waiter_check_without_a_barrier_misses_a_waiter() {
    look_before_a_wake_up(Without::BarrierOfWaker);
}

#[test]
#[should_panic(expected = "for ever")]
fn waiter_without_a_barrier_sleeps_forever() {
    look_before_a_wake_up(Without::BarrierOfSleeper);
}

#[test]
#[should_panic(expected = "for ever")]
fn waiter_without_a_last_check_sleeps_forever() {
    look_before_a_wake_up(Without::LastLook);
}

/// Two calls take the lock of `sync/call_lock.rs`, one after the other.
fn call_lock(without: Without) {
    check(None, move || {
        let shared = Arc::new((
            AtomicBool::new(false),
            WaitQueue::new(1),
            UnsafeCell::new(0_u32),
        ));
        // The first call has the lock. The second one may have to wait.
        assert!(!shared.0.swap(true, AcqRel));
        let second = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (taken, free, bytes) = &*shared;
                let has_it = free.wait(without, || turn(taken, true));
                if has_it {
                    // SAFETY: Only the owner of the lock is here; loom checks it.
                    bytes.with_mut(|bytes| unsafe { *bytes += 1 });
                }
                has_it
            })
        };
        let (taken, free, bytes) = &*shared;
        // SAFETY: This call has the lock; loom checks it.
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
fn unlocked_call_lock_is_taken_by_its_waiter() {
    call_lock(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn call_lock_unlock_without_a_barrier_misses_a_waiter() {
    call_lock(Without::BarrierOfWaker);
}

/// `WaitAny`: a thread that waits for several queues checks their conditions while it is not set to
/// sleep.
///
/// The thread remembers wake-ups that come meanwhile. With `Order` it clears that memory after the
/// check, instead of within the wait.
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
fn wait_any_remembers_a_wake_up_before_sleep() {
    alarm(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn wait_any_that_forgets_after_its_check_sleeps_forever() {
    alarm(Without::Order);
}

// ----- entries that are removed: sys/shared_table.rs -------------------------------------------

/// The last user releases an entry. Another thread that no longer finds the entry waits until it is
/// gone.
///
/// With `Order` the entry is counted as going only after the lock was released.
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
                // SAFETY: Only the last user has the entry, as the other thread waits; loom checks
                // it.
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
            // SAFETY: The last user has released the entry; loom checks it.
            assert!(!thing.with(|thing| unsafe { *thing }));
        }
        user.join().expect("the user ends");
    });
}

#[test]
fn wait_for_gone_waits_for_a_removed_entry() {
    going(Without::Nothing);
}

#[test]
#[should_panic]
fn removed_entry_counted_after_unlock_is_not_waited_for() {
    going(Without::Order);
}

// ----- requests with another doorbell: endpoint/rings/waking.rs, logic/doorbells.rs ------------

/// A sleeper comes back on another CPU, and asks for another doorbell than the one before.
///
/// Its wake-up request may stand already (`stands`). The old doorbell has no listener any more.
/// Without `LastLook` the sleeper does not check the counter again.
fn steered_wake_request(stands: bool, without: Without) {
    check(None, move || {
        struct Ends {
            /// In the sender's memory: the wake-up request, which may stand already, and the
            /// doorbell that answers it.
            wanted: AtomicU64,
            doorbell: AtomicU64,
            /// In the sleeper's memory: the count that the sender has produced.
            produced: AtomicU64,
            /// Whether each doorbell has a listener.
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
        // Posted writes arrive in order.
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
fn moved_wake_request_is_answered_by_its_new_doorbell() {
    steered_wake_request(false, Without::Nothing);
    steered_wake_request(true, Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn wake_request_without_read_back_is_missed() {
    steered_wake_request(false, Without::BarrierOfSleeper);
}

#[test]
#[should_panic(expected = "for ever")]
fn counter_without_a_barrier_misses_the_wake_request() {
    steered_wake_request(false, Without::BarrierOfWaker);
}

#[test]
#[should_panic(expected = "for ever")]
fn moved_wake_request_without_a_last_check_is_missed() {
    steered_wake_request(true, Without::LastLook);
}

// ----- slots: rma/staging, logic/staging.rs ----------------------------------------------------

/// The two sides of bounce slots.
///
/// A writer that fills a slot rings a sleeping reader. A reader that empties a slot rings a writer
/// with a wake-up request for that slot.
struct Slots {
    /// In the memory of the reader: the sequence numbers of two slots, and the writer's wake-up
    /// request.
    headers: [AtomicU64; 2],
    wake_request: AtomicU64,
    /// In the memory of the writer: the number of emptied slots, and the number of times that the
    /// reader has fallen asleep.
    emptied: AtomicU64,
    sleeps: AtomicU64,
    answered: AtomicU64,
    /// The number of the next slot, which the handler of the doorbell checks.
    next: AtomicU64,
    /// Whether the reader's work item is queued. The reader sleeps until then.
    queued: AtomicBool,
    work: WaitQueue,
    /// The number of emptied slots that the writer has recorded, and the queue on which it waits.
    noted: AtomicU64,
    room: WaitQueue,
}

impl Slots {
    fn new(others: usize) -> Arc<Self> {
        Arc::new(Self {
            headers: [AtomicU64::new(0), AtomicU64::new(0)],
            wake_request: AtomicU64::new(0),
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

    /// Models `SendSlots::store` and `SendSlots::ring_for`.
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
            self.on_doorbell();
        }
    }

    /// Models `ReceiveSlots::on_doorbell`.
    fn on_doorbell(&self) {
        if self.is_filled(self.next.load(Relaxed)) {
            self.queued.store(true, Release);
            self.work.wake_all();
        }
    }

    /// Models `SendSlots::look`, which also runs when the doorbell has rung.
    fn look(&self) {
        let emptied = self.emptied.load(Acquire);
        let noted = self.noted.load(Relaxed);
        let _ = (emptied > noted).then(|| self.noted.fetch_max(emptied, AcqRel));
        self.room.wake_all();
    }

    /// Models `ReceiveSlots::empty_all`, from one doorbell to the next, until two slots are empty.
    /// Returns false if the reader sleeps for ever.
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
            // The reader falls asleep.
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

/// Models one writer that fills one slot after the other.
fn receive_slots(without: Without) {
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

/// Models two writers that fill a slot each, in any order.
fn receive_slots_of_two(without: Without) {
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
fn sleeping_slot_reader_is_rung_for_a_new_message() {
    receive_slots(Without::Nothing);
}

#[test]
fn sleeping_slot_reader_is_rung_by_one_of_two_writers() {
    receive_slots_of_two(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn slot_reader_sleep_without_read_back_is_missed() {
    receive_slots(Without::BarrierOfSleeper);
}

#[test]
#[should_panic(expected = "for ever")]
fn slot_writer_without_a_barrier_misses_a_sleeping_reader() {
    receive_slots(Without::BarrierOfWaker);
}

#[test]
#[should_panic(expected = "for ever")]
fn slot_reader_without_a_last_check_sleeps_forever() {
    receive_slots(Without::LastLook);
}

#[test]
#[should_panic(expected = "for ever")]
fn slot_writer_loading_sleeps_last_misses_a_sleeping_reader() {
    receive_slots_of_two(Without::Order);
}

/// The writer waits until two slots are empty (`SendSlots::request_wakeup_at`, `SendSlots::look`).
///
/// The reader reports each slot, and rings for the slot that the writer has requested
/// (`ReceiveSlots::report`, `ReceiveSlots::answer`).
fn send_slots(without: Without) {
    check(Some(3), move || {
        let slots = Slots::new(1);
        let reader = {
            let slots = slots.clone();
            thread::spawn(move || {
                let mut answered = 0;
                for reported in [1, 2] {
                    slots.emptied.store(reported, Release);
                    without.fence_unless(Without::BarrierOfWaker);
                    let request = slots.wake_request.load(Relaxed);
                    if request > answered && request <= reported {
                        answered = request;
                        slots.look();
                    }
                }
                slots.room.leave();
            })
        };
        // The writer requests a wake-up for the first slot, then for both.
        let woken = [1, 2].into_iter().all(|request| {
            slots.wake_request.store(request, Relaxed);
            without.fence_unless(Without::BarrierOfSleeper);
            if without != Without::LastLook {
                slots.look();
            }
            let is_empty = || slots.noted.load(Acquire) >= request;
            slots.room.wait(Without::Nothing, is_empty)
        });
        reader.join().expect("the reader ends");
        assert!(woken, "the writer sleeps for ever");
    });
}

#[test]
fn sleeping_slot_writer_is_rung_when_slots_are_emptied() {
    send_slots(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn slot_reader_without_a_barrier_misses_a_sleeping_writer() {
    send_slots(Without::BarrierOfWaker);
}

#[test]
#[should_panic(expected = "for ever")]
fn slot_writer_wake_request_without_read_back_is_missed() {
    send_slots(Without::BarrierOfSleeper);
}

#[test]
#[should_panic(expected = "for ever")]
fn slot_writer_without_a_last_check_sleeps_forever() {
    send_slots(Without::LastLook);
}

// ----- control messages: peer.rs, peer/control.rs ----------------------------------------------

/// A sender finds no room for a message (`Peer::post_with`).
///
/// The peer makes room and rings, and the control work records it (`Control::acknowledge`). With
/// `Order` the sender reads the progress only after it has found no room.
fn post(without: Without) {
    check(Some(3), move || {
        struct Control {
            /// Number of consumed messages, stored by the peer.
            consumed: AtomicU64,
            /// The last known value of `consumed`, under the writer's lock.
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
                // The peer rings, and the control work runs.
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
fn deferred_message_is_sent_when_there_is_room() {
    post(Without::Nothing);
}

#[test]
#[should_panic(expected = "for ever")]
fn poster_that_notes_progress_late_sleeps_forever() {
    post(Without::Order);
}

// ----- engines: transport/engine.rs, transport/engine/poller.rs --------------------------------

/// An engine with one job.
struct Engine {
    stopped: AtomicBool,
    /// The list of jobs that were not released: whether the job is in it.
    running: Mutex<bool>,
    /// Whether the job is complete. Changed and read under `running`.
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

    /// Models `release_ended`: removes the job if it is complete.
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

/// A job is added while the owner gives the engine back (`add_running`, `give_back`). One of the
/// two threads ends the job.
///
/// With `LastLook` the adding thread does not check whether the engine has stopped.
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
fn job_ends_when_its_engine_stops() {
    engine_that_stops(Without::Nothing);
}

#[test]
#[should_panic(expected = "nobody ends the job")]
fn job_added_without_a_stop_check_never_ends() {
    engine_that_stops(Without::LastLook);
}

/// A job completes in an interrupt while another thread polls (`finish`, `poll`).
///
/// Either the poller releases the job, or the work item is queued and releases it. With `Order` the
/// poller checks for completed jobs before it clears its flag, not afterwards.
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
            // The poller reports completed jobs here.
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
fn ended_job_is_released() {
    job_that_ends(Without::Nothing);
}

#[test]
#[should_panic(expected = "nobody releases the job")]
fn poller_that_checks_too_early_leaves_a_job_unreleased() {
    job_that_ends(Without::Order);
}
