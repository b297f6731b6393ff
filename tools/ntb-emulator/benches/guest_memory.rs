// SPDX-License-Identifier: GPL-2.0
//! How fast the map of a device's memory changes, and is searched, by its size.
//!
//! Each range is 4 KiB, as behind a virtual IOMMU, and one change is one DMA_MAP or
//! DMA_UNMAP, with the descriptor that comes with it. The figures of one run compare with
//! each other; those of two machines do not. See README.md.

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use ntb_emulator::guest_memory::Access;
use ntb_emulator::guest_memory::GuestMemory;
use ntb_emulator::ram::Ram;

const SIZES: [u64; 3] = [10, 1_000, 100_000];
const PAGE: u64 = 4096;
/// Pages are apart, so that none becomes one piece with its neighbour.
const STRIDE: u64 = 2 * PAGE;
const DURATION: Duration = Duration::from_secs(1);
/// So many between two looks at the clock, where the clock would be most of the work.
const BATCH: u32 = 64;

/// A map with that many ranges.
struct Subject {
    memory: GuestMemory,
    file: File,
    ranges: u64,
}

/// What a thread has done.
struct Figures {
    per_second: f64,
    /// What 999 of 1,000 did not exceed.
    nearly_longest: Duration,
}

impl Subject {
    fn new(ranges: u64) -> Self {
        let ram = Ram::anonymous(ranges * PAGE).expect("memory for a benchmark");
        let ram = Arc::new(ram);
        let file = ram.as_fd().try_clone_to_owned().expect("a descriptor");
        let subject = Self {
            memory: GuestMemory::new(ram),
            file: File::from(file),
            ranges,
        };
        for index in 0..ranges {
            subject.map(index);
        }
        subject
    }

    fn map(&self, index: u64) {
        let file = self.file.try_clone().expect("a descriptor");
        self.memory
            .map(index * STRIDE, PAGE, index * PAGE, true, true, Some(file))
            .expect("a range inside the RAM");
    }

    fn unmap(&self, index: u64) {
        self.memory.unmap(index * STRIDE, PAGE);
    }

    fn find(&self, index: u64) {
        black_box(self.memory.find(index * STRIDE, PAGE, Access::Read));
    }

    /// Takes ranges away and brings them back, all over the map, until told to end.
    fn change(&self, go_on: impl Fn(Instant) -> bool) -> f64 {
        let mut random = Random(1);
        let begin = Instant::now();
        let mut changes = 0u32;
        while go_on(begin) {
            for _ in 0..BATCH {
                let index = random.below(self.ranges);
                self.unmap(index);
                self.map(index);
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

/// Numbers without a pattern that matters, the same ones in each run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
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
