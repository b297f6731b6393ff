// SPDX-License-Identifier: GPL-2.0
//! The map of a device's memory, as a guest behind a virtual IOMMU uses it: from several
//! threads at the same time, and with very many ranges.
//!
//! The map's answers are tested in `src/guest_memory.rs`, and against a model in
//! `tests/guest_memory_model.rs`.

mod device;

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use device::Device;
use device::PAGE;
use device::Random;
use device::address_of;
use ntb_emulator::guest_memory::Access;
use ntb_emulator::ram::Ram;
use rustix::time::ClockId;

impl Random {
    /// Returns some of these pages.
    fn pages(&mut self, of: &Range<u64>) -> Range<u64> {
        let first = of.start + self.below(of.end - of.start);
        first..first + 1 + self.below(of.end - first)
    }
}

/// The state that threads that change the map share with threads that access memory.
struct Shared {
    device: Device,
    /// For each page whether it may be accessed: set before the page is mapped, cleared after it
    /// was unmapped.
    allowed: [AtomicBool; PAGES as usize],
    /// Number of accesses to memory that must not be accessed any more.
    wrong: AtomicU64,
    /// Number of threads that have not made all their accesses yet.
    accessing: AtomicUsize,
}

/// Number of pages; each of two threads has half of them. The pages lie side by side, so the ranges
/// of one thread are joined with those of the other, and are cut off again.
const PAGES: u64 = 16;

impl Shared {
    fn allow(&self, pages: &Range<u64>, allowed: bool) {
        for page in pages.clone() {
            // Relaxed is enough: the lock of the map orders this and the accesses.
            self.allowed[page as usize].store(allowed, Relaxed);
        }
    }

    fn change(&self, mine: Range<u64>, mut random: Random) {
        while self.accessing.load(Relaxed) > 0 {
            let pages = random.pages(&mine);
            let (address, size) = (pages.start * PAGE, (pages.end - pages.start) * PAGE);
            if random.below(2) == 0 {
                self.allow(&pages, true);
                self.device.map(address, size, address);
            } else {
                self.device.memory.unmap(address, size);
                self.allow(&pages, false);
            }
        }
    }

    fn access(&self, accesses: u32, mut random: Random) {
        let ram = self.device.memory.ram();
        let mut done = 0;
        while done < accesses {
            let pages = random.pages(&(0..PAGES));
            let (address, length) = (pages.start * PAGE, (pages.end - pages.start) * PAGE);
            let Some(found) = self.device.memory.find(address, length, Access::Read) else {
                continue;
            };
            let found_pages = pages.start..pages.start + found.length / PAGE;
            self.check(&found_pages);
            Ram::copy(ram, found.offset, ram, PAGES * PAGE, found.length).unwrap();
            self.check(&found_pages);
            drop(found);
            done += 1;
        }
        self.accessing.fetch_sub(1, Relaxed);
    }

    fn check(&self, pages: &Range<u64>) {
        let allowed = |page: u64| self.allowed[page as usize].load(Relaxed);
        if !pages.clone().all(allowed) {
            self.wrong.fetch_add(1, Relaxed);
        }
    }
}

/// Runs until every thread has made enough accesses, however the threads are scheduled.
#[test]
fn unmapped_memory_is_never_accessed() {
    let shared = Shared {
        device: Device::new(2 * PAGES * PAGE),
        allowed: [const { AtomicBool::new(false) }; PAGES as usize],
        wrong: AtomicU64::new(0),
        accessing: AtomicUsize::new(3),
    };
    thread::scope(|scope| {
        let shared = &shared;
        for seed in 1..=3 {
            scope.spawn(move || shared.access(20_000, Random(seed)));
        }
        scope.spawn(|| shared.change(0..PAGES / 2, Random(4)));
        scope.spawn(|| shared.change(PAGES / 2..PAGES, Random(5)));
    });
    assert_eq!(shared.wrong.into_inner(), 0);
}

/// The cost of some work.
struct Cost {
    bytes_allocated: u64,
    time: Duration,
}

const CHANGES: u64 = 1_000;

/// Fills a map, and measures the cost of removing ranges, searching them, and bringing them back,
/// all over the map.
fn cost_of_changes(ranges: u64) -> Cost {
    let device = Device::with_ranges(ranges);
    let mut random = Random(1);
    let mut round = || {
        for _ in 0..CHANGES {
            let range = random.below(ranges);
            let find = || {
                let memory = &device.memory;
                memory.find(address_of(range), PAGE, Access::Write)
            };
            device.unmap_range(range);
            assert!(find().is_none());
            device.map_range(range);
            assert!(find().is_some());
        }
    };
    let bytes_allocated = allocation_counter::measure(&mut round).bytes_total;
    // The best of several runs, counting only the time in which this thread really ran.
    let time = (0..10).map(|_| time_of(&mut round)).min().unwrap();
    Cost {
        bytes_allocated,
        time,
    }
}

fn time_of(work: impl FnOnce()) -> Duration {
    let now = || {
        let now = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let begin = now();
    work();
    now() - begin
}

/// If the map were copied or walked through for a change, a map of 100,000 ranges would cost 100
/// times as much as one of 1,000. A copy shows in the allocated bytes, which are the same in each
/// run. A walk shows only in the time, which differs between runs, so its limit is wide.
#[test]
fn cost_of_a_map_change_hardly_grows_with_the_map_size() {
    let small = cost_of_changes(1_000);
    let big = cost_of_changes(100_000);
    for cost in [&small, &big] {
        assert!(
            cost.bytes_allocated < CHANGES * 1024,
            "{} bytes allocated",
            cost.bytes_allocated
        );
    }
    assert!(
        big.time < 20 * small.time,
        "{:?}, and {:?} with 1,000 ranges",
        big.time,
        small.time
    );
}
