// SPDX-License-Identifier: GPL-2.0

//! Tests of windows of lent memory, and of transfers between them.

use super::{
    bed::{
        Bed,
        Pair, //
    },
    waiting::{
        Call,
        Waiting, //
    },
};
use crate::{
    arguments::{
        Direction,
        LocalSide,
        TransferOptions,
        WindowOptions,
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
    endpoint::Endpoint,
    logic::{
        control_block::Annex,
        envelope::ChannelId,
        messages::{
            Message,
            Offer,
            WindowId, //
        },
    },
    sys::tests::TestMemory, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

const PAGE: u64 = PAGE_SIZE as u64;

/// Options for reading and writing, at an offset that the module chooses.
pub(super) const ANYWHERE: WindowOptions = WindowOptions {
    protection: PROTECTION_READ | PROTECTION_WRITE,
    fixed: false,
};

/// Options for reading and writing, at an offset that the test chooses.
const FIXED: WindowOptions = WindowOptions {
    fixed: true,
    ..ANYWHERE
};

/// Options of a transfer that is complete when the call returns.
const SYNCHRONOUS: TransferOptions = TransferOptions {
    use_cpu: false,
    use_cache: false,
    synchronous: true,
    ordered: false,
};

/// Copies between windows of both ends. `local` and `remote` are offsets.
fn copy(endpoint: &Endpoint, direction: Direction, local: i64, remote: i64, len: u64) -> Result {
    endpoint.transfer(
        direction,
        &LocalSide::Windows(local),
        remote,
        len,
        SYNCHRONOUS,
    )
}

#[kunit_tests(scif_endpoint_windows)]
mod cases {
    use super::*;

    #[test]
    fn both_ends_choose_equal_window_offsets() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let memory = TestMemory::new(1)?;
        for _ in 0..3 {
            let offset = near.register(memory.buffer(), 0, ANYWHERE)?;
            assert_eq!(offset, far.register(memory.buffer(), 0, ANYWHERE)?);
        }
        assert_eq!(bed.scif().counts(None).exported_windows, 6);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn fixed_offset_is_taken_once_and_unregistered_whole() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let memory = TestMemory::new(2)?;
        let place = 16 * PAGE as i64;
        assert_eq!(near.register(memory.buffer(), place, FIXED)?, place);
        let next = place + PAGE as i64;
        assert_eq!(near.register(memory.buffer(), next, FIXED), Err(EADDRINUSE));
        assert_eq!(
            near.register(memory.buffer(), place + 1, FIXED),
            Err(EINVAL)
        );
        assert_eq!(near.register(memory.buffer(), -1, ANYWHERE), Err(EINVAL));
        assert_eq!(near.unregister(place, PAGE), Err(EINVAL));
        assert_eq!(near.unregister(next + PAGE as i64, PAGE), Err(ENXIO));
        near.unregister(place, 2 * PAGE)?;
        assert_eq!(near.unregister(place, 2 * PAGE), Err(ENXIO));
        bed.settle();
        assert_eq!(near.register(memory.buffer(), next, FIXED)?, next);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn transfer_to_an_unmappable_window_fails_with_enomem() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let memory = TestMemory::new(1)?;
        let local = near.register(memory.buffer(), 0, ANYWHERE)?;
        let remote = 1 << 30;
        let looked = copy(&near, Direction::Read, local, remote, 8);
        let channel = near.facts().channel.ok_or(EINVAL)?;
        let peer = bed.peer()?;
        peer.post(&Message::WindowOffer {
            target: ChannelId(channel),
            // There is no such memory, and no call waits for the answer.
            offer: Offer {
                window: WindowId(0x7777),
                protection: PROTECTION_READ,
                offset: remote as u64,
                len: PAGE,
                extents: 1,
                wants_answer: false,
            },
            first: [u64::from(u32::MAX) << 20, 0],
        })?;
        let looked_again = copy(&near, Direction::Read, local, remote, 8);
        let is_over = peer.is_over();
        drop(peer);
        drop((near, far));
        bed.end()?;
        assert_eq!(looked, Err(ENXIO));
        assert_eq!(looked_again, Err(ENOMEM));
        assert!(!is_over);
        Ok(())
    }

    #[test]
    fn transfers_copy_both_ways_at_any_alignment() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let (ours, theirs) = (TestMemory::new(3)?, TestMemory::new(3)?);
        let local = near.register(ours.buffer(), 0, ANYWHERE)?;
        let remote = far.register(theirs.buffer(), 0, ANYWHERE)?;
        ours.fill(1)?;
        // Crosses page borders on both sides, at different bytes.
        copy(
            &near,
            Direction::Write,
            local + 5,
            remote + 4090,
            2 * PAGE - 10,
        )?;
        assert_eq!(theirs.bytes(4088)?, [0, 0, 1, 1]);
        assert_eq!(theirs.bytes(4090 + 2 * PAGE_SIZE - 12)?, [1, 1, 0, 0]);
        theirs.fill(2)?;
        copy(&near, Direction::Read, local + 7, remote, 2)?;
        assert_eq!(ours.bytes(6)?, [1, 2, 2, 1]);
        let moved = near.facts().traffic.ok_or(EINVAL)?.transfers;
        assert_eq!((moved.written.bytes, moved.read.bytes), (2 * PAGE - 10, 2));
        // The first transfer had to wait for a window if the control work had not handled its offer
        // yet. The second transfer completed at once.
        assert!(moved.is_idle() && moved.issued <= 1 && moved.complete == moved.issued);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn transfer_may_span_adjacent_windows_only() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let (ours, first, second) = (
            TestMemory::new(2)?,
            TestMemory::new(1)?,
            TestMemory::new(1)?,
        );
        let local = near.register(ours.buffer(), 0, ANYWHERE)?;
        let page = PAGE as i64;
        far.register(first.buffer(), 8 * page, FIXED)?;
        far.register(second.buffer(), 9 * page, FIXED)?;
        ours.fill(3)?;
        copy(&near, Direction::Write, local, 9 * page - 2, 4)?;
        assert_eq!(first.bytes(PAGE_SIZE - 4)?, [0, 0, 3, 3]);
        assert_eq!(second.bytes(0)?, [3, 3, 0, 0]);
        // A transfer that leaves the windows writes nothing at all.
        let refused = copy(&near, Direction::Write, local, 10 * page - 2, 4);
        assert_eq!(refused, Err(ENXIO));
        assert_eq!(second.bytes(PAGE_SIZE - 2)?, [0, 0]);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn register_fails_with_econnreset_while_peer_closes() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        // An end that closes does this before it sends `Close`.
        far.connection()?.remote_windows.forget_all();
        let waiting = Waiting::in_call(&near, Call::Register)?;
        bed.settle();
        far.close();
        assert_eq!(waiting.result(), Err(ECONNRESET));
        drop((near, far));
        bed.end()
    }

    #[test]
    fn transfer_outside_registered_windows_is_refused() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let memory = TestMemory::new(1)?;
        let local = near.register(memory.buffer(), 0, ANYWHERE)?;
        let read_only = WindowOptions {
            protection: PROTECTION_READ,
            fixed: false,
        };
        let remote = far.register(memory.buffer(), 0, read_only)?;
        copy(&near, Direction::Read, local, remote, 8)?;
        assert_eq!(copy(&near, Direction::Write, local, remote, 8), Err(EACCES));
        assert_eq!(copy(&far, Direction::Read, remote, local, 8), Err(EACCES));
        assert_eq!(copy(&near, Direction::Read, local, remote, 0), Err(EINVAL));
        assert_eq!(copy(&near, Direction::Read, 0, remote, 8), Err(ENXIO));
        assert_eq!(copy(&near, Direction::Read, local, 0, 8), Err(ENXIO));
        assert_eq!(copy(&near, Direction::Read, local, -8, 8), Err(ENXIO));
        far.unregister(remote, PAGE)?;
        assert_eq!(copy(&near, Direction::Read, local, remote, 8), Err(ENXIO));
        drop((near, far));
        bed.end()
    }

    #[test]
    fn remote_pages_keep_an_unregistered_window_alive() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let memory = TestMemory::new(2)?;
        let remote = far.register(memory.buffer(), 0, ANYWHERE)?;
        let page = PAGE as i64;
        assert!(matches!(near.remote_pages(remote, PAGE / 2), Err(EINVAL)));
        assert!(matches!(
            near.remote_pages(remote + page, 2 * PAGE),
            Err(ENXIO)
        ));
        let pages = near.remote_pages(remote, 2 * PAGE)?;
        let range = &pages.list.range;
        assert_eq!(range.prot_flags as u32, ANYWHERE.protection);
        assert_eq!(range.nr_pages, 2);
        far.unregister(remote, 2 * PAGE)?;
        bed.settle();
        assert!(matches!(near.remote_pages(remote, PAGE), Err(ENXIO)));
        assert_eq!(bed.scif().counts(None).exported_windows, 1);
        drop(pages);
        bed.settle();
        assert_eq!(bed.scif().counts(None).exported_windows, 0);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn pinned_pages_can_be_registered_several_times() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let (memory, other) = (TestMemory::new(1)?, TestMemory::new(1)?);
        let local = near.register(other.buffer(), 0, ANYWHERE)?;
        let pinned = bed.scif().pin(memory.buffer(), PROTECTION_READ)?;
        let first = far.register_pinned(&pinned, 0, false)?;
        let second = far.register_pinned(&pinned, 0, false)?;
        assert!(first != second);
        // The windows stay, and allow the accesses that the pages were pinned for.
        drop(pinned);
        far.unregister(first, PAGE)?;
        memory.fill(4)?;
        copy(&near, Direction::Read, local, second, 2)?;
        assert_eq!(other.bytes(0)?, [4, 4, 0]);
        assert_eq!(copy(&near, Direction::Write, local, second, 2), Err(EACCES));
        drop((near, far));
        bed.end()
    }

    #[test]
    fn parts_of_pinned_pages_can_be_windows_of_many_connections() -> Result {
        let bed = Bed::new()?;
        let (one, two) = (bed.pair()?, bed.pair()?);
        let (memory, other) = (TestMemory::new(3)?, TestMemory::new(2)?);
        let local = two.near.register(other.buffer(), 0, ANYWHERE)?;
        let pinned = bed.scif().pin(memory.buffer(), ANYWHERE.protection)?;
        let first = one.far.register_part(&pinned, PAGE, PAGE, 0, ANYWHERE)?;
        let second = two.far.register_part(&pinned, PAGE, PAGE, 0, ANYWHERE)?;
        for part in [(0, 0), (1, PAGE), (PAGE, 3 * PAGE), (u64::MAX, PAGE)] {
            let refused = one.far.register_part(&pinned, part.0, part.1, 0, ANYWHERE);
            assert_eq!(refused, Err(EINVAL));
        }
        let read_only = bed.scif().pin(memory.buffer(), PROTECTION_READ)?;
        let refused = one.far.register_part(&read_only, 0, PAGE, 0, ANYWHERE);
        assert_eq!(refused, Err(EACCES));
        drop((pinned, read_only));
        one.far.unregister(first, PAGE)?;
        memory.fill(7)?;
        copy(&two.near, Direction::Read, local, second, 2)?;
        assert_eq!(other.bytes(0)?, [7, 7, 0]);
        // There is no window behind the part.
        assert_eq!(
            copy(&two.near, Direction::Read, local, second, PAGE + 1),
            Err(ENXIO)
        );
        drop((one, two));
        bed.end()
    }

    /// The closed end may have had no memory to refuse the offer. So the test sends a message that
    /// follows an offer, without the offer.
    #[test]
    fn window_offered_to_a_closed_end_is_released() -> Result {
        let bed = Bed::new()?;
        let (pair, other) = (bed.pair()?, bed.pair()?);
        let closed = other.near.facts().channel.ok_or(EINVAL)?;
        other.near.connection()?.remote_windows.forget_all();
        let memory = TestMemory::new(1)?;
        let mut annex = Annex::new();
        assert!(annex.push(0));
        let mut left = KVec::new();
        for (number, target) in [(1, closed), (2, 0x7ff)] {
            pair.far.register(memory.buffer(), 0, ANYWHERE)?;
            let more = Message::WindowExtents {
                target: ChannelId(target),
                window: WindowId(number),
                count: 1,
            };
            bed.peer()?.post_with(&more, &annex)?;
            bed.settle();
            left.push(bed.scif().counts(None).exported_windows, GFP_KERNEL)?;
        }
        drop((pair, other));
        bed.end()?;
        assert_eq!(left[..], [0, 0]);
        Ok(())
    }

    #[test]
    fn windows_are_released_when_the_connection_ends() -> Result {
        for is_lost in [false, true] {
            let bed = Bed::new()?;
            let Pair { near, far } = bed.pair()?;
            let memory = TestMemory::new(1)?;
            let local = near.register(memory.buffer(), 0, ANYWHERE)?;
            let remote = far.register(memory.buffer(), 0, ANYWHERE)?;
            let error = match is_lost {
                true => {
                    bed.lose()?;
                    ENODEV
                }
                false => {
                    far.close();
                    bed.settle();
                    ECONNRESET
                }
            };
            assert_eq!(copy(&near, Direction::Read, local, remote, 8), Err(error));
            assert_eq!(near.register(memory.buffer(), 0, ANYWHERE), Err(error));
            assert_eq!(bed.scif().counts(None).exported_windows, 0);
            drop((near, far));
            bed.end()?;
        }
        Ok(())
    }
}
