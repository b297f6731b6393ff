// SPDX-License-Identifier: GPL-2.0
//! Executes the descriptors of one DMA function, on a thread of its own.
//!
//! So a big copy never keeps a guest waiting at a register. Copies are made in chunks; between two
//! chunks the engine checks whether it must abort. A failed copy is written back as failed, and the
//! next descriptor is executed. A ring that can't be read stops the engine until it is started
//! again. No write of a guest can do more than that.
//!
//! With a [`Pacer`] the engine takes its time: before each chunk it waits until hardware would be
//! done with the chunk, with nothing locked and nothing pinned. If it wakes up late, it makes up
//! for the lost time only with descriptors that were there before the late one was written back.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Condvar;
use parking_lot::Mutex;
use parking_lot::MutexGuard;

use super::descriptor;
use super::descriptor::Descriptor;
use super::descriptor::Outcome;
use super::registers::End;
use super::registers::Registers;
use super::registers::Slot;
use crate::bus::Bus;
use crate::bus::Fault;
use crate::counters::Counters;
use crate::interrupt::Interrupts;
use crate::mmio;
use crate::model::pacer;
use crate::model::pacer::Pacer;

/// Largest size of a chunk.
const CHUNK: u64 = 256 << 10;

/// A DMA engine.
pub struct Engine<B> {
    registers: Mutex<Registers>,
    /// Signalled when there may be a descriptor to execute.
    work: Condvar,
    /// Signalled when the engine no longer works on a descriptor.
    idle: Condvar,
    /// Whether the copy in progress must end.
    abort: AtomicBool,
    bus: B,
    /// The pacer, unless the engine runs as fast as it can.
    pacer: Option<Pacer>,
    interrupts: Arc<Interrupts>,
    counters: Arc<Counters>,
}

impl<B: Bus> Engine<B> {
    /// Creates an engine after reset. The caller must run [`Self::run`] or [`Self::step`].
    pub fn new(
        bus: B,
        pacer: Option<Pacer>,
        interrupts: Arc<Interrupts>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            registers: Mutex::default(),
            work: Condvar::new(),
            idle: Condvar::new(),
            abort: AtomicBool::new(false),
            bus,
            pacer,
            interrupts,
            counters,
        }
    }

    /// Reads registers.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        mmio::read(&mut *self.registers.lock(), offset, data);
    }

    /// Writes registers.
    pub fn write(&self, offset: u64, data: &[u8]) {
        let mut registers = self.registers.lock();
        mmio::write(&mut *registers, offset, data);
        if registers.wants_abort() && registers.is_busy() {
            self.abort.store(true, Relaxed);
        }
        self.work.notify_one();
    }

    /// Resets the registers. When this returns, the engine no longer accesses memory.
    pub fn reset(&self) {
        let mut registers = self.registers.lock();
        registers.reset();
        if registers.is_busy() {
            self.abort.store(true, Relaxed);
            self.idle
                .wait_while(&mut registers, |registers| registers.is_busy());
            // The copy that has just ended may have changed registers.
            registers.reset();
        }
    }

    /// Executes descriptors for ever.
    pub fn run(&self) -> ! {
        loop {
            let mut registers = self.registers.lock();
            let begun = loop {
                match registers.begin() {
                    Ok(None) => {
                        self.idle();
                        self.work.wait(&mut registers);
                    }
                    begun => break begun,
                }
            };
            self.work_on(registers, begun);
        }
    }

    /// Executes one descriptor. Returns false if there is none.
    pub fn step(&self) -> bool {
        let mut registers = self.registers.lock();
        let begun = registers.begin();
        if matches!(begun, Ok(None)) {
            return false;
        }
        self.work_on(registers, begun);
        true
    }

    fn work_on(&self, registers: MutexGuard<'_, Registers>, begun: Result<Option<Slot>, bool>) {
        match begun {
            Ok(None) => {}
            Ok(Some(slot)) => {
                drop(registers);
                let end = self.descriptor(slot);
                let mut registers = self.registers.lock();
                let interrupt = registers.finish(end);
                self.raise_if(interrupt, &registers);
                self.abort.store(false, Relaxed);
                self.idle.notify_all();
            }
            Err(interrupt) => {
                Counters::count(&self.counters.dma_errors);
                self.raise_if(interrupt, &registers);
            }
        }
    }

    /// Interrupts the guest. The registers are locked, and a reset takes their lock: so no interrupt for
    /// a guest that has gone reaches the next one.
    fn raise_if(&self, interrupt: bool, _registers: &MutexGuard<'_, Registers>) {
        if interrupt {
            self.interrupts.raise(0);
        }
    }

    fn descriptor(&self, slot: Slot) -> End {
        match self.try_descriptor(slot) {
            Ok(end) => end,
            Err(_) => {
                Counters::count(&self.counters.dma_errors);
                End::RingFault
            }
        }
    }

    fn try_descriptor(&self, slot: Slot) -> Result<End, Fault> {
        // The first word is read by itself, before the others: it says whether they are valid.
        let mut flags = [0; 4];
        self.bus.read(slot.address, &mut flags)?;
        if !descriptor::is_valid(u32::from_le_bytes(flags)) {
            self.idle();
            return Ok(End::NotValid);
        }
        self.begin();
        let mut raw = [0; descriptor::SIZE as usize];
        self.bus.read(slot.address, &mut raw)?;
        raw[..4].copy_from_slice(&flags);
        let descriptor = Descriptor::decode(raw);
        let Some((outcome, done)) = self.copy(&descriptor) else {
            return Ok(End::Aborted);
        };
        if !self.over() {
            return Ok(End::Aborted);
        }
        Counters::count(&self.counters.dma_descriptors);
        self.counters.dma_bytes.fetch_add(done.into(), Relaxed);
        if outcome != Outcome::Done {
            Counters::count(&self.counters.dma_errors);
        }
        // If the guest submits the next descriptor only after this one is reported, it has not kept
        // the engine busy. However late this one was, the next one takes its full time.
        if !self.has_another(slot) {
            self.idle();
        }
        if slot.write_back {
            let word = descriptor::written_back(outcome, done);
            self.bus.write(slot.address, &word.to_le_bytes())?;
        }
        Ok(End::Executed {
            interrupt: descriptor.interrupt,
        })
    }

    /// Returns whether the next descriptor was there before this one is written back.
    fn has_another(&self, slot: Slot) -> bool {
        if slot.next == slot.address {
            return !slot.write_back;
        }
        let mut flags = [0; 4];
        self.bus.read(slot.next, &mut flags).is_ok()
            && descriptor::is_valid(u32::from_le_bytes(flags))
    }

    /// Copies. Returns the outcome and the number of bytes done, or nothing if aborted.
    fn copy(&self, descriptor: &Descriptor) -> Option<(Outcome, u32)> {
        let mut done = 0;
        let total = u64::from(descriptor.length);
        while done < total {
            if self.abort.load(Relaxed) {
                return None;
            }
            let from = descriptor.source + done;
            let to = descriptor.destination + done;
            let step = match self.in_time(from, to, total - done) {
                Ok(Some(length)) => self.bus.copy(from, to, length),
                Ok(None) => return None,
                Err(fault) => Err(fault),
            };
            match step {
                Ok(copied) => done += copied,
                Err(Fault::Read) => return Some((Outcome::ReadFailed, done as u32)),
                Err(Fault::Write) => return Some((Outcome::WriteFailed, done as u32)),
            }
        }
        Some((Outcome::Done, done as u32))
    }

    /// Waits until hardware would be done with the next chunk of a copy. Returns its length, or
    /// nothing if the engine must abort.
    fn in_time(&self, source: u64, destination: u64, rest: u64) -> Result<Option<u64>, Fault> {
        let Some(pacer) = &self.pacer else {
            return Ok(Some(rest.min(CHUNK)));
        };
        let length = rest.min(pacer::CHUNK);
        let route = self.bus.route(source, destination, length)?;
        pacer.copy(&route);
        Ok(self.over().then_some(route.length))
    }

    /// Waits until hardware would be done. Returns false if the engine must abort.
    fn over(&self) -> bool {
        match &self.pacer {
            Some(pacer) => pacer.wait(|| self.abort.load(Relaxed)),
            None => true,
        }
    }

    fn begin(&self) {
        if let Some(pacer) = &self.pacer {
            let lost = pacer.begin();
            self.counters.dma_late_us.fetch_add(lost, Relaxed);
        }
    }

    fn idle(&self) {
        if let Some(pacer) = &self.pacer {
            pacer.idle();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bus::Route;
    use crate::model::clock::Clock;
    use crate::model::clock::fake::Fake;
    use crate::model::figures::EngineFigures;
    use crate::model::pace::Pace;
    use crate::model::picoseconds::Picoseconds;

    /// 64 KiB of memory at 0, in pieces of 1 KiB. The last 4 KiB are read-only.
    struct Plain {
        bytes: Mutex<Vec<u8>>,
    }

    const MEMORY: u64 = 0x1_0000;
    const WRITABLE: u64 = 0xf000;
    const PIECE: u64 = 0x400;
    const RING: u64 = 0x8000;
    const STARTED: u16 = 0x174c;

    impl Plain {
        fn new() -> Self {
            let bytes = (0..MEMORY).map(|at| (at * 7 + at / 256) as u8).collect();
            Self {
                bytes: Mutex::new(bytes),
            }
        }

        fn slice(address: u64, length: u64, limit: u64) -> Option<std::ops::Range<usize>> {
            let end = address.checked_add(length)?;
            (end <= limit).then_some(address as usize..end as usize)
        }
    }

    impl Bus for Plain {
        fn read(&self, address: u64, data: &mut [u8]) -> Result<(), Fault> {
            let range = Self::slice(address, data.len() as u64, MEMORY).ok_or(Fault::Read)?;
            data.copy_from_slice(&self.bytes.lock()[range]);
            Ok(())
        }

        fn write(&self, address: u64, data: &[u8]) -> Result<(), Fault> {
            let range = Self::slice(address, data.len() as u64, WRITABLE).ok_or(Fault::Write)?;
            self.bytes.lock()[range].copy_from_slice(data);
            Ok(())
        }

        fn copy(&self, source: u64, destination: u64, length: u64) -> Result<u64, Fault> {
            let length = self.route(source, destination, length)?.length;
            let from = Self::slice(source, length, MEMORY).ok_or(Fault::Read)?;
            let to = Self::slice(destination, length, WRITABLE).ok_or(Fault::Write)?;
            self.bytes.lock().copy_within(from, to.start);
            Ok(length)
        }

        fn route(&self, source: u64, destination: u64, length: u64) -> Result<Route, Fault> {
            let length = length
                .min(PIECE - source % PIECE)
                .min(PIECE - destination % PIECE);
            Self::slice(source, length, MEMORY).ok_or(Fault::Read)?;
            Self::slice(destination, length, WRITABLE).ok_or(Fault::Write)?;
            Ok(Route {
                length,
                from: None,
                to: None,
            })
        }
    }

    fn engine(count: u32) -> Engine<Plain> {
        engine_with(count, None)
    }

    /// Returns an engine of 1 GB/s, and its clock.
    fn paced(count: u32) -> (Engine<Plain>, Arc<Fake>) {
        paced_with(count, Fake::default())
    }

    /// Returns an engine of 1 GB/s with this clock.
    fn paced_with(count: u32, clock: Fake) -> (Engine<Plain>, Arc<Fake>) {
        let clock = Arc::new(clock);
        let figures = EngineFigures {
            bandwidth: 1_000_000_000,
            descriptor_ns: 100,
        };
        let time: Arc<dyn Clock> = Arc::<Fake>::clone(&clock);
        let pacer = Pacer::new(Pace::new(Some(figures), Vec::new()), time);
        (engine_with(count, Some(pacer)), clock)
    }

    fn engine_with(count: u32, pacer: Option<Pacer>) -> Engine<Plain> {
        let engine = Engine::new(
            Plain::new(),
            pacer,
            Arc::new(Interrupts::msix(1)),
            Arc::new(Counters::default()),
        );
        engine.write(0x214, &(RING as u32).to_le_bytes());
        engine.write(0x21c, &(RING as u32).to_le_bytes());
        engine.write(0x220, &count.to_le_bytes());
        // The ring has no valid descriptors yet.
        let nothing = vec![0; count as usize * 16];
        engine.bus.write(RING, &nothing).unwrap();
        engine
    }

    fn submit(engine: &Engine<Plain>, index: u64, descriptor: Descriptor) {
        let at = RING + index * descriptor::SIZE;
        engine.bus.write(at, &descriptor.encode()).unwrap();
    }

    fn start(engine: &Engine<Plain>) {
        engine.write(0x238, &STARTED.to_le_bytes());
    }

    fn flags(engine: &Engine<Plain>, index: u64) -> u32 {
        let mut data = [0; 4];
        engine
            .bus
            .read(RING + index * descriptor::SIZE, &mut data)
            .unwrap();
        u32::from_le_bytes(data)
    }

    fn copy(source: u64, destination: u64, length: u32) -> Descriptor {
        Descriptor {
            source,
            destination,
            length,
            interrupt: true,
        }
    }

    #[test]
    fn engine_executes_up_to_the_first_invalid_descriptor() {
        let engine = engine(4);
        let before = engine.bus.bytes.lock().clone();
        submit(&engine, 0, copy(0x101, 0x2003, 0x1234));
        submit(&engine, 1, copy(0xf000, 0x5000, 0x1000));
        start(&engine);
        while engine.step() {}
        assert_eq!(flags(&engine, 0), 0x4000_1234);
        assert_eq!(flags(&engine, 1), 0x4000_1000);
        let after = engine.bus.bytes.lock().clone();
        assert_eq!(after[0x2003..0x3237], before[0x101..0x1335]);
        assert_eq!(after[0x5000..0x6000], before[0xf000..]);
        let counters = engine.counters.snapshot();
        assert_eq!(counters.dma_descriptors, 2);
        assert_eq!(counters.dma_bytes, 0x2234);
        assert_eq!(counters.dma_errors, 0);
    }

    #[test]
    fn paced_copy_ends_exactly_at_its_time() {
        let (engine, clock) = paced(4);
        clock.pass(Picoseconds::nanoseconds(1_000_000));
        submit(&engine, 0, copy(0, 0x2000, 0x1000));
        submit(&engine, 1, copy(0, 0x2000, 0));
        submit(&engine, 2, copy(0, 0xffff_ffff, 8));
        start(&engine);
        for end in [100 + 0x1000, 200 + 0x1000, 300 + 0x1000] {
            assert!(engine.step());
            assert_eq!(clock.now(), Picoseconds::nanoseconds(1_000_000 + end));
        }
        assert_eq!(flags(&engine, 0), 0x4000_1000);
        assert_eq!(flags(&engine, 1), 0x4000_0000);
        assert_eq!(flags(&engine, 2), 0x1000_0000);
        // An idle engine takes no time, and a later descriptor begins later.
        engine.step();
        clock.pass(Picoseconds::nanoseconds(50));
        submit(&engine, 3, copy(0, 0x2000, 8));
        start(&engine);
        assert!(engine.step());
        let end = Picoseconds::nanoseconds(1_000_000 + 300 + 0x1000 + 50 + 108);
        assert_eq!(clock.now(), end);
        assert_eq!(engine.counters.snapshot().dma_late_us, 0);
    }

    #[test]
    fn only_queued_descriptors_make_up_for_a_late_end() {
        let at = Picoseconds::nanoseconds;
        let (engine, clock) = paced_with(4, Fake::late(at(1000)));
        submit(&engine, 0, copy(0, 0x2000, 0x400));
        submit(&engine, 1, copy(0, 0x2000, 0x400));
        start(&engine);
        assert!(engine.step());
        let first = at(100 + 0x400 + 1000);
        assert_eq!(clock.now(), first);
        // The second descriptor was there: the rate over both is exact, but for the last wake-up.
        assert!(engine.step());
        let second = at(2 * (100 + 0x400) + 1000);
        assert_eq!(clock.now(), second);
        // This descriptor is submitted as soon as the others are over, before the engine has
        // looked.
        submit(&engine, 2, copy(0, 0x2000, 0x400));
        assert!(engine.step());
        assert_eq!(clock.now(), second + at(100 + 0x400 + 1000));
        // In a ring of one, no descriptor can be there before the last one is written back.
        let (engine, clock) = paced_with(1, Fake::late(at(1000)));
        for round in 1..=2 {
            submit(&engine, 0, copy(0, 0x2000, 0x400));
            start(&engine);
            assert!(engine.step());
            assert_eq!(clock.now(), at(round * (100 + 0x400 + 1000)));
        }
        assert_eq!(engine.counters.snapshot().dma_late_us, 0);
    }

    #[test]
    fn waiting_paced_copy_can_be_aborted() {
        let (engine, clock) = paced(1);
        submit(&engine, 0, copy(0, 0x2000, 0x1000));
        start(&engine);
        engine.abort.store(true, Relaxed);
        assert!(engine.step());
        assert_eq!(clock.now(), Picoseconds::ZERO);
        assert_eq!(flags(&engine, 0), 0xc000_1000);
        assert!(engine.step());
        assert_eq!(flags(&engine, 0), 0x4000_1000);
    }

    #[test]
    fn failed_descriptor_is_written_back_and_the_next_executed() {
        let engine = engine(4);
        submit(&engine, 0, copy(0xff00, 0x1000, 0x200));
        submit(&engine, 1, copy(0x0, 0xef00, 0x200));
        submit(&engine, 2, copy(0x0, 0xffff_ffff_ffff, 1));
        submit(&engine, 3, copy(0x0, 0x1000, 0));
        start(&engine);
        for _ in 0..4 {
            assert!(engine.step());
        }
        assert_eq!(flags(&engine, 0), 0x2000_0100);
        assert_eq!(flags(&engine, 1), 0x1000_0100);
        assert_eq!(flags(&engine, 2), 0x1000_0000);
        assert_eq!(flags(&engine, 3), 0x4000_0000);
        assert_eq!(engine.counters.snapshot().dma_errors, 3);
    }

    #[test]
    fn ring_outside_memory_stops_the_engine() {
        let engine = engine(4);
        engine.write(0x218, &1u32.to_le_bytes());
        start(&engine);
        assert!(engine.step());
        assert!(!engine.step());
        assert_eq!(engine.counters.snapshot().dma_errors, 1);
        // A read-only ring can't be written back.
        engine.write(0x218, &0u32.to_le_bytes());
        engine.write(0x214, &0xf000u32.to_le_bytes());
        engine.write(0x21c, &0xf000u32.to_le_bytes());
        engine.bus.bytes.lock()[0xf000..0xf010].copy_from_slice(&copy(0, 0, 16).encode());
        start(&engine);
        assert!(engine.step());
        assert!(!engine.step());
        assert_eq!(engine.counters.snapshot().dma_errors, 2);
    }

    #[test]
    fn reset_waits_for_the_copy_in_progress() {
        let engine = Arc::new(engine(1));
        // Without write-back the same descriptor is executed for ever.
        submit(&engine, 0, copy(0, 0x1000, 0x1000));
        let runner = Arc::clone(&engine);
        std::thread::spawn(move || runner.run());
        engine.write(0x238, &(STARTED & !4).to_le_bytes());
        while engine.counters.snapshot().dma_descriptors < 10 {
            std::thread::yield_now();
        }
        engine.reset();
        let done = engine.counters.snapshot();
        let mut control = [0; 4];
        engine.read(0x238, &mut control);
        assert_eq!(control, [0; 4]);
        assert_eq!(engine.counters.snapshot(), done);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Whatever the ring and the registers contain, nothing panics or hangs.
        #[test]
        fn engine_survives_any_ring_contents(
            raw in prop::collection::vec(any::<[u8; 16]>(), 8),
            writes in prop::collection::vec((0u64..0x250, any::<u64>(), 1usize..9), 0..8),
        ) {
            let engine = engine(8);
            for (index, raw) in raw.iter().enumerate() {
                engine.bus.write(RING + index as u64 * 16, raw).unwrap();
            }
            start(&engine);
            for (offset, value, length) in writes {
                engine.step();
                engine.write(offset, &value.to_le_bytes()[..length]);
                let mut data = [0; 8];
                engine.read(offset, &mut data);
            }
            for _ in 0..16 {
                engine.step();
            }
            engine.reset();
            prop_assert!(!engine.step());
        }

        /// A copy is exact at any alignment.
        #[test]
        fn engine_copies_exactly_the_given_bytes(
            source in 0u64..0x2000,
            destination in 0x4000u64..0x6000,
            length in 0u32..0x2000,
        ) {
            let engine = engine(2);
            let before = engine.bus.bytes.lock().clone();
            submit(&engine, 0, copy(source, destination, length));
            start(&engine);
            while engine.step() {}
            let mut expected = before;
            expected.copy_within(source as usize..source as usize + length as usize, destination as usize);
            prop_assert_eq!(flags(&engine, 0), 0x4000_0000 | length);
            let after = engine.bus.bytes.lock().clone();
            prop_assert!(after[..RING as usize] == expected[..RING as usize]);
        }
    }
}
