// SPDX-License-Identifier: GPL-2.0
//! The exact cost of one operation on the bus. The tests fail if the cost grows, on any machine.
//! The benchmark measures times.
//!
//! Each number except those of instructions is the difference between a run of many operations and
//! a run of few, for both nodes together. So the cost of making the connection does not count.

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

/// Number of operations of the short run.
const FEW: u64 = 10;

/// Number of operations of the long run. A connection and its windows cost about a hundred
/// doorbells. This number varies, but is small against so many operations.
const MANY: u64 = 2010;

/// Number of operations of the long run, if each operation takes milliseconds and many doorbells.
const MANY_SLOW: u64 = 410;

/// Additional doorbells for each operation that may occur now and then, for a credit or for an
/// answer in two steps.
const NOISE: f64 = 0.25;

/// Limit of reads for each operation. A node reads only if other work has delayed it.
const MOST_READS: f64 = 0.01;

/// Limits of the instructions of a 64-byte write by CPU, and of a 64-byte message, sent and
/// received. They are a little above the measured numbers.
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

/// Sums a counter over both nodes, for functions whose name begins with `prefix`.
fn sum(counters: &[GuestCounters], prefix: &str, counter: fn(&Counters) -> u64) -> f64 {
    let sums = counters
        .iter()
        .map(|guest| guest.sum(prefix, counter) as f64);
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
        // A sum over no functions is 0, and would pass every limit.
        ensure!(
            guest.functions.iter().any(|f| f.name.starts_with("ntb")),
            "the emulator names no NTB: {guest:?}"
        );
    }
    let each = |prefix: &str, counter: fn(&Counters) -> u64| {
        (sum(&many, prefix, counter) - sum(&few, prefix, counter)) / (count - FEW) as f64
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

/// The largest cost of an operation.
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
        // The number of descriptors varies, because contiguous memory takes one descriptor for all
        // of it. So only their presence is checked.
        ensure!(
            (cost.descriptors >= 0.5) == (most.descriptors > 0.0),
            "{} uses the engine although the table says no, or the reverse: {cost:?}",
            most.arguments.join(" ")
        );
    }
    server.stop()
}

/// Checks the cost of messages in both directions.
fn messages(lab: &Lab) -> Result<()> {
    check(
        lab,
        &[
            // A round trip of a message.
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
            // The doorbells of a ring are messages of a byte.
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
            // At most one doorbell for the message, and one for the room that the receiver returns.
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

/// Checks the cost of copies by CPU and by the engine, in both directions. The engine takes a
/// descriptor for each page, and one that flushes the writes.
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
        // The CPU is much faster for this size.
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

/// Checks the cost of registering a window and of releasing it.
fn windows(lab: &Lab) -> Result<()> {
    check(
        lab,
        &[Most {
            arguments: &["register", "1", "--sizes", "4K"],
            // The offer, its withdrawal, and the answer to the withdrawal.
            writes: 6.0,
            doorbells: 3.0,
            descriptors: 0.0,
        }],
        MANY_SLOW,
    )
}

/// Checks the cost of a connection.
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

/// Number of calls before the measured one. After them the connection and its windows exist.
const CALLS_BEFORE: usize = 200;

/// The kernel function with which an ioctl begins.
const IOCTL: &str = "__x64_sys_ioctl";

/// The kernel function that restores registers if another task has run. Only some calls run it.
const RESTORE: &str = "switch_fpu_return";

/// Prints `rest` when each thread of the tool is asleep.
const AT_REST: &str = "cat $(grep -lx scif /proc/[0-9]*/comm | sed 's,comm$,task/*/stat,') |
    sed 's/.*) //' | grep -q '^[^S]' || echo rest";

/// Waits until the tool has no more work in a node, while the other node stands still.
fn wait_for_rest(lab: &Lab, node: usize) -> Result<()> {
    wait_until("the peer sleeps", lab.hang_limit(20), || {
        Ok((lab.shell(node, AT_REST)?.trim() == "rest").then_some(()))
    })
}

/// Instructions of the most frequent calls, from their beginning in the kernel until their return,
/// with Debian's kernel and the compiler of these labs. A third of the instructions of a write are
/// the way into an ioctl and back.
///
/// The other node has come to rest before the instructions are counted. A sender finds the peer
/// asleep, and rings. A receiver finds a ring full of messages, and need not wait for one.
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
        let (steps, command) = (steps?, arguments.join(" "));
        let others = steps.functions.iter().filter(|(name, _)| name == RESTORE);
        let count = steps.total - others.map(|(_, count)| count).sum::<usize>();
        println!("      {command}, node {node}: {count} instructions");
        ensure!(
            count <= most,
            "{command} takes {count} instructions in node {node}; allowed are {most}:\n{steps}"
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
