// SPDX-License-Identifier: GPL-2.0

//! Tests of bytes through a connection, and of calls that wait for them.

use super::{
    bed::{
        hears,
        receive,
        send,
        Bed,
        Pair,
        RING_SIZE, //
    },
    waiting::{
        Call,
        Waiting, //
    },
};
use crate::sys::chardev::poll_events;
use kernel::prelude::*;

/// Returns bytes in a pattern in which no two parts of a ring are equal.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

#[kunit_tests(scif_endpoint_streams)]
mod cases {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_for_any_call_sizes() -> Result {
        const TOTAL: usize = 5 * RING_SIZE + 17;
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let (mut sent, mut received) = (0, 0);
        let mut bytes = [0; 700];
        while received < TOTAL {
            // Neither length divides the ring, so each end meets the end of the ring in the middle
            // of a call.
            let count = bytes.len().min(TOTAL - sent);
            for (index, place) in bytes.iter_mut().enumerate() {
                *place = byte(sent + index);
            }
            sent += send(&near, bytes.get(..count).ok_or(EINVAL)?, false)?;
            let room = bytes.get_mut(..300).ok_or(EINVAL)?;
            let count = receive(&far, room, false)?;
            for (index, found) in room.iter().take(count).enumerate() {
                assert_eq!(*found, byte(received + index));
            }
            received += count;
        }
        assert_eq!(sent, TOTAL);
        assert_eq!(receive(&far, &mut bytes, false)?, 0);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn full_ring_is_not_writable_until_bytes_are_received() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let ready = |bit| near.poll_state() & bit != 0;
        assert!(ready(poll_events::OUT) && !ready(poll_events::IN));
        let bytes = KVec::from_elem(7, 2 * RING_SIZE, GFP_KERNEL)?;
        assert_eq!(send(&near, &bytes, false)?, RING_SIZE);
        assert_eq!(send(&near, &bytes, false)?, 0);
        assert!(!ready(poll_events::OUT));
        assert!(far.poll_state() & poll_events::IN != 0);
        let mut some = [0; 100];
        assert_eq!(receive(&far, &mut some, true)?, some.len());
        assert!(ready(poll_events::OUT));
        assert_eq!(send(&near, &bytes, false)?, some.len());
        drop((near, far));
        bed.end()
    }

    #[test]
    fn blocking_send_waits_for_the_receiver() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let sending = Waiting::in_call(&near, Call::Send)?;
        let mut bytes = KVec::from_elem(1, 3 * RING_SIZE, GFP_KERNEL)?;
        assert_eq!(receive(&far, &mut bytes, true)?, bytes.len());
        assert_eq!(sending.result()?, bytes.len());
        assert!(bytes.iter().all(|byte| *byte == 0));
        drop((near, far));
        bed.end()
    }

    #[test]
    fn sender_keeps_waiting_while_there_is_too_little_room() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let sending = Waiting::in_call(&near, Call::Send)?;
        // The sender is woken for data, and finds less room than it waits for.
        assert!(near.poll_state() & poll_events::IN == 0);
        let mut bytes = KVec::from_elem(1, 3 * RING_SIZE, GFP_KERNEL)?;
        let (some, rest) = bytes.split_at_mut(10);
        assert_eq!(receive(&far, some, true)?, some.len());
        assert_eq!(send(&far, b"x", true)?, 1);
        assert_eq!(receive(&near, &mut [0], true)?, 1);
        assert_eq!(receive(&far, rest, true)?, rest.len());
        assert_eq!(sending.result()?, 3 * RING_SIZE);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn replacing_a_reached_wake_request_wakes_its_waiter() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let receiving = Waiting::in_call(&far, Call::Receive)?;
        // Acts as a peer that has moved its counter and not read the request yet. It will not find
        // that request any more.
        far.connection()?.stream.pretend_more_was_sent(8)?;
        // If the receiver was only on its way to sleep, it already has the bytes.
        let _ = far.poll_state();
        assert_eq!(receiving.result()?, 8);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn poll_does_not_replace_the_wake_request_of_a_receiver() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let receiving = Waiting::in_call(&far, Call::Receive)?;
        // The poller has the peer ring for the first byte, and for no further one.
        assert!(far.poll_state() & poll_events::IN == 0);
        for byte in b"one more" {
            assert_eq!(send(&near, &[*byte], true)?, 1);
        }
        assert_eq!(receiving.result()?, 8);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn bytes_sent_before_close_can_be_received() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        assert_eq!(send(&near, b"the rest", true)?, 8);
        near.close();
        bed.settle();
        assert_eq!(far.facts().state, "peer-closed");
        let ready = far.poll_state();
        assert!(ready & poll_events::IN != 0 && ready & poll_events::HUP != 0);
        assert_eq!(send(&far, b"x", true), Err(ECONNRESET));
        // A call that receives some of its bytes does not fail.
        let mut bytes = [0; 20];
        assert_eq!(receive(&far, &mut bytes[..4], true)?, 4);
        assert_eq!(receive(&far, &mut bytes[4..], true)?, 4);
        assert_eq!(&bytes[..8], b"the rest");
        assert_eq!(receive(&far, &mut bytes, true), Err(ECONNRESET));
        assert_eq!(receive(&far, &mut bytes, false), Err(ECONNRESET));
        drop((near, far));
        bed.end()
    }

    #[test]
    fn close_of_either_end_wakes_blocked_receiver() -> Result {
        let bed = Bed::new()?;
        for own in [true, false] {
            let Pair { near, far } = bed.pair()?;
            let receiving = Waiting::in_call(&near, Call::Receive)?;
            // The receiver goes on waiting when it has got some of its bytes.
            assert_eq!(send(&far, b"half", true)?, 4);
            if own { &near } else { &far }.close();
            assert_eq!(receiving.result()?, 4);
            assert!(receive(&near, &mut [0], true).is_err());
            drop((near, far));
        }
        bed.end()
    }

    #[test]
    fn close_of_either_end_wakes_blocked_sender() -> Result {
        let bed = Bed::new()?;
        for own in [true, false] {
            let Pair { near, far } = bed.pair()?;
            let sending = Waiting::in_call(&near, Call::Send)?;
            if own { &near } else { &far }.close();
            assert_eq!(sending.result()?, RING_SIZE);
            assert!(send(&near, b"x", true).is_err());
            drop((near, far));
        }
        bed.end()
    }

    #[test]
    fn node_loss_wakes_blocked_callers() -> Result {
        let bed = Bed::new()?;
        let (first, second) = (bed.pair()?, bed.pair()?);
        let receiving = Waiting::in_call(&first.near, Call::Receive)?;
        let sending = Waiting::in_call(&second.near, Call::Send)?;
        bed.lose()?;
        assert_eq!(receiving.result(), Err(ECONNRESET));
        assert_eq!(sending.result(), Ok(RING_SIZE));
        assert_eq!(send(&second.near, b"x", true), Err(ECONNRESET));
        // Data that has arrived can be received after the loss.
        assert_eq!(receive(&second.far, &mut [0; 8], true), Ok(8));
        drop((first, second));
        bed.end()
    }

    #[test]
    fn data_and_close_do_not_reach_other_connections() -> Result {
        let bed = Bed::new()?;
        let (first, second) = (bed.pair()?, bed.pair()?);
        assert_eq!(send(&first.near, b"first", true)?, 5);
        assert_eq!(receive(&second.far, &mut [0; 8], false)?, 0);
        assert!(hears(&second.far, &second.near)?);
        first.far.close();
        assert!(hears(&second.near, &second.far)?);
        drop((first, second));
        bed.end()
    }
}
