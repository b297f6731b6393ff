// SPDX-License-Identifier: GPL-2.0
//! A running lab: its emulator and its nodes, and all that can be done with them.
//!
//! # Invariants
//! - The emulator is started before the first QEMU and stopped after the last.
//! - Dropping the [`Lab`] ends every process and removes every file of it.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use ntb_emulator::control::Client;
use ntb_emulator::control::GuestCounters;
use ntb_emulator::control::State as EmulatorState;
use serde_json::Value;

use crate::command::Command;
use crate::command::Output;
use crate::command::Process;
use crate::config::Config;
use crate::config::Flavour;
use crate::control::Control;
use crate::control::NodeReport;
use crate::control::Report;
use crate::emulator::Emulator;
use crate::error::Error;
use crate::guest::Guest;
use crate::initramfs;
use crate::interrupt;
use crate::kernel::Kernel;
use crate::kernel_log;
use crate::kunit::KunitResults;
use crate::limits;
use crate::lock;
use crate::monitor;
use crate::node;
use crate::paths;
use crate::paths::Claim;
use crate::paths::LabPaths;
use crate::progress::Progress;
use crate::progress::Silent;
use crate::progress::Step;
use crate::qemu::Machine;
use crate::server;
use crate::server::Reply;
use crate::server::Served;
use crate::transfer;

/// Within how many seconds a plain guest has booted on an idle machine.
const BOOT: u64 = 30;
/// Within how many seconds a command has ended there, if nobody says otherwise.
const COMMAND: u64 = 60;

struct Inner {
    config: Config,
    kernel: Kernel,
    initramfs: PathBuf,
    agent: PathBuf,
    nodes: Vec<node::Node>,
    topology: ntb_emulator::config::Topology,
    emulator: OnceLock<Emulator>,
    memory: PathBuf,
    paths: LabPaths,
    may_go_down: AtomicBool,
    /// Taken when the lab is stopped.
    claim: Mutex<Option<Claim>>,
}

/// A running lab. Dropping it ends it.
pub struct Lab {
    inner: Arc<Inner>,
    /// Not set for the handles of clients that are being served.
    ends: bool,
}

impl Lab {
    /// Starts a lab and returns when every node answers.
    pub fn start(config: Config, progress: &dyn Progress) -> Result<Lab> {
        config.check()?;
        paths::require_environment()?;
        let started = Instant::now();
        let paths = LabPaths::new(&config.name)?;
        let agent = paths::sibling("lab-agent", config.agent.as_deref())?;
        visible_in_guests(&agent)?;
        let claim = paths.claim(&config.name)?;
        progress.step(Step::Now(format!(
            "looking for the {} kernel",
            config.kernel.name()
        )));
        let kernel = Kernel::ensure(config.kernel)?;
        let initramfs = initramfs::ensure(paths::cache(), &kernel)?;
        let memory = paths.memory();
        fs::create_dir_all(&memory).with_context(|| format!("cannot make {}", memory.display()))?;
        interrupt::register(&memory);
        let ram_files = (0..config.nodes)
            .map(|node| memory.join(format!("ram-{node}")))
            .collect();
        let topology = config.emulated(paths.folder(), ram_files);
        topology.validate()?;
        let inner = Arc::new(Inner {
            nodes: (0..config.nodes)
                .map(|number| node::Node::new(number, paths.clone()))
                .collect(),
            config,
            kernel,
            initramfs,
            agent,
            topology,
            emulator: OnceLock::new(),
            memory,
            paths,
            may_go_down: AtomicBool::new(false),
            claim: Mutex::new(Some(claim)),
        });
        // From here on, an error ends what was started.
        let lab = Lab { inner, ends: true };
        if lab.inner.config.needs_emulator() {
            progress.step(Step::Now("starting the emulator".to_owned()));
            lab.start_emulator()?;
        }
        lab.boot_all(progress)?;
        let weak = Arc::downgrade(&lab.inner);
        server::serve(&lab.inner.paths.control(), move || {
            Some(Lab {
                inner: weak.upgrade()?,
                ends: false,
            })
        })?;
        progress.step(Step::Done(format!(
            "the lab '{}' is up after {:.1} s",
            lab.inner.config.name,
            started.elapsed().as_secs_f64()
        )));
        Ok(lab)
    }

    fn start_emulator(&self) -> Result<()> {
        let inner = &self.inner;
        let weak = Arc::downgrade(inner);
        let emulator = Emulator::start(&inner.config, &inner.paths, &inner.topology, move |_| {
            // Guests whose devices are gone are of no use, and may hang.
            if let Some(inner) = Weak::upgrade(&weak) {
                for node in &inner.nodes {
                    node.kill();
                }
            }
        })?;
        inner
            .emulator
            .set(emulator)
            .map_err(|_| anyhow!("the emulator was started twice"))
    }

    fn boot_all(&self, progress: &dyn Progress) -> Result<()> {
        let nodes = self.nodes();
        progress.step(Step::Now(format!("booting {nodes} nodes")));
        let results: Vec<Result<()>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..nodes)
                .map(|node| scope.spawn(move || self.boot(node, progress)))
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

    fn boot(&self, number: usize, progress: &dyn Progress) -> Result<()> {
        let inner = &self.inner;
        let node = inner.node(number)?;
        let machine = Machine {
            node: number,
            config: &inner.config,
            paths: &inner.paths,
            kernel: &inner.kernel,
            initramfs: &inner.initramfs,
            agent: &inner.agent,
            ram: &inner.topology.guests[number].ram_file,
            ntbs: inner.topology.ntb_sockets(number),
            dmas: inner.topology.dma_sockets(number),
        };
        inner.check_emulator()?;
        node.boot(&machine, self.hang_limit(BOOT))
            .map_err(|error| inner.blame_emulator(error))?;
        if !inner.config.modules.is_empty() {
            let mut argv = vec!["modprobe".to_owned(), "--all".to_owned()];
            argv.extend(inner.config.modules.iter().cloned());
            self.exec(number, argv)?.success()?;
        }
        let running = inner.node(number)?.running()?;
        progress.step(Step::Done(format!(
            "node {number} is up after {:.1} s (Linux {})",
            running.boot_time.as_secs_f64(),
            running.release
        )));
        Ok(())
    }

    /// What was asked for.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The kernel of the guests.
    pub fn kernel(&self) -> &Kernel {
        &self.inner.kernel
    }

    /// Where its files are.
    pub fn paths(&self) -> &LabPaths {
        &self.inner.paths
    }

    /// How many nodes it has.
    pub fn nodes(&self) -> usize {
        self.inner.config.nodes
    }

    /// How much longer things may take than on the plain kernel.
    pub fn slowness(&self) -> u32 {
        self.inner.config.kernel.slowness()
    }

    /// The limit after which something is taken for hung that takes less than `seconds` on
    /// the plain kernel of an idle machine: many times as long, and longer on a slower
    /// kernel, but never more than an hour: whoever waits is a person, too. Not for what
    /// proves a promise: it would hold on any machine.
    pub fn hang_limit(&self, seconds: u64) -> Duration {
        (limits::hang_limit(seconds) * self.slowness()).min(Duration::from_secs(3600))
    }

    /// One node.
    pub fn node(&self, number: usize) -> Node<'_> {
        Node { lab: self, number }
    }

    /// A command for a node, to be given an input, an environment, more time ...
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

    /// Starts a command that is killed when the result is dropped.
    pub fn spawn<S: Into<String>>(
        &self,
        node: usize,
        argv: impl IntoIterator<Item = S>,
    ) -> Result<Process> {
        self.command(node, argv)?.spawn()
    }

    fn guest(&self, node: usize) -> Result<Guest> {
        Ok(self.inner.running(node)?.guest.clone())
    }

    /// Loads a module of the kernel and what it needs, unless it is loaded.
    pub fn load(&self, node: usize, name: &str) -> Result<()> {
        self.load_with(node, name, "")
    }

    /// The same with parameters like "a=1 b=2".
    pub fn load_with(&self, node: usize, name: &str, parameters: &str) -> Result<()> {
        let mut argv = vec!["modprobe", name];
        argv.extend(parameters.split_whitespace());
        self.exec(node, argv)?.success()?;
        Ok(())
    }

    /// Loads a module from a file that guests see, with parameters like "a=1 b=2".
    pub fn insmod(&self, node: usize, path: impl AsRef<Path>, parameters: &str) -> Result<()> {
        let path = path.as_ref();
        visible_in_guests(path)?;
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

    /// Kills a node as a power failure would.
    pub fn kill(&self, node: usize) -> Result<()> {
        self.inner.node(node)?.kill();
        Ok(())
    }

    /// Kills a node if it runs and boots it again, with the same memory and devices.
    pub fn restart(&self, node: usize) -> Result<()> {
        self.kill(node)?;
        self.boot(node, &Silent)
    }

    /// Stops the processors of a node: from outside it looks like one that hangs.
    pub fn pause(&self, node: usize) -> Result<()> {
        self.inner.running(node)?;
        monitor::command(&self.inner.paths.monitor(node), "stop")
    }

    /// Lets a paused node go on.
    pub fn resume(&self, node: usize) -> Result<()> {
        self.inner.running(node)?;
        monitor::command(&self.inner.paths.monitor(node), "cont")
    }

    /// Whether a node's guest answers, as far as one can see from here.
    pub fn is_running(&self, node: usize) -> bool {
        self.inner.running(node).is_ok()
    }

    /// The kernel log of a node, as `dmesg --raw` prints it.
    pub fn dmesg(&self, node: usize) -> Result<String> {
        Ok(self.exec(node, ["dmesg", "--raw"])?.success()?.stdout())
    }

    /// Where a node's processors are, for the story of one that hangs; empty if it does not
    /// run.
    pub fn processors(&self, node: usize) -> String {
        self.inner
            .node(node)
            .map(|found| found.processors(&self.inner.kernel))
            .unwrap_or_default()
    }

    /// What a node's console printed since the lab was started.
    pub fn console(&self, node: usize) -> String {
        let log = fs::read(self.inner.paths.console_log(node)).unwrap_or_default();
        crate::printable(&String::from_utf8_lossy(&log))
    }

    /// Writes a line into a node's kernel log; [`Lab::check_kernel_log`] looks at what
    /// follows the last one.
    pub fn mark_kernel_log(&self, node: usize, text: &str) -> Result<()> {
        // Without the newline the kernel would hold the line back, for more to come.
        let line = format!("{}{text}\n", kernel_log::MARK);
        self.command(node, ["sh", "-c", "cat >/dev/kmsg"])?
            .stdin(line)
            .run()?
            .success()?;
        Ok(())
    }

    /// An error if a node's kernel reported anything since the last mark.
    pub fn check_kernel_log(&self, node: usize) -> Result<()> {
        self.check_kernel_log_except(node, &[])
    }

    /// The same, where reports whose first line contains one of `expected` do not count.
    pub fn check_kernel_log_except(&self, node: usize, expected: &[&str]) -> Result<()> {
        let log = self.dmesg(node)?;
        let reports = kernel_log::scan(kernel_log::since_mark(&log), expected);
        if reports.is_empty() {
            return Ok(());
        }
        Err(anyhow!(Error::KernelLog { node, reports }))
    }

    /// Forgets the leaks that are known. Nothing on the plain kernel.
    pub fn clear_kmemleak(&self, node: usize) -> Result<()> {
        if self.inner.config.kernel == Flavour::Debug {
            self.shell(node, "echo clear >/sys/kernel/debug/kmemleak")?;
        }
        Ok(())
    }

    /// Lets the kernel look for leaked memory and returns its report; empty on the plain
    /// kernel. Takes ten seconds and more: kmemleak ignores what is younger than five, and
    /// believes in a leak only when it sees it twice.
    pub fn kmemleak(&self, node: usize) -> Result<String> {
        if self.inner.config.kernel != Flavour::Debug {
            return Ok(String::new());
        }
        let file = "/sys/kernel/debug/kmemleak";
        let script = format!("sleep 6; echo scan >{file}; sleep 6; echo scan >{file}; cat {file}");
        Ok(self
            .command(node, ["sh", "-e", "-c", &script])?
            .timeout(self.hang_limit(75))
            .run()?
            .success()?
            .stdout())
    }

    /// How many pages were pinned for long and released again since boot.
    pub fn pins(&self, node: usize) -> Result<Pins> {
        let text = self
            .exec(node, ["cat", "/proc/vmstat"])?
            .success()?
            .stdout();
        let counter = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
                .with_context(|| format!("node {node}: /proc/vmstat has no {name}"))
        };
        Ok(Pins {
            acquired: counter("nr_foll_pin_acquired ")?,
            released: counter("nr_foll_pin_released ")?,
        })
    }

    /// The results of a node's KUnit suites whose name begins with `prefix`.
    pub fn kunit(&self, node: usize, prefix: &str) -> Result<KunitResults> {
        let folder = "/sys/kernel/debug/kunit";
        let mut results = KunitResults::default();
        for suite in self.exec(node, ["ls", folder])?.success()?.stdout().lines() {
            if suite.starts_with(prefix) {
                results.add(&self.node(node).read(&format!("{folder}/{suite}/results"))?);
            }
        }
        Ok(results)
    }

    /// What there is and how it is doing.
    pub fn report(&self) -> Result<Report> {
        let inner = &self.inner;
        let nodes = (0..self.nodes())
            .map(|number| match inner.running(number) {
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
        Ok(Report {
            config: inner.config.clone(),
            owner: std::process::id(),
            emulator: inner.emulator.get().map(Emulator::pid),
            folder: inner.paths.folder().to_owned(),
            exchange: inner.paths.exchange(),
            nodes,
            links: match inner.emulator.get() {
                // If it is gone, the nodes say so.
                Some(_) => self
                    .emulator_state()
                    .map(|state| state.links)
                    .unwrap_or_default(),
                None => Vec::new(),
            },
        })
    }

    /// Plugs in or pulls the link between two nodes.
    pub fn set_link(&self, a: usize, b: usize, up: bool) -> Result<()> {
        let pair = (a.min(b), a.max(b));
        if !self.inner.config.links().contains(&pair) {
            bail!(
                "there is no link between the nodes {a} and {b} of the lab '{}'",
                self.inner.config.name
            );
        }
        self.emulator()?.link(a, b, up)
    }

    /// What the emulator counted of each node since the start or the last reset.
    pub fn counters(&self) -> Result<Vec<GuestCounters>> {
        self.emulator()?.counters()
    }

    /// Sets all counters to zero.
    pub fn reset_counters(&self) -> Result<()> {
        self.emulator()?.reset_counters()
    }

    /// Who is connected to the emulator, and which links are up.
    pub fn emulator_state(&self) -> Result<EmulatorState> {
        self.emulator()?.state()
    }

    fn emulator(&self) -> Result<Client> {
        let inner = &self.inner;
        inner.check_emulator()?;
        inner
            .emulator
            .get()
            .with_context(|| format!("the lab '{}' has no emulated devices", inner.config.name))?
            .client(&inner.paths)
    }

    /// From now on, clients may end this process.
    pub(crate) fn allow_down(&self) {
        self.inner.may_go_down.store(true, Ordering::Release);
    }

    fn may_go_down(&self) -> bool {
        self.inner.may_go_down.load(Ordering::Acquire)
    }

    /// Ends all processes; what is left of the lab only gives errors.
    fn stop(&self) {
        self.inner.stop();
    }
}

impl Inner {
    fn node(&self, number: usize) -> Result<&node::Node> {
        self.nodes.get(number).ok_or_else(|| {
            anyhow!(
                "there is no node {number}; the lab '{}' has the nodes 0 to {}",
                self.config.name,
                self.nodes.len() - 1
            )
        })
    }

    fn running(&self, number: usize) -> Result<Arc<node::Running>> {
        let node = self.node(number)?;
        self.check_emulator()?;
        node.running()
    }

    fn check_emulator(&self) -> Result<()> {
        match self
            .emulator
            .get()
            .and_then(|emulator| emulator.failure(&self.paths))
        {
            Some(failure) => bail!("the lab is over: {failure}"),
            None => Ok(()),
        }
    }

    /// If the emulator is gone, that is the reason for everything else.
    fn blame_emulator(&self, error: anyhow::Error) -> anyhow::Error {
        self.check_emulator().err().unwrap_or(error)
    }
}

impl Inner {
    /// Ends all processes, then removes all files. Not left to the last reference: threads
    /// that serve clients have some, and a process that exits does not wait for them.
    fn stop(&self) {
        let Some(claim) = lock(&self.claim).take() else {
            return;
        };
        for node in &self.nodes {
            node.kill();
        }
        if let Some(emulator) = self.emulator.get() {
            emulator.stop();
        }
        let _ = fs::remove_dir_all(&self.memory);
        interrupt::unregister(&self.memory);
        drop(claim);
    }
}

impl Served for Lab {
    fn answer(&self, request: Control) -> Result<Reply> {
        match request {
            Control::Open { node, request } => {
                return Ok(Reply::Channel(self.guest(node)?, request));
            }
            Control::Down if self.may_go_down() => {
                // The client knows by the end of the connection that all is gone.
                self.stop();
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
            Control::Link { a, b, up } => self.set_link(a, b, up)?,
        }
        Ok(Reply::Value(Value::Null))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.ends {
            self.inner.stop();
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
    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }

    /// See [`Lab::exec`].
    pub fn exec<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Output> {
        self.lab.exec(self.number, argv)
    }

    /// See [`Lab::shell`].
    pub fn shell(&self, script: &str) -> Result<String> {
        self.lab.shell(self.number, script)
    }

    /// See [`Lab::spawn`].
    pub fn spawn<S: Into<String>>(&self, argv: impl IntoIterator<Item = S>) -> Result<Process> {
        self.lab.spawn(self.number, argv)
    }

    /// See [`Lab::load`].
    pub fn load(&self, name: &str) -> Result<()> {
        self.lab.load(self.number, name)
    }

    /// See [`Lab::insmod`].
    pub fn insmod(&self, path: impl AsRef<Path>, parameters: &str) -> Result<()> {
        self.lab.insmod(self.number, path, parameters)
    }

    /// See [`Lab::rmmod`].
    pub fn rmmod(&self, name: &str) -> Result<()> {
        self.lab.rmmod(self.number, name)
    }

    /// See [`Lab::dmesg`].
    pub fn dmesg(&self) -> Result<String> {
        self.lab.dmesg(self.number)
    }

    /// Reads a small file of the guest, for example one in sysfs or debugfs.
    pub fn read(&self, path: &str) -> Result<String> {
        Ok(self.exec(["cat", path])?.success()?.stdout())
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

/// Pages pinned for long (FOLL_PIN), counted since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pins {
    /// Pinned.
    pub acquired: u64,
    /// Released.
    pub released: u64,
}

impl Pins {
    /// How many are pinned now.
    pub fn held(&self) -> u64 {
        self.acquired.saturating_sub(self.released)
    }
}

/// Waits until `condition` gives something, and fails with `what` after `limit`.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("{what}: not within {:.1} s", limit.as_secs_f64());
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Guests see the root, the repository and the cache, and nothing else of the machine.
fn visible_in_guests(path: &Path) -> Result<()> {
    let hidden = ["/tmp", "/dev", "/proc", "/sys", "/run"];
    if !path.is_absolute() || hidden.iter().any(|folder| path.starts_with(folder)) {
        bail!(
            "{} is not visible in the guests; they see /src, /cache and the rest of the environment's root",
            path.display()
        );
    }
    Ok(())
}
