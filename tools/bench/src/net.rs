// SPDX-License-Identifier: GPL-2.0
//! IP over the link: `scif_net` beside the kernel's `ntb_netdev`, in a lab of their own.
//!
//! Each driver has a bridge of its own, with windows that CPUs reach as fast as their own memory. Both
//! devices are there at once, and take turns. For `ntb_netdev` either CPUs copy, or engines copy
//! packets of 1 KiB and more.

use anyhow::Context;
use anyhow::Result;
use lab::Config;
use lab::Flavour;
use lab::Lab;
use lab::LinkModel;
use lab::Process;
use lab::Silent;
use lab::Windows;
use plots::results::NO_SIZE;
use plots::results::Results;
use serde_json::Value;

use crate::counts::Cost;
use crate::counts::Costs;
use crate::counts::interrupts;
use crate::figures::*;
use crate::net_setup;
use crate::net_setup::Device;
use crate::net_setup::NTB_NETDEV;
use crate::net_setup::NTB_NETDEV_ENGINE;
use crate::net_setup::PAIR_PORT;
use crate::net_setup::SCIF_NET;
use crate::parameters;
use crate::plan::Plan;
use crate::run;
use crate::setup;

/// Seconds of a measurement, and of the warm-up of a stream.
const SECONDS: &str = "0.3";
const WARM_UP: &str = "0.2";

/// Microseconds for which a socket polls the device, if it polls.
const BUSY: &str = "1000";

/// The MTUs of the goals, and those of the chart. The largest of `ntb_netdev` is 65510.
pub const MTU_USUAL: u64 = 1500;
pub const MTU_LARGE: u64 = 64000;
const MTUS: &[u64] = &[576, MTU_USUAL, 4000, 9000, 16000, 32000, MTU_LARGE, 65521];

/// Bytes of messages of the chart.
const MESSAGES: &str = "64,256,1024,4096,16384,65536,262144,1048576";

/// Bytes of each write of a stream of the goals.
const WRITE_SIZE: u64 = 128 << 10;

/// Connections of the measurement with the link model.
const FLOWS: &str = "4";

/// Engines of each node with the link model.
const CHANNELS: usize = 4;

/// Times by which the modelled link is slower than hardware. An emulated CPU is about twenty times slower
/// at copying, but hundreds of times at a store to a register or an interrupt, and two of them serve
/// both nodes. A frame of 64 KiB takes 10 us of the link on hardware, and an engine's register and
/// interrupt a fifth of that. In the lab these take more than a millisecond. So the link has to be some
/// hundred times slower if the figure is to be the link's, and not that of the emulated CPUs.
const SLOWDOWN: u64 = 400;

/// Seconds of a measurement with the link model, in which everything is slow.
const SLOW_SECONDS: &str = "4";

/// Sizes and numbers of the operations that are counted.
const SEGMENT: u64 = 64 << 10;
const FEW: u64 = 64;
const MANY: u64 = 1064;

pub const COUNT_STREAM: &str = "scif_net: 64 KiB of a TCP stream, MTU 1500";
pub const COUNT_PACKET: &str = "scif_net: packet of the same";
pub const COUNT_STREAM_LARGE: &str = "scif_net: 64 KiB of a TCP stream, MTU 64000";
pub const COUNT_PACKET_LARGE: &str = "scif_net: packet of the same, MTU 64000";
pub const COUNT_TRIP: &str = "scif_net: TCP round trip of 1 B";
pub const COUNT_NTB_STREAM: &str = "ntb_netdev: 64 KiB of a TCP stream, MTU 1500";
pub const COUNT_NTB_PACKET: &str = "ntb_netdev: packet of the same";
pub const COUNT_NTB_TRIP: &str = "ntb_netdev: TCP round trip of 1 B";

/// Measures all parts. Returns the counts and the failures.
pub fn run(
    kernel: Flavour,
    plan: &Plan,
    results: &mut Results,
    say: &dyn Fn(&str),
) -> (Costs, Vec<String>) {
    let mut failures = Vec::new();
    let mut costs = Costs::new();
    if let Err(error) = beside_ntb_netdev(kernel, plan, results, &mut costs, say) {
        failures.push(format!("scif_net beside ntb_netdev: {error:#}"));
    }
    say("network devices with the link model");
    if let Err(error) = with_the_link_model(kernel, plan, results) {
        failures.push(format!("scif_net with the link model: {error:#}"));
    }
    (costs, failures)
}

fn beside_ntb_netdev(
    kernel: Flavour,
    plan: &Plan,
    results: &mut Results,
    costs: &mut Costs,
    say: &dyn Fn(&str),
) -> Result<()> {
    say("network devices: booting two nodes");
    let lab = Lab::start(net_setup::config(kernel), &Silent)?;
    net_setup::load(&lab)?;
    say("network devices: counting");
    let bench = Bench::new(&lab)?;
    bench.count(costs)?;
    for turn in 0..plan.turns {
        say(&format!(
            "network devices: turn {} of {}",
            turn + 1,
            plan.turns
        ));
        bench.turn(turn, results)?;
    }
    for round in 0..plan.rounds {
        say(&format!(
            "network devices: round {} of {}",
            round + 1,
            plan.rounds
        ));
        bench.by_mtu(round, results)?;
        bench.by_message(results)?;
    }
    bench.end();
    Ok(())
}

/// A lab with its servers.
struct Bench<'a> {
    lab: &'a Lab,
    servers: Vec<Process>,
}

impl<'a> Bench<'a> {
    fn new(lab: &'a Lab) -> Result<Bench<'a>> {
        Ok(Bench {
            lab,
            servers: vec![
                setup::serve(lab, Some(&net_setup::server_address()))?,
                net_setup::serve(lab)?,
            ],
        })
    }

    fn end(&self) {
        for server in &self.servers {
            server.signal(2);
        }
    }

    /// Measures every goal once, for each device. The order alternates.
    fn turn(&self, turn: usize, results: &mut Results) -> Result<()> {
        for (mtu, pair) in [(MTU_USUAL, PAIR_NET_USUAL), (MTU_LARGE, PAIR_NET_LARGE)] {
            self.set_mtu(mtu)?;
            let rate = |device| self.stream(device, WRITE_SIZE);
            let engine = rate(NTB_NETDEV_ENGINE)?;
            let [ours, theirs] = self.pair(turn, rate)?;
            results.add(PAIRS, pair, mtu, ours / theirs.max(engine));
        }
        self.set_mtu(MTU_USUAL)?;
        for (busy, pair) in [("0", PAIR_NET_TRIP), (BUSY, PAIR_NET_TRIP_POLLING)] {
            let [ours, theirs] = self.pair(turn, |device| self.trip(device, busy, "p50_us"))?;
            results.add(PAIRS, pair, 1, ours / theirs);
            results.add(NET_TRIP, SCIF_NET.line, busy.parse()?, ours);
            results.add(NET_TRIP, NTB_NETDEV.line, busy.parse()?, theirs);
        }
        let [ours, theirs] = self.pair(turn, |device| self.packets(device))?;
        results.add(PAIRS, PAIR_NET_PACKETS, 64, ours / theirs);
        results.add(NET_PACKETS, SCIF_NET.line, 64, ours);
        results.add(NET_PACKETS, NTB_NETDEV.line, 64, theirs);
        Ok(())
    }

    /// Measures both drivers, one right after the other: `scif_net` is first every other turn.
    fn pair(&self, turn: usize, half: impl Fn(Device) -> Result<f64>) -> Result<[f64; 2]> {
        if turn % 2 == 0 {
            let ours = half(SCIF_NET)?;
            return Ok([ours, half(NTB_NETDEV)?]);
        }
        let theirs = half(NTB_NETDEV)?;
        Ok([half(SCIF_NET)?, theirs])
    }

    fn set_mtu(&self, mtu: u64) -> Result<()> {
        net_setup::DEVICES
            .iter()
            .try_for_each(|device| device.set_mtu(self.lab, mtu))
    }

    /// Enters the throughput of a flow for each MTU.
    fn by_mtu(&self, round: usize, results: &mut Results) -> Result<()> {
        let mut mtus = MTUS.to_vec();
        if round % 2 == 1 {
            mtus.reverse();
        }
        for mtu in mtus {
            self.set_mtu(mtu)?;
            for device in net_setup::DEVICES {
                let rate = self.stream(device, WRITE_SIZE)?;
                results.add(NET_MTU, device.line, mtu, rate);
            }
        }
        Ok(())
    }

    /// Enters the throughput of a flow for each size of a write.
    fn by_message(&self, results: &mut Results) -> Result<()> {
        for (mtu, lines) in [
            (MTU_USUAL, [NET_OURS_USUAL, NET_THEIRS_USUAL]),
            (MTU_LARGE, [NET_OURS_LARGE, NET_THEIRS_LARGE]),
        ] {
            self.set_mtu(mtu)?;
            for (device, line) in [SCIF_NET, NTB_NETDEV].into_iter().zip(lines) {
                let report = self.over_tcp(device, &["--sizes", MESSAGES])?;
                run::add_rates(results, NET_MESSAGE, line, &report);
            }
        }
        Ok(())
    }

    /// Streams over a device by TCP. Returns the report of the tool.
    fn over_tcp(&self, device: Device, options: &[&str]) -> Result<Value> {
        device.choose(self.lab)?;
        let peer = device.server();
        let usual = ["send-bw", &peer, "--transport", "tcp"];
        let time = ["--seconds", SECONDS, "--warm-up", WARM_UP];
        run::bench(self.lab, &[&usual, options, &time].concat())
            .with_context(|| device.line.to_owned())
    }

    fn stream(&self, device: Device, size: u64) -> Result<f64> {
        let report = self.over_tcp(device, &["--sizes", &size.to_string()])?;
        let rate = &report["results"][0]["bytes_per_second"];
        rate.as_f64().context("no throughput")
    }

    fn ask(&self, device: Device, what: &str, busy: &str, bytes: &str) -> Result<Value> {
        device.choose(self.lab)?;
        let address = device.address(1);
        net_setup::ask(self.lab, &[what, &address, PAIR_PORT, busy, SECONDS, bytes])
    }

    fn trip(&self, device: Device, busy: &str, which: &str) -> Result<f64> {
        let said = self.ask(device, "trips", busy, "1")?;
        said[which].as_f64().context("no round trip")
    }

    fn packets(&self, device: Device) -> Result<f64> {
        let said = self.ask(device, "packets", "0", "64")?;
        said["per_second"].as_f64().context("no packets")
    }

    /// Counts what a stream and a round trip cost, for each driver.
    fn count(&self, costs: &mut Costs) -> Result<()> {
        for (mtu, device, names) in [
            (MTU_USUAL, SCIF_NET, [COUNT_STREAM, COUNT_PACKET]),
            (MTU_USUAL, NTB_NETDEV, [COUNT_NTB_STREAM, COUNT_NTB_PACKET]),
            (
                MTU_LARGE,
                SCIF_NET,
                [COUNT_STREAM_LARGE, COUNT_PACKET_LARGE],
            ),
        ] {
            self.set_mtu(mtu)?;
            let (cost, packets) = self.cost(device, |count| {
                self.repeat(device, "send-bw", &SEGMENT.to_string(), count)
            })?;
            costs.insert(names[1], cost.divided_by(packets));
            costs.insert(names[0], cost);
        }
        self.set_mtu(MTU_USUAL)?;
        for (device, name) in [(SCIF_NET, COUNT_TRIP), (NTB_NETDEV, COUNT_NTB_TRIP)] {
            let (cost, _) =
                self.cost(device, |count| self.repeat(device, "send-lat", "1", count))?;
            costs.insert(name, cost);
        }
        Ok(())
    }

    /// Makes a test's operation over a device by TCP, `count` times.
    fn repeat(&self, device: Device, test: &str, size: &str, count: u64) -> Result<()> {
        let (peer, count) = (device.server(), count.to_string());
        let what = [test, &peer, "--transport", "tcp", "--sizes", size];
        let times = ["--iterations", &count, "--warm-up", "0"];
        run::bench(self.lab, &[&what[..], &times].concat()).map(drop)
    }

    /// Returns the cost of an operation, and the number of packets that it sent.
    fn cost(&self, device: Device, work: impl Fn(u64) -> Result<()>) -> Result<(Cost, f64)> {
        let few = self.totals(device, || work(FEW))?;
        let many = self.totals(device, || work(MANY))?;
        let count = (MANY - FEW) as f64;
        let each = |counter: fn(&Cost) -> f64| (counter(&many.0) - counter(&few.0)) / count;
        let cost = Cost {
            trapped_reads: each(|cost| cost.trapped_reads),
            trapped_writes: each(|cost| cost.trapped_writes),
            doorbells: each(|cost| cost.doorbells),
            interrupts: each(|cost| cost.interrupts),
            descriptors: each(|cost| cost.descriptors),
            sleeps: f64::NAN,
        };
        Ok((cost, (many.1 - few.1) / count))
    }

    fn totals(&self, device: Device, work: impl FnOnce() -> Result<()>) -> Result<(Cost, f64)> {
        device.choose(self.lab)?;
        let bridge = setup::device(device.link);
        let before = interrupts(self.lab, &bridge)?;
        let packets = device.count(self.lab, 0, "tx_packets")?;
        self.lab.reset_counters()?;
        work()?;
        let counters = self.lab.counters()?;
        let name = format!("ntb-{}", device.link);
        let sum = |prefix: &str, counter: fn(&lab::Counters) -> u64| {
            let sums = counters.iter().map(|guest| guest.sum(prefix, counter));
            sums.sum::<u64>() as f64
        };
        let cost = Cost {
            trapped_reads: sum(&name, |counters| counters.trapped_reads),
            trapped_writes: sum(&name, |counters| counters.trapped_writes),
            doorbells: sum(&name, |counters| counters.doorbells),
            interrupts: interrupts(self.lab, &bridge)? - before,
            descriptors: sum("dma", |counters| counters.dma_descriptors),
            sleeps: f64::NAN,
        };
        let packets = device.count(self.lab, 0, "tx_packets")? - packets;
        Ok((cost, packets))
    }
}

/// Measures four flows over a link that takes time, beside writes by all engines at once, which
/// carry what the link carries.
///
/// The model has no time for stores of a CPU. So engines copy all frames, and the
/// share of the bytes that they have copied is entered, too: without it the throughput says nothing
/// about the link.
fn with_the_link_model(kernel: Flavour, plan: &Plan, results: &mut Results) -> Result<()> {
    let model = LinkModel::Gen3x8;
    let lab = Lab::start(
        Config {
            dma_channels: CHANNELS,
            link_model: Some(model),
            slowdown: SLOWDOWN,
            windows: Windows::Aperture,
            ..setup::small_config("net-model", kernel)
        },
        &Silent,
    )?;
    net_setup::load_alone(&lab, &format!("dma_channels={CHANNELS}"))?;
    SCIF_NET.set_mtu(&lab, MTU_LARGE)?;
    let server = setup::serve(&lab, Some(&net_setup::server_address()))?;
    let figures = model.figures();
    let slowdown = lab.config().slowdown as f64;
    let share = figures.payload as f64 / (figures.payload + net_setup::WRITE_HEADER) as f64;
    let limit = figures.bandwidth as f64 * share / slowdown;
    for _ in 0..plan.rounds {
        lab.reset_counters()?;
        let before = SCIF_NET.count(&lab, 0, "tx_bytes")?;
        let peer = SCIF_NET.server();
        let size = WRITE_SIZE.to_string();
        let flows = ["send-bw", &peer, "--transport", "tcp", "--sizes", &size];
        let time = ["--seconds", SLOW_SECONDS, "--warm-up", WARM_UP];
        let arguments = [&flows[..], &["--threads", FLOWS], &time].concat();
        let report =
            parameters::with(&lab, parameters::BY_ENGINE, || run::bench(&lab, &arguments))?;
        let rate = report["results"][0]["bytes_per_second"].as_f64();
        let rate = rate.context("no throughput")?;
        results.add(NET_MODEL, SCIF_NET.line, NO_SIZE, rate);
        results.add(NET_MODEL, NET_LIMIT, NO_SIZE, limit);
        results.add(PAIRS, PAIR_NET_MODEL, NO_SIZE, rate / limit);
        let bytes = SCIF_NET.count(&lab, 0, "tx_bytes")? - before;
        let copied: u64 = lab
            .counters()?
            .iter()
            .map(|guest| guest.total.dma_bytes)
            .sum();
        results.add(NET_MODEL, NET_BY_ENGINE, NO_SIZE, copied as f64 / bytes);
        let copies = ["write-bw", "1", "--dma", "--connections", FLOWS];
        parameters::with(&lab, parameters::BY_ENGINE, || {
            run::copies(&lab, &copies, 1.0, |rate| {
                results.add(NET_MODEL, SCIF_DMA, NO_SIZE, rate);
            })
        })?;
    }
    server.signal(2);
    Ok(())
}
