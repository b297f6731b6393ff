// SPDX-License-Identifier: GPL-2.0
//! The goals, measured in pairs: SCIF and its reference, one right after the other, in turns and in
//! turned order, many times.
//!
//! A machine that is shared with other work is slow for some seconds and fast for others. Two
//! values that are measured seconds apart can't be compared then. Two neighbours can, and the
//! median of many such ratios counts.

use anyhow::Context;
use anyhow::Result;
use lab::Lab;
use plots::results::NO_SIZE;
use plots::results::Results;
use serde_json::Value;

use crate::figures::*;
use crate::parameters;
use crate::parameters::ASLEEP;
use crate::parameters::BY_ENGINE;
use crate::parameters::Setting;
use crate::plan::Plan;
use crate::plan::SIZE_LARGE;
use crate::plan::SIZE_MIDDLE;
use crate::plan::SIZE_PAGE;
use crate::plan::SIZE_SMALL;
use crate::raw::DEPTH;
use crate::raw::LARGEST_PIECE;
use crate::raw::Raw;
use crate::run;
use crate::setup;

/// Seconds for one half of a pair.
const SECONDS: f64 = 0.15;

/// Seconds of warm-up.
const WARM_UP: &str = "0.03";

/// Seconds of warm-up for a stream, of SCIF and of TCP: rings and windows grow first, and both ends
/// need time to start.
const WARM_UP_STREAM: &str = "0.2";

/// A function that measures one half.
type Half<'a> = fn(&Bench<'a>, u64) -> Result<f64>;

/// Two values to compare.
struct Pair<'a> {
    /// The name under which the ratio is entered, in [`PAIRS`].
    name: &'static str,
    size: u64,
    /// The setting of the module for both halves.
    setting: Option<Setting>,
    ours: Half<'a>,
    theirs: Half<'a>,
    /// Number of measurements in each turn.
    times: usize,
}

impl Pair<'_> {
    /// Sets the number of measurements, for values that vary much, as the speed of stores varies
    /// with the place of memory.
    const fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }
}

const fn pair<'a>(
    name: &'static str,
    size: u64,
    setting: Option<Setting>,
    ours: Half<'a>,
    theirs: Half<'a>,
) -> Pair<'a> {
    Pair {
        name,
        size,
        setting,
        ours,
        theirs,
        times: 1,
    }
}

/// Returns the pairs that every plan has.
fn all<'a>() -> Vec<Pair<'a>> {
    vec![
        pair(
            PAIR_WRITE,
            SIZE_LARGE,
            Some(BY_ENGINE),
            Bench::write_dma,
            Bench::raw_write,
        ),
        pair(
            PAIR_READ,
            SIZE_LARGE,
            Some(BY_ENGINE),
            Bench::read_dma,
            Bench::raw_read,
        ),
        pair(
            PAIR_WRITE,
            SIZE_MIDDLE,
            Some(BY_ENGINE),
            Bench::write_dma,
            Bench::raw_write,
        ),
        pair(
            PAIR_READ,
            SIZE_MIDDLE,
            Some(BY_ENGINE),
            Bench::read_dma,
            Bench::raw_read,
        ),
        pair(
            PAIR_WRITE,
            SIZE_PAGE,
            Some(BY_ENGINE),
            Bench::write_dma,
            Bench::raw_write,
        ),
        pair(
            PAIR_READ,
            SIZE_PAGE,
            Some(BY_ENGINE),
            Bench::read_dma,
            Bench::raw_read,
        ),
        pair(
            PAIR_WRITE_PAGES,
            SIZE_MIDDLE,
            Some(BY_ENGINE),
            Bench::write_pages,
            Bench::raw_write_pages,
        ),
        pair(
            PAIR_READ_PAGES,
            SIZE_MIDDLE,
            Some(BY_ENGINE),
            Bench::read_pages,
            Bench::raw_read_pages,
        ),
        pair(PAIR_MMAP, SIZE_LARGE, None, Bench::store, Bench::aperture).times(4),
        pair(
            PAIR_CPU,
            SIZE_MIDDLE,
            None,
            Bench::write_cpu,
            Bench::aperture,
        ),
        pair(
            PAIR_SMALL,
            SIZE_SMALL,
            None,
            Bench::small_write,
            Bench::call_and_copy,
        ),
        pair(
            PAIR_DOORBELL,
            8,
            Some(ASLEEP),
            Bench::round_trip,
            Bench::doorbell,
        ),
        pair(
            PAIR_DOORBELL_THREAD,
            8,
            Some(ASLEEP),
            Bench::round_trip,
            Bench::doorbell_thread,
        ),
        pair(
            PAIR_TCP,
            8,
            Some(ASLEEP),
            Bench::round_trip,
            Bench::tcp_round_trip,
        ),
        pair(
            PAIR_TCP_POLLING,
            8,
            None,
            Bench::polling,
            Bench::tcp_polling,
        ),
        pair(
            PAIR_STREAM,
            SIZE_MIDDLE,
            None,
            Bench::stream,
            Bench::aperture,
        ),
        pair(
            PAIR_STREAM_TCP,
            SIZE_SMALL,
            None,
            Bench::message,
            Bench::tcp_message,
        ),
        pair(
            PAIR_RING,
            SIZE_MIDDLE,
            None,
            Bench::ring_stream,
            Bench::aperture,
        ),
        pair(
            PAIR_RING_TCP,
            SIZE_SMALL,
            None,
            Bench::ring_message,
            Bench::tcp_message,
        ),
        pair(
            PAIR_RING_TRIP,
            8,
            None,
            Bench::ring_polling,
            Bench::tcp_polling,
        ),
        pair(
            PAIR_BULK_TCP,
            SIZE_LARGE,
            None,
            Bench::stream,
            Bench::tcp_stream,
        ),
        pair(PAIR_CONNECT, NO_SIZE, None, Bench::connect, Bench::doorbell),
        pair(PAIR_CLOSE, NO_SIZE, None, Bench::close, Bench::doorbell),
    ]
}

/// Measures all pairs, or those whose name contains `only`, as often as the plan says.
pub fn run(
    lab: &Lab,
    plan: &Plan,
    only: Option<&str>,
    results: &mut Results,
    say: &dyn Fn(&str),
) -> Result<()> {
    let windows = plan.windows.iter().map(|&size| {
        pair(
            PAIR_WINDOW,
            size,
            None,
            Bench::window,
            Bench::pin_and_doorbells,
        )
    });
    let bulk = pair(
        PAIR_HUGE,
        plan.bulk_window,
        None,
        Bench::window,
        Bench::huge_window,
    );
    let pairs: Vec<Pair<'_>> = windows
        .chain([bulk])
        .chain(all())
        .filter(|pair| only.is_none_or(|only| pair.name.contains(only)))
        .collect();
    let bench = Bench { lab };
    for turn in 0..plan.turns {
        say(&format!("pairs, turn {} of {}", turn + 1, plan.turns));
        for setting in [None, Some(BY_ENGINE), Some(ASLEEP)] {
            let mut these = pairs
                .iter()
                .filter(|pair| pair.setting == setting)
                .peekable();
            if these.peek().is_none() {
                continue;
            }
            let mut measure = || these.try_for_each(|pair| bench.compare(pair, turn, results));
            match setting {
                None => measure()?,
                Some(setting) => parameters::with(lab, setting, measure)?,
            }
        }
    }
    Ok(())
}

/// The halves, each in the unit of its reference.
struct Bench<'a> {
    lab: &'a Lab,
}

impl<'a> Bench<'a> {
    fn compare(&self, pair: &Pair<'a>, turn: usize, results: &mut Results) -> Result<()> {
        (0..pair.times).try_for_each(|time| self.compare_once(pair, turn + time, results))
    }

    /// Makes one comparison. The order alternates: SCIF is measured first, then last.
    fn compare_once(&self, pair: &Pair<'a>, turn: usize, results: &mut Results) -> Result<()> {
        let measure = |half: Half<'a>| {
            half(self, pair.size).with_context(|| format!("{}, {}", pair.name, pair.size))
        };
        let (ours, theirs) = if turn % 2 == 0 {
            let ours = measure(pair.ours)?;
            (ours, measure(pair.theirs)?)
        } else {
            let theirs = measure(pair.theirs)?;
            (measure(pair.ours)?, theirs)
        };
        results.add(PAIRS, pair.name, pair.size, ours / theirs);
        Ok(())
    }

    fn raw(&self) -> Raw<'_> {
        Raw {
            lab: self.lab,
            seconds: SECONDS,
        }
    }

    /// Returns one row of the tool's report.
    fn row(&self, benchmark: &str, peer: &str, size: u64, options: &[&str]) -> Result<Value> {
        let (seconds, sizes) = (SECONDS.to_string(), size.to_string());
        let warm_up = match benchmark {
            "send-bw" => WARM_UP_STREAM,
            _ => WARM_UP,
        };
        let mut arguments = vec![benchmark, peer, "--seconds", &seconds, "--warm-up", warm_up];
        if size != NO_SIZE {
            arguments.extend(["--sizes", &sizes]);
        }
        arguments.extend(options);
        let report = run::bench(self.lab, &arguments)?;
        Ok(report["results"][0].clone())
    }

    fn rate(&self, benchmark: &str, peer: &str, size: u64, options: &[&str]) -> Result<f64> {
        let row = self.row(benchmark, peer, size, options)?;
        row["bytes_per_second"].as_f64().context("no throughput")
    }

    fn each(&self, benchmark: &str, peer: &str, size: u64, options: &[&str]) -> Result<f64> {
        let row = self.row(benchmark, peer, size, options)?;
        row["us_per_operation"].as_f64().context("no operation")
    }

    fn median(
        &self,
        benchmark: &str,
        peer: &str,
        size: u64,
        options: &[&str],
        part: &str,
    ) -> Result<f64> {
        median_of(&self.row(benchmark, peer, size, options)?, part)
    }

    fn by_engine(&self, benchmark: &str, size: u64, more: &[&str]) -> Result<f64> {
        let depth = DEPTH.to_string();
        let options = [&["--dma", "--depth", &depth], more].concat();
        self.rate(benchmark, "1", size, &options)
    }

    fn write_dma(&self, size: u64) -> Result<f64> {
        self.by_engine("write-bw", size, &["--huge-pages"])
    }

    fn read_dma(&self, size: u64) -> Result<f64> {
        self.by_engine("read-bw", size, &["--huge-pages"])
    }

    fn write_pages(&self, size: u64) -> Result<f64> {
        self.by_engine("write-bw", size, &[])
    }

    fn read_pages(&self, size: u64) -> Result<f64> {
        self.by_engine("read-bw", size, &[])
    }

    fn raw_write(&self, size: u64) -> Result<f64> {
        self.raw().dma("write", size, LARGEST_PIECE)
    }

    fn raw_read(&self, size: u64) -> Result<f64> {
        self.raw().dma("read", size, LARGEST_PIECE)
    }

    fn raw_write_pages(&self, size: u64) -> Result<f64> {
        self.raw().dma("write", size, SIZE_PAGE)
    }

    fn raw_read_pages(&self, size: u64) -> Result<f64> {
        self.raw().dma("read", size, SIZE_PAGE)
    }

    fn store(&self, size: u64) -> Result<f64> {
        self.rate("mmap-bw", "1", size, &[])
    }

    fn write_cpu(&self, size: u64) -> Result<f64> {
        self.rate("write-bw", "1", size, &["--cpu"])
    }

    fn aperture(&self, size: u64) -> Result<f64> {
        let line = self.raw().aperture_of(size)?;
        Ok(size as f64 / line.write_ns * 1e9)
    }

    fn small_write(&self, size: u64) -> Result<f64> {
        self.median("write-lat", "1", size, &["--auto"], "copy")
    }

    fn call_and_copy(&self, size: u64) -> Result<f64> {
        Ok(self.raw().call()? + self.raw().aperture_of(size)?.write_p50_ns / 1e3)
    }

    fn round_trip(&self, size: u64) -> Result<f64> {
        self.median("send-lat", "1", size, &[], "round trip")
    }

    fn doorbell(&self, _size: u64) -> Result<f64> {
        self.raw().doorbell("interrupt", 300)
    }

    fn doorbell_thread(&self, _size: u64) -> Result<f64> {
        self.raw().doorbell("thread", 300)
    }

    fn over_tcp(&self, size: u64, more: &[&str]) -> Result<f64> {
        let options = [&["--transport", "tcp"], more].concat();
        self.median(
            "send-lat",
            &setup::tcp_address(),
            size,
            &options,
            "round trip",
        )
    }

    fn tcp_round_trip(&self, size: u64) -> Result<f64> {
        self.over_tcp(size, &[])
    }

    fn polling(&self, size: u64) -> Result<f64> {
        self.median("send-lat", "1", size, &["--poll"], "round trip")
    }

    fn tcp_polling(&self, size: u64) -> Result<f64> {
        self.over_tcp(size, &["--poll"])
    }

    fn stream(&self, size: u64) -> Result<f64> {
        self.rate("send-bw", "1", size, &[])
    }

    fn tcp_stream(&self, size: u64) -> Result<f64> {
        self.rate(
            "send-bw",
            &setup::tcp_address(),
            size,
            &["--transport", "tcp"],
        )
    }

    fn message(&self, size: u64) -> Result<f64> {
        self.each("send-bw", "1", size, &[])
    }

    fn tcp_message(&self, size: u64) -> Result<f64> {
        self.each(
            "send-bw",
            &setup::tcp_address(),
            size,
            &["--transport", "tcp"],
        )
    }

    fn ring_stream(&self, size: u64) -> Result<f64> {
        self.rate("send-bw", "1", size, &["--transport", "ring"])
    }

    fn ring_message(&self, size: u64) -> Result<f64> {
        self.each("send-bw", "1", size, &["--transport", "ring"])
    }

    fn ring_polling(&self, size: u64) -> Result<f64> {
        let options = ["--transport", "ring", "--poll"];
        self.median("send-lat", "1", size, &options, "round trip")
    }

    fn connect(&self, _size: u64) -> Result<f64> {
        self.median("connect", "1", NO_SIZE, &[], CONNECT)
    }

    fn close(&self, _size: u64) -> Result<f64> {
        self.median("connect", "1", NO_SIZE, &[], CLOSE)
    }

    fn both(&self, size: u64, options: &[&str]) -> Result<f64> {
        let row = self.row("register", "1", size, options)?;
        Ok(median_of(&row, REGISTER)? + median_of(&row, UNREGISTER)?)
    }

    fn window(&self, size: u64) -> Result<f64> {
        self.both(size, &[])
    }

    fn huge_window(&self, size: u64) -> Result<f64> {
        self.both(size, &["--huge-pages"])
    }

    fn pin_and_doorbells(&self, size: u64) -> Result<f64> {
        let pin = self.raw().pin_and_unpin("small", &[size])?;
        let us = pin.first().context("no size")?.1;
        Ok(us + 2.0 * self.raw().doorbell("interrupt", 300)?)
    }
}

fn median_of(row: &Value, part: &str) -> Result<f64> {
    run::latency(row, part, "p50_us").context("no median")
}
