// SPDX-License-Identifier: GPL-2.0
//! `lab console`: this terminal joined with the serial console of a node.
//!
//! QEMU serves one client at a time; a second one waits until the first leaves.

use std::io;
use std::io::IsTerminal;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::termios::OptionalActions;
use rustix::termios::Termios;

use crate::paths::LabPaths;

/// Ctrl-].
const LEAVE: u8 = 0x1d;

/// Joins the terminal with the console until Ctrl-] or the node's end. The end of an input that is
/// no terminal does not end this: the node may still have output.
pub fn attach(name: &str, node: usize) -> Result<()> {
    let socket = LabPaths::new(name)?.console(node);
    let mut console = UnixStream::connect(&socket).with_context(|| {
        format!("node {node} of the lab '{name}' has no console: it does not run")
    })?;
    let stdin = io::stdin();
    let terminal = stdin.is_terminal();
    if terminal {
        eprintln!("[console of node {node}; leave with Ctrl-] , Enter shows a prompt]\r");
    }
    let raw = RawTerminal::enter()?;
    let result = join(&mut console, terminal);
    drop(raw);
    if terminal {
        eprintln!("\n[left the console of node {node}]");
    }
    result
}

fn join(console: &mut UnixStream, terminal: bool) -> Result<()> {
    let mut buffer = [0; 4096];
    let stdin = rustix::stdio::stdin();
    let mut stdout = io::stdout();
    let mut input = true;
    loop {
        let (typed, printed) = {
            let mut poll = [
                PollFd::new(&*console, PollFlags::IN),
                PollFd::new(&stdin, PollFlags::IN),
            ];
            let polled = if input { &mut poll[..] } else { &mut poll[..1] };
            rustix::io::retry_on_intr(|| rustix::event::poll(polled, None))?;
            (!poll[1].revents().is_empty(), !poll[0].revents().is_empty())
        };
        if printed {
            let length = console.read(&mut buffer)?;
            if length == 0 {
                bail!("the console was closed: the node is gone");
            }
            stdout.write_all(&buffer[..length])?;
            stdout.flush()?;
        }
        if typed {
            // Reads without Stdin's buffer: poll() does not see its content.
            let length = rustix::io::retry_on_intr(|| rustix::io::read(stdin, &mut buffer))?;
            if length == 0 {
                input = false;
            }
            let bytes = &buffer[..length];
            match bytes.iter().position(|byte| *byte == LEAVE) {
                Some(_) if terminal => return Ok(()),
                _ => console.write_all(bytes)?,
            }
        }
    }
}

/// The terminal in raw mode. Its former mode comes back on drop.
struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    fn enter() -> Result<RawTerminal> {
        let stdin = rustix::stdio::stdin();
        if !io::stdin().is_terminal() {
            return Ok(RawTerminal { before: None });
        }
        let before =
            rustix::termios::tcgetattr(stdin).context("cannot read the terminal's mode")?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(stdin, OptionalActions::Now, &raw)
            .context("cannot set the terminal's mode")?;
        Ok(RawTerminal {
            before: Some(before),
        })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ =
                rustix::termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}
