// SPDX-License-Identifier: GPL-2.0
//! `lab exec` in the guest: a command in a process group of its own, its streams pumped to and
//! from the lab.

use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;

use rustix::process::WaitId;
use rustix::process::WaitIdOptions;

use super::channel::Channel;
use super::init::WORKER;
use crate::wire::Exec;
use crate::wire::Kind;
use crate::wire::Outcome;

/// Runs a command to its end.
pub(super) fn run(channel: &Arc<Channel>, exec: Exec) -> io::Result<Outcome> {
    let Some((program, arguments)) = exec.argv.split_first() else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "no command given",
        ));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove(WORKER)
        .envs(exec.env)
        .current_dir(exec.cwd.as_deref().unwrap_or("/root"))
        .stdin(if exec.stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn()?;
    let pid = channel.started(&child);

    if let Some(mut stdin) = child.stdin.take() {
        let channel = Arc::clone(channel);
        thread::spawn(move || {
            while let Some(bytes) = channel.next_input() {
                if stdin.write_all(&bytes).is_err() {
                    // The command has closed its input: the rest is thrown away, so that the lab is
                    // not left without credit.
                    while channel.next_input().is_some() {}
                    break;
                }
            }
        });
    }
    let pump = |from: Option<Box<dyn Read + Send>>, kind| {
        let channel = Arc::clone(channel);
        thread::spawn(move || {
            if let Some(from) = from {
                if let Err(error) = channel.pump_out(from, kind) {
                    eprintln!("lab-agent: cannot read a command's output: {error}");
                }
            }
        })
    };
    let stdout = child.stdout.take();
    let stderr = child.stderr.take();
    let out = pump(stdout.map(|s| Box::new(s) as Box<_>), Kind::Stdout);
    let err = pump(stderr.map(|s| Box::new(s) as Box<_>), Kind::Stderr);
    // Waits without reaping first: until the channel reaps the child, its number must stay ours.
    if let Some(pid) = pid {
        let _ = rustix::io::retry_on_intr(|| {
            rustix::process::waitid(
                WaitId::Pid(pid),
                WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
            )
        });
    }
    // As with ssh, the request lasts until no process holds the output any more. A signal still
    // reaches the rest of the group meanwhile, as the leader is not reaped yet.
    let _ = out.join();
    let _ = err.join();
    let status = channel.reap(&mut child)?;
    // The end of the input lets the input thread end.
    channel.input(None);
    Ok(match (status.code(), status.signal()) {
        (Some(code), _) => Outcome::Exited(code),
        (None, signal) => Outcome::Signaled(signal.unwrap_or(0)),
    })
}
