// SPDX-License-Identifier: GPL-2.0

//! Does a work for a time, in several threads, each on connections of its own in turn.
//!
//! Every thread warms up, which tells how many steps fit into the time. Then all threads start
//! together and do a batch of that many steps, with no other work between the first and the last.
//! If the warm-up was slower than the batch, there are more batches.

use super::options::Common;
use super::work::Times;
use super::work::Work;
use crate::error::Error;
use crate::error::Result;
use std::sync::Barrier;
use std::time::Duration;
use std::time::Instant;

/// Largest number of steps of a batch, whatever the time.
const MOST_STEPS: f64 = 1e8;

/// When this part of the time has passed, no further batch starts.
const ENOUGH: f64 = 0.8;

/// The time and number of steps.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Time to measure.
    pub time: Duration,
    /// Time to warm up.
    pub warm_up: Duration,
    /// Number of steps of each connection, instead of the time.
    pub iterations: Option<u64>,
    /// Number of parts of a step whose times are taken.
    pub parts: usize,
}

impl Plan {
    /// Makes the plan from the command line.
    pub fn new(common: &Common, parts: usize) -> Self {
        Self {
            time: common.time(),
            warm_up: common.warm_up(),
            iterations: common.iterations,
            parts,
        }
    }
}

/// The result of a measurement.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Number of steps of all threads.
    pub steps: u64,
    /// Time from the first start to the last end.
    pub elapsed: Duration,
    /// The times of the parts.
    pub times: Times,
    /// The context switches of the threads.
    pub switches: Switches,
}

/// Numbers of context switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Switches {
    /// Switches because the thread slept.
    pub voluntary: u64,
    /// Switches because another thread had its turn.
    pub involuntary: u64,
}

impl Switches {
    /// Returns the numbers of this thread, if the kernel tells them.
    fn now() -> Self {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default())
    }

    fn parse(status: &str) -> Self {
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name))?;
            value.trim().parse().ok()
        };
        Self {
            voluntary: field("voluntary_ctxt_switches:").unwrap_or(0),
            involuntary: field("nonvoluntary_ctxt_switches:").unwrap_or(0),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            voluntary: self.voluntary.saturating_sub(before.voluntary),
            involuntary: self.involuntary.saturating_sub(before.involuntary),
        }
    }
}

/// The result of one thread.
struct Part {
    steps: u64,
    started: Instant,
    ended: Instant,
    times: Times,
    switches: Switches,
}

fn measure_threads<W: Work>(threads: &mut [Vec<W>], plan: &Plan) -> Vec<Result<Part>> {
    let barrier = Barrier::new(threads.len());
    std::thread::scope(|scope| {
        let running: Vec<_> = threads
            .iter_mut()
            .map(|works| scope.spawn(|| measure_thread(works, plan, &barrier)))
            .collect();
        running
            .into_iter()
            .map(|thread| {
                let died = || {
                    Err(Error::Refused(
                        "a thread of the measurement has panicked: please report this".into(),
                    ))
                };
                thread.join().unwrap_or_else(|_| died())
            })
            .collect()
    })
}

/// Measures. Each element of `threads` has the works that one thread does in turn.
pub fn measure<W: Work>(threads: &mut [Vec<W>], plan: &Plan) -> Result<Measured> {
    let parts = match threads {
        // A process with one thread has cheaper system calls.
        [only] => vec![measure_thread(only, plan, &Barrier::new(1))],
        several => measure_threads(several, plan),
    };
    let mut all = Measured {
        steps: 0,
        elapsed: Duration::ZERO,
        times: Times::new(plan.parts, 0),
        switches: Switches::default(),
    };
    let mut span: Option<(Instant, Instant)> = None;
    for part in parts {
        let part = part?;
        let (first, last) = span.unwrap_or((part.started, part.ended));
        span = Some((first.min(part.started), last.max(part.ended)));
        all.steps += part.steps;
        all.times.append(part.times);
        all.switches.voluntary += part.switches.voluntary;
        all.switches.involuntary += part.switches.involuntary;
    }
    all.elapsed = span.map_or(Duration::ZERO, |(first, last)| last - first);
    Ok(all)
}

fn measure_thread<W: Work>(works: &mut [W], plan: &Plan, barrier: &Barrier) -> Result<Part> {
    let warmed = warm_up(works, plan.warm_up);
    // A thread that has failed must still come here, as the others wait for it.
    barrier.wait();
    let (mut steps, mut took) = warmed?;
    let first = plan
        .iterations
        .unwrap_or_else(|| steps_within(plan.time, steps, took));
    let mut times = Times::new(plan.parts, first * works.len() as u64);
    let mut all = 0;
    let before = Switches::now();
    let started = Instant::now();
    let ended = loop {
        let left = plan.time.saturating_sub(started.elapsed());
        steps = match plan.iterations {
            Some(iterations) => iterations,
            None => steps_within(left, steps, took),
        };
        let begun = Instant::now();
        batch(works, steps, &mut times)?;
        let ended = Instant::now();
        all += steps;
        took = ended - begun;
        // The warm-up may have been slower than the batch.
        if plan.iterations.is_some() || ended - started >= plan.time.mul_f64(ENOUGH) {
            break ended;
        }
    };
    Ok(Part {
        steps: all * works.len() as u64,
        started,
        ended,
        times,
        switches: Switches::now().since(before),
    })
}

/// Does batches, each larger than the one before, until the time is over. Returns how many steps
/// each work did in the last batch, and the time of that batch.
fn warm_up<W: Work>(works: &mut [W], time: Duration) -> Result<(u64, Duration)> {
    let begun = Instant::now();
    let mut count = 1;
    loop {
        let started = Instant::now();
        batch(works, count, &mut Times::new(0, 0))?;
        let took = started.elapsed();
        if begun.elapsed() >= time {
            return Ok((count, took));
        }
        // The batch grows until it takes a good part of the time: then the rate is known.
        if took < time / 4 {
            count *= 2;
        }
    }
}

/// Returns how many steps fit into a time, at least one.
fn steps_within(time: Duration, steps: u64, took: Duration) -> u64 {
    let each = took.as_secs_f64().max(1e-9) / steps as f64;
    (time.as_secs_f64() / each).clamp(1.0, MOST_STEPS) as u64
}

fn batch<W: Work>(works: &mut [W], count: u64, times: &mut Times) -> Result<()> {
    for work in works.iter_mut() {
        work.begin(count)?;
    }
    for _ in 0..count {
        for work in works.iter_mut() {
            work.step(times)?;
        }
    }
    for work in works.iter_mut() {
        work.end(times)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A work that counts, and is slow.
    #[derive(Default)]
    struct Slow {
        expected: u64,
        done: u64,
        fails: bool,
    }

    impl Work for Slow {
        fn begin(&mut self, count: u64) -> Result<()> {
            (self.expected, self.done) = (count, 0);
            Ok(())
        }

        fn step(&mut self, times: &mut Times) -> Result<()> {
            if self.fails {
                return Err(Error::Refused("as it was told to".into()));
            }
            times.part(0, || std::thread::sleep(Duration::from_millis(1)));
            self.done += 1;
            Ok(())
        }

        fn end(&mut self, _times: &mut Times) -> Result<()> {
            assert_eq!(self.done, self.expected);
            Ok(())
        }
    }

    const PLAN: Plan = Plan {
        time: Duration::from_millis(20),
        warm_up: Duration::from_millis(5),
        iterations: None,
        parts: 1,
    };

    #[test]
    fn all_steps_are_counted_and_timed() {
        let mut threads = vec![
            vec![Slow::default(), Slow::default()],
            vec![Slow::default()],
        ];
        let plan = Plan {
            iterations: Some(7),
            ..PLAN
        };
        let measured = measure(&mut threads, &plan).unwrap();
        assert_eq!(measured.steps, 21);
        let [times] = &measured.times.into_parts()[..] else {
            panic!("not one part");
        };
        assert_eq!(times.len(), 21);
        assert!(times.iter().all(|time| *time >= Duration::from_millis(1)));
        assert!(measured.elapsed >= Duration::from_millis(14));
        // Each sleep is a voluntary switch.
        assert!(measured.switches.voluntary >= 21);
    }

    #[test]
    fn measured_time_is_close_to_the_requested_one() {
        let measured = measure(&mut [vec![Slow::default()]], &PLAN).unwrap();
        assert!((2..=20).contains(&measured.steps), "{}", measured.steps);
        assert_eq!(
            steps_within(Duration::from_secs(1), 10, Duration::from_millis(100)),
            100
        );
        assert_eq!(steps_within(Duration::ZERO, 1, Duration::ZERO), 1);
    }

    #[test]
    fn failure_in_one_thread_ends_the_measurement() {
        let slow = || Slow {
            fails: true,
            ..Slow::default()
        };
        assert!(measure(&mut [vec![Slow::default()], vec![slow()]], &PLAN).is_err());
    }

    #[test]
    fn context_switches_are_parsed() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let switches = Switches::parse(status);
        assert_eq!((switches.voluntary, switches.involuntary), (12, 3));
    }
}
