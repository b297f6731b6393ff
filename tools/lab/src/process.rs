// SPDX-License-Identifier: GPL-2.0
//! Child processes that can't outlive the lab.
//!
//! Every child asks the kernel to kill it when its parent dies (PR_SET_PDEATHSIG). So not even
//! SIGKILL of the lab leaves a QEMU behind. That setting belongs to the parent *thread*, so one
//! thread that lives as long as the process spawns all children. Each child is in a process group
//! of its own: Ctrl-C reaches the lab, which ends the children in order.
//!
//! # Invariants
//! - Only the watcher thread of a child reaps it, and it is signalled only through a pidfd. So no
//!   signal ever hits another process that got the same number.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::process::ChildStdout;
use std::process::Command;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;
use std::sync::Weak;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use rustix::process::Pid;
use rustix::process::PidfdFlags;
use rustix::process::Signal;

use crate::limits::hang_limit;
use crate::lock::lock;

struct Job {
    command: Command,
    reply: mpsc::Sender<io::Result<Child>>,
}

/// Spawns a child from the one long-lived thread.
fn spawn_tied(mut command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let parent = rustix::process::getpid();
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and makes async-signal-safe system
    // calls only; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the line above.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(
                    rustix::io::Errno::SRCH.raw_os_error(),
                ));
            }
            Ok(())
        });
    }
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for mut job in jobs {
                // The receiver waits for the answer; if the receiver is gone, the answer is of no
                // interest.
                let _ = job.reply.send(job.command.spawn());
            }
        });
        sender
    });
    let (reply, answer) = mpsc::channel();
    let gone = || io::Error::other("the thread that spawns processes is gone");
    spawner.send(Job { command, reply }).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

#[derive(Default)]
struct Ended {
    status: Mutex<Option<ExitStatus>>,
    changed: Condvar,
}

struct Shared {
    name: String,
    pid: u32,
    pidfd: OwnedFd,
    ended: Arc<Ended>,
}

/// A running child; dropping it kills and reaps it.
pub struct Supervised {
    shared: Arc<Shared>,
}

/// All children, for [`kill_all`]; and whether there may be more.
static CHILDREN: Mutex<(bool, Vec<Weak<Shared>>)> = Mutex::new((true, Vec::new()));

/// Kills every child and refuses to start another: the process is about to end.
pub(crate) fn kill_all() {
    let children = {
        let mut children = lock(&CHILDREN);
        children.0 = false;
        std::mem::take(&mut children.1)
    };
    let children: Vec<_> = children.iter().filter_map(Weak::upgrade).collect();
    for child in &children {
        child.signal(Signal::KILL);
    }
    for child in &children {
        child.wait(Duration::from_secs(5));
    }
}

impl Supervised {
    /// Starts `command`. Calls `on_exit` in a thread of its own when the child has ended, for
    /// whatever reason. Returns the child's standard output if it is piped.
    pub fn spawn(
        name: &str,
        command: Command,
        on_exit: impl FnOnce(ExitStatus) + Send + 'static,
    ) -> Result<(Supervised, Option<ChildStdout>)> {
        let program = command.get_program().to_string_lossy().into_owned();
        // Held until the child is registered, so that kill_all() misses none.
        let mut children = lock(&CHILDREN);
        if !children.0 {
            bail!("cannot start {program}: the lab is ending");
        }
        let mut child = spawn_tied(command).with_context(|| format!("cannot start {program}"))?;
        let pid = child.id();
        let opened = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| anyhow!("{program} has the impossible pid {pid}"))
            .and_then(|pid| {
                rustix::process::pidfd_open(pid, PidfdFlags::empty())
                    .with_context(|| format!("cannot watch {program} (pidfd_open)"))
            });
        let pidfd = match opened {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        let stdout = child.stdout.take();
        let ended = Arc::new(Ended::default());
        let watched = Arc::clone(&ended);
        thread::spawn(move || {
            let status = child
                .wait()
                .unwrap_or_else(|_| ExitStatus::from_raw(libc_kill_status()));
            *lock(&watched.status) = Some(status);
            watched.changed.notify_all();
            on_exit(status);
        });
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            pid,
            pidfd,
            ended,
        });
        children.1.retain(|child| child.strong_count() > 0);
        children.1.push(Arc::downgrade(&shared));
        Ok((Supervised { shared }, stdout))
    }

    /// Returns the process id, for people.
    pub fn pid(&self) -> u32 {
        self.shared.pid
    }

    /// Returns the exit status, if the child has ended.
    pub fn exited(&self) -> Option<ExitStatus> {
        *lock(&self.shared.ended.status)
    }

    /// Sends a signal; a signal to a child that has ended is no error.
    pub fn signal(&self, signal: Signal) {
        self.shared.signal(signal);
    }

    /// Waits until the child ends, at most `limit`.
    pub fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        self.shared.wait(limit)
    }

    /// Kills the child, and waits until it is gone. A process that the kernel can't end (it hangs
    /// in a system call) is left to the kernel after a while.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
        if self.wait(hang_limit(10)).is_none() {
            eprintln!(
                "lab: {} (pid {}) does not end after SIGKILL; going on without it",
                self.shared.name, self.shared.pid
            );
        }
    }
}

impl Shared {
    fn signal(&self, signal: Signal) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
    }

    fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        let mut status = lock(&self.ended.status);
        while status.is_none() {
            let left = deadline.checked_duration_since(Instant::now())?;
            status = self
                .ended
                .changed
                .wait_timeout(status, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        *status
    }
}

fn libc_kill_status() -> i32 {
    // The status that wait() would report for SIGKILL; only used when wait() itself fails.
    Signal::KILL.as_raw()
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if self.exited().is_none() {
            self.kill();
        }
    }
}

impl fmt::Debug for Supervised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.shared.name, self.shared.pid)
    }
}

/// Returns an exit status for people.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => format!("ended ({status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_child_is_killed() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let (sender, receiver) = mpsc::channel();
        let (child, _) = Supervised::spawn("sleep", command, move |status| {
            sender.send(status).unwrap();
        })
        .unwrap();
        assert!(child.exited().is_none());
        assert!(child.wait(Duration::from_millis(1)).is_none());
        drop(child);
        let status = receiver.recv().unwrap();
        assert_eq!(describe(status), "was ended by signal 9");
    }

    #[test]
    fn exit_status_of_a_child_is_returned() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let (child, _) = Supervised::spawn("sh", command, |_| {}).unwrap();
        let status = child.wait(Duration::from_secs(20)).unwrap();
        assert_eq!(describe(status), "exited with status 3");
    }

    #[test]
    fn missing_program_is_named_in_the_error() {
        let error = Supervised::spawn("x", Command::new("/no/such/program"), |_| {}).unwrap_err();
        assert!(error.to_string().contains("/no/such/program"));
    }
}
