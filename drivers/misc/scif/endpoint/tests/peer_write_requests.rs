// SPDX-License-Identifier: GPL-2.0

//! Tests of copies that a peer asks this node to make: which requests are allowed, and how the
//! others fail. The test node has no engine, so nothing is copied. ENODEV means that the request
//! was allowed.

use super::{
    bed::{
        Bed,
        Pair, //
    },
    windows::ANYWHERE, //
};
use crate::{
    arguments::{
        WindowOptions,
        PROTECTION_READ,
        PROTECTION_WRITE,
        UNLISTED, //
    },
    endpoint::Endpoint,
    logic::{
        envelope::ChannelId,
        messages::{
            Message,
            Offer,
            PushRequest,
            WindowId, //
        }, //
    },
    sys::tests::TestMemory, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

const PAGE: u64 = PAGE_SIZE as u64;

/// Id that the module does not choose.
const WINDOW: WindowId = WindowId(0x7777);

/// Returns a request to copy between windows at these offsets, as the end that copies sees them.
fn asked(source: i64, destination: i64, len: u64) -> PushRequest {
    PushRequest {
        token: 1,
        ordered: false,
        must: false,
        source: source as u64,
        destination: destination as u64,
        len,
        window: WindowId::NONE,
    }
}

/// Returns the result of a request.
fn try_peer_write(endpoint: &Endpoint, asked: &PushRequest) -> Result<Result> {
    let connection = endpoint.connection()?;
    // Waits until all offers have been handled.
    connection.channel.wait_for_handled()?;
    Ok(connection.transfers.would_write_for_peer(asked))
}

/// Offers an end a page of memory in a window without an offset.
fn offer(bed: &Bed, to: &Endpoint, protection: u32) -> Result {
    let target = ChannelId(to.facts().channel.ok_or(EINVAL)?);
    bed.peer()?.post(&Message::WindowOffer {
        target,
        offer: Offer {
            window: WINDOW,
            protection,
            offset: 0,
            len: PAGE,
            extents: 1,
            wants_answer: false,
        },
        // Nothing is written to this address.
        first: [1 << 30, 0],
    })?;
    bed.settle();
    Ok(())
}

#[kunit_tests(scif_endpoint_peer_write_requests)]
mod cases {
    use super::*;

    #[test]
    fn peer_write_request_outside_registered_windows_is_refused() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let memory = TestMemory::new(2)?;
        let source = near.register(memory.buffer(), 0, ANYWHERE)?;
        let destination = far.register(memory.buffer(), 0, ANYWHERE)?;
        let with = |protection| WindowOptions {
            protection,
            fixed: false,
        };
        let outcome = |source, destination, len| {
            let outcome = try_peer_write(&near, &asked(source, destination, len));
            outcome.unwrap_or(Err(ENOTCONN))
        };
        assert_eq!(outcome(source, destination, 2 * PAGE), Err(ENODEV));
        assert_eq!(outcome(source + 1, destination + 7, PAGE), Err(ENODEV));
        assert_eq!(outcome(source, destination, 5 * PAGE), Err(ENXIO));
        assert_eq!(outcome(0, destination, 8), Err(ENXIO));
        assert_eq!(outcome(source, 0, 8), Err(ENXIO));
        assert_eq!(outcome(-8, destination, 8), Err(ENXIO));
        assert_eq!(outcome(source, -8, 8), Err(ENXIO));
        assert_eq!(outcome(source, destination, u64::MAX), Err(ENXIO));
        // These windows lie behind the others, so that a range may reach into them.
        let unreadable = near.register(memory.buffer(), 0, with(PROTECTION_WRITE))?;
        let read_only = far.register(memory.buffer(), 0, with(PROTECTION_READ))?;
        assert_eq!(outcome(unreadable, destination, 8), Err(EACCES));
        assert_eq!(outcome(source, destination, 4 * PAGE), Err(EACCES));
        assert_eq!(outcome(source, read_only, 8), Err(EACCES));
        near.unregister(source, 2 * PAGE)?;
        assert_eq!(outcome(source, destination, 8), Err(ENXIO));
        drop((near, far));
        bed.end()
    }

    #[test]
    fn unlisted_window_is_used_up_by_one_peer_write_request() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let memory = TestMemory::new(1)?;
        let source = near.register(memory.buffer(), 0, ANYWHERE)?;
        let outcome = |at, len| {
            let asked = PushRequest {
                window: WINDOW,
                ..asked(source, at, len)
            };
            try_peer_write(&near, &asked).unwrap_or(Err(ENOTCONN))
        };
        assert_eq!(outcome(0, 8), Err(ENXIO));
        // A request uses the window up, whatever its result.
        for (protection, at, len, error) in [
            (PROTECTION_WRITE, 8, PAGE - 8, ENODEV),
            (PROTECTION_WRITE, 8, PAGE, ENXIO),
            (PROTECTION_WRITE, -1, 8, ENXIO),
            (PROTECTION_READ, 0, 8, EACCES),
        ] {
            offer(&bed, &near, protection | UNLISTED)?;
            assert_eq!(outcome(at, len), Err(error));
            assert_eq!(outcome(at, len), Err(ENXIO));
        }
        // A request for an offset does not find the window.
        offer(&bed, &near, PROTECTION_WRITE | UNLISTED)?;
        let listed = try_peer_write(&near, &asked(source, 0, 8))?;
        assert_eq!(listed, Err(ENXIO));
        let is_over = bed.peer()?.is_over();
        assert!(!is_over);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn transfer_refused_by_the_peer_is_no_longer_left_to_it() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let (ours, theirs) = (TestMemory::new(1)?, TestMemory::new(1)?);
        let local = near.register(ours.buffer(), 0, ANYWHERE)?;
        let remote = far.register(theirs.buffer(), 0, ANYWHERE)?;
        let connection = near.connection()?;
        connection.channel.wait_for_handled()?;
        let left = connection.transfers.read_by_peer(local, remote, 64);
        let progress = connection.transfers.marks.progress();
        drop((near, far));
        bed.end()?;
        assert_eq!(left, Ok([1, 0]));
        assert_eq!((progress.issued, progress.in_flight), (1, 0));
        Ok(())
    }

    #[test]
    fn second_offer_of_an_unlisted_window_ends_the_session() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let peer = bed.peer()?;
        offer(&bed, &near, PROTECTION_WRITE | UNLISTED)?;
        let before = peer.is_over();
        offer(&bed, &near, PROTECTION_WRITE | UNLISTED)?;
        let after = peer.is_over();
        drop(peer);
        drop((near, far));
        bed.end()?;
        assert_eq!((before, after), (false, true));
        Ok(())
    }

    #[test]
    fn any_peer_write_request_is_answered_and_keeps_the_session() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let target = ChannelId(near.facts().channel.ok_or(EINVAL)?);
        let peer = bed.peer()?;
        // Sends more requests than there can be at once, for a connection that exists and for one
        // that does not.
        for token in 0..1000 {
            let odd = token % 2 != 0;
            peer.post(&Message::PushWanted {
                target: if odd { target } else { ChannelId(0x7ff) },
                request: PushRequest {
                    token,
                    ordered: odd,
                    source: u64::MAX - u64::from(token),
                    destination: 0,
                    len: u64::MAX,
                    must: token % 4 > 1,
                    window: WindowId(token / 2),
                },
            })?;
        }
        bed.settle();
        let is_over = peer.is_over();
        drop(peer);
        assert!(!is_over);
        drop((near, far));
        bed.end()
    }
}
