// SPDX-License-Identifier: GPL-2.0

//! Tests of peers, with a service that has nothing of SCIF.
//!
//! The service is in `peer/tests/toy.rs`. The tests wait for its notes, never for a time to pass.

pub(crate) mod toy;
mod uses;

use super::{
    channel::{
        Channel,
        State,
        SENT_ONCE, //
    },
    control::{
        Reservation,
        ROOM_MILLISECONDS, //
    },
    doorbells::{
        DoorbellHandler,
        Subscription, //
    },
    questions::{
        Questions,
        Reply,
        Until, //
    },
};
use crate::{
    logic::{
        control_block::{
            self,
            Annex, //
        },
        envelope::{
            Enveloped,
            PeerMessage, //
        },
    },
    sync::patience::Patience,
    sys::workqueue::Queue,
    transport::{
        doorbell,
        sink::Session, //
    },
};
use kernel::{
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SetOnce, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};
use toy::{
    Bed,
    Stray,
    Toy,
    ABSENT,
    ECHO, //
};

/// Interval between two checks for a waiter.
const LOOK: Delta = Delta::from_micros(200);
/// Number of checks. A task that does not wait by then will not wait.
const LOOKS: u32 = 100_000;

/// A subscriber that counts the rings.
struct Counter(Atomic<u32>);

impl DoorbellHandler for Counter {
    fn on_doorbell(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[kunit_tests(scif_peer)]
mod cases {
    use super::*;

    /// The notes that the end of a session makes.
    const END: [&str; 5] = ["lost", "drained", "torn down", "unreachable", "forget"];

    #[test]
    fn posted_message_is_echoed() -> Result {
        let bed = Bed::new()?;
        bed.peer.post(&Toy::Call { number: 0 })?;
        bed.record.wait_for_notes(2)?;
        assert_eq!(bed.record.take_notes(), ["Call", "Echo"]);
        assert_eq!(bed.end()?, END);
        Ok(())
    }

    #[test]
    fn messages_deferred_for_room_arrive_in_order() -> Result {
        const COUNT: u32 = 1000;
        let bed = Bed::new()?;
        bed.peer.post(&Toy::Hold {})?;
        bed.record.wait_until_held()?;
        let inside = bed.peer.enter().ok_or(ENODEV)?;
        let mut number = 0;
        // One slot of the ring holds the request that is being handled.
        let post = |number| {
            let call = Toy::Call { number }.envelope();
            bed.peer.control.post(bed.peer.path(), &call, Annex::NONE)
        };
        while post(number)? {
            number += 1;
        }
        let (posted, is_short) = (number, bed.peer.control.is_short());
        while number < COUNT {
            let reservation = Reservation::new(GFP_KERNEL)?;
            bed.peer.send(reservation, &Toy::Call { number });
            number += 1;
        }
        drop(inside);
        bed.record.open();
        assert_eq!(posted, bed.peer.control.slots() - 1);
        assert!(is_short);
        bed.record.wait_for_echoes(COUNT)?;
        // The posters that wait for room.
        for number in COUNT..2 * COUNT {
            bed.peer.post(&Toy::Call { number })?;
        }
        bed.record.wait_for_echoes(2 * COUNT)?;
        assert!(!bed.peer.is_over());
        bed.end()?;
        Ok(())
    }

    #[test]
    fn doorbell_rings_for_messages_before_a_deferred_one() -> Result {
        let bed = Bed::new()?;
        bed.peer.post(&Toy::Hold {})?;
        bed.record.wait_until_held()?;
        let inside = bed.peer.enter().ok_or(ENODEV)?;
        let (control, path) = (&bed.peer.control, bed.peer.path());
        let call = |number| Toy::Call { number }.envelope();
        // All slots but one, besides the slot of the request that is being handled.
        for number in 0..control.slots() - 2 {
            assert!(control.post(path, &call(number), Annex::NONE)?);
        }
        assert!(control.take_ring() && !control.is_short());
        control.send(Reservation::new(GFP_KERNEL)?, &call(control.slots() - 2));
        assert!(!control.take_ring());
        let posted = control.post(path, &call(0), Annex::NONE)?;
        let (is_to_ring, is_short) = (control.take_ring(), control.is_short());
        let count = control.slots() - 1;
        path.ring(doorbell::CONTROL);
        drop(inside);
        bed.record.open();
        assert!(!posted && is_to_ring && is_short);
        bed.record.wait_for_echoes(count)?;
        bed.end()?;
        Ok(())
    }

    /// A process that asks again and again, and is always interrupted, still waits for room as
    /// others do. Answers that no asker waits for are sent as all answers are.
    #[test]
    fn abandoned_questions_do_not_end_the_session() -> Result {
        const ROUND: u32 = 4096;
        let bed = Bed::new()?;
        let questions = KBox::pin_init(Questions::<Reply<u8>>::new(16, 0), GFP_KERNEL)?;
        let ask = |message: &Toy| {
            let asked = questions.ask(|_| bed.peer.post(message), |_, _| Err(ERESTARTSYS));
            assert_eq!(asked, Err(ERESTARTSYS));
        };
        let mut number = 0;
        for _ in 0..3 {
            // All questions that wait for one event, whose answers are sent at once.
            for _ in 0..ROUND {
                ask(&Toy::CallForLater { number });
                number += 1;
            }
            bed.peer.wait_for_handled()?;
            assert_eq!(bed.record.count_later(), ROUND as usize);
            assert_eq!(bed.record.let_go(&bed.peer), ROUND as usize);
            bed.record.wait_for_echoes(number)?;
            for _ in 0..ROUND {
                ask(&Toy::Call { number });
                number += 1;
            }
            bed.record.wait_for_echoes(number)?;
            bed.record.take_notes();
        }
        assert_eq!(questions.count(), 0);
        assert!(bed.peer.is_drained() && !bed.peer.is_over());
        bed.end()?;
        Ok(())
    }

    #[test]
    fn nonblocking_post_to_a_full_ring_returns_eagain() -> Result {
        let bed = Bed::new()?;
        bed.peer.post(&Toy::Hold {})?;
        bed.record.wait_until_held()?;
        let mut posted = Ok(());
        for number in 0..=bed.peer.control.slots() {
            let call = Toy::Call { number };
            posted = bed.peer.post_until(&call, Annex::NONE, Until::Now);
            if posted.is_err() {
                break;
            }
        }
        // A sender that uses reserved memory does not wait either.
        let reservation = Reservation::new(GFP_KERNEL)?;
        bed.peer.send(reservation, &Toy::Install {});
        bed.record.open();
        assert_eq!(posted, Err(EAGAIN));
        bed.peer.wait_for_handled()?;
        bed.end()?;
        Ok(())
    }

    #[test]
    fn peer_that_makes_no_room_in_time_is_lost() -> Result {
        let bed = Bed::new()?;
        bed.peer.post(&Toy::Hold {})?;
        bed.record.wait_until_held()?;
        let inside = bed.peer.enter().ok_or(ENODEV)?;
        let call = Toy::Call { number: 0 }.envelope();
        let tick = |milliseconds| {
            bed.peer.as_arc_borrow().tick(milliseconds);
            bed.peer.is_over()
        };
        // No message waits for room.
        let before = tick(ROOM_MILLISECONDS) || tick(ROOM_MILLISECONDS);
        while bed.peer.control.post(bed.peer.path(), &call, Annex::NONE)? {}
        let (soon, late) = (tick(ROOM_MILLISECONDS - 1), tick(1));
        drop(inside);
        bed.record.open();
        assert_eq!((before, soon, late), (false, false, true));
        bed.end()?;
        Ok(())
    }

    #[test]
    fn peer_loss_wakes_waiter_for_room() -> Result {
        let bed = Bed::new()?;
        bed.peer.post(&Toy::Hold {})?;
        bed.record.wait_until_held()?;
        let (queue, posted) = (
            Queue::background(c"scif_test")?,
            Arc::new(SetOnce::new(), GFP_KERNEL)?,
        );
        let (peer, result) = (bed.peer.clone(), posted.clone());
        queue.spawn(move || {
            let mut numbers = 0..=peer.control.slots();
            result.populate(numbers.try_for_each(|number| peer.post(&Toy::Call { number })));
        })?;
        let mut looks = 0;
        while !bed.peer.control.waiters.has_waiters() && looks < LOOKS {
            fsleep(LOOK);
            looks += 1;
        }
        bed.peer.fail("a test ends it");
        queue.flush();
        bed.record.open();
        assert!(looks < LOOKS);
        assert_eq!(posted.copy(), Some(Err(ENODEV)));
        bed.end()?;
        Ok(())
    }

    #[test]
    fn wait_for_handled_returns_after_requests_are_handled() -> Result {
        let bed = Bed::new()?;
        for number in 0..100 {
            bed.peer.post(&Toy::Call { number })?;
            bed.peer.wait_for_handled()?;
            assert!(bed.peer.control.handled() > number.into());
        }
        bed.peer.post(&Toy::Hold {})?;
        bed.record.wait_until_held()?;
        assert_eq!(bed.peer.wait_for_handled_within(LOOK), Ok(false));
        bed.record.open();
        bed.peer.wait_for_handled()?;
        bed.peer.fail("a test ends it");
        assert_eq!(bed.peer.wait_for_handled(), Err(ENODEV));
        bed.end()?;
        Ok(())
    }

    #[test]
    fn messages_arrive_with_their_own_annex() -> Result {
        const COUNT: u32 = 1000;
        let bed = Bed::new()?;
        for number in 0..COUNT {
            let words = number % (control_block::ANNEX_WORDS as u32 + 1);
            let mut annex = Annex::new();
            for _ in 0..words {
                annex.push(number.into());
            }
            let call = Toy::CallAtLength { number, words };
            bed.peer.post_with(&call, &annex)?;
        }
        bed.record.wait_for_echoes(COUNT)?;
        assert!(!bed.peer.is_over());
        bed.end()?;
        Ok(())
    }

    #[test]
    fn message_claiming_too_many_annex_words_ends_the_session() -> Result {
        let bed = Bed::new()?;
        bed.peer.post(&Toy::CallAtLength {
            number: 0,
            words: control_block::ANNEX_WORDS as u32 + 1,
        })?;
        bed.record.wait_for_notes(END.len())?;
        assert_eq!(bed.end()?, END);
        Ok(())
    }

    #[test]
    fn service_is_told_that_the_peer_lacks_it() -> Result {
        let bed = Bed::new()?;
        bed.peer.post(&Toy::Install {})?;
        bed.record.wait_for_notes(1)?;
        bed.peer.post(&PeerMessage::NoService { service: ABSENT })?;
        bed.record.wait_for_notes(2)?;
        assert_eq!(bed.record.take_notes(), ["Install", "refused"]);
        assert!(!bed.peer.is_over());
        assert_eq!(bed.end()?, END);
        Ok(())
    }

    #[test]
    fn request_in_the_answer_ring_ends_the_session() -> Result {
        let bed = Bed::new()?;
        let inside = bed.peer.enter().ok_or(ENODEV)?;
        let call = Toy::Call { number: 0 }.envelope();
        bed.peer.control.answer(bed.peer.path(), &call)?;
        bed.peer.path().ring(doorbell::CONTROL);
        drop(inside);
        bed.record.wait_for_notes(END.len())?;
        assert_eq!(bed.end()?, END);
        Ok(())
    }

    #[test]
    fn message_of_unknown_kind_or_stray_service_ends_the_session() -> Result {
        let unknown = Stray {
            service: ECHO,
            kind: 99,
        };
        // The answer to this one is about a service that the receiver never asked for.
        let stray = Stray {
            service: ABSENT,
            kind: 1,
        };
        for message in [unknown, stray] {
            let bed = Bed::new()?;
            bed.peer.post(&message)?;
            bed.record.wait_for_notes(END.len())?;
            assert_eq!(bed.end()?, END);
        }
        Ok(())
    }

    #[test]
    fn session_end_waits_for_users_and_is_reported_once() -> Result {
        let bed = Bed::new()?;
        let inside = bed.peer.enter_owned().ok_or(ENODEV)?;
        bed.peer.fail("a test ends it");
        bed.peer.fail("a test ends it again");
        let waited = bed.record.wait_for_notes(1);
        let (before, is_over) = (bed.record.take_notes(), inside.is_over());
        drop(inside);
        waited?;
        assert_eq!(before, END[..1]);
        assert!(is_over);
        bed.record.wait_for_notes(END.len())?;
        assert_eq!(bed.record.take_notes(), END[1..]);
        assert!(bed.peer.enter().is_none());
        assert_eq!(bed.peer.post(&Toy::Call { number: 0 }), Err(ENODEV));
        assert!(bed.end()?.is_empty());
        Ok(())
    }

    #[test]
    fn failed_loopback_session_is_created_again() -> Result {
        let bed = Bed::that_comes_back(1)?;
        bed.peer.fail("a test ends it");
        // There was no memory for the first attempt.
        bed.record.wait_for_notes(END.len() + 1)?;
        let mut expected = KVec::new();
        expected.extend_from_slice(&END, GFP_KERNEL)?;
        expected.push("online", GFP_KERNEL)?;
        assert_eq!(bed.record.take_notes(), expected);
        let peer = bed.next_peer()?;
        peer.post(&Toy::Call { number: 0 })?;
        bed.record.wait_for_echoes(1)?;
        drop(peer);
        bed.end()?;
        Ok(())
    }

    #[test]
    fn loopback_peer_sees_its_own_heartbeats() -> Result {
        let bed = Bed::new()?;
        for _ in 0..10 {
            bed.peer.as_arc_borrow().tick(1000);
        }
        assert!(!bed.peer.is_over());
        assert_eq!(bed.end()?, END);
        Ok(())
    }

    #[test]
    fn doorbell_notifies_its_subscribers_only() -> Result {
        let bed = Bed::new()?;
        let counter = Arc::new(Counter(Atomic::new(0)), GFP_KERNEL)?;
        let doorbells = &bed.peer.doorbells;
        let number = doorbells.for_data(3);
        assert!(doorbells.exists(number) && doorbells.exists(number + 1));
        let subscription = Subscription::new(doorbells, number, counter.clone())?;
        let inside = bed.peer.enter().ok_or(ENODEV)?;
        bed.peer.path().ring(number);
        bed.peer.path().ring(number + 1);
        assert_eq!(counter.0.load(Relaxed), 1);
        // Notified again at the next two ticks only, as a ring may have come too early.
        for told in [2, 3, 3] {
            bed.peer.as_arc_borrow().tick(1);
            assert_eq!(counter.0.load(Relaxed), told);
        }
        drop(subscription);
        bed.peer.path().ring(number);
        drop(inside);
        assert_eq!(counter.0.load(Relaxed), 3);
        let too_large = doorbell::COUNT as u32;
        assert!(Subscription::new(doorbells, too_large, counter.clone()).is_err());
        assert!(Arc::into_unique_or_drop(counter).is_some());
        bed.end()?;
        Ok(())
    }

    #[test]
    fn channel_reports_end_after_its_last_use() -> Result {
        let bed = Bed::new()?;
        let make = || -> Result<Arc<Channel>> {
            let id = bed.record.channels.lock().next_id();
            let channel = Channel::new(&bed.peer, bed.record.clone(), id, State::Established)?;
            let room = RBTreeNodeReservation::new(GFP_KERNEL)?;
            let mut channels = bed.record.channels.lock();
            channels.insert(id, channel.clone(), room)?;
            Ok(channel)
        };
        // An id that was not used leaves nothing behind.
        let unused = bed.record.channels.lock().next_id();
        assert!(bed.record.channels.lock().get(unused).is_none());
        let channel = make()?;
        assert!(channel.id != unused);
        let target = channel.id;
        let (first, last) = (channel.begin_use()?, channel.begin_owned_use()?);
        bed.peer.post(&Toy::Close { target })?;
        bed.record.wait_for_notes(1)?;
        assert!(channel.begin_use().is_err());
        drop(first);
        assert_eq!(bed.record.take_notes(), ["Close"]);
        // A user of a channel is inside the peer.
        assert!(bed.peer.in_flight.count() > 0);
        drop(last);
        assert_eq!(bed.record.take_notes(), ["uses ended"]);
        // The owner is not told again, as no use is left.
        assert!(channel.drain_uses(&Patience::Endless));

        // The peer gets each message that the channel may send once, and no more.
        for _ in 0..2 * SENT_ONCE {
            channel.send_once(&Toy::Install {});
        }
        bed.record.wait_for_notes(2 + SENT_ONCE)?;
        bed.peer.wait_for_handled()?;
        assert_eq!(bed.record.take_notes(), ["Install"; SENT_ONCE]);

        // The next channel has another id.
        channel.remove();
        let other = make()?;
        assert!(other.id != target);
        bed.peer.post(&Toy::Close { target })?;
        bed.record.wait_for_notes(4 + SENT_ONCE)?;
        assert_eq!(bed.record.take_notes(), ["no such channel", "Close"]);
        assert!(other.begin_use().is_ok());
        other.remove();
        drop((channel, other));
        assert_eq!(bed.end()?, END);
        Ok(())
    }
}
