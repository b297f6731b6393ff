// SPDX-License-Identifier: GPL-2.0

//! The length of the segments that an engine is offered.

use crate::logic::plan::{LONGEST, UNDECLARED, longest_segment};

#[test]
fn declared_segment_limit_is_used() {
    assert_eq!(longest_segment(4096), 4096);
    assert_eq!(longest_segment(UNDECLARED + 1), UNDECLARED + 1);
    assert_eq!(longest_segment(u64::MAX), LONGEST);
    assert_eq!(longest_segment(0), 1);
    assert_eq!(longest_segment(UNDECLARED), LONGEST);
}
