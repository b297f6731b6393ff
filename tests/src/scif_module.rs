// SPDX-License-Identifier: GPL-2.0
//! The module by itself, on a node without any device: loading, unloading, its own tests,
//! and SCIF within one node.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::paths;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::ONE;
use crate::scif;

/// A node with neither NTB nor DMA engine.
const ALONE: Need = Need {
    dma_channels: 0,
    ..ONE
};

/// Such a node, with a kernel that runs KUnit tests.
pub const KUNIT: Need = Need {
    kunit: true,
    ..ALONE
};

/// Collects the names of the KUnit suites in the sources of a folder: in Rust
/// `#[kunit_tests(name)]`, in C the name in a `struct kunit_suite`. Fails if two suites have the
/// same name, because the results of one would hide those of the other.
fn suites_in(folder: &Path, suites: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            suites_in(&path, suites)?;
            continue;
        }
        let (start, end) = match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => ("#[kunit_tests(", ')'),
            Some("c") => ("_suite = {\n\t.name = \"", '"'),
            _ => continue,
        };
        let text = fs::read_to_string(&path)?;
        let names = text.split(start).skip(1);
        for (name, _) in names.filter_map(|rest| rest.split_once(end)) {
            let is_new = suites.insert(name.to_owned());
            ensure!(is_new, "two KUnit suites are called {name}");
        }
    }
    Ok(())
}

/// All KUnit suites of the module have run, and pass. The load succeeds even if they fail.
fn kunit(lab: &Lab) -> Result<()> {
    scif::load(lab, 0, Loaded::LongHeartbeat)?;
    let results = lab.kunit(0, "scif")?;
    ensure!(
        results.failed.is_empty(),
        "{} failed:\n{}",
        results.failed.len(),
        results.failed.join("\n")
    );
    let mut written = BTreeSet::new();
    suites_in(&paths::repository().join("drivers/misc/scif"), &mut written)?;
    let ran: BTreeSet<String> = results.suites.iter().cloned().collect();
    let missing: Vec<&String> = written.difference(&ran).collect();
    ensure!(missing.is_empty(), "suites that have not run: {missing:?}");
    let unknown: Vec<&String> = ran.difference(&written).collect();
    ensure!(unknown.is_empty(), "suites of no source: {unknown:?}");
    ensure!(results.passed > 0, "there are no results: {results:?}");
    println!(
        "      {} KUnit cases of {} suites passed, {} skipped {}",
        results.passed,
        ran.len(),
        results.skipped.len(),
        results.skipped.join(" ")
    );
    lab.rmmod(0, "scif")
}

/// The module loads without a device, is node 0, and unloads without a trace, any number of times.
fn load_and_unload(lab: &Lab) -> Result<()> {
    let device = ["test", "-c", "/dev/scif"];
    let mut generations = Vec::new();
    for _ in 0..3 {
        scif::load(lab, 0, Loaded::LongHeartbeat)?;
        lab.exec(0, device)?.success()?;
        let nodes = scif::nodes(lab, 0)?;
        let [node] = &nodes[..] else {
            anyhow::bail!("a node alone sees {nodes:?}");
        };
        ensure!(
            (node.id, &*node.state, &*node.link) == (0, "self", "loopback"),
            "{node:?}"
        );
        generations.push(node.generation.clone());
        lab.rmmod(0, "scif")?;
        ensure!(lab.exec(0, device)?.code() == Some(1), "/dev/scif is left");
        let left = lab.exec(0, ["test", "-e", "/sys/kernel/debug/scif"])?;
        ensure!(left.code() == Some(1), "debugfs's folder scif is left");
    }
    generations.dedup();
    ensure!(
        generations.len() == 3,
        "generations repeat: {generations:?}"
    );
    Ok(())
}

/// The whole interface between two processes of one node.
fn loopback(lab: &Lab) -> Result<()> {
    scif::load(lab, 0, Loaded::LongHeartbeat)?;
    let program = scif::program("scif_abi")?;
    let output = lab
        .command(0, [&program, "loopback", "2100", "4"])?
        .timeout(lab.hang_limit(120))
        .run()?;
    scif::check_tap(output)?;
    let nodes = scif::run_tool(lab, 0, &["nodes"])?.success()?.stdout();
    ensure!(
        nodes.lines().count() == 2 && nodes.contains("loopback"),
        "scif nodes: {nodes}"
    );
    scif::check_idle(lab, 0)?;
    lab.rmmod(0, "scif")
}

/// The module can't be unloaded while a file of it is open.
fn open_file_prevents_unload(lab: &Lab) -> Result<()> {
    scif::load(lab, 0, Loaded::LongHeartbeat)?;
    let server = scif::Server::start(lab, 0)?;
    let output = lab.exec(0, ["rmmod", "scif"])?;
    ensure!(
        output.code() != Some(0) && output.stderr().contains("in use"),
        "rmmod with an open endpoint: {output}"
    );
    scif::run_tool(lab, 0, &["ping", "0", "-c", "3", "-i", "0"])?.success()?;
    server.stop()?;
    lab.rmmod(0, "scif")
}

/// Without the module, the tool says what to do.
fn absent_module_is_explained(lab: &Lab) -> Result<()> {
    let output = scif::run_tool(lab, 0, &["nodes"])?.status(7)?;
    ensure!(
        output.stderr().contains("cannot open /dev/scif")
            && output.stderr().contains("is the module loaded?"),
        "{output}"
    );
    Ok(())
}

/// The module refuses an invalid parameter, and names it in the kernel log.
fn bad_parameters_are_refused(lab: &Lab) -> Result<()> {
    for bad in ["node_id=65536", "node_id=-2"] {
        let error = lab.insmod(0, scif::module(lab)?, bad).unwrap_err();
        ensure!(format!("{error:#}").contains("nvalid"), "{bad}: {error:#}");
        let log = lab.dmesg(0)?;
        let said = format!("scif: {bad} is not a node id (0 to 65535)");
        ensure!(
            lab::kernel_log::since_mark(&log).contains(&said),
            "the kernel log does not say '{said}'"
        );
    }
    for bad in ["node_id=zero", "heartbeat_timeout_ms=-1"] {
        ensure!(
            lab.insmod(0, scif::module(lab)?, bad).is_err(),
            "{bad} is accepted"
        );
    }
    ensure!(!scif::is_loaded(lab, 0)?);
    lab.insmod(0, scif::module(lab)?, "node_id=65535")?;
    ensure!(scif::nodes(lab, 0)?[0].id == 65535);
    lab.rmmod(0, "scif")
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_module::kunit", KUNIT, kunit)
        .expects(&["module scif_test has gone and left 2 endpoint(s)"]),
    Test::new(
        "scif_module::absent_module_is_explained",
        ALONE,
        absent_module_is_explained,
    ),
    Test::new("scif_module::load_and_unload", ALONE, load_and_unload),
    Test::new("scif_module::loopback", ALONE, loopback)
        .seconds(180)
        .by_name(),
    Test::new(
        "scif_module::open_file_prevents_unload",
        ALONE,
        open_file_prevents_unload,
    ),
    Test::new(
        "scif_module::bad_parameters_are_refused",
        ALONE,
        bad_parameters_are_refused,
    )
    .expects(&["is not a node id", "invalid for parameter"]),
];
