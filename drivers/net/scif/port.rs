// SPDX-License-Identifier: GPL-2.0

//! A port of a network device: a pair of queues with the peer, and the NAPI context that polls it.
//!
//! The stack gives a frame to [`Port::send`], and [`Port::poll`] takes frames of the peer.
//!
//! # What the peer can do
//!
//! The peer can send any bytes, as any host on a wire. The headers of a frame are copied before the
//! stack reads them, as the peer may go on writing to its buffers. The description of a frame is
//! read once and checked by the kernel's function for virtual machines.
//!
//! # Sleep
//!
//! Before the port sleeps, it asks the peer to ring. A poll that has ended may still be at that, or at
//! the contrary, while another CPU polls. To ask for a doorbell too often does no harm. So only the last
//! poll that began may ask the peer not to ring ([`Port::polls`]).
//!
//! Locks: `tx` and `rx` are never held together, and bottom halves are disabled meanwhile.

use crate::sys::{
    bottom_halves_disabled,
    Counts,
    Filter,
    Incoming,
    Napi,
    NetDev,
    Outgoing,
    Packet,
    PacketOut, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SetOnce,
        SpinLock, //
    }, //
};
use scif_main::sister::{
    Payload,
    Queue,
    Received,
    Receiving,
    Sending,
    MOST_BYTES, //
};

/// Bytes of a frame that are copied at first: the headers, or a small frame as a whole.
const HEADERS: usize = 256;

/// Most frames that are taken before they are delivered. Few, as each poll sets up and drops an array of
/// so many, also if there is no frame.
const BATCH: usize = 16;

/// Buffers that have to be free before a queue that was stopped goes on. A frame never takes more.
const ENOUGH: u32 = MOST_BYTES.div_ceil(4096);

/// A pair of queues with the peer.
#[pin_data]
pub(crate) struct Port {
    pub(crate) napi: SetOnce<Napi>,
    /// The queue for frames to the peer, while the rings are joined.
    #[pin]
    tx: SpinLock<Option<Arc<Queue>>>,
    /// The same queue, for frames of the peer.
    #[pin]
    rx: SpinLock<Option<Arc<Queue>>>,
    /// Whether frames may be with an engine.
    has_aloft: Atomic<bool>,
    /// Number of polls that have begun.
    polls: Atomic<u32>,
    /// Whether the peer may ring for the next frame. Written under `rx`.
    is_asleep: Atomic<bool>,
    pub(crate) sent: Counts,
    pub(crate) received: Counts,
}

impl Port {
    /// Creates a port without a queue or a context.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            napi: SetOnce::new(),
            tx <- new_spinlock!(None, "scif_net::Port::tx"),
            rx <- new_spinlock!(None, "scif_net::Port::rx"),
            has_aloft: Atomic::new(false),
            polls: Atomic::new(0),
            is_asleep: Atomic::new(false),
            sent: Counts::new(),
            received: Counts::new(),
        })
    }

    /// Returns the queue, while the rings are joined.
    pub(crate) fn queue(&self) -> Option<Arc<Queue>> {
        bottom_halves_disabled(|| self.tx.lock().clone())
    }

    /// Takes a queue for both directions, or drops the present one.
    /// Context: may sleep.
    pub(crate) fn attach(&self, queue: Option<&Arc<Queue>>) {
        let before = bottom_halves_disabled(|| {
            let tx = core::mem::replace(&mut *self.tx.lock(), queue.cloned());
            let rx = core::mem::replace(&mut *self.rx.lock(), queue.cloned());
            (tx, rx)
        });
        drop(before);
    }

    /// Sends a frame, or drops it. Returns the frame if the caller has to keep it until the queue is
    /// woken.
    /// Context: bottom halves disabled, one call at a time.
    pub(crate) fn send(&self, device: &NetDev, number: u32, frame: Outgoing) -> Option<Outgoing> {
        let tx = self.tx.lock();
        let Some(mut sending) = tx.as_ref().and_then(|queue| queue.sending()) else {
            self.sent.drop_one();
            return None;
        };
        let (len, segments) = (frame.len(), frame.segments());
        let has_more_behind = frame.has_more_behind();
        let room = sending.room().unwrap_or(0);
        if sending.buffers_of(len) > room {
            device.stop(number);
            let has_room = sending
                .publish()
                .and_then(|()| sending.wait_for_room(ENOUGH));
            if has_room == Ok(true) {
                device.wake(number);
            }
            return Some(frame);
        }
        match self.put(&mut sending, device, number, frame) {
            Ok(()) => self.sent.add(segments, len),
            Err(_) => self.sent.fail_one(),
        }
        let is_full = sending.room().is_ok_and(|room| room < ENOUGH);
        if has_more_behind && !is_full {
            sending.leave_to_next();
            return None;
        }
        if is_full {
            device.stop(number);
        }
        // Fails only if the session ends.
        let _ = sending.publish();
        device.landed(number, sending.landed());
        if is_full && sending.wait_for_room(ENOUGH) == Ok(true) {
            device.wake(number);
        }
        None
    }

    /// Puts a frame into buffers of the peer, which has room: by CPU, or by an engine.
    fn put(
        &self,
        sending: &mut Sending<'_>,
        device: &NetDev,
        number: u32,
        frame: Outgoing,
    ) -> Result {
        let (len, meta) = (frame.len(), frame.describe()?);
        let engine = match frame.may_wait() {
            true => sending.engine_for(len),
            false => None,
        };
        let Some(engine) = engine else {
            return sending.put(len, &meta, |from, room| frame.copy_to(from, room));
        };
        let frame = KBox::new(frame, GFP_ATOMIC | __GFP_NOWARN)?;
        // Before the frame can land: the poll that follows must see it.
        self.has_aloft.store(true, Relaxed);
        if sending.put_by(engine, len, &meta, frame)? {
            device.began(number, len);
        }
        Ok(())
    }

    /// Copies frames of programs to the peer. Returns how many of them, the first ones, were sent or
    /// dropped. There is no room for the others.
    /// Context: bottom halves disabled.
    pub(crate) fn send_packets(&self, frames: &[PacketOut]) -> usize {
        let tx = self.tx.lock();
        let Some(mut sending) = tx.as_ref().and_then(|queue| queue.sending()) else {
            return 0;
        };
        let mut sent = 0;
        for frame in frames {
            let len = frame.len();
            match sending.put(len, &PacketOut::META, |from, room| {
                frame.copy_to(from, room)
            }) {
                Ok(()) => self.sent.add(1, len),
                // A program has made it longer than any frame.
                Err(EMSGSIZE) => self.sent.drop_one(),
                Err(_) => break,
            }
            sent += 1;
        }
        sent
    }

    /// Returns whether a frame is with an engine.
    fn is_aloft(&self) -> bool {
        if !self.has_aloft.load(Relaxed) {
            return false;
        }
        let tx = self.tx.lock();
        let sending = tx.as_ref().and_then(|queue| queue.sending());
        sending.is_some_and(|mut sending| sending.reap())
    }

    /// Tells the peer of frames that an engine has copied. Returns whether this has to be done again
    /// soon.
    fn publish(&self, device: &NetDev, number: u32) -> bool {
        let tx = self.tx.lock();
        let Some(mut sending) = tx.as_ref().and_then(|queue| queue.sending()) else {
            return false;
        };
        sending.reap();
        // Fails only if the session ends.
        let _ = sending.publish();
        self.has_aloft.store(sending.reap(), Relaxed);
        device.landed(number, sending.landed());
        sending.is_settling()
    }

    /// Takes frames of the peer, at most `budget`, and delivers them. Returns their number, or the
    /// budget if there may be more.
    /// Context: NAPI.
    pub(crate) fn poll(&self, device: &NetDev, number: u32, budget: usize) -> usize {
        let Some(napi) = self.napi.as_ref() else {
            return 0;
        };
        let number_of_poll = self.polls.load(Relaxed).wrapping_add(1);
        self.polls.store(number_of_poll, Relaxed);
        if budget == 0 {
            // The console's messages by netpoll, with interrupts off, where no engine may be called.
            return 0;
        }
        let has_to_publish = self.has_aloft.load(Relaxed) && self.publish(device, number);
        let mut done = 0;
        while done < budget {
            let most = BATCH.min(budget - done);
            let taken = self.deliver_some(napi, device, most);
            done += taken;
            if taken < most {
                break;
            }
        }
        if device.is_stopped(number) && self.may_go_on() {
            device.wake(number);
        }
        if done == budget || has_to_publish {
            // More frames may be there.
            return budget;
        }
        if !napi.complete(done) {
            // A program polls, or the stack has put interrupts off: doorbells would be in vain. After
            // a frame, the peer has reached the count at which it was to ring.
            if done == 0 && self.is_asleep.load(Relaxed) {
                self.stay_awake(number_of_poll);
            }
        } else if !self.is_aloft() && self.sleep() {
            // While a frame is with an engine, its landing schedules the next poll.
            napi.schedule();
        }
        done
    }

    /// Asks the peer to ring for the next frame. Returns whether one has arrived meanwhile.
    fn sleep(&self) -> bool {
        let mut is_missed = false;
        self.receiving(|receiving| {
            is_missed = receiving.sleep() == Ok(true);
            self.is_asleep.store(true, Relaxed);
        });
        is_missed
    }

    /// Asks the peer not to ring, unless another poll has begun since, which may sleep already.
    fn stay_awake(&self, number_of_poll: u32) {
        self.receiving(|receiving| {
            if self.polls.load(Relaxed) == number_of_poll {
                // Fails only if the session ends.
                let _ = receiving.stay_awake();
                self.is_asleep.store(false, Relaxed);
            }
        });
    }

    /// Takes frames of the peer, at most `most`, and delivers them. Returns their number.
    /// Context: NAPI.
    fn deliver_some(&self, napi: &Napi, device: &NetDev, most: usize) -> usize {
        let mut frames = [const { None }; BATCH];
        let mut taken = 0;
        let is_filtered = Filter::is_wanted(napi);
        self.receiving(|receiving| {
            for place in frames.iter_mut().take(most) {
                match receiving.take_next() {
                    Ok(Some(frame)) => *place = self.take(napi, device, frame, is_filtered),
                    Ok(None) | Err(_) => break,
                }
                taken += 1;
            }
        });
        let mut filter = None;
        for frame in frames.into_iter().take(taken).flatten() {
            match frame {
                Taken::Frame(frame) => frame.deliver(napi),
                Taken::Packet(packet) => {
                    filter
                        .get_or_insert_with(|| Filter::new(napi))
                        .decide(packet);
                }
            }
        }
        taken
    }

    fn receiving(&self, call: impl FnOnce(&mut Receiving<'_>)) {
        let rx = self.rx.lock();
        if let Some(mut receiving) = rx.as_ref().and_then(|queue| queue.receiving()) {
            call(&mut receiving);
        };
    }

    /// Returns whether a sender that was stopped has room. If not, the peer will ring: frames of
    /// programs may have taken the room for which it has rung.
    fn may_go_on(&self) -> bool {
        let tx = self.tx.lock();
        let sending = tx.as_ref().and_then(|queue| queue.sending());
        sending.is_some_and(|mut sending| {
            sending.room().is_ok_and(|room| room >= ENOUGH)
                || sending.wait_for_room(ENOUGH) == Ok(true)
        })
    }

    /// Takes a frame of the peer for the stack or for a program, or counts why not.
    fn take(
        &self,
        napi: &Napi,
        device: &NetDev,
        frame: Received<'_>,
        is_filtered: bool,
    ) -> Option<Taken> {
        let len = frame.total();
        let taken = match (device.is_running(), is_filtered) {
            (false, _) => Err(ENETDOWN),
            (true, true) => Packet::copy_of(&frame)
                .map(|packet| Some((1, Taken::Packet(packet))))
                .ok_or(EMSGSIZE),
            (true, false) => assemble(napi, frame)
                .map(|frame| frame.map(|frame| (frame.segments(), Taken::Frame(frame)))),
        };
        match taken {
            Ok(Some((packets, taken))) => {
                self.received.add(packets, len);
                Some(taken)
            }
            Ok(None) => {
                self.received.fail_one();
                None
            }
            Err(_) => {
                self.received.drop_one();
                None
            }
        }
    }
}

/// A frame of the peer.
enum Taken {
    /// For the stack.
    Frame(Incoming),
    /// For a program of XDP.
    Packet(Packet),
}

/// Makes a frame of the stack. `None` if its description is wrong. ENOMEM: there is no memory.
fn assemble(napi: &Napi, mut frame: Received<'_>) -> Result<Option<Incoming>> {
    let mut skb = Incoming::new(napi)?;
    let (meta, total) = (*frame.meta(), frame.total());
    for place in 0..frame.count() {
        let (len, mut from) = (frame.len(place), 0);
        if place == 0 {
            from = skb.copy_headers(&frame, len.min(HEADERS), total)?;
        }
        if from < len {
            skb.add(&mut frame, place, from, len - from)?;
        }
    }
    drop(frame);
    Ok(skb.finish(napi, &meta))
}
