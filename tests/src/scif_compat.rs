// SPDX-License-Identifier: GPL-2.0
//! Callers other than 64-bit programs of today: 32-bit programs, and programs that use the ioctl
//! numbers of the MIC library on /dev/mic/scif. Also arguments at awkward addresses, on both sides.

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

/// Loads the module with the ioctl numbers of the MIC library.
fn load_with_mic(lab: &Lab, node: usize) -> Result<()> {
    scif::load_with(lab, node, Loaded::LongHeartbeat, "mic_compat=1")
}

/// Runs a program that prints TAP.
fn run_tap(lab: &Lab, node: usize, name: &str, arguments: &[&str]) -> Result<()> {
    scif::run_tap(lab, node, name, arguments, 200)?;
    Ok(())
}

/// Runs a client program on one node against a server program on the other.
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
    // The server ends with its client.
    process.wait()?.success()?;
    Ok(())
}

/// Returns the MiB for each copy test of scif_abi.
fn amount(lab: &Lab) -> &'static str {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => "8",
        Flavour::Debug | Flavour::Kcsan => "1",
    }
}

fn exists(lab: &Lab, node: usize, path: &str) -> Result<bool> {
    Ok(lab.exec(node, ["test", "-e", path])?.code() == Some(0))
}

/// Runs a 32-bit program against a 64-bit server on another node.
fn against_64_bit_server(lab: &Lab) -> Result<()> {
    client_and_server(lab, (0, "scif_abi_32"), (1, "scif_abi"), &[amount(lab)])
}

/// Runs a 64-bit program against a 32-bit server on another node.
fn against_32_bit_server(lab: &Lab) -> Result<()> {
    client_and_server(lab, (0, "scif_abi"), (1, "scif_abi_32"), &[amount(lab)])
}

/// Runs two 32-bit processes of one node.
fn loopback_32_bit(lab: &Lab) -> Result<()> {
    run_tap(lab, 0, "scif_abi_32", &["loopback", "2202", amount(lab)])
}

/// Arguments at awkward addresses lose neither data nor connections.
fn awkward_addresses_lose_nothing(lab: &Lab) -> Result<()> {
    run_tap(lab, 1, "scif_arguments", &[])
}

fn awkward_addresses_32_bit(lab: &Lab) -> Result<()> {
    run_tap(lab, 1, "scif_arguments_32", &[])
}

/// Only root may open the devices unless udev says otherwise. The device of the MIC library exists
/// only with its parameter.
fn only_root_opens_devices(lab: &Lab) -> Result<()> {
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

/// Without the parameter the module refuses the numbers of all processes. With the parameter it
/// still refuses those of 32-bit processes.
fn mic_numbers_need_parameter(lab: &Lab) -> Result<()> {
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

/// With the parameter the numbers work within a node, and programs of today work as before.
fn mic_loopback(lab: &Lab) -> Result<()> {
    load_with_mic(lab, 0)?;
    run_tap(lab, 0, "scif_mic_compat", &["loopback", "2203"])?;
    run_tap(lab, 0, "scif_arguments", &[])?;
    scif::check_idle(lab, 0)?;
    lab.rmmod(0, "scif")
}

/// The numbers work between two nodes.
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
    Test::new(
        "scif_compat::only_root_opens_devices",
        ALONE,
        only_root_opens_devices,
    ),
    Test::new(
        "scif_compat::mic_numbers_need_parameter",
        ALONE,
        mic_numbers_need_parameter,
    ),
    Test::new("scif_compat::mic_loopback", ALONE, mic_loopback),
    Test::new("scif_compat::mic_between_nodes", PAIR, mic_between_nodes)
        .leaves_disorder()
        .by_name(),
    Test::new(
        "scif_compat::awkward_addresses_lose_nothing",
        SCIF_PAIR,
        awkward_addresses_lose_nothing,
    ),
    Test::new(
        "scif_compat::awkward_addresses_32_bit",
        SCIF_PAIR,
        awkward_addresses_32_bit,
    ),
    Test::new("scif_compat::loopback_32_bit", SCIF_PAIR, loopback_32_bit)
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
