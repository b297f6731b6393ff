// SPDX-License-Identifier: GPL-2.0
//! What one operation costs on the bus, exactly: tests that fail when it becomes more, on
//! whatever machine. How long it takes is for the benchmark to say.
//!
//! Each number but those of instructions is the difference of a run of many operations and one of few, for both nodes
//! together: what is done once for the connection does not count.

use anyhow::Result;
use anyhow::ensure;
use lab::Counters;
use lab::GuestCounters;
use lab::Lab;
use lab::wait_until;

use crate::harness::Test;
use crate::scif;
use crate::scif::Server;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Operations of the run of few.
const FEW: u64 = 10;

/// Operations of the run of many. To make a connection and its windows costs a hundred doorbells, more or
/// less, as it happens: over so many operations that is little.
const MANY: u64 = 2010;

/// The same for what takes milliseconds, and many doorbells itself.
const MANY_SLOW: u64 = 410;

/// What may come on top now and then: a doorbell for a credit, one that is answered in two steps.
const NOISE: f64 = 0.25;

/// Reads there are none, but for a node that has something else to do in the meantime.
const MOST_READS: f64 = 0.01;

/// Instructions of a write of 64 bytes by CPU, and of a message of as many, sent and received. Some more than
/// they are.
const MOST_WRITE: usize = 1500;
const MOST_SEND: usize = 1800;
const MOST_RECEIVE: usize = 1700;

/// The cost of one operation.
#[derive(Debug)]
struct Cost {
    reads: f64,
    writes: f64,
    doorbells: f64,
    descriptors: f64,
}

/// The sum over both nodes of a counter of functions whose name begins with `prefix`.
fn sum(counters: &[GuestCounters], prefix: &str, what: fn(&Counters) -> u64) -> f64 {
    let sums = counters.iter().map(|guest| guest.sum(prefix, what) as f64);
    sums.sum()
}

fn run(lab: &Lab, arguments: &[&str], iterations: u64) -> Result<Vec<GuestCounters>> {
    let iterations = iterations.to_string();
    let more = ["--warm-up", "0", "--iterations", &iterations];
    lab.reset_counters()?;
    scif::run_tool(lab, 0, &[&["bench"], arguments, &more].concat())?.success()?;
    lab.counters()
}

fn cost(lab: &Lab, arguments: &[&str], count: u64) -> Result<Cost> {
    let few = run(lab, arguments, FEW)?;
    let many = run(lab, arguments, count)?;
    for guest in &many {
        ensure!(guest.total.dropped == 0 && guest.total.dma_errors == 0);
        // A sum over functions of which there are none is 0, which is always little enough.
        ensure!(
            guest.functions.iter().any(|f| f.name.starts_with("ntb")),
            "the emulator names no NTB: {guest:?}"
        );
    }
    let each = |prefix: &str, what: fn(&Counters) -> u64| {
        (sum(&many, prefix, what) - sum(&few, prefix, what)) / (count - FEW) as f64
    };
    let cost = Cost {
        reads: each("ntb", |counters| counters.trapped_reads),
        writes: each("ntb", |counters| counters.trapped_writes),
        doorbells: each("ntb", |counters| counters.doorbells),
        descriptors: each("dma", |counters| counters.dma_descriptors),
    };
    println!("      {}: {cost:?}", arguments.join(" "));
    Ok(cost)
}

/// The most that an operation may cost.
struct Most {
    arguments: &'static [&'static str],
    writes: f64,
    doorbells: f64,
    descriptors: f64,
}

fn check(lab: &Lab, operations: &[Most], count: u64) -> Result<()> {
    let server = Server::start(lab, 1)?;
    for most in operations {
        let cost = cost(lab, most.arguments, count)?;
        ensure!(
            cost.reads <= MOST_READS
                && cost.writes <= most.writes + NOISE
                && cost.doorbells <= most.doorbells + NOISE
                && cost.descriptors <= most.descriptors + NOISE,
            "{} costs {cost:?}; allowed are no reads, {} writes, {} doorbells, {} descriptors",
            most.arguments.join(" "),
            most.writes,
            most.doorbells,
            most.descriptors
        );
        // Memory that lies together is one descriptor for all of it, in one run and not in the other.
        ensure!(
            (cost.descriptors >= 0.5) == (most.descriptors > 0.0),
            "{} goes by the engine, or does not, against what was said: {cost:?}",
            most.arguments.join(" ")
        );
    }
    server.stop()
}

/// Messages, each way.
fn messages(lab: &Lab) -> Result<()> {
    check(
        lab,
        &[
            // There and back.
            Most {
                arguments: &["send-lat", "1", "--sizes", "8"],
                writes: 4.0,
                doorbells: 2.0,
                descriptors: 0.0,
            },
            Most {
                arguments: &["send-lat", "1", "--sizes", "8", "--poll"],
                writes: 0.0,
                doorbells: 0.0,
                descriptors: 0.0,
            },
            // The bells of a ring are messages of a byte.
            Most {
                arguments: &["send-lat", "1", "--sizes", "8", "--transport", "ring"],
                writes: 4.0,
                doorbells: 2.0,
                descriptors: 0.0,
            },
            Most {
                arguments: &[
                    "send-bw",
                    "1",
                    "--sizes",
                    "64",
                    "--transport",
                    "ring",
                    "--poll",
                ],
                writes: 0.0,
                doorbells: 0.0,
                descriptors: 0.0,
            },
            // One for each, and one for the room that it has given back, at most.
            Most {
                arguments: &["send-bw", "1", "--sizes", "64"],
                writes: 4.0,
                doorbells: 2.0,
                descriptors: 0.0,
            },
        ],
        MANY,
    )
}

/// Copies by CPU and by the engine, each way; a descriptor for each page, and one that makes sure that what was written
/// has arrived.
fn transfers(lab: &Lab) -> Result<()> {
    let none = |arguments| Most {
        arguments,
        writes: 0.0,
        doorbells: 0.0,
        descriptors: 0.0,
    };
    let by_processor = [
        none(&["write-lat", "1", "--sizes", "64", "--cpu"]),
        none(&["read-lat", "1", "--sizes", "64", "--cpu"]),
        none(&["mmap-lat", "1", "--sizes", "64"]),
        // It is faster there, by far.
        none(&["write-lat", "1", "--sizes", "64", "--auto"]),
    ];
    check(lab, &by_processor, MANY)?;
    scif::all_by_engine(lab, || {
        let by_engine = [
            Most {
                descriptors: 2.0,
                ..none(&["write-lat", "1", "--sizes", "64", "--dma"])
            },
            Most {
                descriptors: 18.0,
                ..none(&["write-lat", "1", "--sizes", "64K", "--dma"])
            },
            Most {
                descriptors: 18.0,
                ..none(&["write-bw", "1", "--sizes", "64K", "--dma"])
            },
            Most {
                descriptors: 17.0,
                ..none(&["read-bw", "1", "--sizes", "64K", "--dma"])
            },
        ];
        check(lab, &by_engine, MANY)
    })
}

/// Windows.
fn windows(lab: &Lab) -> Result<()> {
    check(
        lab,
        &[Most {
            arguments: &["register", "1", "--sizes", "4K"],
            // The offer, and that the window is taken back; and the answer to that.
            writes: 6.0,
            doorbells: 3.0,
            descriptors: 0.0,
        }],
        MANY_SLOW,
    )
}

/// Connections.
fn connections(lab: &Lab) -> Result<()> {
    check(
        lab,
        &[Most {
            arguments: &["connect", "1"],
            writes: 8.0,
            doorbells: 4.0,
            descriptors: 0.0,
        }],
        MANY_SLOW,
    )
}

/// Calls before the one whose instructions are counted: until then the connection and its windows are made.
const CALLS_BEFORE: usize = 200;

/// The function of the kernel with which an ioctl begins.
const IOCTL: &str = "__x64_sys_ioctl";

/// The function of the kernel that restores registers if another task has run: that is not so in each call.
const RESTORE: &str = "switch_fpu_return";

/// Says so when each thread of the tool is asleep.
const AT_REST: &str = "cat $(grep -lx scif /proc/[0-9]*/comm | sed 's,comm$,task/*/stat,') |
    sed 's/.*) //' | grep -q '^[^S]' || echo rest";

/// Waits until the tool has nothing more to do in a node, as the other one stands still.
fn wait_for_rest(lab: &Lab, node: usize) -> Result<()> {
    wait_until("the peer sleeps", lab.hang_limit(20), || {
        Ok((lab.shell(node, AT_REST)?.trim() == "rest").then_some(()))
    })
}

/// Instructions of the calls that are made most, from their beginning in the kernel until their return: with Debian's
/// kernel and the compiler of these labs. A third of those of a write are the way into an ioctl and back.
///
/// The other node has come to rest before they are counted: who sends finds the peer asleep, and rings; who receives
/// finds a ring full of messages, and does not have to wait for one.
fn instructions(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    let calls = [
        (
            0,
            &["bench", "write-lat", "1", "--sizes", "64", "--cpu"][..],
            MOST_WRITE,
        ),
        (
            0,
            &["bench", "send-bw", "1", "--sizes", "64"][..],
            MOST_SEND,
        ),
        (
            1,
            &["bench", "send-bw", "1", "--sizes", "64"][..],
            MOST_RECEIVE,
        ),
    ];
    for (node, arguments, most) in calls {
        let bench = scif::start_tool(lab, 0, &[arguments, &["--seconds", "600"]].concat())?;
        let steps = lab.stop_at(node, IOCTL, CALLS_BEFORE).and_then(|stopped| {
            wait_for_rest(lab, 1 - node)?;
            stopped.steps()
        });
        bench.kill();
        let (steps, what) = (steps?, arguments.join(" "));
        let others = steps.functions.iter().filter(|(name, _)| name == RESTORE);
        let count = steps.total - others.map(|(_, count)| count).sum::<usize>();
        println!("      {what}, node {node}: {count} instructions");
        ensure!(
            count <= most,
            "{what} takes {count} instructions in node {node}; allowed are {most}:\n{steps}"
        );
    }
    server.stop()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_counts::messages", SCIF_PAIR, messages),
    Test::new("scif_counts::transfers", SCIF_PAIR, transfers),
    Test::new("scif_counts::windows", SCIF_PAIR, windows),
    Test::new("scif_counts::connections", SCIF_PAIR, connections),
    Test::new("scif_counts::instructions", SCIF_PAIR, instructions).on_stock(),
];
