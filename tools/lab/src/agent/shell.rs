// SPDX-License-Identifier: GPL-2.0
//! The shell on the serial console, for `lab console`. Started again when it ends.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use super::init::WORKER;

const CONSOLE: &str = "/dev/ttyS0";

/// Runs the shell again and again, and never returns.
pub(super) fn serve_console() {
    loop {
        if let Err(error) = run_shell() {
            eprintln!("lab-agent: no shell on {CONSOLE}: {error}");
            thread::sleep(Duration::from_secs(10));
        }
        thread::sleep(Duration::from_millis(500));
    }
}

fn run_shell() -> io::Result<()> {
    let console = OpenOptions::new().read(true).write(true).open(CONSOLE)?;
    let mut command = Command::new("/bin/bash");
    command
        .args(["--norc", "--noprofile"])
        .env_remove(WORKER)
        .env("PS1", "\\h:\\w# ")
        .current_dir("/root")
        .stdin(Stdio::from(console.try_clone()?))
        .stdout(Stdio::from(console.try_clone()?))
        .stderr(Stdio::from(console));
    // SAFETY: both are plain system calls, allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            Ok(())
        });
    }
    command.spawn()?.wait()?;
    Ok(())
}
