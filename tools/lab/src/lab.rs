// SPDX-License-Identifier: GPL-2.0
//! A running lab: its nodes, and the operations on them.
//!
//! [`crate::machines`] has the processes of a lab. [`crate::inspection`] has the reports about its
//! guests' kernels, and [`crate::speed`] measures how fast they are.
//!
//! # Invariants
//! - Dropping the [`Lab`] ends every process and removes every file of it.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use ntb_emulator::control::GuestCounters;
use ntb_emulator::control::State as EmulatorState;
use ntb_emulator::raid::Loot;
use ntb_emulator::raid::Writes as RaidWrites;
use serde_json::Value;

use crate::command::Command;
use crate::command::Output;
use crate::command::Process;
use crate::command::describe;
use crate::config::Config;
use crate::control::Control;
use crate::control::NodeReport;
use crate::control::Report;
use crate::guest::Guest;
use crate::interrupt;
use crate::kernel::Kernel;
use crate::limits;
use crate::machines::Machines;
use crate::monitor;
use crate::paths;
use crate::paths::LabPaths;
use crate::progress::Progress;
use crate::progress::Silent;
use crate::progress::Step;
use crate::qemu::dma_slot;
use crate::server;
use crate::server::Reply;
use crate::server::Served;
use crate::transfer;
use crate::wait::wait_until;
use crate::wire::Outcome;

/// Seconds in which a plain guest boots on an idle machine.
const BOOT: u64 = 30;
/// Seconds in which a command ends there, by default.
const COMMAND: u64 = 60;

/// A file whose content changes each time that a kernel starts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A running lab. Dropping it ends it.
pub struct Lab {
    machines: Arc<Machines>,
    /// Whether dropping this ends the lab. Not set for the handles that serve clients.
    ends: bool,
}

impl Lab {
    /// Starts a lab and returns when every node answers.
    pub fn start(config: Config, progress: &dyn Progress) -> Result<Lab> {
        let started = Instant::now();
        let machines = Arc::new(Machines::prepare(config, progress)?);
        // From here on, an error ends the processes that were started.
        let lab = Lab {
            machines,
            ends: true,
        };
        if lab.config().needs_emulator() {
            progress.step(Step::Now("starting the emulator".to_owned()));
            lab.machines.start_emulator()?;
        }
        lab.boot_all(progress)?;
        let weak = Arc::downgrade(&lab.machines);
        server::serve(&lab.paths().control(), move || {
            Some(Lab {
                machines: weak.upgrade()?,
                ends: false,
            })
        })?;
        progress.step(Step::Done(format!(
            "the lab '{}' is up after {:.1} s",
            lab.config().name,
            started.elapsed().as_secs_f64()
        )));
        Ok(lab)
    }

    fn boot_all(&self, progress: &dyn Progress) -> Result<()> {
        let nodes = self.nodes();
        progress.step(Step::Now(format!("booting {nodes} nodes")));
        let results: Vec<Result<()>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..nodes)
                .map(|node| scope.spawn(move || self.boot(node, self.config(), progress)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err(anyhow!("the thread that boots a node panicked")))
                })
                .collect()
        });
        results.into_iter().collect()
    }

    fn boot(&self, number: usize, config: &Config, progress: &dyn Progress) -> Result<()> {
        self.machines.boot(number, config, self.hang_limit(BOOT))?;
        let engines = (0..config.dma_channels).map(dma_slot);
        if let Some(commands) = config.iommu.preparation(number, engines) {
            self.shell(number, &commands)?;
        }
        let modules = &config.modules;
        if !modules.is_empty() {
            let mut argv = vec!["modprobe".to_owned(), "--all".to_owned()];
            argv.extend(modules.iter().cloned());
            self.exec(number, argv)?.success()?;
        }
        let running = self.machines.node(number)?.running()?;
        progress.step(Step::Done(format!(
            "node {number} is up after {:.1} s (Linux {})",
            running.boot_time.as_secs_f64(),
            running.release
        )));
        Ok(())
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.machines.config
    }

    /// Returns the kernel of the guests.
    pub fn kernel(&self) -> &Kernel {
        &self.machines.kernel
    }

    /// Returns the paths of its files.
    pub fn paths(&self) -> &LabPaths {
        &self.machines.paths
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.machines.config.nodes
    }

    /// Returns the factor by which operations may take longer than on the plain kernel.
    pub fn slowness(&self) -> u32 {
        self.machines.config.kernel.slowness()
    }

    /// Returns the limit after which an operation counts as hung that takes less than `seconds` on
    /// the plain kernel of an idle machine. It is many times as long, and longer on a slower
    /// kernel, but never more than an hour, as people may wait for it. The limit must not be used
    /// to prove a promise: it would hold on any machine.
    pub fn hang_limit(&self, seconds: u64) -> Duration {
        (limits::hang_limit(seconds) * self.slowness()).min(Duration::from_secs(3600))
    }

    /// Returns a node.
    pub fn node(&self, number: usize) -> Node<'_> {
        Node { lab: self, number }
    }

    /// Prepares a command for a node, to be given an input, an environment, more time ...
    pub fn command<S: Into<String>>(
        &self,
        node: usize,
        argv: impl IntoIterator<Item = S>,
    ) -> Result<Command> {
        let argv = argv.into_iter().map(Into::into).collect();
        let guest = self.guest(node)?;
        Ok(Command::new(node, guest, argv, self.hang_limit(COMMAND)))
    }

    /// Runs a command to its end.
    pub fn exec<S: Into<String>>(
        &self,
        node: usize,
        argv: impl IntoIterator<Item = S>,
    ) -> Result<Output> {
        self.command(node, argv)?.run()
    }

    /// Runs a shell script to its end; it must succeed. Returns its output.
    pub fn shell(&self, node: usize, script: &str) -> Result<String> {
        Ok(self
            .exec(node, ["sh", "-e", "-c", script])?
            .success()?
            .stdout())
    }

    /// Starts a command, which is killed when the result is dropped.
    pub fn spawn<S: Into<String>>(
        &self,
        node: usize,
        argv: impl IntoIterator<Item = S>,
    ) -> Result<Process> {
        self.command(node, argv)?.spawn()
    }

    fn guest(&self, node: usize) -> Result<Guest> {
        Ok(self.machines.running(node)?.guest.clone())
    }

    /// Loads a module of the kernel and the modules that it needs, unless it is loaded.
    pub fn load(&self, node: usize, name: &str) -> Result<()> {
        self.load_with(node, name, "")
    }

    /// Loads a module with parameters like "a=1 b=2".
    pub fn load_with(&self, node: usize, name: &str, parameters: &str) -> Result<()> {
        let mut argv = vec!["modprobe", name];
        argv.extend(parameters.split_whitespace());
        self.exec(node, argv)?.success()?;
        Ok(())
    }

    /// Loads a module from a file that guests see, with parameters like "a=1 b=2".
    pub fn insmod(&self, node: usize, path: impl AsRef<Path>, parameters: &str) -> Result<()> {
        let path = path.as_ref();
        paths::visible_in_guests(path)?;
        let mut argv = vec!["insmod".to_owned(), path.display().to_string()];
        argv.extend(parameters.split_whitespace().map(str::to_owned));
        self.exec(node, argv)?.success()?;
        Ok(())
    }

    /// Unloads a module.
    pub fn rmmod(&self, node: usize, name: &str) -> Result<()> {
        self.exec(node, ["rmmod", name])?.success()?;
        Ok(())
    }

    /// Copies a file of the host into a node, with its mode.
    pub fn push(&self, local: &Path, node: usize, remote: &str) -> Result<()> {
        transfer::push(
            node,
            self.guest(node)?,
            local,
            remote,
            self.hang_limit(COMMAND),
        )
        .with_context(|| format!("cannot copy {} to node {node}", local.display()))
    }

    /// Copies a file of a node to the host, with its mode.
    pub fn pull(&self, node: usize, remote: &str, local: &Path) -> Result<()> {
        transfer::pull(
            node,
            self.guest(node)?,
            remote,
            local,
            self.hang_limit(COMMAND),
        )
        .with_context(|| format!("cannot copy {remote} from node {node}"))
    }

    /// Reads a small file of a node. No process is started for that: a kernel with debugging may
    /// take a second for one.
    fn read(&self, node: usize, path: &str) -> Result<Output> {
        let limit = self.hang_limit(COMMAND);
        transfer::read(node, self.guest(node)?, path, limit)
    }

    /// Kills a node as a power failure would.
    pub fn kill(&self, node: usize) -> Result<()> {
        self.machines.node(node)?.kill();
        Ok(())
    }

    /// Kills a node if it runs and boots it again, with the same memory and devices.
    pub fn restart(&self, node: usize) -> Result<()> {
        self.kill(node)?;
        self.boot(node, self.config(), &Silent)
    }

    /// Restarts a node without a word of the configured kernel command line.
    pub fn restart_without(&self, node: usize, word: &str) -> Result<()> {
        let mut config = self.config().clone();
        let words = config.append.len();
        config.append.retain(|each| each != word);
        if config.append.len() == words {
            bail!("the lab has not put the word '{word}' on the kernel's command line");
        }
        self.kill(node)?;
        self.boot(node, &config, &Silent)
    }

    /// Returns a number that no other start of a node's kernel has.
    pub fn boot_id(&self, node: usize) -> Result<String> {
        self.node(node).read(BOOT_ID)
    }

    /// Waits until the kernel of `boot_id` has started another kernel in its place (kexec), which
    /// has only loaded the modules that it needs itself.
    pub fn wait_for_next_kernel(&self, node: usize, boot_id: &str) -> Result<()> {
        wait_until("the next kernel is up", self.hang_limit(BOOT), || {
            // A request to an agent that is about to go gets lost, so the wait for an answer is
            // short.
            let limit = limits::hang_limit(1);
            if self.machines.node(node)?.greet_again(limit).is_err() {
                return Ok(None);
            }
            let now = self.spawn(node, ["cat", BOOT_ID])?.wait_timeout(limit)?;
            Ok(now.filter(|now| now.code() == Some(0) && now.stdout() != boot_id))
        })?;
        Ok(())
    }

    /// Returns the initramfs that the nodes boot.
    pub fn initramfs(&self) -> &Path {
        self.machines.initramfs()
    }

    /// Stops the CPUs of a node: from outside the node seems to hang.
    pub fn pause(&self, node: usize) -> Result<()> {
        self.machines.running(node)?;
        monitor::command(&self.machines.paths.monitor(node), "stop")
    }

    /// Lets a paused node go on.
    pub fn resume(&self, node: usize) -> Result<()> {
        self.machines.running(node)?;
        monitor::command(&self.machines.paths.monitor(node), "cont")
    }

    /// Waits until a node is suspended to RAM.
    pub fn wait_until_asleep(&self, node: usize) -> Result<()> {
        self.machines.running(node)?;
        let monitor = self.machines.paths.monitor(node);
        wait_until("the node is suspended", self.hang_limit(60), || {
            Ok((monitor::status(&monitor)? == "suspended").then_some(()))
        })
    }

    /// Waits until a node is suspended to RAM, and wakes it up.
    pub fn wake(&self, node: usize) -> Result<()> {
        self.wait_until_asleep(node)?;
        monitor::command(&self.machines.paths.monitor(node), "system_wakeup")
    }

    /// Presses a node's power button, which wakes up a node that is suspended to idle.
    pub fn press_power_button(&self, node: usize) -> Result<()> {
        self.machines.running(node)?;
        monitor::command(&self.machines.paths.monitor(node), "system_powerdown")
    }

    /// Returns whether a node's guest answers, as far as the host can see.
    pub fn is_running(&self, node: usize) -> bool {
        self.machines.running(node).is_ok()
    }

    /// Returns where a node's CPUs are, for the report of a node that hangs; empty if the node does
    /// not run.
    pub fn processors(&self, node: usize) -> String {
        self.machines
            .node(node)
            .map(|found| found.processors(self.kernel()))
            .unwrap_or_default()
    }

    /// Returns the state of the lab.
    pub fn report(&self) -> Result<Report> {
        let machines = &self.machines;
        let nodes = (0..self.nodes())
            .map(|number| match machines.running(number) {
                Ok(running) => NodeReport {
                    number,
                    state: "running".to_owned(),
                    reason: None,
                    pid: Some(running.qemu.pid()),
                    kernel: Some(running.release.clone()),
                    boot_seconds: Some(running.boot_time.as_secs_f64()),
                    up_seconds: Some(running.since.elapsed().as_secs_f64()),
                },
                Err(error) => NodeReport {
                    number,
                    state: "down".to_owned(),
                    reason: Some(error.to_string()),
                    pid: None,
                    kernel: None,
                    boot_seconds: None,
                    up_seconds: None,
                },
            })
            .collect();
        let state = match machines.emulator_pid() {
            // If the emulator is gone, the state of the nodes says so.
            Some(_) => self.emulator_state().unwrap_or_default(),
            None => EmulatorState::default(),
        };
        let mut config = machines.config.clone();
        if let (Some(order), Some(seed)) = (&mut config.weak_order, state.seed) {
            order.seed = seed;
        }
        Ok(Report {
            config,
            owner: std::process::id(),
            emulator: machines.emulator_pid(),
            folder: machines.paths.folder().to_owned(),
            exchange: machines.paths.exchange(),
            nodes,
            links: state.links,
        })
    }

    /// Plugs in or pulls the link between two nodes.
    pub fn set_link(&self, a: usize, b: usize, up: bool) -> Result<()> {
        let pair = (a.min(b), a.max(b));
        if !self.machines.config.links().contains(&pair) {
            bail!(
                "there is no link between the nodes {a} and {b} of the lab '{}'",
                self.machines.config.name
            );
        }
        self.machines.emulator_client()?.link(a, b, up)
    }

    /// Returns the emulator's counters of each node since the start or the last reset.
    pub fn counters(&self) -> Result<Vec<GuestCounters>> {
        self.machines.emulator_client()?.counters()
    }

    /// Sets all counters to zero.
    pub fn reset_counters(&self) -> Result<()> {
        self.machines.emulator_client()?.reset_counters()
    }

    /// Goes through the windows that lead from one node into another, like an attacker.
    pub fn raid(&self, from: usize, into: usize, writes: RaidWrites) -> Result<Loot> {
        self.machines.emulator_client()?.raid(from, into, writes)
    }

    /// Makes the order of writes follow from another seed from now on.
    pub fn reseed(&self, seed: u64) -> Result<()> {
        if self.config().weak_order.is_none() {
            bail!(
                "the lab '{}' reorders nothing, so there is no seed to change: start it with --weak-order SEED",
                self.config().name
            );
        }
        self.machines.emulator_client()?.reseed(seed)
    }

    /// Returns which guests are connected to the emulator, and which links are up.
    pub fn emulator_state(&self) -> Result<EmulatorState> {
        self.machines.emulator_client()?.state()
    }

    /// Allows clients to end this process from now on.
    pub(crate) fn allow_down(&self) {
        self.machines.allow_down();
    }
}

impl Served for Lab {
    fn answer(&self, request: Control) -> Result<Reply> {
        match request {
            Control::Open { node, request } => {
                return Ok(Reply::Channel(self.guest(node)?, request));
            }
            Control::Down if self.machines.may_go_down() => {
                // The client learns by the end of the connection that the lab is gone.
                self.machines.stop();
                interrupt::end(0);
            }
            Control::Down => bail!(
                "this lab belongs to the program with pid {}: end that",
                std::process::id()
            ),
            Control::Report => return Ok(Reply::Value(serde_json::to_value(self.report()?)?)),
            Control::Counters => return Ok(Reply::Value(serde_json::to_value(self.counters()?)?)),
            Control::Kill { node } => self.kill(node)?,
            Control::Restart { node } => self.restart(node)?,
            Control::Pause { node } => self.pause(node)?,
            Control::Resume { node } => self.resume(node)?,
            Control::Reseed { seed } => self.reseed(seed)?,
            Control::Link { a, b, up } => self.set_link(a, b, up)?,
        }
        Ok(Reply::Value(Value::Null))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.ends {
            self.machines.stop();
        }
    }
}

/// A node of a lab.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    lab: &'a Lab,
    number: usize,
}

impl Node<'_> {
    /// Returns the number.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Runs a command to its end, see [`Lab::exec`].
    pub fn exec<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Output> {
        self.lab.exec(self.number, argv)
    }

    /// Runs a shell script, see [`Lab::shell`].
    pub fn shell(&self, script: &str) -> Result<String> {
        self.lab.shell(self.number, script)
    }

    /// Starts a command, see [`Lab::spawn`].
    pub fn spawn<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Process> {
        self.lab.spawn(self.number, argv)
    }

    /// Loads a module of the kernel, see [`Lab::load`].
    pub fn load(&self, name: &str) -> Result<()> {
        self.lab.load(self.number, name)
    }

    /// Loads a module from a file, see [`Lab::insmod`].
    pub fn insmod(&self, path: impl AsRef<Path>, parameters: &str) -> Result<()> {
        self.lab.insmod(self.number, path, parameters)
    }

    /// Unloads a module, see [`Lab::rmmod`].
    pub fn rmmod(&self, name: &str) -> Result<()> {
        self.lab.rmmod(self.number, name)
    }

    /// Returns the kernel log, see [`Lab::dmesg`].
    pub fn dmesg(&self) -> Result<String> {
        self.lab.dmesg(self.number)
    }

    /// Reads a small file of the guest, for example one in sysfs or debugfs.
    pub fn read(&self, path: &str) -> Result<String> {
        let output = self.lab.read(self.number, path)?;
        match output.outcome {
            Outcome::File { .. } => Ok(output.stdout()),
            other => bail!("node {}: {}", self.number, describe(&other)),
        }
    }

    /// Reads a small file of the guest. `None` if there is no such file, or it can't be read now.
    pub fn read_if_there(&self, path: &str) -> Result<Option<String>> {
        let output = self.lab.read(self.number, path)?;
        match output.outcome {
            Outcome::File { .. } => Ok(Some(output.stdout())),
            Outcome::Failed { .. } => Ok(None),
            other => bail!("node {}: {}", self.number, describe(&other)),
        }
    }

    /// Writes a small file of the guest in one piece.
    pub fn write(&self, path: &str, contents: &str) -> Result<()> {
        self.lab
            .command(self.number, ["dd", &format!("of={path}"), "status=none"])?
            .stdin(contents)
            .run()?
            .success()?;
        Ok(())
    }
}
