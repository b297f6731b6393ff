// SPDX-License-Identifier: GPL-2.0
//! `scif cp` between two nodes: exactly the sent file arrives under its name, and nothing else. The
//! host computes the hashes, so the test need not trust the tool.

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

/// Returns the size of a file whose copy takes a while.
fn large(lab: &Lab) -> u64 {
    let mebibytes = match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 8,
        Flavour::Debug | Flavour::Kcsan => 4,
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
        "the file that came back differs"
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

/// Copies files that are empty or nearly empty, and files of about a page.
fn small_files(lab: &Lab) -> Result<()> {
    for size in [0, 1, 4096, 4097] {
        there_and_back(lab, 0, size).with_context(|| format!("a file of {size} bytes"))?;
    }
    Ok(())
}

/// Several copies at once, to and from both nodes.
fn parallel_copies_arrive(lab: &Lab) -> Result<()> {
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

/// The server gives access to no file outside its folder, and explains mistakes.
fn files_outside_root_are_refused(lab: &Lab) -> Result<()> {
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

/// A server whose standard error is full or closed still serves.
fn broken_stderr_stops_no_server(lab: &Lab) -> Result<()> {
    let hash = scif::make_file(lab, "sent", 100_000)?;
    for redirected in ["2>/dev/full", "2>&-"] {
        let server = Server::start_with(lab, 1, redirected)?;
        scif::run_tool(lab, 0, &["cp", "-q", "/exchange/sent", "1:copy"])?.success()?;
        ensure!(scif::hash_of(&server.folder.join("copy"))? == hash);
        scif::run_tool(lab, 0, &["cp", "-q", "1:missing", "/exchange/got"])?.status(5)?;
        scif::run_tool(lab, 0, &["cp", "-q", "1:copy", "/exchange/back"])?.success()?;
        server.stop()?;
    }
    Ok(())
}

/// A server limits clients and bytes, measures only if told to, and reports a full disk.
fn server_keeps_its_limits(lab: &Lab) -> Result<()> {
    scif::make_file(lab, "sent", 100_000)?;
    let server = Server::start_with(lab, 1, "--clients 2 --max-bytes 150000")?;
    let ping = ["ping", "1", "-c", "1000000"];
    let held = [
        scif::start_tool(lab, 0, &ping)?,
        scif::start_tool(lab, 0, &ping)?,
    ];
    for client in &held {
        client.wait_for("seq=0", lab.hang_limit(30))?;
    }
    let refused = scif::run_tool(lab, 0, &["ping", "1", "-c", "1"])?.status(5)?;
    ensure!(refused.stderr().contains("--clients"), "{refused}");
    for client in held {
        client.signal(2);
        client.wait()?.success()?;
    }
    scif::run_tool(lab, 0, &["cp", "-q", "/exchange/sent", "1:one"])?.success()?;
    let refused = scif::run_tool(lab, 0, &["cp", "-q", "/exchange/sent", "1:two"])?.status(5)?;
    ensure!(refused.stderr().contains("--max-bytes"), "{refused}");
    for command in [&["bench", "1"][..], &["bench", "send-lat", "1", "--poll"]] {
        let refused = scif::run_tool(lab, 0, command)?.status(5)?;
        ensure!(refused.stderr().contains("scif serve --bench"), "{refused}");
    }
    server.stop()?;

    let script = format!(
        "mkdir -p /run/small && mount -t tmpfs -o size=64k none /run/small && exec {} serve --root /run/small",
        scif::tool()?
    );
    let small = (lab.command(1, ["sh", "-c", &script])?)
        .timeout(lab.hang_limit(600))
        .spawn()?;
    small.wait_for("serving", lab.hang_limit(30))?;
    let refused = scif::run_tool(lab, 0, &["cp", "-q", "/exchange/sent", "1:copy"])?.status(5)?;
    ensure!(refused.stderr().contains("no room"), "{refused}");
    small.signal(2);
    small.wait()?.success()?;
    lab.shell(1, "umount /run/small")?;
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_copy::small_files", SCIF_PAIR, small_files).seconds(120),
    Test::new("scif_copy::large_file", SCIF_PAIR, large_file).seconds(240),
    Test::new(
        "scif_copy::parallel_copies_arrive",
        SCIF_PAIR,
        parallel_copies_arrive,
    )
    .seconds(240),
    Test::new(
        "scif_copy::files_outside_root_are_refused",
        SCIF_PAIR,
        files_outside_root_are_refused,
    ),
    Test::new(
        "scif_copy::broken_stderr_stops_no_server",
        SCIF_PAIR,
        broken_stderr_stops_no_server,
    )
    .by_name(),
    Test::new(
        "scif_copy::server_keeps_its_limits",
        SCIF_PAIR,
        server_keeps_its_limits,
    )
    .by_name(),
];
