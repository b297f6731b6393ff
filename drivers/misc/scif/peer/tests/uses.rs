// SPDX-License-Identifier: GPL-2.0

//! Tests of a channel that is closed while a caller uses it.

use super::{
    super::channel::{
        Channel,
        OwnedChannelUse,
        State, //
    },
    toy::Bed,
    LOOK, //
};
use crate::{
    sync::patience::Patience,
    sys::workqueue::Queue, //
};
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    },
    time::delay::fsleep,
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// A caller that uses a channel until a close has given up the channel's transfer.
#[pin_data]
struct Writer {
    channel: Arc<Channel>,
    transfer: OwnedChannelUse,
    is_inside: Atomic<bool>,
    has_left: Atomic<bool>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Writer { self.work }
}

impl WorkItem for Writer {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let inside = this.channel.begin_use();
        this.is_inside.store(true, Release);
        while !this.transfer.is_given_up() {
            fsleep(LOOK);
        }
        this.has_left.store(inside.is_ok(), Release);
    }
}

#[kunit_tests(scif_peer_uses)]
mod cases {
    use super::*;

    #[test]
    fn abandoning_a_channel_waits_for_its_writers() -> Result {
        let bed = Bed::new()?;
        let id = bed.record.channels.lock().next_id();
        let channel = Channel::new(&bed.peer, bed.record.clone(), id, State::Established)?;
        let (of_writer, transfer) = (channel.clone(), channel.begin_owned_use()?);
        let writer = Arc::pin_init(
            pin_init!(Writer {
                channel: of_writer,
                transfer,
                is_inside: Atomic::new(false),
                has_left: Atomic::new(false),
                work <- new_work!("scif_test::Writer"),
            }),
            GFP_KERNEL,
        )?;
        let queue = Queue::background(c"scif_test")?;
        // This can't fail, as the work is enqueued only once.
        let _ = queue.enqueue(writer.clone());
        while !writer.is_inside.load(Acquire) {
            fsleep(LOOK);
        }
        assert!(!channel.drain_uses(&Patience::Spent));
        assert!(writer.has_left.load(Acquire));
        queue.flush();
        drop(writer);
        assert!(channel.drain_uses(&Patience::Endless));
        drop(channel);
        bed.end()?;
        Ok(())
    }
}
