// SPDX-License-Identifier: GPL-2.0
//! Process 1 of the guest: forks the worker, reaps what the guest's programs orphan, and powers
//! the guest off when the worker ends, so that a broken agent shows as a dead node rather than
//! as a hang.

use std::process::Command;
use std::thread;

use rustix::process::WaitOptions;
use rustix::system::RebootCommand;

/// The environment variable that tells the worker from process 1.
pub(super) const WORKER: &str = "LAB_AGENT_WORKER";
/// The search path in the environment of commands.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs as process 1, and never returns.
pub(super) fn rule() -> ! {
    let worker = Command::new("/proc/self/exe")
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/root")
        .env("TERM", "vt100")
        .env("LC_ALL", "C.UTF-8")
        .env(WORKER, "1")
        .spawn();
    match worker {
        Ok(worker) => {
            let worker = i64::from(worker.id());
            // Every orphan of the guest ends here, too, of whatever process group.
            loop {
                match rustix::process::wait(WaitOptions::empty()) {
                    Ok(Some((pid, status))) if i64::from(pid.as_raw_nonzero().get()) == worker => {
                        eprintln!("lab-agent: the worker ended ({status:?}): powering off");
                        break;
                    }
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => {
                        eprintln!("lab-agent: wait: {error}: powering off");
                        break;
                    }
                }
            }
        }
        Err(error) => eprintln!("lab-agent: cannot start the worker: {error}: powering off"),
    }
    rustix::fs::sync();
    let _ = rustix::system::reboot(RebootCommand::PowerOff);
    loop {
        thread::park();
    }
}
