// SPDX-License-Identifier: GPL-2.0
//! Programs such as users of SISCI have (tests/sisci/field): a performance suite, a replicated
//! key-value store, a video pipeline, a program that forks.
//!
//! The programs run unmodified over every kind of link, between two and three nodes, also when one
//! of the parties is killed or its node is lost.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Iommu;
use lab::Lab;
use lab::Output;
use lab::Personality;
use lab::Process;
use lab::Windows;
use lab::wait_until;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::scif;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_idt;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_node_loss::USUAL_PAIR;
use crate::scif_star::SCIF_STAR;

/// Exit status of a party that has lost another one.
const PARTY_LOST: i32 = 4;

const ARENA_STAR: Need = Need {
    iommu: ARENA_PAIR.iommu,
    windows: ARENA_PAIR.windows,
    ..SCIF_STAR
};

const SMALL_STAR: Need = Need {
    windows: Windows::Trapped { size: 1 << 20 },
    ..SCIF_STAR
};

const IDT_STAR: Need = Need {
    personality: Personality::Idt,
    ..ARENA_STAR
};

/// A lab with IDT bridges, windows that are smaller than memory, and no IOMMU.
const IDT_SMALL: Need = Need {
    iommu: Iommu::None,
    windows: Windows::Trapped { size: 1 << 20 },
    ..scif_idt::GUARDED
};

/// A star with the default heartbeat.
const USUAL_STAR: Need = Need {
    scif: Loaded::AsUsual,
    ..SCIF_STAR
};

const EXPERIMENTS: &[&str] = &[
    "pio",
    "reads",
    "copies",
    "block_reads",
    "writes",
    "pingpong",
    "dma_wait",
    "dma_poll",
    "dma_call",
    "vectors",
    "two_queues",
    "aborted",
    "bells",
    "bell_burst",
    "data_kept",
    "data_stream",
];

/// Number of experiments that store to maps of remote memory, or read there.
const BY_MAP: usize = 6;

/// Ways in which the primary orders its stores.
const ORDERS: &[&str] = &[
    "sfence",
    "flush_null",
    "flush",
    "barrier",
    "fast_barrier",
    "check",
    "memcpy",
];

/// Number of records of a store: enough for both modes, one at a time and several at once.
const RECORDS: u32 = 60;

/// Returns a node's id in SISCI.
fn id(node: usize) -> String {
    (4 * (node + 1)).to_string()
}

fn start(lab: &Lab, node: usize, program: &str, arguments: &[&str]) -> Result<Process> {
    let program = scif::built(&format!("build/sisci/field-{program}"))?;
    let argv = [&[program.as_str()], arguments].concat();
    lab.command(node, argv)?.timeout(lab.hang_limit(60)).spawn()
}

fn waits(lab: &Lab, process: &Process, said: &str) -> Result<()> {
    process
        .wait_for(said, lab.hang_limit(20))
        .with_context(|| format!("{}{}", process.stdout(), process.stderr()))
}

/// Waits until the program ends by itself, and checks its status.
fn ends(lab: &Lab, process: &Process, status: i32) -> Result<Output> {
    let hangs = || format!("it hangs: {}{}", process.stdout(), process.stderr());
    process
        .wait_timeout(lab.hang_limit(40))?
        .with_context(hangs)?
        .status(status)
}

fn ends_saying(lab: &Lab, process: &Process, status: i32, said: &str) -> Result<()> {
    let output = ends(lab, process, status)?;
    ensure!(output.stdout().contains(said), "no '{said}': {output}");
    Ok(())
}

/// Kills the victim, and waits until it has ended.
fn kill(lab: &Lab, victim: &Process) -> Result<()> {
    ensure!(
        victim.is_running(),
        "it has ended before: {}",
        victim.stderr()
    );
    victim.signal(9);
    victim
        .wait_timeout(lab.hang_limit(20))?
        .context("a process that was killed does not end")?;
    Ok(())
}

/// Runs the work for each item, and reports all failures.
fn each<T: std::fmt::Display + Copy>(
    of: &[T],
    mut work: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let failed: Vec<String> = of
        .iter()
        .filter_map(|&one| work(one).err().map(|error| format!("{one}: {error:#}")))
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

// --- The performance suite ---

fn experiment(lab: &Lab, name: &str, said: &str) -> Result<()> {
    let server = start(lab, 1, "perf", &["server"])?;
    waits(lab, &server, "serving")?;
    let client = start(lab, 0, "perf", &["client", &id(1), name])?;
    let result = ends_saying(lab, &client, 0, &format!("{name}: {said}"));
    if result.is_err() {
        server.signal(9);
        server.wait_timeout(lab.hang_limit(20))?;
        return result;
    }
    ends_saying(lab, &server, 0, "served")
}

/// Experiments that need maps print "no map" where there are none, and only there.
fn experiments(lab: &Lab, mapped: bool) -> Result<()> {
    let (by_map, others) = EXPERIMENTS.split_at(BY_MAP);
    let said = if mapped { "ok" } else { "no map" };
    let by_map = each(by_map, |name| experiment(lab, name, said));
    let others = each(others, |name| experiment(lab, name, "ok"));
    match (by_map, others) {
        (Err(one), Err(other)) => Err(one.context(other)),
        (one, other) => one.and(other),
    }
}

fn perf(lab: &Lab) -> Result<()> {
    experiments(lab, true)
}

fn perf_without_maps(lab: &Lab) -> Result<()> {
    experiments(lab, false)
}

/// The server is killed in the middle of each experiment. One experiment also loses its client.
fn perf_reports_killed_server(lab: &Lab) -> Result<()> {
    let looped = |name: &str| -> Result<[Process; 2]> {
        let server = start(lab, 1, "perf", &["server"])?;
        waits(lab, &server, "serving")?;
        let client = start(lab, 0, "perf", &["client", &id(1), "loop", name])?;
        waits(lab, &client, "under way")?;
        Ok([server, client])
    };
    each(EXPERIMENTS, |name| {
        let [server, client] = looped(name)?;
        kill(lab, &server)?;
        ends_saying(lab, &client, PARTY_LOST, "server lost")
    })?;
    each(&["pio", "dma_poll", "bells", "data_stream"], |name| {
        let [server, client] = looped(name)?;
        kill(lab, &client)?;
        ends_saying(lab, &server, PARTY_LOST, "client lost")
    })
}

/// The server's node is killed.
fn perf_reports_lost_node(lab: &Lab) -> Result<()> {
    for name in ["dma_poll", "two_queues", "pio"] {
        let server = start(lab, 1, "perf", &["server"])?;
        waits(lab, &server, "serving")?;
        let client = start(lab, 0, "perf", &["client", &id(1), "loop", name])?;
        waits(lab, &client, "under way")?;
        lab.kill(1)?;
        ends_saying(lab, &client, PARTY_LOST, "server lost").context(name)?;
        lab.restart(1)?;
        scif::load(lab, 1, Loaded::AsUsual)?;
        scif::online(lab, 0, 1)?;
    }
    Ok(())
}

// --- The replicated store ---

/// A primary on node 0, and its replicas.
struct Store {
    primary: Process,
    replicas: Vec<Process>,
}

impl Store {
    fn start(lab: &Lab, nodes: &[usize], records: u32, order: &str, lanes: u32) -> Result<Store> {
        let workers = lanes.to_string();
        let replica = |&node: &usize| start(lab, node, "kvstore", &["replica", &id(0), &workers]);
        let replicas = nodes.iter().map(replica).collect::<Result<Vec<_>>>()?;
        let (count, records) = (nodes.len().to_string(), records.to_string());
        let mut primary = vec!["primary", &*count, &*records, order];
        if lanes > 1 {
            primary.push(&workers);
        }
        Ok(Store {
            primary: start(lab, 0, "kvstore", &primary)?,
            replicas,
        })
    }

    fn kill(&self, lab: &Lab) {
        for process in self.replicas.iter().chain([&self.primary]) {
            process.signal(9);
            let _ = process.wait_timeout(lab.hang_limit(20));
        }
    }

    /// Checks that all parties end with success, with this number of records each.
    fn ends(&self, lab: &Lab, records: u32, lanes: u32) -> Result<()> {
        // Checks the replicas first: a replica reports a fault, but its primary would only give up
        // the replica.
        let replicas = each(&Vec::from_iter(0..self.replicas.len()), |which| {
            let output = ends(lab, &self.replicas[which], 0)?;
            for lane in 0..lanes {
                let line = format!("lane {lane}: {records} records");
                ensure!(output.stdout().contains(&line), "no '{line}': {output}");
            }
            Ok(())
        });
        replicas.context("replicas")?;
        let said = format!("records on {} replicas", self.replicas.len());
        ends_saying(lab, &self.primary, 0, &said)
    }
}

fn stores(lab: &Lab, nodes: &[usize]) -> Result<()> {
    each(ORDERS, |order| {
        let store = Store::start(lab, nodes, RECORDS, order, 1)?;
        store.ends(lab, RECORDS, 1).inspect_err(|_| store.kill(lab))
    })?;
    // Several processes store to the same group.
    let store = Store::start(lab, nodes, RECORDS / 2, "barrier", 3)?;
    store
        .ends(lab, RECORDS / 2, 3)
        .inspect_err(|_| store.kill(lab))
}

fn kvstore(lab: &Lab) -> Result<()> {
    stores(lab, &[1])
}

fn kvstore_three(lab: &Lab) -> Result<()> {
    stores(lab, &[0, 1, 2])
}

/// If a replica is lost, the other parties continue, and have all records.
fn goes_on(lab: &Lab, store: &Store, lost: usize) -> Result<()> {
    let Store { primary, replicas } = store;
    let said = format!("replica {} is lost", id(lost));
    waits(lab, primary, &said)?;
    let before = primary.stdout().matches("has stored").count();
    wait_until("records after the loss", lab.hang_limit(20), || {
        Ok((primary.stdout().matches("has stored").count() > before + 1).then_some(()))
    })?;
    primary.signal(15);
    let output = ends(lab, primary, 0)?;
    let text = output.stdout();
    let records = text
        .lines()
        .find_map(|line| line.strip_suffix(" records on 2 replicas"))
        .with_context(|| format!("not on two replicas: {output}"))?;
    for node in (0..3).filter(|&node| node != lost) {
        ends_saying(lab, &replicas[node], 0, &format!("{records} records\n"))?;
    }
    Ok(())
}

fn kvstore_notices_killed_process(lab: &Lab) -> Result<()> {
    for order in ["flush", "check"] {
        let store = Store::start(lab, &[0, 1, 2], 0, order, 1)?;
        waits(lab, &store.primary, "has stored 100")?;
        kill(lab, &store.replicas[1])?;
        goes_on(lab, &store, 1).inspect_err(|_| store.kill(lab))?;
    }
    let store = Store::start(lab, &[0, 1, 2], 0, "barrier", 1)?;
    waits(lab, &store.primary, "has stored 100")?;
    kill(lab, &store.primary)?;
    for replica in &store.replicas {
        ends_saying(lab, replica, PARTY_LOST, "primary lost")?;
    }
    Ok(())
}

fn kvstore_outlives_replica_node(lab: &Lab) -> Result<()> {
    let store = Store::start(lab, &[0, 1, 2], 0, "check", 1)?;
    waits(lab, &store.primary, "has stored 100")?;
    lab.kill(2)?;
    goes_on(lab, &store, 2)
}

// --- The pipeline ---

/// Starts the pipeline: capture, filter and sink.
fn pipeline(lab: &Lab, nodes: [usize; 3], frames: u32, how: &str) -> Result<[Process; 3]> {
    let [capture, filter, sink] = nodes.map(id);
    let filters = ["filter", &*capture, &*sink, how];
    let captures = ["capture", &*filter, &*frames.to_string()];
    Ok([
        start(lab, nodes[0], "pipeline", &captures)?,
        start(lab, nodes[1], "pipeline", &filters)?,
        start(lab, nodes[2], "pipeline", &["sink", &filter])?,
    ])
}

fn frames(lab: &Lab, nodes: [usize; 3], mapped: bool) -> Result<()> {
    each(&["pio", "dma"], |how| {
        let stages = pipeline(lab, nodes, 100, how)?;
        let said = ["captured", "filtered 100", "100 frames, bit by bit"];
        for (stage, said) in stages.iter().zip(said) {
            ends_saying(lab, stage, 0, said)?;
        }
        let fell_back = stages[1].stdout().contains("no map");
        ensure!(
            fell_back == (how == "pio" && !mapped),
            "no map: {fell_back}"
        );
        Ok(())
    })
}

fn pipeline_two(lab: &Lab) -> Result<()> {
    frames(lab, [1, 0, 1], true)
}

fn pipeline_two_without_maps(lab: &Lab) -> Result<()> {
    frames(lab, [1, 0, 1], false)
}

fn pipeline_three(lab: &Lab) -> Result<()> {
    frames(lab, [1, 0, 2], true)
}

fn pipeline_three_without_maps(lab: &Lab) -> Result<()> {
    frames(lab, [1, 0, 2], false)
}

fn pipeline_reports_killed_stage(lab: &Lab) -> Result<()> {
    for (victim, how) in [(0, "pio"), (1, "pio"), (1, "dma"), (2, "pio"), (2, "dma")] {
        let stages = pipeline(lab, [1, 0, 2], 0, how)?;
        waits(lab, &stages[0], "under way")?;
        kill(lab, &stages[victim])?;
        for (number, stage) in stages.iter().enumerate() {
            if number != victim {
                ends_saying(lab, stage, PARTY_LOST, "another stage is lost")
                    .with_context(|| format!("stage {number} after {victim} by {how}"))?;
            }
        }
    }
    Ok(())
}

/// The sink's node is killed.
fn pipeline_reports_lost_node(lab: &Lab) -> Result<()> {
    let stages = pipeline(lab, [1, 0, 2], 0, "pio")?;
    waits(lab, &stages[0], "under way")?;
    lab.kill(2)?;
    for stage in &stages[..2] {
        ends_saying(lab, stage, PARTY_LOST, "another stage is lost")?;
    }
    Ok(())
}

// --- The program that forks ---

fn forks(lab: &Lab) -> Result<()> {
    let ways = [
        "begins",
        "ignores",
        "terminates",
        "inherits",
        "named",
        "killed",
        "threaded",
        "guarded",
        "deeper",
        "executes",
        "rests",
    ];
    let server = start(lab, 1, "forker", &["server"])?;
    waits(lab, &server, "serving")?;
    let run = |ways: &[&str]| {
        let node = id(1);
        let arguments = [&["run", &node], ways].concat();
        let program = start(lab, 0, "forker", &arguments)?;
        ends_saying(lab, &program, 0, "all well")
    };
    let alone = each(&ways, |way| run(&[way]));
    alone.and_then(|()| run(&[]))?;
    server.signal(15);
    ends_saying(lab, &server, 0, "served")
}

const fn with_losses(test: Test) -> Test {
    test.loses_nodes().seconds(180)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("sisci_field::perf", SCIF_PAIR, perf)
        .seconds(120)
        .by_name(),
    Test::new("sisci_field::kvstore", SCIF_PAIR, kvstore).by_name(),
    Test::new("sisci_field::pipeline", SCIF_PAIR, pipeline_two),
    Test::new("sisci_field::forks", SCIF_PAIR, forks).by_name(),
    Test::new("sisci_field::kvstore_three", SCIF_STAR, kvstore_three).by_name(),
    Test::new("sisci_field::pipeline_three", SCIF_STAR, pipeline_three),
    Test::new("sisci_field::perf_arena", ARENA_PAIR, perf)
        .seconds(120)
        .by_name(),
    Test::new("sisci_field::kvstore_arena", ARENA_PAIR, kvstore).by_name(),
    Test::new("sisci_field::forks_arena", ARENA_PAIR, forks).by_name(),
    Test::new(
        "sisci_field::kvstore_arena_three",
        ARENA_STAR,
        kvstore_three,
    )
    .by_name(),
    Test::new(
        "sisci_field::pipeline_arena_three",
        ARENA_STAR,
        pipeline_three,
    )
    .by_name(),
    Test::new(
        "sisci_field::perf_small",
        scif_bounce::SMALL,
        perf_without_maps,
    )
    .seconds(120)
    .by_name(),
    Test::new("sisci_field::kvstore_small", scif_bounce::SMALL, kvstore).by_name(),
    Test::new("sisci_field::forks_small", scif_bounce::SMALL, forks).by_name(),
    Test::new(
        "sisci_field::pipeline_small",
        scif_bounce::USUAL,
        pipeline_two_without_maps,
    )
    .by_name(),
    Test::new(
        "sisci_field::kvstore_small_three",
        SMALL_STAR,
        kvstore_three,
    )
    .by_name(),
    Test::new(
        "sisci_field::pipeline_small_three",
        SMALL_STAR,
        pipeline_three_without_maps,
    )
    .by_name(),
    Test::new("sisci_field::perf_idt", scif_idt::GUARDED, perf)
        .seconds(120)
        .by_name(),
    Test::new("sisci_field::kvstore_idt_three", IDT_STAR, kvstore_three).by_name(),
    Test::new("sisci_field::pipeline_idt_three", IDT_STAR, pipeline_three).by_name(),
    Test::new("sisci_field::perf_idt_small", IDT_SMALL, perf_without_maps)
        .seconds(120)
        .by_name(),
    with_losses(Test::new(
        "sisci_field::perf_reports_killed_server",
        USUAL_PAIR,
        perf_reports_killed_server,
    ))
    .by_name(),
    with_losses(Test::new(
        "sisci_field::perf_reports_lost_node",
        USUAL_PAIR,
        perf_reports_lost_node,
    ))
    .by_name(),
    with_losses(Test::new(
        "sisci_field::kvstore_notices_killed_process",
        USUAL_STAR,
        kvstore_notices_killed_process,
    ))
    .by_name(),
    with_losses(Test::new(
        "sisci_field::pipeline_reports_killed_stage",
        USUAL_STAR,
        pipeline_reports_killed_stage,
    ))
    .by_name(),
    with_losses(Test::new(
        "sisci_field::kvstore_outlives_replica_node",
        USUAL_STAR,
        kvstore_outlives_replica_node,
    ))
    .leaves_disorder()
    .by_name(),
    with_losses(Test::new(
        "sisci_field::pipeline_reports_lost_node",
        USUAL_STAR,
        pipeline_reports_lost_node,
    ))
    .leaves_disorder()
    .by_name(),
];
