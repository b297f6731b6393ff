// SPDX-License-Identifier: GPL-2.0

//! The limit of lines about a peer.

use proptest::prelude::*;

use super::config;
use crate::logic::log_limit::{BURST, LogLimit, PERIOD};

#[test]
fn burst_is_logged_and_then_one_line_per_period() {
    // A line with a report of suppressed lines before it counts as two.
    let limit = LogLimit::new();
    for _ in 0..BURST {
        assert_eq!(limit.admit(5), Some(0));
    }
    assert_eq!(limit.admit(5), None);
    assert_eq!(limit.admit(4 + PERIOD), None);
    assert_eq!(limit.admit(4 + 2 * PERIOD), None);
    // The suppressed lines are reported once.
    assert_eq!(limit.admit(5 + 2 * PERIOD), Some(3));
    assert_eq!(limit.admit(5 + 2 * PERIOD), None);
    assert_eq!(limit.admit(5 + 4 * PERIOD), Some(1));
    assert_eq!(limit.admit(5 + 5 * PERIOD), Some(0));
    // After a quiet time another burst may come, but no more.
    let later = 5 + (BURST + 50) * PERIOD;
    for _ in 0..BURST {
        assert_eq!(limit.admit(later), Some(0));
    }
    assert_eq!(limit.admit(later), None);
}

proptest! {
    #![proptest_config(config())]

    /// For any times of the lines: the log gets at most a burst and the lines that the time allows,
    /// including reports of suppressed lines. Each suppressed line is reported.
    #[test]
    fn log_lines_are_limited_and_dropped_ones_counted(
        pauses in prop::collection::vec(0..2 * PERIOD, 0..1000),
    ) {
        let limit = LogLimit::new();
        let (mut now, mut lines, mut told, mut kept) = (0, 0, 0, 0);
        for pause in pauses {
            // Most lines come at once.
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
