// SPDX-License-Identifier: GPL-2.0

//! From where on asking the peer is worth it, against costs that are known.

use proptest::prelude::*;

use super::config;
use crate::logic::pull_threshold::even_at;

const MIB: u64 = 1 << 20;

#[test]
fn what_asking_takes_is_saved() {
    // 200 us are saved for each MiB, 100 us lost.
    assert_eq!(even_at(MIB, (500_000, 300_000), 100_000), Some(MIB / 2));
    // However little is lost.
    assert_eq!(even_at(MIB, (500_000, 300_000), 0), Some(64 << 10));
}

#[test]
fn who_is_not_clearly_slower_reads() {
    assert_eq!(even_at(MIB, (300_000, 300_000), 0), None);
    assert_eq!(even_at(MIB, (300_000, 500_000), 0), None);
    assert_eq!(even_at(MIB, (90, 61), 0), None);
    assert!(even_at(MIB, (90, 60), 0).is_some());
    assert_eq!(even_at(MIB, (0, 0), 1), None);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn at_that_size_both_take_as_long(
        write in 1_u64..100_000_000,
        more in 1_u64..100_000_000,
        asking in 0_u64..1_000_000,
    ) {
        let read = write + write / 2 + 1 + more;
        let even = even_at(MIB, (read, write), asking).unwrap();
        let saved = u128::from(read - write) * u128::from(even) / u128::from(MIB);
        prop_assert!(even >= 64 << 10);
        if even > 64 << 10 {
            let step = u128::from(read - write) / u128::from(MIB) + 1;
            prop_assert!(saved <= u128::from(asking) && saved + 2 * step >= u128::from(asking));
        }
    }

    #[test]
    fn nothing_measured_is_too_odd(size: u64, read: u64, write: u64, asking: u64) {
        if let Some(even) = even_at(size, (read, write), asking) {
            prop_assert!(write < read && even >= 64 << 10);
        }
    }
}
