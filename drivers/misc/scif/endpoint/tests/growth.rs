// SPDX-License-Identifier: GPL-2.0

//! Tests of rings that become larger, for honest peers and for peers that lie about it.

use super::bed::{
    receive,
    send,
    Bed,
    Pair, //
};
use crate::{
    endpoint::{
        own_ring::{
            self,
            OwnRing,
            COMMON,
            MOVE, //
        },
        peer_ring::PeerRing,
        Endpoint, //
    },
    logic::{
        messages::RingAddress,
        ring::move_at, //
    },
    peer::channel::State,
    sync::fair_share::FairShares,
    sys::{
        buffer::Buffer,
        chardev::poll_events,
        current::User,
        memory_group::MemoryGroup, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

const LIMIT: usize = 65536;

/// Returns bytes that differ from their neighbours.
fn bytes(count: usize) -> Result<KVVec<u8>> {
    let mut bytes = KVVec::with_capacity(count, GFP_KERNEL)?;
    for at in 0..count {
        bytes.push((at % 251) as u8, GFP_KERNEL)?;
    }
    Ok(bytes)
}

/// Receives and returns whether the bytes are the expected ones.
fn takes(endpoint: &Endpoint, expected: &[u8]) -> Result<bool> {
    let mut found = KVVec::from_elem(0, expected.len(), GFP_KERNEL)?;
    let count = receive(endpoint, &mut found, true)?;
    Ok(count == expected.len() && *found == *expected)
}

/// Returns a ring of this node without a connection.
fn ring(bed: &Bed) -> Result<Arc<OwnRing>> {
    let peer = bed.peer()?;
    let share = own_ring::shares_of(peer.path())?.of_user(None, 0)?;
    Arc::pin_init(OwnRing::new(peer.path(), LIMIT as u32, share)?, GFP_KERNEL)
}

#[kunit_tests(scif_endpoint_growth)]
mod cases {
    use super::*;

    #[test]
    fn full_ring_grows_without_a_receiver() -> Result {
        let bed = Bed::with_rings(LIMIT)?;
        let Pair { near, far } = bed.pair()?;
        let all = bytes(LIMIT + 1)?;
        // A blocking sender does not wait for a receiver, as the ring grows.
        assert_eq!(send(&near, all.get(..60_000).ok_or(EINVAL)?, true)?, 60_000);
        assert!(takes(&far, all.get(..60_000).ok_or(EINVAL)?)?);
        assert_eq!(send(&near, &all, false)?, LIMIT);
        assert!(near.poll_state() & poll_events::OUT == 0);
        assert!(takes(&far, all.get(..LIMIT).ok_or(EINVAL)?)?);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn nonblocking_sender_fills_ring_up_to_its_limit() -> Result {
        let bed = Bed::with_rings(LIMIT)?;
        let Pair { near, far } = bed.pair()?;
        let all = bytes(LIMIT + 1)?;
        let (mut sent, mut tries) = (0, 0);
        while sent < LIMIT && tries < 1000 {
            // Sends small pieces, so that the ring is full again and again.
            let end = all.len().min(sent + 1000);
            sent += send(&near, all.get(sent..end).ok_or(EINVAL)?, false)?;
            tries += 1;
            bed.settle();
        }
        assert_eq!(sent, LIMIT);
        assert_eq!(send(&near, b"x", false)?, 0);
        assert!(takes(&far, all.get(..LIMIT).ok_or(EINVAL)?)?);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn closing_end_does_not_answer_requests_for_a_larger_ring() -> Result {
        let bed = Bed::with_rings(LIMIT)?;
        let Pair { near, far } = bed.pair()?;
        let all = bytes(LIMIT)?;
        let send_all = || Buffer::with_bytes(&all, |buffer| near.send_all(buffer, false));
        // Sets the state that the far end has while it closes and waits for its transfers.
        let set = |state| {
            far.connection()
                .map(|it| it.channel.change_state(|_| Some(state)))
        };
        set(State::Closed)?;
        assert_eq!(send_all(), Err(EAGAIN));
        bed.settle();
        assert_eq!(send_all(), Err(EAGAIN));
        set(State::Established)?;
        far.close();
        bed.settle();
        assert_eq!(send_all(), Err(ECONNRESET));
        drop((near, far));
        bed.end()
    }

    #[test]
    fn bytes_stay_in_order_when_the_ring_grows() -> Result {
        let bed = Bed::with_rings(LIMIT)?;
        let Pair { near, far } = bed.pair()?;
        let all = bytes(3 * LIMIT)?;
        let (mut sent, mut taken, mut round) = (0, 0, 0);
        // Keeps the ring from being empty, and fills it now and then.
        while taken < all.len() && round < 10_000 {
            let end = all.len().min(sent + 1777);
            sent += send(&near, all.get(sent..end).ok_or(EINVAL)?, false)?;
            if round % 16 == 0 {
                bed.settle();
            }
            let end = sent.min(taken + if round < 30 { 100 } else { 1901 });
            assert!(takes(&far, all.get(taken..end).ok_or(EINVAL)?)?);
            taken = end;
            round += 1;
        }
        assert_eq!(taken, all.len());
        drop((near, far));
        bed.end()
    }

    #[test]
    fn move_to_an_invalid_ring_position_is_detected() -> Result {
        let bed = Bed::new()?;
        let ring = ring(&bed)?;
        let peer = bed.peer()?;
        let moves = |at| ring.head.write_u64(MOVE, move_at(at));
        // There is no second area, so the word of the move is ignored.
        moves(1)?;
        assert!(ring.unread(0, 100).is_ok_and(|unread| unread.count == 100));
        let (_, size) = ring.grow(peer.path(), &MemoryGroup::current())?;
        assert!(size > ring.first.size());
        assert_eq!(ring.largest().size(), size);
        // Moves to a count beyond the first area, and to a count that was consumed before.
        moves(ring.first.size() + 1)?;
        assert!(ring.unread(0, 100).is_err());
        moves(99)?;
        assert!(ring.unread(100, 100).is_err());
        // Moves to a count in the middle of the unread bytes.
        moves(130)?;
        assert!(ring.unread(100, 100).is_ok_and(|unread| unread.count == 30));
        assert!(ring.unread(130, 70).is_ok_and(|unread| unread.count == 70));
        // The receiver does not return to the first area.
        assert_eq!(ring.size(), size);
        drop(peer);
        drop(ring);
        bed.end()
    }

    #[test]
    fn ring_at_its_size_limit_does_not_grow() -> Result {
        let bed = Bed::new()?;
        let ring = ring(&bed)?;
        let peer = bed.peer()?;
        assert!(ring
            .grow(peer.path(), &MemoryGroup::current())
            .is_ok_and(|grown| grown.1 == 65_536));
        assert!(ring
            .grow(peer.path(), &MemoryGroup::current())
            .is_err_and(|error| error == ENOSPC));
        ring.unmap();
        assert!(ring
            .grow(peer.path(), &MemoryGroup::current())
            .is_err_and(|error| error == ENOTCONN));
        drop(peer);
        drop(ring);
        bed.end()
    }

    #[test]
    fn ring_growth_is_limited_by_the_share_of_its_user() -> Result {
        const ALL: usize = 1 << 20;
        let bed = Bed::new()?;
        let peer = bed.peer()?;
        let (shares, user) = (FairShares::of(ALL)?, Some(User::numbered(1)));
        let new = || -> Result<Arc<OwnRing>> {
            let share = shares.of_user(user, 50)?;
            Arc::pin_init(OwnRing::new(peer.path(), ALL as u32, share)?, GFP_KERNEL)
        };
        let (first, second, third) = (new()?, new()?, new()?);
        let group = MemoryGroup::current();
        let grow = |ring: &OwnRing| ring.grow(peer.path(), &group).map(|grown| grown.1);
        // Neither the share of another user nor the size that every ring may have counts.
        assert!(shares.of_user(Some(User::numbered(2)), 100)?.add(ALL));
        let taken = shares.of_user(user, 50)?;
        assert!(taken.add(ALL / 4));
        assert_eq!(grow(&first), Ok(ALL as u32 / 4));
        assert_eq!(grow(&second), Ok(COMMON));
        drop((first, taken));
        assert_eq!(grow(&third), Ok(ALL as u32));
        drop((second, third, peer));
        bed.end()
    }

    #[test]
    fn invalid_ring_offers_are_refused() -> Result {
        let bed = Bed::new()?;
        let (own, peer) = (ring(&bed)?, bed.peer()?);
        let path = peer.path();
        let address = own.head.bus_address();
        let named = RingAddress {
            address,
            size: 2048,
            doorbell: 2,
            limit: 4096,
        };
        let ring = PeerRing::new(path, &named).ok_or(EFAULT)?;
        assert!(!ring.is_to_grow(2048));
        assert!(ring.answered(path, address, 4096).is_err());
        assert!(ring.is_to_grow(2049) && !ring.is_to_grow(2049));
        // The offers are not larger, too large, out of reach, and misaligned.
        assert!(ring.answered(path, address, 2048).is_err());
        assert!(ring.answered(path, address, 8192).is_err());
        assert!(ring.answered(path, 1 << 60, 4096).is_err());
        assert!(ring.answered(path, address + 4, 4096).is_err());
        assert!(ring.answered(path, address, 4096).is_ok());
        assert!(ring.answered(path, address, 4096).is_err());
        assert_eq!(ring.size(), 4096);
        assert!(!ring.is_to_grow(u32::MAX));

        // A refusal is an answer, and the peer may give no second one.
        let ring = PeerRing::new(path, &named).ok_or(EFAULT)?;
        assert!(ring.is_to_grow(2049) && ring.largest() == 4096);
        assert!(ring.answered(path, 0, 0).is_ok() && ring.answered(path, 0, 0).is_err());
        assert!(!ring.is_to_grow(2049) && ring.largest() == 2048);
        drop(peer);
        drop(own);
        bed.end()
    }
}
