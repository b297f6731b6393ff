// SPDX-License-Identifier: GPL-2.0
//! How fast the map of a device's memory changes and is searched, depending on its size.
//!
//! Each range is 4 KiB, as behind a virtual IOMMU, and one change is one DMA_MAP or
//! DMA_UNMAP, with the descriptor that comes with it. The figures of one run compare with
//! each other; those of two machines do not. See README.md.

#[path = "../tests/device/mod.rs"]
mod device;

use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use device::Device;
use device::PAGE;
use device::Random;
use device::address_of;
use ntb_emulator::guest_memory::Access;

const SIZES: [u64; 3] = [10, 1_000, 100_000];
const DURATION: Duration = Duration::from_secs(1);
/// Number of operations between two reads of the clock, where the clock would be most of the work.
const BATCH: u32 = 64;

/// A device's map of memory with `ranges` ranges.
struct Subject {
    device: Device,
    ranges: u64,
}

/// The result of a thread.
struct Figures {
    per_second: f64,
    /// The time that 999 of 1,000 operations did not exceed.
    nearly_longest: Duration,
}

impl Subject {
    fn new(ranges: u64) -> Self {
        Self {
            device: Device::with_ranges(ranges),
            ranges,
        }
    }

    fn find(&self, index: u64) {
        let memory = &self.device.memory;
        black_box(memory.find(address_of(index), PAGE, Access::Read));
    }

    /// Removes ranges and brings them back, all over the map, until told to end.
    fn change(&self, go_on: impl Fn(Instant) -> bool) -> f64 {
        let mut random = Random(1);
        let begin = Instant::now();
        let mut changes = 0u32;
        while go_on(begin) {
            for _ in 0..BATCH {
                let index = random.below(self.ranges);
                self.device.unmap_range(index);
                self.device.map_range(index);
                changes += 2;
            }
        }
        f64::from(changes) / begin.elapsed().as_secs_f64()
    }

    /// Finds ranges all over the map for a while.
    fn search(&self) -> Figures {
        let mut random = Random(2);
        let mut each = Vec::new();
        let begin = Instant::now();
        let mut finds = 0u32;
        while begin.elapsed() < DURATION {
            for _ in 0..BATCH {
                self.find(random.below(self.ranges));
            }
            let index = random.below(self.ranges);
            let one = Instant::now();
            self.find(index);
            each.push(one.elapsed());
            finds += BATCH + 1;
        }
        let per_second = f64::from(finds) / begin.elapsed().as_secs_f64();
        each.sort();
        Figures {
            per_second,
            nearly_longest: each[each.len() * 999 / 1000],
        }
    }
}

fn main() {
    println!(
        "{:>8} {:>10} {:^42} {:^42}",
        "", "", "one after the other", "at the same time"
    );
    println!(
        "{:>8} {:>10} {:>14} {:>14} {:>12} {:>14} {:>14} {:>12}",
        "ranges", "filled in", "changes/s", "finds/s", "99.9 %", "changes/s", "finds/s", "99.9 %"
    );
    for ranges in SIZES {
        let begin = Instant::now();
        let subject = Subject::new(ranges);
        let filled = begin.elapsed();
        let changes = subject.change(|begin| begin.elapsed() < DURATION);
        let finds = subject.search();
        let end = AtomicBool::new(false);
        let (both_changes, both_finds) = thread::scope(|scope| {
            let changer = scope.spawn(|| subject.change(|_| !end.load(Relaxed)));
            let finds = subject.search();
            end.store(true, Relaxed);
            (changer.join().expect("changes"), finds)
        });
        println!(
            "{ranges:>8} {filled:>10.1?} {changes:>14.0} {:>14.0} {:>12.1?} {both_changes:>14.0} {:>14.0} {:>12.1?}",
            finds.per_second,
            finds.nearly_longest,
            both_finds.per_second,
            both_finds.nearly_longest,
        );
    }
}
