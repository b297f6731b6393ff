// SPDX-License-Identifier: GPL-2.0

//! Reads that the peer's engine makes: it is asked to write what is to be read into windows of this end.
//!
//! A read across a bus waits for its answer, a write does not: see `ways.rs` for when this is
//! worth it. Memory that is no window is offered as one for this alone (`memory/windows/unlisted.rs`).
//! A *pull* is a transfer as any other. It keeps the windows of both sides, the peer and the channel in
//! use until the peer has answered; it has a number, on which fences rest, and its end is told to whom
//! the end of others is. The other side is `pushes.rs`.
//!
//! A peer that does not want to has written nothing and will not: then this end's engine reads. One that
//! is lost ends all of them with an error; windows that it could still write to stay as long as they do
//! for any other reason (`memory/exports.rs`). One that does not answer one of them for long is lost, as the
//! engine of this end would have been given up: nobody waits without a limit.
//!
//! Where this end does not reach, the peer *must*: then it does it in whatever way it can, and what it does
//! not want fails.
//!
//! Lock: `refused` is a leaf.

use super::{
    operation::{
        Completion,
        Operation,
        Request, //
    },
    transfer::Transfer, //
};
use crate::{
    logic::{
        hello,
        messages::{
            Message,
            Status,
            WindowId,
            PUSH_ORDERED,
            PUSH_SURELY, //
        },
    },
    memory::windows::Windows,
    peer::{
        channel::Channel,
        questions::{
            Questions,
            LIMIT, //
        },
        Answerer,
        Peer, //
    },
    sync::outcome::Outcome,
};
use kernel::{
    impl_has_work, new_spinlock, new_work,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SpinLock, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// What a peer takes of them at once; the others are read by this end.
pub(super) const MOST: usize = 256;

/// Bytes of all of them at once; the others are read by this end.
const MOST_BYTES: u64 = 1 << 30;

/// A peer that has said that it has no engine is not asked again before: it may get one, and each refusal costs
/// a read the way to the peer and back.
const REFUSED: Delta = Delta::from_secs(10);

/// Whether the peer has to, as this end's engine can't read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Must {
    Yes,
    No,
}

/// Where the peer is to write.
#[derive(Clone, Copy)]
pub(super) enum Destination {
    /// At this offset in windows of this end.
    Registered(u64),
    /// At this offset in a window that was offered for this alone.
    Unlisted(WindowId, u64),
}

/// One that the peer has not answered, and what it keeps in use.
struct Asked {
    pull: Arc<Pull>,
    request: Request,
}

impl Asked {
    /// Tells the result, then lets go of what it keeps. May sleep.
    fn end(self, result: Result) {
        self.pull.end(result);
    }

    /// Has this end's engine read. Any context.
    fn read_here(self) {
        let Self { pull, request, .. } = self;
        *pull.request.lock() = Some(request);
        // It is enqueued once, so this can't fail.
        let _ = pull.channel.queues().patient.enqueue(pull.clone());
    }
}

/// Those that one peer was asked for.
#[pin_data]
pub(crate) struct Pulls {
    peer: Arc<Peer>,
    #[pin]
    questions: Questions<Asked>,
    /// When the peer has said last that it has no engine.
    #[pin]
    refused: SpinLock<Option<Instant<Monotonic>>>,
}

/// See the head of this file.
#[pin_data]
pub(super) struct Pull {
    channel: Arc<Channel>,
    operation: Operation,
    must: Must,
    synchronous: bool,
    /// Which of the path's engines reads if the peer's does not write.
    engine: Option<usize>,
    outcome: Outcome,
    /// For the engine, if the peer does not want to.
    #[pin]
    request: SpinLock<Option<Request>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Pull { self.work }
}

/// The peer does not want to: reads by this end's engine.
impl WorkItem for Pull {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let request = this.request.lock().take();
        let Some(mut request) = request else { return };
        let Some(route) = this.channel.path().engine(this.engine) else {
            this.end(Err(EIO));
            return;
        };
        request.operation.completion = this.clone();
        // Its end is told in any case.
        let _ = Transfer::start(route, request);
        route.engine.arm();
    }
}

impl Completion for Pull {
    fn ended(self: ArcBorrow<'_, Self>, _: &Operation, result: Result, _: bool) {
        self.end(result);
    }
}

impl Pull {
    fn new(
        channel: &Arc<Channel>,
        engine: Option<usize>,
        must: Must,
        request: &Request,
    ) -> Result<Arc<Self>> {
        let init = pin_init!(Self {
            channel: channel.clone(),
            operation: request.operation.clone(),
            must,
            synchronous: request.synchronous,
            engine,
            outcome: Outcome::new(),
            request <- new_spinlock!(None, "Pull::request"),
            work <- new_work!("Pull::work"),
        });
        Arc::pin_init(init, GFP_KERNEL_ACCOUNT)
    }

    /// None while it runs. Any context.
    pub(super) fn result(&self) -> Option<Result> {
        self.outcome.result()
    }

    /// Asks the peer, which knows it by this token from now on. Killable.
    fn ask(&self, token: u32, ordered: bool, source: u64, destination: Destination) -> Result {
        let (window, destination) = match destination {
            Destination::Registered(offset) => (0, offset),
            Destination::Unlisted(window, offset) => (window.0, offset),
        };
        let mut how = 0;
        if ordered {
            how |= PUSH_ORDERED;
        }
        if self.must == Must::Yes {
            how |= PUSH_SURELY;
        }
        self.channel.post(&Message::PushWanted {
            target: self.channel.remote()?,
            token,
            how,
            source,
            destination,
            len: self.operation.bytes,
            window,
        })
    }

    /// It has ended; called once. Soft interrupt context, or any other but hard interrupts.
    fn end(&self, result: Result) {
        self.outcome.end_with(result);
        self.operation.end(result, self.synchronous);
    }
}

impl Pulls {
    /// None yet. May sleep.
    pub(super) fn new(peer: &Arc<Peer>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                questions <- Questions::new(MOST, MOST_BYTES),
                refused <- new_spinlock!(None, "Pulls::refused"),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether the peer may be asked. Any context but interrupts.
    pub(super) fn are_possible(&self) -> bool {
        let may_be_asked = || {
            let refused = *self.refused.lock();
            refused.is_none_or(|refused| refused.elapsed() >= REFUSED)
        };
        self.peer.features & hello::PUSHES != 0 && may_be_asked()
    }

    /// Asks the peer for what is requested, which is read from its windows at `source`; if it does not want to, this
    /// end's `engine` reads, unless it `must`. Then this waits for room, too. Gives the request back if the peer can't
    /// be asked: then no answer will come. Killable.
    pub(super) fn start(
        &self,
        channel: &Arc<Channel>,
        engine: Option<usize>,
        must: Must,
        source: u64,
        destination: Destination,
        request: Request,
    ) -> Result<Arc<Pull>, (Request, Error)> {
        let pull = match Pull::new(channel, engine, must, &request) {
            Ok(pull) => pull,
            Err(error) => return Err((request, error)),
        };
        let (weight, ordered) = (pull.operation.bytes, request.parts.1 > 0);
        let asked = Asked {
            pull: pull.clone(),
            request,
        };
        let put = match must {
            Must::Yes => self.questions.put_in_turn(asked, weight),
            Must::No => self.questions.put(asked, weight),
        };
        let token = put.map_err(|(asked, error)| (asked.request, error))?;
        self.watch();
        let Err(error) = pull.ask(token, ordered, source, destination) else {
            return Ok(pull);
        };
        // The loss of the peer may have ended it already.
        let Some(asked) = self.questions.take(token) else {
            return Ok(pull);
        };
        self.watch();
        Err((asked.request, error))
    }

    /// Has the peer counted as lost unless it answers the one that waits longest in time.
    fn watch(&self) {
        self.questions.with(|asked| {
            // Tokens are given in order; one that began anew at 0 is looked at a little too soon.
            let left = asked.next().map(|(_, since)| {
                let left = (LIMIT - since.elapsed()).as_millis();
                u32::try_from(left).unwrap_or(0).max(1)
            });
            self.peer
                .liveness
                .expect_answer_within(Answerer::Pushes, left);
        });
    }

    /// The peer has answered. Called by the control work.
    pub(crate) fn answered(&self, token: u32, status: Status) {
        // An answer to what was not asked, or not any more, is none of our business.
        let Some(asked) = self.questions.take(token) else {
            return;
        };
        self.watch();
        match status {
            Status::Done => asked.end(Ok(())),
            Status::TransferFailed => asked.end(Err(EIO)),
            refused if asked.pull.must == Must::Yes => asked.end(Err(match refused {
                Status::NoMemory => ENOMEM,
                Status::Unknown => ENXIO,
                _ => EIO,
            })),
            refused => {
                if refused == Status::OutOfReach {
                    *self.refused.lock() = Some(Instant::now());
                }
                asked.read_here();
            }
        }
    }

    /// Returns when none of the channel's waits for the peer any more, and the peer has let go of the memory
    /// that it was offered for them, or is lost. May sleep.
    pub(super) fn drain(&self, channel: &Arc<Channel>, windows: &Windows) {
        let Ok(waiters) = channel.waiters() else {
            return;
        };
        let are_released = || windows.count_unlisted() == 0 || channel.is_over();
        let done = || (self.count_of(channel) == 0 && are_released()).then_some(());
        loop {
            let left = (self.count_of(channel), windows.count_unlisted());
            if waiters.wait_uninterruptible_timeout(LIMIT, done).is_some() {
                return;
            }
            // What it does for others does not count.
            if (self.count_of(channel), windows.count_unlisted()) == left {
                self.peer
                    .fail("it does not let go of what it was to write to");
            }
        }
    }

    fn count_of(&self, channel: &Arc<Channel>) -> usize {
        self.questions.with(|asked| {
            asked
                .filter(|(asked, _)| Arc::ptr_eq(&asked.pull.channel, channel))
                .count()
        })
    }

    /// The peer is lost: ends all, for good. May sleep.
    pub(crate) fn lost(&self) {
        for asked in self.questions.close(ENODEV) {
            asked.end(Err(ENODEV));
        }
        self.watch();
    }
}

#[kunit_tests(scif_rma_pulls)]
mod tests {
    use super::*;
    use crate::{
        arguments::Direction,
        logic::envelope::ChannelId,
        memory::range_tree::Few,
        peer::{
            channel::{
                Owner,
                State, //
            },
            tests::toy::Bed, //
        },
        rma::operation::{
            Sides,
            Surroundings, //
        },
    };

    /// Has the channel, and hears of no end.
    struct Nobody;

    impl Owner for Nobody {
        fn uses_ended(&self, _: &Channel) {}

        fn remove(&self, _: ChannelId) {}
    }

    impl Completion for Nobody {
        fn ended(self: ArcBorrow<'_, Self>, _: &Operation, _: Result, _: bool) {}
    }

    #[test]
    fn a_request_that_the_peer_does_not_hear_of_comes_back() -> Result {
        let bed = Bed::new()?;
        let nobody = Arc::new(Nobody, GFP_KERNEL)?;
        // Of which the other end is not known, so nothing can be sent there.
        let channel = Channel::new(&bed.peer, nobody.clone(), ChannelId(1), State::Established)?;
        let pulls = Pulls::new(&bed.peer)?;
        let request = Request {
            operation: Operation {
                completion: nobody,
                number: 1,
                direction: Direction::Read,
                bytes: 8,
            },
            sides: Sides {
                local: Few::new(),
                remote: Few::new(),
            },
            parts: (8, 0),
            synchronous: true,
            surroundings: Surroundings {
                channel: None,
                peer: bed.peer.enter_owned().ok_or(ENODEV)?,
            },
        };
        let destination = Destination::Registered(0);
        let start = |must, request| pulls.start(&channel, None, must, 0, destination, request);
        let back = start(Must::Yes, request).err();
        let back = back.and_then(|(request, _)| start(Must::No, request).err());
        assert!(back.is_some_and(|(_, error)| error == ENOTCONN));
        // Nobody waits for an answer that does not come.
        assert_eq!(pulls.questions.count(), 0);
        channel.remove();
        drop((channel, pulls));
        bed.end()?;
        Ok(())
    }
}
