// SPDX-License-Identifier: GPL-2.0
//! QEMU's stub for debuggers, as far as the lab needs it: a breakpoint, and single steps. It uses
//! the remote serial protocol of GDB. By default no interrupt and no timer comes within a step.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;

use crate::limits::hang_limit;
use crate::monitor;
use crate::paths::LabPaths;

const TIMEOUT: Duration = hang_limit(20);

/// The number of RIP in the protocol.
const INSTRUCTION_POINTER: &str = "p10";

/// A guest that is stopped, unless it is told to go on. Dropping this lets the guest go on.
pub(crate) struct Debugger {
    stream: BufReader<UnixStream>,
    monitor: PathBuf,
    /// The CPU that has stopped, as the protocol names it.
    thread: String,
}

impl Debugger {
    /// Stops a node and attaches to it.
    pub(crate) fn attach(paths: &LabPaths, node: usize) -> Result<Debugger> {
        let (monitor, socket) = (paths.monitor(node), paths.debugger(node));
        let address = socket.display();
        monitor::human(
            &monitor,
            &format!("gdbserver unix:{address},server=on,wait=off"),
        )?;
        let stream = UnixStream::connect(&socket)
            .with_context(|| format!("QEMU's debugger {address} does not answer"))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Debugger {
            stream: BufReader::new(stream),
            monitor,
            thread: String::new(),
        })
    }

    /// Lets the guest run until one of its CPUs reaches an address, after `skip` times that do not
    /// count.
    pub(crate) fn run_to(&mut self, address: u64, skip: usize) -> Result<()> {
        self.order(&format!("Z1,{address:x},1"))?;
        for _ in 0..=skip {
            self.go("vCont;c")?;
        }
        self.order(&format!("z1,{address:x},1"))
    }

    /// Makes the stopped CPU run one instruction.
    pub(crate) fn step(&mut self) -> Result<()> {
        self.go(&format!("vCont;s:{}", self.thread))
    }

    /// Returns the address where the stopped CPU is.
    pub(crate) fn instruction_pointer(&mut self) -> Result<u64> {
        let answer = self.ask(INSTRUCTION_POINTER)?;
        let number = u64::from_str_radix(&answer, 16)
            .with_context(|| format!("QEMU's debugger says '{answer}'"))?;
        Ok(number.swap_bytes())
    }

    fn go(&mut self, packet: &str) -> Result<()> {
        let answer = self.ask(packet)?;
        // The answer looks like "T05thread:01;".
        let thread = answer
            .split_once("thread:")
            .and_then(|(_, rest)| rest.split_once(';'));
        let (thread, _) = thread.with_context(|| format!("the guest has stopped: '{answer}'"))?;
        self.thread = thread.to_owned();
        Ok(())
    }

    fn order(&mut self, packet: &str) -> Result<()> {
        let answer = self.ask(packet)?;
        ensure!(
            answer == "OK",
            "QEMU's debugger answers {packet} with '{answer}'"
        );
        Ok(())
    }

    fn ask(&mut self, packet: &str) -> Result<String> {
        let sum = packet.bytes().fold(0_u8, u8::wrapping_add);
        write!(self.stream.get_mut(), "${packet}#{sum:02x}")?;
        let mut before = Vec::new();
        self.stream.read_until(b'$', &mut before)?;
        let mut answer = Vec::new();
        self.stream.read_until(b'#', &mut answer)?;
        if answer.pop() != Some(b'#') {
            bail!("QEMU's debugger hung up");
        }
        let mut sum = [0; 2];
        self.stream.read_exact(&mut sum)?;
        self.stream.get_mut().write_all(b"+")?;
        Ok(String::from_utf8(answer)?)
    }
}

impl Drop for Debugger {
    fn drop(&mut self) {
        // A caller that needs an error has one already, or sees that the node stands still.
        let _ = self.ask("D");
        let _ = monitor::human(&self.monitor, "gdbserver none");
    }
}
