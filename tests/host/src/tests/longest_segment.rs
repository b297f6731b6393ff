// SPDX-License-Identifier: GPL-2.0

//! How much an engine is offered.

use crate::logic::plan::{LONGEST, LongestSegment, MANY_REFUSALS, UNDECLARED};

#[test]
fn what_is_declared_is_believed() {
    assert_eq!(LongestSegment::declared(4096).bytes(), 4096);
    assert_eq!(
        LongestSegment::declared(UNDECLARED + 1).bytes(),
        UNDECLARED + 1
    );
    assert_eq!(LongestSegment::declared(u64::MAX).bytes(), LONGEST);
    assert_eq!(LongestSegment::declared(0).bytes(), 1);
    assert_eq!(LongestSegment::declared(UNDECLARED).bytes(), LONGEST);
}

/// Some engine takes `limit` bytes and no more: what is offered to it until it takes something.
fn offers(longest: &LongestSegment, limit: u64, len: u64) -> Vec<u64> {
    let mut offers = Vec::new();
    loop {
        let len = len.min(longest.bytes());
        offers.push(len);
        if len <= limit || !longest.refused(len, true) {
            return offers;
        }
    }
}

#[test]
fn what_is_refused_is_offered_in_smaller_pieces() {
    let longest = LongestSegment::declared(UNDECLARED);
    assert_eq!(
        offers(&longest, 300 << 10, LONGEST),
        [1 << 20, 512 << 10, 256 << 10]
    );
    // That is remembered, and what is shorter is no reason to offer still less.
    assert_eq!(offers(&longest, 300 << 10, 300 << 10), [256 << 10]);
    assert_eq!(offers(&longest, 300 << 10, 100 << 10), [100 << 10]);
    // Not a power of two.
    let longest = LongestSegment::declared(UNDECLARED);
    assert_eq!(
        offers(&longest, UNDECLARED, 700_001),
        [700_001, 512 << 10, 256 << 10, 128 << 10, UNDECLARED]
    );
}

#[test]
fn what_any_engine_takes_is_not_halved() {
    let longest = LongestSegment::declared(UNDECLARED);
    assert!(!longest.refused(UNDECLARED, true));
    assert_eq!(longest.bytes(), LONGEST);
    // The engine is at fault, then.
    assert_eq!(offers(&longest, 0, LONGEST).last(), Some(&UNDECLARED));
}

#[test]
fn a_full_ring_is_no_reason_unless_it_is_for_ever() {
    let longest = LongestSegment::declared(UNDECLARED);
    for _ in 0..MANY_REFUSALS {
        assert!(!longest.refused(LONGEST, false));
    }
    // It had room once more.
    longest.was_taken(LONGEST);
    for _ in 0..MANY_REFUSALS {
        assert!(!longest.refused(LONGEST, false));
        // What is short says nothing.
        longest.was_taken(UNDECLARED);
    }
    assert_eq!(longest.bytes(), LONGEST);
    assert!(longest.refused(LONGEST, false));
    assert_eq!(longest.bytes(), LONGEST / 2);
    // Counted anew for what is offered now.
    assert!(!longest.refused(LONGEST / 2, false));
}
