// SPDX-License-Identifier: GPL-2.0
//! The present speed of a guest: a piece of work, timed from the host, compared with its time on
//! the reference machine (two CPUs, TCG, nothing else to do).
//!
//! The work has two parts, as other work on the machine slows a guest in two ways. A loop of the
//! guest's shell takes CPU time. Round trips through the agent take little CPU time: each starts a
//! process that sleeps for a moment. But many threads of the host and of the guest must be woken up
//! one after the other. The slower of the two parts counts.
//!
//! # Invariants
//! - The factor is never below 1: a faster machine has no shorter limits.
//! - The guest is measured in its present state. So a test that keeps the guest busy itself must
//!   measure before it begins, or when it is done.
//!
//! The speed does not tell what is slow, and ignores the host's load: other work may run outside of
//! a container, or on the other side of a hypervisor.

use std::time::Duration;
use std::time::Instant;

use anyhow::Result;

use crate::config::Flavour;
use crate::lab::Lab;

/// The piece of work for a kernel, and its times on the reference machine.
///
/// To calibrate, run `lab-tests` on that machine when it is idle, and take the middle values
/// of the line "speed" at its end.
struct Work {
    /// Number of iterations of the loop.
    iterations: u32,
    /// Number of round trips.
    round_trips: u32,
    /// Time of the loop.
    reference_loop: Duration,
    /// Mean time of a round trip.
    reference_round_trip: Duration,
}

impl Work {
    /// Returns the work: at most half a second on the plain kernel of the reference machine.
    const fn on(flavour: Flavour) -> Work {
        match flavour {
            Flavour::Stock | Flavour::Plain => Work {
                iterations: 10_000,
                round_trips: 6,
                reference_loop: Duration::from_millis(225),
                reference_round_trip: Duration::from_millis(45),
            },
            // Processes start slowly on these kernels, but user space loops as fast.
            Flavour::Debug | Flavour::Kcsan => Work {
                iterations: 10_000,
                round_trips: 2,
                reference_loop: Duration::from_millis(500),
                reference_round_trip: Duration::from_millis(400),
            },
        }
    }

    /// Returns the factor over the times on the reference machine.
    fn factor(&self, loop_time: Duration, round_trip: Duration) -> f64 {
        let of_loop = loop_time.as_secs_f64() / self.reference_loop.as_secs_f64();
        let of_round_trips = round_trip.as_secs_f64() / self.reference_round_trip.as_secs_f64();
        of_loop.max(of_round_trips).max(1.0)
    }
}

/// The speed of a guest when it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Time of the loop in seconds.
    pub loop_seconds: f64,
    /// Time of a round trip in seconds.
    pub round_trip_seconds: f64,
    /// The factor over the times on the reference machine; 1 or more.
    pub factor: f64,
}

impl Lab {
    /// Measures the speed of a node, which must run and not be paused.
    pub fn measure_speed(&self, node: usize) -> Result<Speed> {
        let work = Work::on(self.config().kernel);
        let script = format!(
            "i=0; while [ $i -lt {} ]; do i=$((i + 1)); done",
            work.iterations
        );
        let started = Instant::now();
        self.shell(node, &script)?;
        let loop_time = started.elapsed();
        let started = Instant::now();
        for _ in 0..work.round_trips {
            self.exec(node, ["sleep", "0.01"])?.success()?;
        }
        let round_trip = started.elapsed() / work.round_trips;
        Ok(Speed {
            loop_seconds: loop_time.as_secs_f64(),
            round_trip_seconds: round_trip.as_secs_f64(),
            factor: work.factor(loop_time, round_trip),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work {
        iterations: 1,
        round_trips: 1,
        reference_loop: Duration::from_millis(100),
        reference_round_trip: Duration::from_millis(50),
    };

    fn factor(loop_time: u64, round_trip: u64) -> f64 {
        WORK.factor(
            Duration::from_millis(loop_time),
            Duration::from_millis(round_trip),
        )
    }

    fn is(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-9
    }

    #[test]
    fn reference_machine_has_factor_one() {
        assert!(is(factor(100, 50), 1.0));
    }

    #[test]
    fn faster_machine_keeps_the_limits() {
        assert!(is(factor(10, 5), 1.0));
    }

    #[test]
    fn slower_of_two_measurements_decides_the_factor() {
        assert!(is(factor(300, 50), 3.0));
        assert!(is(factor(100, 125), 2.5));
        assert!(is(factor(400, 100), 4.0));
    }
}
