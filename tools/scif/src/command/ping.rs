// SPDX-License-Identifier: GPL-2.0

//! `scif ping`: message round trips.

use crate::cancel::Cancel;
use crate::client;
use crate::command::connect::connect;
use crate::command::node::parse_node;
use crate::command::output::print;
use crate::command::output::print_json;
use crate::command::port::DEFAULT_PORT;
use crate::command::port::parse_port;
use crate::error::Error;
use crate::error::Result;
use crate::format::parse_size;
use crate::format::percentile;
use crate::format::short_time;
use crate::protocol::LARGEST_PING;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use serde::Serialize;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  scif ping 1                    ten round trips
  scif ping 1 -c 10000 -i 0 -q   many without a pause, only the summary
  scif ping 1 -s 4K --json       larger messages, the result as JSON";

/// Measure message round trips to `scif serve` on a node
///
/// The time covers the whole round trip: this process sends a message, the server receives it and
/// sends it back, and this process receives it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The node's number, which `scif nodes` lists
    #[arg(value_parser = parse_node)]
    pub node: u16,
    /// Number of round trips
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// Bytes in each message
    #[arg(short, long, value_name = "BYTES", default_value = "56", value_parser = parse_ping_size)]
    pub size: u64,
    /// Seconds between round trips
    #[arg(short, long, value_name = "SECONDS", default_value = "0.1", value_parser = parse_seconds)]
    pub interval: Duration,
    /// Print only the summary
    #[arg(short, long)]
    pub quiet: bool,
    /// The port of the server
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = parse_port)]
    pub port: u16,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn parse_ping_size(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text)? {
        size if size <= LARGEST_PING as u64 => Ok(size),
        _ => Err(format!("a ping can carry {LARGEST_PING} bytes at most")),
    }
}

fn parse_seconds(text: &str) -> std::result::Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| *time <= Duration::from_secs(86400))
        .ok_or_else(|| format!("'{text}' is not a number of seconds"))
}

/// The figures of round trips, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundTrips {
    /// Number of round trips.
    pub count: usize,
    /// The shortest time.
    pub min_us: f64,
    /// The mean time.
    pub avg_us: f64,
    /// The longest time.
    pub max_us: f64,
    /// Half of the times are shorter.
    pub p50_us: f64,
    /// 90 of 100 times are shorter.
    pub p90_us: f64,
    /// 99 of 100 times are shorter.
    pub p99_us: f64,
}

impl RoundTrips {
    /// Computes the figures.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let us = |time: Duration| time.as_nanos() as f64 / 1e3;
        let total: Duration = times.iter().sum();
        Self {
            count: times.len(),
            min_us: us(percentile(&times, 0.0)),
            avg_us: us(total) / times.len().max(1) as f64,
            max_us: us(percentile(&times, 100.0)),
            p50_us: us(percentile(&times, 50.0)),
            p90_us: us(percentile(&times, 90.0)),
            p99_us: us(percentile(&times, 99.0)),
        }
    }
}

impl std::fmt::Display for RoundTrips {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} round trips, min/avg/max {:.1}/{:.1}/{:.1} us, p50/p90/p99 {:.1}/{:.1}/{:.1} us",
            self.count,
            self.min_us,
            self.avg_us,
            self.max_us,
            self.p50_us,
            self.p90_us,
            self.p99_us
        )
    }
}

#[derive(Serialize)]
struct Report {
    ok: bool,
    node: u16,
    port: u16,
    bytes: u64,
    #[serde(flatten)]
    round_trips: RoundTrips,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let cancel = Cancel::on_signals().map_err(Error::local("cannot catch signals"))?;
    let Arguments { node, port, .. } = *arguments;
    let session = connect(node, port, Some(cancel.clone()))?;
    let bytes: Vec<u8> = (0..arguments.size).map(|index| index as u8).collect();
    let mut times = Vec::new();
    let mut failure = None;
    for sequence in 0..arguments.count {
        match client::ping(&session, &bytes) {
            Ok(time) => times.push(time),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
        if !arguments.quiet && !arguments.json {
            let time = times.last().copied().unwrap_or_default();
            print(format_args!(
                "{} bytes from node {node} port {port}: seq={sequence} time={}",
                bytes.len(),
                short_time(time)
            ))?;
        }
        if sequence + 1 < arguments.count && pause(&cancel, arguments.interval) {
            failure = Some(Error::Interrupted);
            break;
        }
    }
    let round_trips = RoundTrips::of(times);
    match failure {
        // Ctrl-C is the usual way to end a ping: the times so far are the result.
        Some(Error::Interrupted) | None if round_trips.count > 0 => {}
        Some(error) => {
            if round_trips.count > 0 && !arguments.json {
                print(&round_trips)?;
            }
            return Err(error);
        }
        None => {}
    }
    if arguments.json {
        print_json(&Report {
            ok: true,
            node,
            port,
            bytes: arguments.size,
            round_trips,
        })
    } else {
        print(round_trips)
    }
}

/// Waits. Returns true if the wait was interrupted.
fn pause(cancel: &Cancel, time: Duration) -> bool {
    let timeout = Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    };
    let mut files = [PollFd::new(cancel, PollFlags::IN)];
    // Another signal only shortens the pause.
    let _ = rustix::event::poll(&mut files, Some(&timeout));
    cancel.is_set()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_figures_match_the_samples() {
        let times = (1..=100).rev().map(Duration::from_micros).collect();
        let figures = RoundTrips::of(times);
        assert_eq!(
            figures.to_string(),
            "100 round trips, min/avg/max 1.0/50.5/100.0 us, p50/p90/p99 50.0/90.0/99.0 us"
        );
        assert_eq!(RoundTrips::of(Vec::new()).avg_us, 0.0);
    }

    #[test]
    fn ping_arguments_out_of_range_are_refused() {
        assert!(parse_ping_size("64K").is_ok());
        assert!(parse_ping_size("65K").is_err());
        assert!(parse_seconds("0").is_ok());
        for text in ["-1", "NaN", "inf", "1e300", "x"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
