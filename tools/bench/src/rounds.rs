// SPDX-License-Identifier: GPL-2.0
//! The measurements of every round: SCIF, and right after it the reference.

use anyhow::Result;
use lab::Lab;
use plots::results::NO_SIZE;
use plots::results::Results;

use crate::figures::*;
use crate::parameters;
use crate::parameters::ASLEEP;
use crate::parameters::BY_ENGINE;
use crate::plan::Plan;
use crate::plan::SIZE_MIDDLE;
use crate::raw::DEPTH;
use crate::raw::LARGEST_PIECE;
use crate::raw::Raw;
use crate::run;
use crate::setup;
use crate::setup::Bridge;

/// One round on a lab.
pub struct Round<'a> {
    pub lab: &'a Lab,
    pub plan: &'a Plan,
    pub results: &'a mut Results,
}

impl Round<'_> {
    /// Measures everything once.
    pub fn run(&mut self) -> Result<()> {
        self.copies("write-bw", "write", WRITE)?;
        self.copies("read-bw", "read", READ)?;
        self.aperture()?;
        self.single_copies()?;
        self.round_trips()?;
        self.streams()?;
        self.windows()?;
        self.connections()?;
        self.perf()
    }

    /// Runs the tool for the plan's time.
    fn bench(&self, benchmark: &str, peer: &str, options: &[&str]) -> Result<serde_json::Value> {
        let seconds = self.plan.seconds.to_string();
        let mut arguments = vec![benchmark, peer, "--seconds", &seconds, "--warm-up", "0.05"];
        arguments.extend(options);
        run::bench(self.lab, &arguments)
    }

    fn copies(&mut self, benchmark: &str, way: &str, figure: &str) -> Result<()> {
        let sizes = Plan::list(&self.plan.sizes);
        let depth = DEPTH.to_string();
        let options = ["--dma", "--depth", &depth, "--sizes", &sizes];
        for (line, more) in [(SCIF_DMA_HUGE, &["--huge-pages"][..]), (SCIF_DMA, &[])] {
            let options = [&options[..], more].concat();
            let report =
                parameters::with(self.lab, BY_ENGINE, || self.bench(benchmark, "1", &options))?;
            run::add_rates(self.results, figure, line, &report);
        }
        for &size in &self.plan.sizes {
            self.results.add(
                figure,
                RAW_DMA,
                size,
                self.raw().dma(way, size, LARGEST_PIECE)?,
            );
            // SCIF must copy by pages where memory is scattered; the ring of the engine takes no
            // more.
            if size <= SIZE_MIDDLE {
                let rate = self.raw().dma(way, size, 4096)?;
                self.results.add(figure, RAW_DMA_PAGES, size, rate);
            }
        }
        let report = self.bench(benchmark, "1", &["--cpu", "--sizes", &sizes])?;
        run::add_rates(self.results, figure, SCIF_CPU, &report);
        let mut options = vec!["--sizes", &sizes];
        if way == "read" {
            options.push("--read");
        }
        let report = self.bench("mmap-bw", "1", &options)?;
        run::add_rates(self.results, figure, SCIF_MMAP, &report);
        Ok(())
    }

    fn raw(&self) -> Raw<'_> {
        Raw {
            lab: self.lab,
            seconds: self.plan.seconds,
        }
    }

    fn aperture(&mut self) -> Result<()> {
        for line in self.raw().aperture(&self.plan.sizes)? {
            let rate = |ns: f64| line.size as f64 / ns * 1e9;
            let mut add = |figure, value| self.results.add(figure, RAW_APERTURE, line.size, value);
            add(WRITE, rate(line.write_ns));
            add(READ, rate(line.read_ns));
            add(COPY, line.write_p50_ns / 1e3);
        }
        Ok(())
    }

    fn single_copies(&mut self) -> Result<()> {
        let sizes = Plan::list(&self.plan.small);
        for (line, option) in [(SCIF_AUTO, "--auto"), (SCIF_CPU, "--cpu")] {
            let report = self.bench("write-lat", "1", &[option, "--sizes", &sizes])?;
            run::add_medians(self.results, COPY, line, &report, "copy");
        }
        let report = parameters::with(self.lab, BY_ENGINE, || {
            self.bench("write-lat", "1", &["--dma", "--sizes", &sizes])
        })?;
        run::add_medians(self.results, COPY, SCIF_DMA, &report, "copy");
        let call = self.raw().call()?;
        self.results.add(CALL, EMPTY, NO_SIZE, call);
        Ok(())
    }

    fn round_trips(&mut self) -> Result<()> {
        let sizes = Plan::list(&self.plan.small);
        let tcp = setup::tcp_address();
        let over_tcp = ["--transport", "tcp", "--sizes", &sizes];
        let report = self.bench("send-lat", "1", &["--sizes", &sizes])?;
        run::add_medians(self.results, TRIP, SCIF, &report, "round trip");
        let report = parameters::with(self.lab, ASLEEP, || {
            self.bench("send-lat", "1", &["--sizes", &sizes])
        })?;
        run::add_medians(self.results, TRIP, SCIF_ASLEEP, &report, "round trip");
        for (line, answerer) in [(RAW_DOORBELL, "interrupt"), (RAW_DOORBELL_THREAD, "thread")] {
            // These values have no size, but belong beside the smallest message.
            let us = self.raw().doorbell(answerer, 1000)?;
            self.results.add(TRIP, line, 8, us);
        }
        let report = self.bench("send-lat", &tcp, &over_tcp)?;
        run::add_medians(self.results, TRIP, TCP, &report, "round trip");
        let report = self.bench("send-lat", "1", &["--poll", "--sizes", &sizes])?;
        run::add_medians(self.results, TRIP, SCIF_POLLING, &report, "round trip");
        let over_ring = ["--transport", "ring", "--poll", "--sizes", &sizes];
        let report = self.bench("send-lat", "1", &over_ring)?;
        run::add_medians(self.results, TRIP, RING_POLLING, &report, "round trip");
        let polling = [&over_tcp[..], &["--poll"]].concat();
        let report = self.bench("send-lat", &tcp, &polling)?;
        run::add_medians(self.results, TRIP, TCP_POLLING, &report, "round trip");
        Ok(())
    }

    fn streams(&mut self) -> Result<()> {
        let sizes = Plan::list(&self.plan.sizes);
        let tcp = setup::tcp_address();
        let over_tcp = ["--transport", "tcp", "--sizes", &sizes];
        for (line, peer, options) in [
            (SCIF, "1", &["--sizes", &sizes][..]),
            (RING, "1", &["--transport", "ring", "--sizes", &sizes][..]),
            (TCP, tcp.as_str(), &over_tcp[..]),
        ] {
            let report = self.bench("send-bw", peer, options)?;
            run::add_rates(self.results, STREAM, line, &report);
            run::add_each(self.results, MESSAGE, line, &report);
        }
        Ok(())
    }

    fn windows(&mut self) -> Result<()> {
        let sizes = Plan::list(&[&self.plan.windows[..], &[self.plan.bulk_window]].concat());
        for (register, unregister, pin, option, pages) in [
            (REGISTER, UNREGISTER, PIN, None, "small"),
            (
                REGISTER_HUGE,
                UNREGISTER_HUGE,
                PIN_HUGE,
                Some("--huge-pages"),
                "huge",
            ),
        ] {
            let mut options = vec!["--sizes", &sizes];
            options.extend(option);
            let report = self.bench("register", "1", &options)?;
            run::add_medians(self.results, WINDOW, register, &report, "register");
            run::add_medians(self.results, WINDOW, unregister, &report, "unregister");
            for (size, us) in self.raw().pin_and_unpin(pages, &self.plan.windows)? {
                self.results.add(WINDOW, pin, size, us);
            }
        }
        Ok(())
    }

    fn connections(&mut self) -> Result<()> {
        let report = self.bench("connect", "1", &[])?;
        for part in [CONNECT, CLOSE] {
            run::add_medians(self.results, CONNECTION, part, &report, part);
        }
        let report = self.bench("connect", &setup::tcp_address(), &["--transport", "tcp"])?;
        run::add_medians(self.results, CONNECTION, TCP_CONNECT, &report, CONNECT);
        Ok(())
    }

    /// Measures the kernel's own ntb_perf: 64 KiB at a time, one thread.
    fn perf(&mut self) -> Result<()> {
        for (line, by_engine) in [(NTB_PERF, "0"), (NTB_PERF_DMA, "1")] {
            let parameters = "/sys/module/ntb_perf/parameters";
            self.lab.shell(
                0,
                &format!(
                    "echo {by_engine} >{parameters}/use_dma; echo 16 >{parameters}/chunk_order
                     echo 26 >{parameters}/total_order"
                ),
            )?;
            let file = format!("/sys/kernel/debug/ntb_perf/{}/run", Bridge::Perf.device());
            let text = run::write_and_read(self.lab, &file, "0")?;
            if let Some(rate) = perf_rate(&text) {
                self.results.add(WRITE, line, 64 << 10, rate);
            }
        }
        Ok(())
    }
}

/// Parses a line such as "0: copied 1048576 bytes in 1234 usecs, 849 MBytes/s".
fn perf_rate(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("copied"))?;
    let numbers: Vec<f64> = line
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    // The numbers are the thread, the bytes, the microseconds.
    match numbers[..] {
        [_, bytes, us, ..] if us > 0.0 => Some(bytes / us * 1e6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ntb_perf_rate_is_parsed() {
        let text =
            "    Peer 0 test statistics:\n0: copied 1048576 bytes in 1000 usecs, 1048 MBytes/s\n";
        assert_eq!(perf_rate(text), Some(1_048_576_000.0));
        assert_eq!(perf_rate("0: error status -110"), None);
    }
}
