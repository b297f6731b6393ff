// SPDX-License-Identifier: GPL-2.0
//! The command `lab`, used as a person types it.

use std::fs;
use std::io::Write;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use lab::Lab;
use lab::wait_until;

use crate::harness::Test;
use crate::need::ONE;

/// A lab that is driven by `lab --name NAME ...` on the host. Dropping the value ends the lab.
struct Commands {
    name: String,
    up: bool,
}

impl Commands {
    fn run(&self, arguments: &[&str], input: &[u8]) -> Result<Output> {
        let program = lab::paths::sibling("lab", None)?;
        let mut child = Command::new(&program)
            .args(["--name", &self.name])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut stdin = child.stdin.take().context("no input")?;
        // A command may end without reading its input.
        let _ = stdin.write_all(input);
        drop(stdin);
        Ok(child.wait_with_output()?)
    }

    /// Runs a command, which must succeed. Returns its output.
    fn ok(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments, b"")?;
        if !output.status.success() {
            bail!(
                "'lab {}' gave {}: {}",
                arguments.join(" "),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs a command, which must fail with this status. Returns its error output.
    fn fails(&self, status: i32, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments, b"")?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.code() == Some(status),
            "'lab {}' gave {} instead of {status}: {error}",
            arguments.join(" "),
            output.status
        );
        Ok(error)
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        if self.up {
            let _ = self.run(&["down"], b"");
        }
    }
}

/// The whole life of a lab, by commands.
fn from_start_to_stop(lab: &Lab) -> Result<()> {
    let mut commands = Commands {
        name: format!("{}-commands", lab.config().name),
        up: false,
    };
    let error = commands.fails(125, &["exec", "0", "--", "true"])?;
    ensure!(error.contains("is not running"), "{error}");
    commands.up = true;
    let kernel = lab.kernel().flavour().name();
    commands.ok(&[
        "up",
        "--nodes",
        "2",
        "--kernel",
        kernel,
        "--weak-order",
        "7",
    ])?;
    let error = commands.fails(125, &["up", "--kernel", kernel])?;
    ensure!(error.contains("is running already"), "{error}");
    ensure!(
        commands
            .ok(&["list"])?
            .lines()
            .any(|name| name == commands.name)
    );

    let output = commands.run(
        &["exec", "1", "--", "sh", "-c", "cat; echo error >&2; exit 7"],
        b"input",
    )?;
    ensure!(output.status.code() == Some(7) && output.stdout == b"input");
    ensure!(output.stderr == b"error\n");
    commands.fails(127, &["exec", "0", "--", "/no/such/program"])?;
    commands.fails(128 + 9, &["exec", "0", "--", "sh", "-c", "kill -9 $$"])?;
    ensure!(
        commands.ok(&[
            "exec",
            "-C",
            "/src",
            "-e",
            "A=b",
            "0",
            "--",
            "sh",
            "-c",
            "echo $A; pwd"
        ])? == "b\n/src\n"
    );

    let folder = lab.paths().folder().join("commands");
    fs::create_dir_all(&folder)?;
    let (there, back) = (folder.join("there"), folder.join("back"));
    let contents = vec![0x5a; 3_000_000];
    fs::write(&there, &contents)?;
    commands.ok(&["push", "0", &there.display().to_string(), "/root/"])?;
    commands.ok(&["pull", "0", "/root/there", &back.display().to_string()])?;
    ensure!(fs::read(&back)? == contents);
    commands.run(&["push", "1", "-", "/root/piped"], b"piped")?;
    ensure!(commands.ok(&["pull", "1", "/root/piped", "-"])? == "piped");

    commands.ok(&["kill", "1"])?;
    let error = commands.fails(125, &["exec", "1", "--", "true"])?;
    ensure!(error.contains("was killed"), "{error}");
    ensure!(commands.ok(&["status"])?.contains("node 1: down"));
    commands.ok(&["restart", "1"])?;
    ensure!(commands.ok(&["exec", "1", "--", "hostname"])? == "node1\n");
    commands.ok(&["link", "down", "0", "1"])?;
    ensure!(
        commands
            .ok(&["status"])?
            .contains("link 0-1: down: unplugged")
    );
    commands.ok(&["link", "up", "0", "1"])?;
    ensure!(commands.ok(&["status"])?.contains("weak, seed 7"));
    commands.ok(&["reseed", "8"])?;
    ensure!(commands.ok(&["status"])?.contains("weak, seed 8"));
    let counters: serde_json::Value = serde_json::from_str(&commands.ok(&["counters", "--json"])?)?;
    ensure!(counters.as_array().is_some_and(|nodes| nodes.len() == 2));
    ensure!(commands.ok(&["counters"])?.contains("trapped reads"));
    ensure!(commands.ok(&["dmesg", "0"])?.contains("Linux version"));
    commands.ok(&["dmesg", "--check", "0"])?;
    ensure!(commands.ok(&["console", "--log", "0"])?.contains("SeaBIOS"));
    let status: serde_json::Value = serde_json::from_str(&commands.ok(&["status", "--json"])?)?;
    let folder = status["folder"]
        .as_str()
        .context("no folder in the status")?;
    let processes = pids(&status);
    ensure!(processes.len() == 4, "these processes: {processes:?}");
    commands.ok(&["down"])?;
    commands.up = false;
    ensure!(!fs::exists(folder)?, "{folder} is left");
    for pid in processes {
        // The owner closes the connection while it exits, so it may still be exiting. Its parent
        // has ended, so another process inherits and reaps it.
        wait_until(
            &format!("the end of process {pid}"),
            lab.hang_limit(10),
            || {
                let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                Ok((state.is_empty() || state.contains(") Z ")).then_some(()))
            },
        )?;
    }
    Ok(())
}

/// Returns the ids of the owner, the emulator and the QEMU processes.
fn pids(status: &serde_json::Value) -> Vec<u64> {
    let nodes = status["nodes"].as_array().into_iter().flatten();
    nodes
        .map(|node| &node["pid"])
        .chain([&status["owner"], &status["emulator"]])
        .filter_map(serde_json::Value::as_u64)
        .collect()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("lab_command::from_start_to_stop", ONE, from_start_to_stop)
        .seconds(180)
        .by_name(),
];
