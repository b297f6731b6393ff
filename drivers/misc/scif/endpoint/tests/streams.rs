// SPDX-License-Identifier: GPL-2.0

//! Bytes through a connection, and who waits for them.

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

/// Bytes that can be told from others: no two parts of a ring are equal.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

#[kunit_tests(scif_endpoint_streams)]
mod cases {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_however_they_are_cut() -> Result {
        const TOTAL: usize = 5 * RING_SIZE + 17;
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let (mut sent, mut received) = (0, 0);
        let mut bytes = [0; 700];
        while received < TOTAL {
            // Neither divides the ring, so that each end comes to the seam in the midst of a call.
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
    fn a_full_ring_takes_no_more_until_there_is_room() -> Result {
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
    fn who_sends_much_waits_for_who_receives() -> Result {
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
    fn who_waits_for_much_room_is_not_lost_for_a_little() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let sending = Waiting::in_call(&near, Call::Send)?;
        // It is woken for data, and finds less room than it waits for.
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
    fn who_replaces_a_wish_that_was_reached_tells_who_waits() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let receiving = Waiting::in_call(&far, Call::Receive)?;
        // The other end has not looked yet whether it is to ring, and won't find that wish.
        far.connection()?.stream.pretend_more_was_sent(8)?;
        // Who receives has them already if it was on its way to sleep only.
        let _ = far.poll_state();
        assert_eq!(receiving.result()?, 8);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn who_polls_does_not_take_the_wish_of_who_receives() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let receiving = Waiting::in_call(&far, Call::Receive)?;
        // Whoever polls has the other end ring for the first byte, and for no further one.
        assert!(far.poll_state() & poll_events::IN == 0);
        for byte in b"one more" {
            assert_eq!(send(&near, &[*byte], true)?, 1);
        }
        assert_eq!(receiving.result()?, 8);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn what_was_sent_before_the_end_can_be_received() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        assert_eq!(send(&near, b"the rest", true)?, 8);
        near.close();
        bed.settle();
        assert_eq!(far.facts().state, "peer-closed");
        let ready = far.poll_state();
        assert!(ready & poll_events::IN != 0 && ready & poll_events::HUP != 0);
        assert_eq!(send(&far, b"x", true), Err(ECONNRESET));
        // A call that gets some of what it wants has not failed.
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
    fn the_close_of_either_end_wakes_who_receives() -> Result {
        let bed = Bed::new()?;
        for own in [true, false] {
            let Pair { near, far } = bed.pair()?;
            let receiving = Waiting::in_call(&near, Call::Receive)?;
            // Some of what it wants is not enough.
            assert_eq!(send(&far, b"half", true)?, 4);
            if own { &near } else { &far }.close();
            assert_eq!(receiving.result()?, 4);
            assert!(receive(&near, &mut [0], true).is_err());
            drop((near, far));
        }
        bed.end()
    }

    #[test]
    fn the_close_of_either_end_wakes_who_sends() -> Result {
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
    fn the_loss_of_the_node_wakes_who_waits() -> Result {
        let bed = Bed::new()?;
        let (first, second) = (bed.pair()?, bed.pair()?);
        let receiving = Waiting::in_call(&first.near, Call::Receive)?;
        let sending = Waiting::in_call(&second.near, Call::Send)?;
        bed.lose()?;
        assert_eq!(receiving.result(), Err(ECONNRESET));
        assert_eq!(sending.result(), Ok(RING_SIZE));
        assert_eq!(send(&second.near, b"x", true), Err(ECONNRESET));
        // What has come is received, lost or not.
        assert_eq!(receive(&second.far, &mut [0; 8], true), Ok(8));
        drop((first, second));
        bed.end()
    }

    #[test]
    fn connections_do_not_hear_each_other() -> Result {
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
