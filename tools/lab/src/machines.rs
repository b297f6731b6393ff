// SPDX-License-Identifier: GPL-2.0
//! The processes of a lab: its emulator and the QEMU of each node, from the claim of the
//! lab's name to the removal of its files.
//!
//! # Invariants
//! - The emulator is started before the first QEMU and stopped after the last.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::Weak;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use ntb_emulator::control::Client;

use crate::config::Config;
use crate::emulator::Emulator;
use crate::initramfs;
use crate::interrupt;
use crate::kernel::Kernel;
use crate::lock::lock;
use crate::node;
use crate::paths;
use crate::paths::Claim;
use crate::paths::LabPaths;
use crate::progress::Progress;
use crate::progress::Step;
use crate::qemu::Machine;

/// The processes of a lab, and the files that they need.
pub(crate) struct Machines {
    pub(crate) config: Config,
    pub(crate) kernel: Kernel,
    initramfs: PathBuf,
    agent: PathBuf,
    nodes: Vec<node::Node>,
    topology: ntb_emulator::config::Topology,
    emulator: OnceLock<Emulator>,
    memory: PathBuf,
    pub(crate) paths: LabPaths,
    /// Whether clients may end this process.
    may_go_down: AtomicBool,
    /// The claim of the name, taken when the lab is stopped.
    claim: Mutex<Option<Claim>>,
}

impl Machines {
    /// Takes the name and the folder of the lab, and finds the files that its processes need.
    /// Starts no process.
    pub(crate) fn prepare(config: Config, progress: &dyn Progress) -> Result<Machines> {
        config.check()?;
        paths::require_environment()?;
        let paths = LabPaths::new(&config.name)?;
        let agent = paths::sibling("lab-agent", config.agent.as_deref())?;
        paths::visible_in_guests(&agent)?;
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
        Ok(Machines {
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
        })
    }

    /// Returns the initramfs that guests boot.
    pub(crate) fn initramfs(&self) -> &Path {
        &self.initramfs
    }

    /// Starts the emulator.
    pub(crate) fn start_emulator(self: &Arc<Self>) -> Result<()> {
        let weak = Arc::downgrade(self);
        let emulator = Emulator::start(&self.config, &self.paths, &self.topology, move |_| {
            // Guests whose devices are gone are useless, and may hang.
            if let Some(machines) = Weak::upgrade(&weak) {
                for node in &machines.nodes {
                    node.kill();
                }
            }
        })?;
        self.emulator
            .set(emulator)
            .map_err(|_| anyhow!("the emulator was started twice"))
    }

    /// Boots a node, with this configuration in place of the lab's. Returns when its agent answers.
    pub(crate) fn boot(&self, number: usize, config: &Config, limit: Duration) -> Result<()> {
        let node = self.node(number)?;
        let machine = Machine {
            node: number,
            config,
            paths: &self.paths,
            kernel: &self.kernel,
            initramfs: &self.initramfs,
            agent: &self.agent,
            ram: &self.topology.guests[number].ram_file,
            ntbs: self.topology.ntb_sockets(number),
            dmas: self.topology.dma_sockets(number),
        };
        self.check_emulator()?;
        node.boot(&machine, limit)
            .map_err(|error| self.blame_emulator(error))
    }

    /// Returns the process id of the emulator, if there is one.
    pub(crate) fn emulator_pid(&self) -> Option<u32> {
        self.emulator.get().map(Emulator::pid)
    }

    /// Opens a connection to the emulator.
    pub(crate) fn emulator_client(&self) -> Result<Client> {
        self.check_emulator()?;
        self.emulator
            .get()
            .with_context(|| format!("the lab '{}' has no emulated devices", self.config.name))?
            .client(&self.paths)
    }

    /// Allows clients to end this process from now on.
    pub(crate) fn allow_down(&self) {
        self.may_go_down.store(true, Ordering::Release);
    }

    /// Returns whether clients may end this process.
    pub(crate) fn may_go_down(&self) -> bool {
        self.may_go_down.load(Ordering::Acquire)
    }

    /// Returns a node.
    pub(crate) fn node(&self, number: usize) -> Result<&node::Node> {
        self.nodes.get(number).ok_or_else(|| {
            anyhow!(
                "there is no node {number}; the lab '{}' has the nodes 0 to {}",
                self.config.name,
                self.nodes.len() - 1
            )
        })
    }

    /// Returns the guest of a node, if it runs.
    pub(crate) fn running(&self, number: usize) -> Result<Arc<node::Running>> {
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

    /// Returns the error, or the emulator's failure if the emulator is gone and so the cause.
    fn blame_emulator(&self, error: anyhow::Error) -> anyhow::Error {
        self.check_emulator().err().unwrap_or(error)
    }

    /// Ends all processes, then removes all files. This can't wait for the last reference: threads
    /// that serve clients have references, and a process that exits does not wait for them.
    pub(crate) fn stop(&self) {
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
