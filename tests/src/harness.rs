// SPDX-License-Identifier: GPL-2.0
//! Runs tests in labs: boots what a test needs, reuses a lab for consecutive tests that need the
//! same machines (`shared_lab`), watches the time, and looks into the kernel logs afterwards.
//!
//! A test is a function that gets a lab and returns an error or nothing. Before it, every
//! node's kernel log is marked; after it, no running node's kernel may have reported
//! anything since (see `lab::kernel_log`), and the same modules must be loaded as before.
//! A lab in which a test failed is not used again. Where writes are reordered, each test begins with
//! the first draws of its seed.

use std::panic::AssertUnwindSafe;
use std::panic::catch_unwind;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use anyhow::ensure;
use indicatif::ProgressBar;
use lab::Config;
use lab::Flavour;
use lab::Lab;
use lab::Silent;
use lab::WeakOrder;

use crate::evidence::evidence;
use crate::evidence::indent;
use crate::evidence::with_evidence;
use crate::need::Need;
use crate::nodes::for_each_node;
use crate::scif;
use crate::scif::Glance;
use crate::seeds::Failed;
use crate::shared_lab::SharedLab;
use crate::summary;

/// What a test leaves of its lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leaves {
    /// The lab as it was.
    Order,
    /// A module unloaded or loaded otherwise, a driver unbound, a node dead: the lab can be put in order.
    Disorder,
    /// A state that no other test should start from.
    Nothing,
}

/// A test.
pub struct Test {
    /// Its name, unique: "file::what_it_shows".
    pub name: &'static str,
    /// The lab it runs in.
    pub need: Need,
    /// Within how many seconds it has ended on the plain kernel of an idle machine; many
    /// times as long it is taken for hung (`Lab::hang_limit`).
    pub seconds: u64,
    /// How long it is asked to go on besides.
    pub lasts: fn() -> Duration,
    /// What it leaves of the lab.
    pub leaves: Leaves,
    /// Whether nodes go while others copy from and to them, so that their engines fail.
    pub loses_nodes: bool,
    /// The kernel that it says something of, if that is one only.
    pub only: Option<Flavour>,
    /// Whether it runs only when somebody asks for it.
    pub by_name: bool,
    /// Kernel reports whose first line contains one of these are expected.
    pub expects: &'static [&'static str],
    /// The test itself.
    pub run: fn(&Lab) -> Result<()>,
}

impl Test {
    /// A test that ends within a minute and leaves the lab as it was.
    pub const fn new(name: &'static str, need: Need, run: fn(&Lab) -> Result<()>) -> Test {
        Test {
            name,
            need,
            seconds: 60,
            lasts: || Duration::ZERO,
            leaves: Leaves::Order,
            loses_nodes: false,
            only: None,
            by_name: false,
            expects: &[],
            run,
        }
    }

    /// It ends within so many seconds on an idle machine.
    pub const fn seconds(mut self, seconds: u64) -> Test {
        self.seconds = seconds;
        self
    }

    /// It goes on for as long as somebody asks for, besides.
    pub const fn lasts(mut self, lasts: fn() -> Duration) -> Test {
        self.lasts = lasts;
        self
    }

    /// No other test may use the lab afterwards.
    pub const fn destroys(mut self) -> Test {
        self.leaves = Leaves::Nothing;
        self
    }

    /// The lab is put in order afterwards: the module is loaded anew, drivers are bound, dead nodes booted.
    pub const fn leaves_disorder(mut self) -> Test {
        self.leaves = Leaves::Disorder;
        self
    }

    /// Engines may fail in it, because the memory they copy from or to goes away.
    pub const fn loses_nodes(mut self) -> Test {
        self.loses_nodes = true;
        self
    }

    /// It takes the driver away from an engine that copies.
    pub const fn loses_engine(self) -> Test {
        self.loses_nodes()
            .expects(&[
                "engine",
                // The windows stay mapped for a device without a driver until they go.
                "device driver has pending DMA allocations",
                "DMA-API: Mapped at:",
            ])
            .leaves_disorder()
    }

    /// It is about Debian's kernel, and not run on others.
    pub const fn on_stock(mut self) -> Test {
        self.only = Some(Flavour::Stock);
        self
    }

    /// It is about what only the debug kernel finds, and not run on others.
    pub const fn on_debug(mut self) -> Test {
        self.only = Some(Flavour::Debug);
        self
    }

    /// It takes so long that it runs only when it is asked for, by a filter with `::` in it.
    pub const fn by_name(mut self) -> Test {
        self.by_name = true;
        self
    }

    /// These kernel reports are part of it.
    pub const fn expects(mut self, reports: &'static [&'static str]) -> Test {
        self.expects = reports;
        self
    }
}

/// Runs tests on one kernel.
pub struct Runner {
    kernel: Flavour,
    /// Wait with the lab of a test that failed, for a person to look at it.
    keep: bool,
    /// A name that nobody else has; ids of processes begin anew in every environment.
    name: String,
    lab: Option<SharedLab>,
    labs_made: usize,
    /// How far it is; what is printed is so through it.
    pub progress: ProgressBar,
    /// How many passed.
    pub passed: usize,
    /// Those that did not: their names, and the seeds with which they were run.
    pub failed: Vec<Failed>,
}

impl Runner {
    /// A runner without a lab yet.
    pub fn new(kernel: Flavour, keep: bool) -> Runner {
        Runner {
            kernel,
            keep,
            name: unique_name(),
            lab: None,
            labs_made: 0,
            progress: ProgressBar::hidden(),
            passed: 0,
            failed: Vec::new(),
        }
    }

    /// Runs one test and reports it; writes are reordered like this in it, unless it says how they are.
    pub fn run(&mut self, test: &Test, order: Option<WeakOrder>) {
        let order = order.filter(|_| test.need.weak_order.is_none());
        let seed = order.map_or(String::new(), |order| format!("  seed {}", order.seed));
        self.progress.set_message(format!("{}{seed}", test.name));
        match self.run_in_lab(test, order) {
            Ok(elapsed) => {
                let seconds = elapsed.as_secs_f64();
                self.say(&format!("ok    {:<44} {seconds:>7.1} s{seed}", test.name));
                self.passed += 1;
            }
            Err(error) => {
                let said = indent(&format!("{error:#}"));
                self.say(&format!("FAIL  {}{seed}\n{said}", test.name));
                let name = test.name;
                self.failed.push(Failed { name, order });
                self.keep_lab();
                self.lab = None;
            }
        }
        self.progress.inc(1);
    }

    fn say(&self, text: &str) {
        self.progress.suspend(|| println!("{text}"));
    }

    fn run_in_lab(&mut self, test: &Test, order: Option<WeakOrder>) -> Result<Duration> {
        let need = Need {
            weak_order: test.need.weak_order.or(order),
            ..test.need
        };
        self.prepare_lab(test, &need)?;
        let shared = self.lab.as_mut().context("there is no lab")?;
        let lab = shared.lab();
        if let Some(order) = need.weak_order {
            lab.reseed(order.seed)?;
        }
        let before = prepare(lab, test)?;
        let started = Instant::now();
        run_with_limit(lab, test)?;
        let elapsed = started.elapsed();
        inspect(lab, test, &before).map_err(|error| with_evidence(lab, &error))?;
        match test.leaves {
            Leaves::Order => {}
            Leaves::Disorder => shared.leave_disorder(),
            Leaves::Nothing => self.lab = None,
        }
        Ok(elapsed)
    }

    /// Prepares the lab that there is, or another one if that does not serve.
    fn prepare_lab(&mut self, test: &Test, need: &Need) -> Result<()> {
        if let Some(shared) = &mut self.lab {
            if shared.prepare(need, test.loses_nodes)? {
                return Ok(());
            }
        }
        // Its memory is needed for the next one.
        self.lab = None;
        let shared = self.boot(need)?;
        self.lab.insert(shared).prepare(need, test.loses_nodes)?;
        Ok(())
    }

    /// Starts a lab. QEMU itself crashes in rare cases, or its emulated processor runs into a
    /// breakpoint that the booting kernel sets while it patches its own code: that says nothing of
    /// what is tested as long as no module of ours was loaded, so it is reported, and then tried
    /// once more.
    fn start(&mut self, need: &Need) -> Result<Lab> {
        let mut attempt = || {
            self.labs_made += 1;
            let name = format!("tests-{}-{}", self.name, self.labs_made);
            let config = config(&name, need, self.kernel);
            Lab::start(config, &Silent).map_err(|error| anyhow!("the lab did not start: {error:#}"))
        };
        match attempt() {
            Err(error) if is_of_emulation(&format!("{error:#}")) => {
                eprintln!("      {error:#}; once more");
                attempt()
            }
            started => started,
        }
    }

    fn boot(&mut self, need: &Need) -> Result<SharedLab> {
        let lab = self.start(need)?;
        summary::add_boot(&lab);
        // So that a lab for a person to look at has a name they know.
        self.say(&format!(
            "      lab {}: {} node(s), {} kernel",
            lab.config().name,
            need.nodes,
            lab.kernel().flavour().name()
        ));
        SharedLab::new(need, lab)
    }

    fn keep_lab(&self) {
        let Some(shared) = self.lab.as_ref().filter(|_| self.keep) else {
            return;
        };
        self.say(&format!(
            "      kept for you: scripts/lab --name {} exec 0 -- dmesg; Enter goes on",
            shared.lab().config().name
        ));
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}

fn unique_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("{:08x}", now.unwrap_or_default().as_nanos() as u32)
}

/// The lab for a need.
pub fn config(name: &str, need: &Need, kernel: Flavour) -> Config {
    Config {
        topology: need.topology,
        dma_channels: need.dma_channels,
        engine_rate: need.engine_rate,
        personality: need.personality,
        modules: lab::default_modules(need.personality),
        windows: need.windows,
        weak_order: need.weak_order,
        iommu: need.iommu,
        device_memory: need.device_memory,
        sleep: need.sleep,
        append: need.append.iter().map(|word| (*word).to_owned()).collect(),
        ..Config::new(name, need.nodes, need.kernel(kernel))
    }
}

/// Whether a lab did not start because of what only an emulated machine does.
fn is_of_emulation(error: &str) -> bool {
    ["QEMU was ended by signal", "Oops: int3"]
        .iter()
        .any(|sign| error.contains(sign))
}

/// Marks the kernel logs; returns what each node is like.
fn prepare(lab: &Lab, test: &Test) -> Result<Vec<Glance>> {
    for_each_node(lab, |node| {
        lab.mark_kernel_log(node, test.name)?;
        Glance::at(lab, node)
    })
}

/// Runs the test in a thread. If it takes too long, kills the nodes, upon which whatever it
/// waits for in a lab fails.
fn run_with_limit(lab: &Lab, test: &Test) -> Result<()> {
    let limit = lab.hang_limit(test.seconds) + (test.lasts)();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        scope.spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| (test.run)(lab)));
            let _ = sender.send(result);
        });
        match receiver.recv_timeout(limit) {
            Ok(Ok(result)) => result.map_err(|error| with_evidence(lab, &error)),
            Ok(Err(panic)) => {
                let error = anyhow!("the test panicked: {}", panic_message(&*panic));
                Err(with_evidence(lab, &error))
            }
            Err(_) => {
                // The evidence has to be gathered before the nodes are gone.
                let mut evidence = evidence(lab);
                for node in 0..lab.nodes() {
                    evidence.push_str(&format!("\nnode {node}:{}", lab.processors(node)));
                }
                for node in 0..lab.nodes() {
                    lab.kill(node)?;
                }
                bail!("it took longer than {} s{evidence}", limit.as_secs())
            }
        }
    })
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|message| (*message).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

/// What the kernel says whenever it loads a module that is not its own.
const ALWAYS_EXPECTED: &[&str] = &[
    "loading out-of-tree module taints kernel",
    // Of the KUnit cases, which run at each load where the kernel has KUnit.
    "scif: node 65535 ",
];

/// Looks for what a test must not leave behind.
fn inspect(lab: &Lab, test: &Test, before: &[Glance]) -> Result<()> {
    for_each_node(lab, |node| inspect_node(lab, test, node, &before[node])).map(drop)
}

fn inspect_node(lab: &Lab, test: &Test, node: usize, before: &Glance) -> Result<()> {
    if !lab.is_running(node) {
        ensure!(
            test.leaves != Leaves::Order,
            "node {node} does not run any more"
        );
        return Ok(());
    }
    lab.check_kernel_log_except(node, &[test.expects, ALWAYS_EXPECTED].concat())?;
    let mut after = Glance::at(lab, node)?;
    if after.has_scif() && !after.is_idle()? {
        scif::check_idle(lab, node)?;
        after = Glance::at(lab, node)?;
    }
    let errors = after.dma_errors();
    ensure!(
        test.loses_nodes || errors <= before.dma_errors(),
        "the engine of node {node} has failed: {errors} errors"
    );
    ensure!(
        test.leaves != Leaves::Order || after.modules == before.modules,
        "node {node} has other modules loaded than before: {:?} instead of {:?}",
        after.modules,
        before.modules
    );
    Ok(())
}
