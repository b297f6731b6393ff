// SPDX-License-Identifier: GPL-2.0
//! Runs tests in labs. Boots the lab that a test needs, and reuses it for consecutive tests that
//! need the same machines (`shared_lab`). Limits the time, and inspects the kernel logs afterwards.
//!
//! A test is a function that gets a lab and returns an error or nothing. Before the test, the
//! runner marks every node's kernel log. After it, no running node's kernel may have reported
//! anything since the mark (see `lab::kernel_log`), and the same modules must be loaded as before.
//! A lab in which a test failed is not used again. Where writes are reordered, each test begins
//! with the first draws of its seed.

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

/// The state in which a test leaves its lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leaves {
    /// The lab as the test found it.
    Order,
    /// A disorder that the runner can repair: the module is unloaded or loaded with other
    /// parameters, a driver is unbound, or a node is dead.
    Disorder,
    /// A state that no other test should start from.
    Nothing,
}

/// A test.
pub struct Test {
    /// The name, unique: "file::what_it_shows".
    pub name: &'static str,
    /// The lab it runs in.
    pub need: Need,
    /// Seconds that the test takes at most on the plain kernel of an idle machine. A test that
    /// takes many times as long counts as hung (`Lab::hang_limit`).
    pub seconds: u64,
    /// Additional time that the caller of the test suite asks the test to go on.
    pub lasts: fn() -> Duration,
    /// The state in which the test leaves the lab.
    pub leaves: Leaves,
    /// Whether nodes disappear while others copy from and to them, so that engines fail.
    pub loses_nodes: bool,
    /// The only kernels on which the test runs. Empty: it runs on all.
    pub only: &'static [Flavour],
    /// Whether the test runs only if a filter names it.
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
            only: &[],
            by_name: false,
            expects: &[],
            run,
        }
    }

    /// Sets the number of seconds within which the test ends on an idle machine.
    pub const fn seconds(mut self, seconds: u64) -> Test {
        self.seconds = seconds;
        self
    }

    /// Sets the additional time that the test goes on.
    pub const fn lasts(mut self, lasts: fn() -> Duration) -> Test {
        self.lasts = lasts;
        self
    }

    /// Says that no other test may use the lab afterwards.
    pub const fn destroys(mut self) -> Test {
        self.leaves = Leaves::Nothing;
        self
    }

    /// Says that the lab has to be put in order after the test: load the module anew, bind drivers,
    /// boot dead nodes.
    pub const fn leaves_disorder(mut self) -> Test {
        self.leaves = Leaves::Disorder;
        self
    }

    /// Says that engines may fail during the test, because the memory that they copy from or to
    /// disappears.
    pub const fn loses_nodes(mut self) -> Test {
        self.loses_nodes = true;
        self
    }

    /// Says that the test unbinds the driver from an engine that copies.
    pub const fn loses_engine(self) -> Test {
        self.loses_nodes()
            .expects(&[
                "engine",
                // Windows of a device without a driver stay mapped until they are released.
                "device driver has pending DMA allocations",
                "DMA-API: Mapped at:",
            ])
            .leaves_disorder()
    }

    /// Says that the test is about Debian's kernel, and does not run on others.
    pub const fn on_stock(self) -> Test {
        self.only_on(&[Flavour::Stock])
    }

    /// Says that the test needs the checks of the debug kernel, and does not run on others.
    pub const fn on_debug(self) -> Test {
        self.only_on(&[Flavour::Debug])
    }

    /// Says that the test needs what only these kernels have, and does not run on others.
    pub const fn only_on(mut self, kernels: &'static [Flavour]) -> Test {
        self.only = kernels;
        self
    }

    /// Says that the test takes long, so it runs only if a filter with `::` in it names the test.
    pub const fn by_name(mut self) -> Test {
        self.by_name = true;
        self
    }

    /// Says that the test causes these kernel reports.
    pub const fn expects(mut self, reports: &'static [&'static str]) -> Test {
        self.expects = reports;
        self
    }
}

/// Runs tests on one kernel.
pub struct Runner {
    kernel: Flavour,
    /// Whether to keep the lab of a failed test until a person has inspected it.
    keep: bool,
    /// A name that no other runner has. Process ids do not serve, as they begin anew in every
    /// environment.
    name: String,
    lab: Option<SharedLab>,
    labs_made: usize,
    /// The progress bar. All output goes through it.
    pub progress: ProgressBar,
    /// Number of tests that passed.
    pub passed: usize,
    /// Names and seeds of the tests that failed.
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

    /// Runs one test and reports the result. The lab reorders writes by `order`, unless the test
    /// needs another order.
    pub fn run(&mut self, test: &Test, order: Option<WeakOrder>) {
        let order = order.filter(|_| test.need.weak_order.is_none());
        let seed = order.map_or(String::new(), |order| format!("  seed {}", order.seed));
        self.progress.set_message(format!("{}{seed}", test.name));
        match self.run_in_lab(test, order) {
            Ok(elapsed) => {
                let seconds = elapsed.as_secs_f64();
                self.say(&format!("ok    {:<50} {seconds:>7.1} s{seed}", test.name));
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

    /// Prepares the present lab for the test, or boots another one if the present one does not
    /// serve.
    fn prepare_lab(&mut self, test: &Test, need: &Need) -> Result<()> {
        if let Some(shared) = &mut self.lab {
            if shared.prepare(need, test.loses_nodes)? {
                return Ok(());
            }
        }
        // Drops the old lab first, because the next one needs its memory.
        self.lab = None;
        let shared = self.boot(need)?;
        self.lab.insert(shared).prepare(need, test.loses_nodes)?;
        Ok(())
    }

    /// Starts a lab, and retries once if the emulation itself failed.
    ///
    /// In rare cases QEMU crashes, or its emulated CPU runs into a breakpoint that the booting
    /// kernel sets while it patches its own code. Such a failure says nothing about the module, as
    /// no module of the project was loaded. So it is reported, and the start is tried once more.
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
        // A person who wants to inspect the lab needs to know its name.
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

/// Keeps a kernel with KUnit from running the cases of a module at each load.
///
/// The cases take half a minute on the debug kernel, and hang in the module of a node that lies.
const NO_KUNIT_CASES: &str = "kunit.filter_glob=none";

/// Returns the configuration of a lab for a need.
pub fn config(name: &str, need: &Need, kernel: Flavour) -> Config {
    let kernel = need.kernel(kernel);
    let without_cases = kernel != Flavour::Stock && !need.kunit;
    let words = need.append.iter().copied();
    let words = words.chain(without_cases.then_some(NO_KUNIT_CASES));
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
        append: words.map(str::to_owned).collect(),
        ..Config::new(name, need.nodes, kernel)
    }
}

/// Returns whether a lab did not start because of a failure that only emulated machines have.
fn is_of_emulation(error: &str) -> bool {
    ["QEMU was ended by signal", "Oops: int3"]
        .iter()
        .any(|sign| error.contains(sign))
}

/// Marks the kernel logs, and returns a glance at each node.
fn prepare(lab: &Lab, test: &Test) -> Result<Vec<Glance>> {
    for_each_node(lab, |node| {
        lab.mark_kernel_log(node, test.name)?;
        Glance::at(lab, node)
    })
}

/// Runs the test in a thread. If the test takes too long, kills the nodes, so that every operation
/// on the lab for which the test waits fails.
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
                // Gathers the evidence before the nodes are gone.
                let mut evidence = evidence(lab);
                for node in 0..lab.nodes() {
                    evidence.push_str(&format!("\nnode {node}:{}", lab.processors(node)));
                }
                for node in 0..lab.nodes() {
                    lab.kill(node)?;
                }
                bail!("the test took longer than {} s{evidence}", limit.as_secs())
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

/// Kernel reports that every load of an out-of-tree module causes.
const ALWAYS_EXPECTED: &[&str] = &[
    "loading out-of-tree module taints kernel",
    // KUnit cases cause this line.
    "scif: node 65535 ",
];

/// Fails if the test has left something behind that it must not leave.
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
