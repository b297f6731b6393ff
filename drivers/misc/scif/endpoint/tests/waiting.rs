// SPDX-License-Identifier: GPL-2.0

//! A call that waits on an endpoint, in a thread of its own.

use super::{
    bed::{
        receive,
        send,
        RING_SIZE, //
    },
    windows::ANYWHERE, //
};
use crate::{
    endpoint::Endpoint,
    sys::{
        tests::TestMemory,
        workqueue::Queue, //
    },
};
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Interval of the checks whether the call waits.
const LOOK: Delta = Delta::from_micros(200);
/// Number of these checks. A call that does not wait by then will not wait.
const LOOKS: u32 = 100_000;

/// A call that waits.
#[derive(Clone, Copy)]
pub(super) enum Call {
    Accept,
    Receive,
    /// Sends more than the ring holds.
    Send,
    /// Registers a page.
    Register,
}

/// A call that waits in a thread of its own.
pub(super) struct Waiting {
    thread: Arc<Thread>,
    queue: Queue,
}

#[pin_data]
struct Thread {
    endpoint: Arc<Endpoint>,
    call: Call,
    result: SetOnce<Result<usize>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Thread { self.work }
}

impl WorkItem for Thread {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let endpoint = &this.endpoint;
        this.result.populate(match this.call {
            Call::Accept => endpoint.accept_endpoint(true).map(|_| 0),
            Call::Receive => receive(endpoint, &mut [0; 8], true),
            Call::Send => send_much(endpoint),
            Call::Register => register(endpoint),
        });
    }
}

fn send_much(endpoint: &Endpoint) -> Result<usize> {
    let bytes = KVec::from_elem(0, 3 * RING_SIZE, GFP_KERNEL)?;
    send(endpoint, &bytes, true)
}

fn register(endpoint: &Endpoint) -> Result<usize> {
    let memory = TestMemory::new(1)?;
    endpoint
        .register(memory.buffer(), 0, ANYWHERE)
        .map(|offset| offset as usize)
}

impl Waiting {
    /// Starts the call, and returns when it waits. ETIMEDOUT: the call does not wait. The endpoint
    /// is closed then.
    pub(super) fn in_call(endpoint: &Arc<Endpoint>, call: Call) -> Result<Self> {
        let thread = Arc::pin_init(
            pin_init!(Thread {
                endpoint: endpoint.clone(),
                call,
                result: SetOnce::new(),
                work <- new_work!("scif_test::Thread"),
            }),
            GFP_KERNEL,
        )?;
        let queue = Queue::background(c"scif_test")?;
        // The work is enqueued only once, so this can't fail.
        let _ = queue.enqueue(thread.clone());
        for _ in 0..LOOKS {
            if endpoint.waiters.has_waiters() {
                return Ok(Self { thread, queue });
            }
            fsleep(LOOK);
        }
        endpoint.close();
        Err(ETIMEDOUT)
    }

    /// Waits for the end of the call. Returns its result.
    pub(super) fn result(self) -> Result<usize> {
        self.queue.flush();
        self.thread.result.copy().unwrap_or(Err(EAGAIN))
    }
}
