// SPDX-License-Identifier: GPL-2.0
//! The exact cost of frames on the bus, as `scif_counts` checks that of messages.
//!
//! Each number is the difference between a run of many operations and a run of few, for both nodes
//! together. Windows are mapped, so stores of the CPU do not count.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Counters;
use lab::Lab;
use lab::Process;
use serde_json::Value;

use crate::harness::Test;
use crate::need::PAIR;
use crate::scif;
use crate::scif_net;

/// The port of `ip_pair`.
const PORT: &str = "2051";

/// 64 KiB of a stream, the unit of the limits.
const UNIT: u64 = 64 << 10;

/// Bytes of the short and of the long run of a stream.
const FEW_BYTES: u64 = 4 << 20;
const MANY_BYTES: u64 = 132 << 20;

/// Seconds of a run of datagrams or of round trips.
const SECONDS: &str = "1";

/// Microseconds for which a socket polls, longer than any round trip takes.
const BUSY: &str = "100000";

/// Limit of reads of registers for each unit. A node reads only if other work has delayed it.
const MOST_READS: f64 = 0.01;

/// Counts of the bus, and the packets of the same time.
#[derive(Clone, Copy, Debug)]
struct Cost {
    reads: f64,
    writes: f64,
    doorbells: f64,
    descriptors: f64,
    packets: f64,
}

impl Cost {
    fn over(self, count: f64) -> Cost {
        Cost {
            reads: self.reads / count,
            writes: self.writes / count,
            doorbells: self.doorbells / count,
            descriptors: self.descriptors / count,
            packets: self.packets / count,
        }
    }

    fn minus(self, other: Cost) -> Cost {
        Cost {
            reads: self.reads - other.reads,
            writes: self.writes - other.writes,
            doorbells: self.doorbells - other.doorbells,
            descriptors: self.descriptors - other.descriptors,
            packets: self.packets - other.packets,
        }
    }
}

/// Counts what work costs. Packets are those that a node sends.
fn count(lab: &Lab, sender: usize, work: impl FnOnce() -> Result<()>) -> Result<Cost> {
    let before = scif_net::count(lab, sender, "tx_packets")?;
    lab.reset_counters()?;
    work()?;
    let counters = lab.counters()?;
    for guest in &counters {
        ensure!(guest.total.dropped == 0 && guest.total.dma_errors == 0);
        // A sum over no functions is 0, and would pass every limit.
        ensure!(
            guest.functions.iter().any(|f| f.name.starts_with("ntb")),
            "the emulator names no NTB: {guest:?}"
        );
    }
    let sum = |prefix: &str, counter: fn(&Counters) -> u64| {
        let sums = counters.iter().map(|guest| guest.sum(prefix, counter));
        sums.sum::<u64>() as f64
    };
    Ok(Cost {
        reads: sum("ntb", |counters| counters.trapped_reads),
        writes: sum("ntb", |counters| counters.trapped_writes),
        doorbells: sum("ntb", |counters| counters.doorbells),
        descriptors: sum("dma", |counters| counters.dma_descriptors),
        packets: (scif_net::count(lab, sender, "tx_packets")? - before) as f64,
    })
}

/// The largest cost of 64 KiB of a stream. With an MTU of 1500 these are 45 packets, which cross as
/// one frame.
struct Most {
    mtu: u32,
    /// Number of bytes of each write, as text.
    length: &'static str,
    /// The bytes from which on engines copy frames. By default, the sender measures what is cheaper.
    threshold: &'static str,
    /// The least number of packets of the stream: each frame counts as the packets that it is for
    /// the wire.
    packets: f64,
    doorbells: f64,
}

const MEASURED: &str = "-1";
const BY_ENGINE: &str = "4096";

/// Doorbells of 64 KiB if a packet takes 0.02.
const FEW_DOORBELLS: f64 = 45.0 * 0.02;

/// Doorbells of 64 KiB on a slow kernel: each side may sleep before each frame and before its
/// acknowledgement, and some frames are smaller.
const DOORBELLS_OF_SLOW: f64 = 3.0;

/// The costs in the order of the measurements. If an engine copies, the peer may be woken for each
/// frame: the emulator's engine takes longer than a receiver stays awake.
const MOST: &[Most] = &[
    Most {
        mtu: 1500,
        length: "128K",
        threshold: MEASURED,
        packets: 40.0,
        doorbells: FEW_DOORBELLS,
    },
    Most {
        mtu: 1500,
        length: "4K",
        threshold: MEASURED,
        packets: 40.0,
        doorbells: 1.6,
    },
    Most {
        mtu: 1500,
        length: "128K",
        threshold: BY_ENGINE,
        packets: 40.0,
        doorbells: 1.6,
    },
    Most {
        mtu: 65521,
        length: "128K",
        threshold: MEASURED,
        packets: 0.9,
        doorbells: 1.6,
    },
];

/// A TCP stream in one direction and in the other needs no read, and few doorbells.
fn streams(lab: &Lab) -> Result<()> {
    scif_net::joined(lab)?;
    for most in MOST {
        scif::set_parameter(lab, "dma_threshold", most.threshold)?;
        for node in 0..2 {
            lab.shell(node, &format!("ip link set scif0 mtu {}", most.mtu))?;
        }
        for reverse in [false, true] {
            let run = |bytes: u64| {
                let bytes = bytes.to_string();
                let mut arguments = vec!["--bytes", &bytes, "--length", most.length];
                arguments.extend(reverse.then_some("--reverse"));
                count(lab, usize::from(reverse), || {
                    scif_net::iperf(lab, &arguments).map(drop)
                })
            };
            let few = run(FEW_BYTES)?;
            let cost = run(MANY_BYTES)?.minus(few);
            let each = cost.over(((MANY_BYTES - FEW_BYTES) / UNIT) as f64);
            let doorbells = match lab.slowness() {
                1 => most.doorbells,
                _ => DOORBELLS_OF_SLOW,
            };
            let by_packet = cost.doorbells / cost.packets;
            let name = format!(
                "MTU {}, writes of {}, threshold {}{}",
                most.mtu,
                most.length,
                most.threshold,
                if reverse { ", reverse" } else { "" }
            );
            println!("      {name}: {each:.3?}, {by_packet:.4} doorbells each packet");
            // A doorbell that is rung is a trapped write, and its acknowledgement another. The
            // driver masks and unmasks at most once for each of these.
            ensure!(
                each.reads <= MOST_READS
                    && each.doorbells <= doorbells
                    && each.writes <= 2.0 * doorbells
                    && each.packets >= most.packets,
                "64 KiB with {name} cost {each:?}; allowed are no reads and {doorbells} doorbells"
            );
        }
    }
    scif::set_parameter(lab, "dma_threshold", MEASURED)?;
    scif_net::unload(lab)
}

/// A round trip of a byte costs a doorbell in each direction, or none if both sockets poll. A datagram
/// costs at most one doorbell.
fn packets(lab: &Lab) -> Result<()> {
    scif_net::joined(lab)?;
    let program = scif::program("ip_pair")?;
    let server = lab.spawn(1, [&*program, "serve", PORT])?;
    server.wait_for("serving", lab.hang_limit(20))?;
    let ask = |what: &str, busy: &str, bytes: &str| -> Result<Value> {
        let to = scif_net::address(1);
        let argv = [&*program, what, &to, PORT, busy, SECONDS, bytes];
        let done = lab.command(0, argv)?.timeout(lab.hang_limit(60)).run()?;
        let said = done.success()?.stdout();
        serde_json::from_str(&said).context(said)
    };
    for (busy, most) in [("0", 2.0), (BUSY, 0.0)] {
        let mut said = Value::Null;
        let cost = count(lab, 0, || {
            said = ask("trips", busy, "1")?;
            Ok(())
        })?;
        let trips = said["count"].as_f64().context("no round trips")?;
        let each = cost.over(trips);
        println!("      round trip, SO_BUSY_POLL {busy}: {each:.3?}, {said}");
        // The connection itself, and acknowledgements that no data carries, cost a little.
        ensure!(
            trips > 20.0 && each.reads <= MOST_READS && each.doorbells <= most + 0.5,
            "a round trip costs {each:?}; allowed are no reads and {most} doorbells"
        );
    }
    let mut received = 0.0;
    let cost = count(lab, 0, || {
        received = ask("packets", "0", "64")?["received"]
            .as_f64()
            .unwrap_or(0.0);
        Ok(())
    })?;
    let each = cost.over(cost.packets);
    println!("      datagram of 64 B: {each:.3?}, {received} received");
    ensure!(
        received > 100.0 && each.reads <= MOST_READS && each.doorbells <= 1.0,
        "a datagram costs {each:?}, and {received} were received"
    );
    end(&server)?;
    server.wait()?;
    scif_net::unload(lab)
}

fn end(server: &Process) -> Result<()> {
    ensure!(
        server.is_running(),
        "the server has ended: {}",
        server.stderr()
    );
    server.kill();
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_net_counts::streams", PAIR, streams).seconds(120),
    Test::new("scif_net_counts::packets", PAIR, packets),
];
