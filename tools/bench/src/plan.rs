// SPDX-License-Identifier: GPL-2.0
//! The amount of measurements: all, or as many as take less than three minutes.

/// The measurements to make, and their lengths.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of rounds.
    pub rounds: usize,
    /// Number of measurements of each pair of the goals.
    pub turns: usize,
    /// Seconds for each size.
    pub seconds: f64,
    /// Sizes of copies and of messages in bulk.
    pub sizes: Vec<u64>,
    /// Sizes where single operations are of interest.
    pub small: Vec<u64>,
    /// Sizes of windows.
    pub windows: Vec<u64>,
    /// The size of a window whose bytes cost more than the rest of its registration.
    pub bulk_window: u64,
    /// Whether to make the long measurements: many connections, many windows, scaling.
    pub many: bool,
}

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

/// The sizes of the goals, which every plan has.
pub const SIZE_SMALL: u64 = 64;
pub const SIZE_PAGE: u64 = 4 * K;
pub const SIZE_MIDDLE: u64 = 64 * K;
pub const SIZE_LARGE: u64 = M;

impl Plan {
    /// Returns the plan that takes less than three minutes.
    pub fn short() -> Plan {
        Plan {
            rounds: 1,
            turns: 5,
            seconds: 0.15,
            sizes: vec![SIZE_SMALL, SIZE_PAGE, SIZE_MIDDLE, SIZE_LARGE],
            small: vec![8, SIZE_SMALL, SIZE_PAGE, SIZE_MIDDLE],
            windows: vec![4 * K, 2 * M],
            bulk_window: 1024 * M,
            many: false,
        }
    }

    /// Returns the plan of all measurements.
    pub fn whole() -> Plan {
        Plan {
            rounds: 3,
            turns: 9,
            seconds: 0.3,
            sizes: vec![
                SIZE_SMALL,
                256,
                K,
                SIZE_PAGE,
                16 * K,
                SIZE_MIDDLE,
                256 * K,
                SIZE_LARGE,
                4 * M,
                16 * M,
            ],
            small: vec![
                8,
                SIZE_SMALL,
                256,
                K,
                SIZE_PAGE,
                16 * K,
                SIZE_MIDDLE,
                256 * K,
            ],
            windows: vec![4 * K, 64 * K, M, 2 * M, 16 * M, 64 * M],
            bulk_window: 1024 * M,
            many: true,
        }
    }

    /// Returns sizes for the command line of the tool.
    pub fn list(sizes: &[u64]) -> String {
        let words: Vec<String> = sizes.iter().map(u64::to_string).collect();
        words.join(",")
    }
}
