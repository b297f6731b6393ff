// SPDX-License-Identifier: GPL-2.0
//! Other callers than 64-bit programs of today: 32-bit programs, and those with the numbers of
//! the MIC library on /dev/mic/scif; and arguments in awkward places, from both sides.

use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::ONE;
use crate::need::PAIR;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// A node with neither NTB nor DMA engine.
const ALONE: Need = Need {
    dma_channels: 0,
    ..ONE
};

/// The MIC library's device.
const MIC: &str = "/dev/mic/scif";

/// Loads the module with the numbers of the MIC library.
fn load_with_mic(lab: &Lab, node: usize) -> Result<()> {
    scif::load_with(lab, node, Loaded::LongHeartbeat, "mic_compat=1")
}

/// Runs a program that prints TAP.
fn run_tap(lab: &Lab, node: usize, name: &str, arguments: &[&str]) -> Result<()> {
    scif::run_tap(lab, node, name, arguments, 200)?;
    Ok(())
}

/// A client program on one node against a server program on the other.
fn client_and_server(
    lab: &Lab,
    (client, client_program): (usize, &str),
    (server, server_program): (usize, &str),
    more: &[&str],
) -> Result<()> {
    let process = scif::start_server(lab, server, server_program, &["server", "2201"], 200)?;
    let peer = server.to_string();
    let arguments = [&["client", &peer, "2201"], more].concat();
    run_tap(lab, client, client_program, &arguments)?;
    // It ends with its client.
    process.wait()?.success()?;
    Ok(())
}

/// MiB for each copy test of scif_abi.
fn amount(lab: &Lab) -> &'static str {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => "8",
        Flavour::Debug | Flavour::Kcsan => "1",
    }
}

fn exists(lab: &Lab, node: usize, path: &str) -> Result<bool> {
    Ok(lab.exec(node, ["test", "-e", path])?.code() == Some(0))
}

/// A 32-bit program against a 64-bit server on another node.
fn against_64_bit_server(lab: &Lab) -> Result<()> {
    client_and_server(lab, (0, "scif_abi_32"), (1, "scif_abi"), &[amount(lab)])
}

/// And the other way round.
fn against_32_bit_server(lab: &Lab) -> Result<()> {
    client_and_server(lab, (0, "scif_abi"), (1, "scif_abi_32"), &[amount(lab)])
}

/// Two 32-bit processes of one node.
fn loopback(lab: &Lab) -> Result<()> {
    run_tap(lab, 0, "scif_abi_32", &["loopback", "2202", amount(lab)])
}

/// What is in an awkward place costs neither data nor connections.
fn arguments(lab: &Lab) -> Result<()> {
    run_tap(lab, 1, "scif_arguments", &[])
}

fn arguments_of_32_bits(lab: &Lab) -> Result<()> {
    run_tap(lab, 1, "scif_arguments_32", &[])
}

/// Nobody but root opens the devices unless udev says otherwise, and that of the MIC library is
/// only there if it was asked for.
fn devices(lab: &Lab) -> Result<()> {
    let mode = |path: &str| -> Result<String> {
        let output = lab.exec(0, ["stat", "-c", "%F %a", path])?;
        Ok(output.success()?.stdout().trim().to_owned())
    };
    let private = "character special file 600";
    scif::load(lab, 0, Loaded::LongHeartbeat)?;
    ensure!(mode("/dev/scif")? == private, "{}", mode("/dev/scif")?);
    ensure!(!exists(lab, 0, "/dev/mic")?, "/dev/mic without mic_compat");
    lab.rmmod(0, "scif")?;
    load_with_mic(lab, 0)?;
    for path in ["/dev/scif", MIC] {
        ensure!(mode(path)? == private, "{path}: {}", mode(path)?);
    }
    lab.rmmod(0, "scif")?;
    ensure!(!exists(lab, 0, "/dev/mic")?, "/dev/mic is left");
    Ok(())
}

/// Without the parameter nobody knows the numbers, and with it no 32-bit process does.
fn mic_unknown(lab: &Lab) -> Result<()> {
    scif::load(lab, 0, Loaded::LongHeartbeat)?;
    for program in ["scif_mic_compat", "scif_mic_compat_32"] {
        run_tap(lab, 0, program, &["unknown", "/dev/scif"])?;
    }
    lab.rmmod(0, "scif")?;
    load_with_mic(lab, 0)?;
    for device in ["/dev/scif", MIC] {
        run_tap(lab, 0, "scif_mic_compat_32", &["unknown", device])?;
    }
    lab.rmmod(0, "scif")
}

/// With the parameter they work within a node, and today's programs do as before.
fn mic_loopback(lab: &Lab) -> Result<()> {
    load_with_mic(lab, 0)?;
    run_tap(lab, 0, "scif_mic_compat", &["loopback", "2203"])?;
    run_tap(lab, 0, "scif_arguments", &[])?;
    scif::check_idle(lab, 0)?;
    lab.rmmod(0, "scif")
}

/// And between two.
fn mic_between_nodes(lab: &Lab) -> Result<()> {
    let program = "scif_mic_compat";
    for node in 0..2 {
        load_with_mic(lab, node)?;
    }
    scif::online(lab, 0, 1)?;
    scif::online(lab, 1, 0)?;
    client_and_server(lab, (0, program), (1, program), &[])?;
    client_and_server(lab, (1, program), (0, program), &[])?;
    for node in 0..2 {
        scif::check_idle(lab, node)?;
    }
    scif::unload_everywhere(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_compat::devices", ALONE, devices),
    Test::new("scif_compat::mic_unknown", ALONE, mic_unknown),
    Test::new("scif_compat::mic_loopback", ALONE, mic_loopback),
    Test::new("scif_compat::mic_between_nodes", PAIR, mic_between_nodes)
        .leaves_disorder()
        .by_name(),
    Test::new("scif_compat::arguments", SCIF_PAIR, arguments),
    Test::new(
        "scif_compat::arguments_of_32_bits",
        SCIF_PAIR,
        arguments_of_32_bits,
    ),
    Test::new("scif_compat::loopback", SCIF_PAIR, loopback)
        .seconds(180)
        .by_name(),
    Test::new(
        "scif_compat::against_64_bit_server",
        SCIF_PAIR,
        against_64_bit_server,
    )
    .seconds(180)
    .by_name(),
    Test::new(
        "scif_compat::against_32_bit_server",
        SCIF_PAIR,
        against_32_bit_server,
    )
    .seconds(180),
];
