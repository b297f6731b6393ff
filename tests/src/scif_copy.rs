// SPDX-License-Identifier: GPL-2.0
//! `scif cp` between two nodes: what arrives is what was sent, under its name, and nothing
//! else. The host hashes, so that nobody has to be believed.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;

use crate::harness::Test;
use crate::scif;
use crate::scif::Server;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// The size of a file that takes a while.
fn large(lab: &Lab) -> u64 {
    let mebibytes = match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 32,
        Flavour::Debug => 4,
    };
    (mebibytes << 20) + 12345
}

/// Copies a file from `node` to its peer and back under another name; checks both.
fn there_and_back(lab: &Lab, node: usize, size: u64) -> Result<()> {
    let peer = 1 - node;
    let server = Server::start(lab, peer)?;
    let exchange = lab.paths().exchange();
    let hash = scif::make_file(lab, "sent", size)?;
    fs::set_permissions(exchange.join("sent"), fs::Permissions::from_mode(0o640))?;
    let _ = fs::remove_file(exchange.join("back"));

    let remote = format!("{peer}:copy");
    let copied = format!("({size} bytes)");
    let output = scif::run_tool(lab, node, &["cp", "/exchange/sent", &remote])?.success()?;
    ensure!(
        output.stdout().matches(&hash).count() == 2 && output.stdout().contains(&copied),
        "the file has the hash {hash}: {output}"
    );
    let copy = server.folder.join("copy");
    ensure!(scif::hash_of(&copy)? == hash, "the copy is another file");
    let mode = fs::metadata(&copy)?.permissions().mode() & 0o7777;
    ensure!(mode == 0o640, "the mode became {mode:o}");

    let output = scif::run_tool(lab, node, &["cp", &remote, "/exchange/back"])?.success()?;
    ensure!(
        output.stdout().matches(&hash).count() == 2,
        "the file has the hash {hash}: {output}"
    );
    ensure!(
        scif::hash_of(&exchange.join("back"))? == hash,
        "what came back is another file"
    );
    ensure!(
        scif::names_in(&server.folder)?.len() == 1,
        "more than the copy is in the folder"
    );
    server.stop()
}

/// A large file of odd size.
fn large_file(lab: &Lab) -> Result<()> {
    let before = scif::dma_bytes(lab, 0)? + scif::dma_bytes(lab, 1)?;
    there_and_back(lab, 0, large(lab))?;
    let moved = scif::dma_bytes(lab, 0)? + scif::dma_bytes(lab, 1)? - before;
    ensure!(
        moved >= 2 * (large(lab) - (1 << 20)),
        "the engines have moved {moved} bytes only"
    );
    there_and_back(lab, 1, large(lab) / 4)
}

/// Files with hardly anything in them, and about a page.
fn small_files(lab: &Lab) -> Result<()> {
    for size in [0, 1, 4096, 4097] {
        there_and_back(lab, 0, size).with_context(|| format!("a file of {size} bytes"))?;
    }
    Ok(())
}

/// Several copies at once, both ways and in both directions.
fn parallel(lab: &Lab) -> Result<()> {
    let servers = [Server::start(lab, 0)?, Server::start(lab, 1)?];
    let size = large(lab) / 4;
    let hash = scif::make_file(lab, "sent", size)?;
    for server in &servers {
        fs::copy(
            lab.paths().exchange().join("sent"),
            server.folder.join("source"),
        )?;
    }
    let received = lab.paths().exchange().join("received");
    fs::create_dir_all(&received)?;
    let copies = [
        (0, ["cp", "-q", "/exchange/sent", "1:a"]),
        (0, ["cp", "-q", "/exchange/sent", "1:b"]),
        (1, ["cp", "-q", "/exchange/sent", "0:c"]),
        (0, ["cp", "-q", "1:source", "/exchange/received/d"]),
        (1, ["cp", "-q", "0:source", "/exchange/received/e"]),
    ];
    let running = copies
        .iter()
        .map(|(node, arguments)| scif::start_tool(lab, *node, arguments))
        .collect::<Result<Vec<_>>>()?;
    for process in running {
        process.wait()?.success()?;
    }
    let [of_0, of_1] = &servers;
    for path in [
        of_1.folder.join("a"),
        of_1.folder.join("b"),
        of_0.folder.join("c"),
        received.join("d"),
        received.join("e"),
    ] {
        ensure!(scif::hash_of(&path)? == hash, "{} differs", path.display());
    }
    servers.into_iter().try_for_each(Server::stop)
}

/// What is outside the served folder stays there, and mistakes are explained.
fn refusals(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    scif::make_file(lab, "sent", 1000)?;
    for (arguments, status, said) in [
        (["cp", "/exchange/sent", "1:../outside"], 5, "outside"),
        (["cp", "1:/etc/passwd", "/exchange/got"], 5, "etc/passwd"),
        (["cp", "1:../sent", "/exchange/got"], 5, "sent"),
        (["cp", "1:missing", "/exchange/got"], 5, "missing"),
        (["cp", "/exchange/missing", "1:x"], 1, "missing"),
        (["cp", "/exchange/sent", "/exchange/got"], 2, "NODE:PATH"),
    ] {
        let output = scif::run_tool(lab, 0, &arguments)?.status(status)?;
        ensure!(output.stderr().contains(said), "{output}");
    }
    ensure!(!lab.paths().exchange().join("outside").exists());
    ensure!(!lab.paths().exchange().join("got").exists());
    ensure!(scif::names_in(&server.folder)?.is_empty());
    server.stop()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_copy::small_files", SCIF_PAIR, small_files).seconds(120),
    Test::new("scif_copy::large_file", SCIF_PAIR, large_file).seconds(240),
    Test::new("scif_copy::parallel", SCIF_PAIR, parallel).seconds(240),
    Test::new("scif_copy::refusals", SCIF_PAIR, refusals),
];
