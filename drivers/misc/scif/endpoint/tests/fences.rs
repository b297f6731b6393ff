// SPDX-License-Identifier: GPL-2.0

//! Tests of fences: marks, waits for marks, and signals.

use super::{
    bed::{
        Bed,
        Pair, //
    },
    windows::ANYWHERE, //
};
use crate::{
    arguments::{
        Direction,
        LocalSide,
        SignalTarget,
        SignalTargets,
        TransferOptions,
        WindowOptions,
        PROTECTION_READ, //
    },
    endpoint::Endpoint,
    logic::marks::Origin,
    sys::tests::TestMemory, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// Two ends with a window each, and the memory of these windows.
struct Windows {
    near: Arc<Endpoint>,
    far: Arc<Endpoint>,
    ours: TestMemory,
    theirs: TestMemory,
    /// Offset of both windows.
    offset: i64,
}

impl Windows {
    fn new(bed: &Bed) -> Result<Self> {
        let Pair { near, far } = bed.pair()?;
        let (ours, theirs) = (TestMemory::new(2)?, TestMemory::new(2)?);
        let offset = near.register(ours.buffer(), 0, ANYWHERE)?;
        match far.register(theirs.buffer(), 0, ANYWHERE)? == offset {
            true => Ok(Self {
                near,
                far,
                ours,
                theirs,
                offset,
            }),
            false => Err(EINVAL),
        }
    }

    /// Starts a transfer, without waiting for it.
    fn transfer(&self, from: &Endpoint) -> Result {
        // A small transfer without order would be copied at once and have no number.
        let options = TransferOptions {
            ordered: true,
            ..TransferOptions::parse(0)?
        };
        let local = LocalSide::Windows(self.offset);
        from.transfer(Direction::Write, &local, self.offset, 4096, options)
    }

    fn target(&self, at: i64, value: u64) -> Option<SignalTarget> {
        Some(SignalTarget {
            offset: self.offset + at,
            value,
        })
    }
}

#[kunit_tests(scif_endpoint_fences)]
mod cases {
    use super::*;

    #[test]
    fn fence_mark_covers_transfers_started_before_it() -> Result {
        let bed = Bed::new()?;
        let windows = Windows::new(&bed)?;
        let (near, far) = (&windows.near, &windows.far);
        let none = near.fence_mark(Origin::Own)?;
        assert!(none > 0);
        near.fence_wait(none)?;
        windows.transfer(near)?;
        let one = near.fence_mark(Origin::Own)?;
        assert!(one != none && one == near.fence_mark(Origin::Own)?);
        near.fence_wait(one)?;
        near.fence_wait(none)?;
        // One end's own transfers are the other end's peer's transfers.
        windows.transfer(near)?;
        let peers = far.fence_mark(Origin::Peer)?;
        assert!(peers != near.fence_mark(Origin::Own)? && peers != far.fence_mark(Origin::Own)?);
        far.fence_wait(peers)?;
        let moved = near.facts().traffic.ok_or(EINVAL)?.transfers;
        assert_eq!((moved.issued, moved.complete, moved.asked), (2, 2, 0));
        drop(windows);
        bed.end()
    }

    #[test]
    fn fence_wait_for_invalid_mark_is_refused() -> Result {
        let bed = Bed::new()?;
        let windows = Windows::new(&bed)?;
        let (near, far) = (&windows.near, &windows.far);
        windows.transfer(near)?;
        let own = near.fence_mark(Origin::Own)?;
        for mark in [0, -1, 1, i32::MIN, i32::MAX, own + 1] {
            assert_eq!(near.fence_wait(mark), Err(EINVAL));
        }
        // The far end has started no transfer that this mark could stand for.
        assert_eq!(far.fence_wait(own), Err(EINVAL));
        drop(windows);
        bed.end()
    }

    #[test]
    fn fence_signal_stores_values_at_both_ends() -> Result {
        let bed = Bed::new()?;
        let windows = Windows::new(&bed)?;
        let (near, far) = (&windows.near, &windows.far);
        let value = 0x0102_0304_0506_0708_u64;
        for (from, (own, others), origin) in [
            (near, (&windows.ours, &windows.theirs), Origin::Own),
            (near, (&windows.ours, &windows.theirs), Origin::Peer),
            (far, (&windows.theirs, &windows.ours), Origin::Own),
            (far, (&windows.theirs, &windows.ours), Origin::Peer),
        ] {
            own.fill(0)?;
            others.fill(0)?;
            windows.transfer(from)?;
            let both = SignalTargets {
                local: windows.target(8, value),
                remote: windows.target(12, value + 1),
            };
            from.fence_signal(origin, both)?;
            bed.settle();
            assert_eq!(u64::from_le_bytes(own.bytes(8)?), value);
            assert_eq!(u64::from_le_bytes(others.bytes(12)?), value + 1);
            // The bytes around the signal are untouched.
            assert_eq!((own.bytes(0)?, own.bytes(16)?), ([0; 8], [0; 8]));
            assert_eq!((others.bytes(4)?, others.bytes(20)?), ([0; 8], [0; 8]));
            let remote = SignalTargets {
                local: None,
                remote: windows.target(0, 1),
            };
            from.fence_signal(origin, remote)?;
            bed.settle();
            assert_eq!((own.bytes(0)?, others.bytes(0)?), ([0], [1]));
        }
        drop(windows);
        bed.end()
    }

    #[test]
    fn signals_are_stored_in_request_order() -> Result {
        let bed = Bed::new()?;
        let windows = Windows::new(&bed)?;
        let near = &windows.near;
        for at_peer in [false, true] {
            let counts = |value| {
                let target = windows.target(0, value);
                let (local, remote) = if at_peer {
                    (None, target)
                } else {
                    (target, None)
                };
                near.fence_signal(Origin::Own, SignalTargets { local, remote })
            };
            let connection = near.connection()?;
            let marks = connection.transfers.marks.as_arc_borrow();
            // The second signal has nothing to wait for except the first one.
            marks.while_one_is_given(|| counts(1), || counts(2))?;
            let memory = if at_peer {
                &windows.theirs
            } else {
                &windows.ours
            };
            assert_eq!(u64::from_le_bytes(memory.bytes(0)?), 2);
            assert!(near.facts().traffic.ok_or(EINVAL)?.transfers.is_idle());
        }
        drop(windows);
        bed.end()
    }

    #[test]
    fn signal_with_invalid_target_stores_nothing() -> Result {
        let bed = Bed::new()?;
        let windows = Windows::new(&bed)?;
        let near = &windows.near;
        let memory = TestMemory::new(1)?;
        let read_only = WindowOptions {
            protection: PROTECTION_READ,
            fixed: false,
        };
        let wrong = windows.far.register(memory.buffer(), 0, read_only)?;
        let page = PAGE_SIZE as i64;
        let local = windows.target(0, 1);
        for (remote, error) in [
            (windows.target(2, 1), EINVAL),
            (windows.target(page - 4, 1), EINVAL),
            (windows.target(-8, 1), ENXIO),
            (windows.target(wrong - windows.offset, 1), EACCES),
        ] {
            for origin in [Origin::Own, Origin::Peer] {
                let targets = SignalTargets { local, remote };
                assert_eq!(near.fence_signal(origin, targets), Err(error));
            }
        }
        bed.settle();
        assert_eq!(windows.ours.bytes(0)?, [0; 8]);
        drop(windows);
        bed.end()
    }

    #[test]
    fn fences_fail_after_connection_ends() -> Result {
        for is_lost in [false, true] {
            let bed = Bed::new()?;
            let windows = Windows::new(&bed)?;
            let near = &windows.near;
            windows.transfer(near)?;
            let mark = near.fence_mark(Origin::Own)?;
            let error = match is_lost {
                true => {
                    bed.lose()?;
                    ENODEV
                }
                false => {
                    windows.far.close();
                    bed.settle();
                    ECONNRESET
                }
            };
            for origin in [Origin::Own, Origin::Peer] {
                assert_eq!(near.fence_mark(origin), Err(error));
                let local = SignalTargets {
                    local: windows.target(0, 1),
                    remote: None,
                };
                assert_eq!(near.fence_signal(origin, local), Err(error));
            }
            assert_eq!(near.fence_wait(mark), Err(error));
            drop(windows);
            bed.end()?;
        }
        Ok(())
    }
}
