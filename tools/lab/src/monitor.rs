// SPDX-License-Identifier: GPL-2.0
//! QEMU's monitor (QMP), as far as the lab needs it: stopping a node's processors, which is
//! how a node that hangs looks from outside, and letting them go on.

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

const TIMEOUT: Duration = Duration::from_secs(10);

/// Runs one command without arguments, such as "stop" or "cont".
pub(crate) fn command(socket: &Path, name: &str) -> Result<()> {
    let stream = UnixStream::connect(socket)
        .with_context(|| format!("QEMU's monitor {} does not answer", socket.display()))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    // The greeting.
    read(&mut reader)?;
    execute(&mut reader, "qmp_capabilities")?;
    execute(&mut reader, name)
}

fn execute(reader: &mut BufReader<UnixStream>, name: &str) -> Result<()> {
    let line = format!("{}\n", json!({"execute": name}));
    reader.get_mut().write_all(line.as_bytes())?;
    loop {
        let answer = read(reader)?;
        if let Some(error) = answer.get("error") {
            bail!("QEMU refuses '{name}': {error}");
        }
        // Anything else is an event.
        if answer.get("return").is_some() {
            return Ok(());
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
