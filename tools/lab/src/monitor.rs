// SPDX-License-Identifier: GPL-2.0
//! QEMU's monitor (QMP), as far as the lab needs it: stopping a node's CPUs, which makes the node
//! look hung from outside, letting them go on, finding out where they are, and waking up a node
//! that sleeps.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;
use serde_json::json;

use crate::limits::hang_limit;

const TIMEOUT: Duration = hang_limit(10);

/// Runs one command without arguments, such as "stop" or "cont".
pub(crate) fn command(socket: &Path, name: &str) -> Result<()> {
    let mut monitor = connect(socket)?;
    execute(&mut monitor, &json!({"execute": name}))?;
    Ok(())
}

/// Returns the state of the machine, such as "running", "paused" or "suspended".
pub(crate) fn status(socket: &Path) -> Result<String> {
    let mut monitor = connect(socket)?;
    let answer = execute(&mut monitor, &json!({"execute": "query-status"}))?;
    Ok(answer["status"].as_str().unwrap_or_default().to_owned())
}

/// Runs one command of the monitor for people. Returns its output.
pub(crate) fn human(socket: &Path, line: &str) -> Result<String> {
    let mut monitor = connect(socket)?;
    let request = json!({
        "execute": "human-monitor-command",
        "arguments": {"command-line": line},
    });
    let answer = execute(&mut monitor, &request)?;
    Ok(answer.as_str().unwrap_or_default().to_owned())
}

fn connect(socket: &Path) -> Result<BufReader<UnixStream>> {
    let stream = UnixStream::connect(socket)
        .with_context(|| format!("QEMU's monitor {} does not answer", socket.display()))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut monitor = BufReader::new(stream);
    // QEMU sends a greeting first.
    read(&mut monitor)?;
    execute(&mut monitor, &json!({"execute": "qmp_capabilities"}))?;
    Ok(monitor)
}

fn execute(monitor: &mut BufReader<UnixStream>, request: &Value) -> Result<Value> {
    let line = format!("{request}\n");
    monitor.get_mut().write_all(line.as_bytes())?;
    loop {
        let mut answer = read(monitor)?;
        if let Some(error) = answer.get("error") {
            bail!("QEMU refuses {request}: {error}");
        }
        // Any other line is an event.
        if let Some(value) = answer.get_mut("return") {
            return Ok(value.take());
        }
    }
}

fn read(reader: &mut BufReader<UnixStream>) -> Result<Value> {
    let mut line = String::new();
    let length = reader
        .read_line(&mut line)
        .context("QEMU's monitor does not answer")?;
    if length == 0 {
        bail!("QEMU's monitor hung up");
    }
    serde_json::from_str(&line).context("QEMU's monitor talks nonsense")
}

/// Returns where the CPUs of a guest are, by the symbols in its kernel's `System.map`, for the
/// report of a guest that hangs.
pub(crate) fn processors(socket: &Path, system_map: &Path) -> Result<String> {
    let registers = human(socket, "info registers -a")?;
    let map = std::fs::read_to_string(system_map)
        .with_context(|| format!("cannot read {}", system_map.display()))?;
    let mut processor = "";
    let mut lines = Vec::new();
    for line in registers.lines() {
        if line.starts_with("CPU#") {
            processor = line.trim();
        } else if let Some(pointer) = instruction_pointer(line) {
            let halted = if line.contains("HLT=1") {
                ", halted"
            } else {
                ""
            };
            lines.push(format!("{processor} {}{halted}", symbol(&map, pointer)));
        }
    }
    Ok(lines.join("\n"))
}

/// Parses a line such as "RIP=ffffffff81a0f6ab RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 HLT=1".
fn instruction_pointer(line: &str) -> Option<u64> {
    let digits = line.strip_prefix("RIP=")?.split_whitespace().next()?;
    u64::from_str_radix(digits, 16).ok()
}

/// Returns the last symbol of a sorted map that is not behind the address.
fn symbol(map: &str, address: u64) -> String {
    let mut best = None;
    for line in map.lines() {
        let mut words = line.split_whitespace();
        let start = words
            .next()
            .and_then(|digits| u64::from_str_radix(digits, 16).ok());
        match (start, words.nth(1)) {
            (Some(start), Some(name)) if start <= address => best = Some((start, name)),
            (Some(_), _) => break,
            _ => {}
        }
    }
    match best {
        // This is kernel text; an address far behind a symbol is in user space or in a module.
        Some((start, name)) if address - start < 1 << 20 => {
            format!("in {name}+{:#x}", address - start)
        }
        _ => format!("at {address:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbol_of_an_address_is_found() {
        let map = "ffffffff81000000 T _text\nffffffff81000100 t inner\nffffffff81000200 T last\n";
        assert_eq!(symbol(map, 0xffff_ffff_8100_0110), "in inner+0x10");
        assert_eq!(symbol(map, 0xffff_ffff_8100_0200), "in last+0x0");
        assert_eq!(symbol(map, 0x40_0000), "at 0x400000");
        let line = "RIP=ffffffff81a0f6ab RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1";
        assert_eq!(instruction_pointer(line), Some(0xffff_ffff_81a0_f6ab));
        assert_eq!(instruction_pointer("RAX=0"), None);
    }
}
