// SPDX-License-Identifier: GPL-2.0

//! The limit of lines about a peer.

use proptest::prelude::*;

use super::config;
use crate::logic::log_limit::{BURST, LogLimit, PERIOD};

#[test]
fn a_burst_goes_through_and_then_one_line_a_period() {
    // One that tells what was kept back, before it, is two.
    let limit = LogLimit::new();
    for _ in 0..BURST {
        assert_eq!(limit.admit(5), Some(0));
    }
    assert_eq!(limit.admit(5), None);
    assert_eq!(limit.admit(4 + PERIOD), None);
    assert_eq!(limit.admit(4 + 2 * PERIOD), None);
    // What was kept back is told once.
    assert_eq!(limit.admit(5 + 2 * PERIOD), Some(3));
    assert_eq!(limit.admit(5 + 2 * PERIOD), None);
    assert_eq!(limit.admit(5 + 4 * PERIOD), Some(1));
    assert_eq!(limit.admit(5 + 5 * PERIOD), Some(0));
    // After a quiet while there may be a burst again, and no more.
    let later = 5 + (BURST + 50) * PERIOD;
    for _ in 0..BURST {
        assert_eq!(limit.admit(later), Some(0));
    }
    assert_eq!(limit.admit(later), None);
}

proptest! {
    #![proptest_config(config())]

    /// However the lines come: no more than a burst and what the time allows, those that tell of others among them, and
    /// each that is kept back is told.
    #[test]
    fn lines_are_bounded_and_counted(pauses in prop::collection::vec(0..2 * PERIOD, 0..1000)) {
        let limit = LogLimit::new();
        let (mut now, mut lines, mut told, mut kept) = (0, 0, 0, 0);
        for pause in pauses {
            // Mostly at once.
            now += pause.saturating_sub(PERIOD) / 8;
            match limit.admit(now) {
                Some(count) => {
                    lines += 1 + u64::from(count > 0);
                    told += count;
                    prop_assert_eq!(told, kept);
                }
                None => kept += 1,
            }
            prop_assert!(lines <= BURST + now / PERIOD);
        }
    }
}
