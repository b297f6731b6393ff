// SPDX-License-Identifier: GPL-2.0
//! The command line of `lab`: the only definition, for the command itself and for its man pages and
//! completions (`tools/manuals`). Other modules carry out the commands.

use std::path::PathBuf;

use clap::ArgGroup;
use clap::Parser;
use clap::Subcommand;
use ntb_emulator::config::Personality;
use ntb_emulator::config::Windows;
use ntb_emulator::order::WeakOrder;

use crate::config::Config;
use crate::config::DEFAULT_SLOWDOWN;
use crate::config::Flavour;
use crate::config::LinkModel;
use crate::config::Topology;
use crate::config::parse_aperture;
use crate::config::parse_personality;
use crate::config::parse_rate;
use crate::config::parse_weak_order;
use crate::config::parse_windows;
use crate::drivers::default_modules;
use crate::iommu::Iommu;

const EXAMPLES: &str = "\
Examples:
  scripts/lab up                          two nodes with an NTB between them
  scripts/lab exec 0 -- uname -a          run a command in node 0
  scripts/lab push 1 driver.conf /etc/    copy a file into node 1
  scripts/lab console 1                   the serial console of node 1; leave with Ctrl-]
  scripts/lab kill 1                      cut the power of node 1
  scripts/lab restart 1                   boot node 1 again
  scripts/lab down                        end the lab

  scripts/lab --name big up --nodes 3 --kernel debug
                                          another lab beside it: a star on the debug kernel

Guests see the environment's root, and their writes to it go to memory. They see the
repository as /src and the cache folder as /cache, both read-only. They share /exchange
with each other and the host.

Exit status:
  0    done
  1    `dmesg --check` found a warning
  2    wrong usage
  125  the lab has a problem";

/// Boots and drives Linux guests joined by emulated NTBs.
///
/// Run it from the clone as `scripts/lab`, in the pinned environment; it is not installed. Start
/// with `scripts/lab up`. The lab then runs in the background until `scripts/lab down`.
#[derive(Debug, Parser)]
#[command(name = "lab", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// The lab, if there are several.
    #[arg(long, global = true, env = "SCIF_LAB", default_value = "default")]
    pub name: String,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a lab.
    Up(Up),
    /// End the lab.
    Down,
    /// Run a command in a node.
    ///
    /// The command reads and writes the standard input, output and error of `lab`. The exit status
    /// is that of the command.
    #[command(after_help = "\
Examples:
  scripts/lab exec 1 -- sh -c 'dmesg | grep ntb'

Exit status:
  any      that of the command; or of lab itself:
  2        wrong usage
  125      the lab has a problem
  126      the command cannot be run
  127      the command does not exist
  128 + N  signal N ended the command")]
    Exec {
        /// Give the command no input.
        #[arg(short = 'n', long)]
        no_stdin: bool,
        /// Add a variable to the command's environment.
        #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
        env: Vec<(String, String)>,
        /// The command's working folder.
        #[arg(short = 'C', long, value_name = "FOLDER")]
        cwd: Option<String>,
        /// The node.
        node: usize,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Copy a file into a node.
    Push {
        /// The node.
        node: usize,
        /// The file, or "-" for the standard input.
        local: PathBuf,
        /// The target in the node; a folder keeps the name of the file.
        remote: String,
    },
    /// Copy a file out of a node.
    Pull {
        /// The node.
        node: usize,
        /// The file, in the node.
        remote: String,
        /// The target, or "-" for the standard output.
        #[arg(default_value = ".")]
        local: PathBuf,
    },
    /// Attach to the serial console of a node; leave it with Ctrl-].
    Console {
        /// The node.
        node: usize,
        /// Print all output of the console so far, and don't attach.
        #[arg(long)]
        log: bool,
    },
    /// Kill a node at once, as a power failure would.
    Kill {
        /// The node.
        node: usize,
    },
    /// Kill a node if it runs, and boot it again.
    Restart {
        /// The node.
        node: usize,
    },
    /// Stop a node's CPUs; from outside the node seems to hang.
    Pause {
        /// The node.
        node: usize,
    },
    /// Let a paused node continue.
    Resume {
        /// The node.
        node: usize,
    },
    /// Set the link between two nodes up or down.
    Link {
        /// The wanted state.
        #[arg(value_parser = ["up", "down"])]
        state: String,
        /// One node.
        a: usize,
        /// The other node.
        b: usize,
    },
    /// Change the seed of a lab that was started with --weak-order.
    ///
    /// The emulator then holds the next write of each initiator for as long as the first write
    /// after a start with that seed.
    Reseed {
        /// The seed.
        seed: u64,
    },
    /// Count trapped accesses, doorbells and DMA since the start.
    Counters {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the nodes and links, and their state.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the running labs.
    List,
    /// Print the kernel log of a node.
    Dmesg {
        /// The node.
        node: usize,
        /// Print only warnings of the kernel's checkers and of the module, and exit with 1 if there
        /// is any.
        #[arg(long)]
        check: bool,
    },
    /// The background process of a lab; "up" starts it.
    #[command(hide = true)]
    Owner,
}

/// The options of a lab to start.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("model").args(["link_model", "engine_rate"]).multiple(true))]
#[command(after_help = "\
Examples:
  scripts/lab up --nodes 3 --topology chain
  scripts/lab up --kernel debug --dma-channels 4
  scripts/lab up --iommu=bridges --windows trapped:16M
  scripts/lab up --ntb gen3 --aperture 64K
  scripts/lab up --ntb idt --aperture 1M
  scripts/lab up --ntb amd
  scripts/lab up --windows fixed:256M:2M --append cma=64M@256M
  scripts/lab up --link-model gen3x8 --dma-channels 4
  scripts/lab up --engine-rate 1G --slowdown 10
  scripts/lab up --weak-order 7

Node N sees its K-th NTB in PCI slot 5 + K and its K-th DMA engine in slot 0x10 + K.")]
pub struct Up {
    /// The number of nodes.
    #[arg(long, default_value_t = 2)]
    pub nodes: usize,
    /// The links between nodes; a pair, or a star around node 0, by default.
    #[arg(long, value_enum)]
    pub topology: Option<Topology>,
    /// The kernel.
    #[arg(long, value_enum, default_value = "stock", env = "KERNEL")]
    pub kernel: Flavour,
    /// Memory of a node; 512, or 1024 with the debug kernel, by default.
    #[arg(long, value_name = "MIB")]
    pub mem: Option<u32>,
    /// CPUs of a node.
    #[arg(long, default_value_t = 2)]
    pub cpus: u32,
    /// DMA engines of a node.
    #[arg(long, default_value_t = 1)]
    pub dma_channels: usize,
    /// The kind of NTB: Intel's gen5 (page alignment) or gen3 (alignment = size of the window), idt
    /// (outbound translation, messages instead of scratchpads) or amd (eight scratchpads).
    #[arg(
        long = "ntb",
        alias = "personality",
        value_name = "KIND",
        value_parser = parse_personality,
        default_value = "gen5"
    )]
    pub personality: Personality,
    /// The size of memory windows that trap, whose targets the node sets: short for --windows
    /// trapped:SIZE.
    #[arg(long, value_parser = parse_aperture, value_name = "SIZE", conflicts_with = "windows")]
    pub aperture: Option<Windows>,
    /// The kind of the NTB's memory windows: aperture, mixed (windows into the upstream node trap),
    /// trapped:SIZE or fixed:BASE:SIZE. All windows of idt trap: aperture or trapped:SIZE, up to
    /// 1G.
    #[arg(long, value_parser = parse_windows, default_value = "aperture")]
    pub windows: Windows,
    /// Let links and DMA engines take time as on hardware, in proportion to emulated CPUs. Without
    /// this option they are as fast as this machine. If the machine is too slow for the model,
    /// `lab counters` shows how late engines were.
    #[arg(long, value_enum)]
    pub link_model: Option<LinkModel>,
    /// Bytes per second that a DMA engine copies before --slowdown applies, such as 500M; with a
    /// link model, 4500M by default.
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub engine_rate: Option<u64>,
    /// The factor by which modelled links and engines are slower than hardware; 20 by default.
    #[arg(long, value_name = "TIMES", requires = "model")]
    pub slowdown: Option<u64>,
    /// Delay writes across links, and let them overtake each other where PCI Express allows it. The
    /// seed decides which writes are held, and for how long. The DMA engines are in the switch. With
    /// SEED,root they are at the root, where reads by CPUs push the engines' writes; all windows
    /// must trap then.
    #[arg(long, value_name = "SEED", value_parser = parse_weak_order, conflicts_with = "model")]
    pub weak_order: Option<WeakOrder>,
    /// Add another link with these windows beside each link, for another driver.
    #[arg(long, value_parser = parse_windows, value_name = "WINDOWS")]
    pub more_links: Vec<Windows>,
    /// Give the nodes an IOMMU, and let their kernels use it for all devices, or only for the
    /// bridges. An engine behind the IOMMU can't reach through a bridge.
    #[arg(
        long,
        value_enum,
        value_name = "FOR",
        num_args = 0..=1,
        require_equals = true,
        default_value = "none",
        default_missing_value = "all"
    )]
    pub iommu: Iommu,
    /// Give each node a PCI device that only has memory (ivshmem, 1af4:1110): the upper half of its
    /// BAR 2.
    #[arg(long)]
    pub device_memory: bool,
    /// Let the nodes sleep. The devices that the lab itself needs then keep their state. For
    /// example, run `scripts/lab exec 0 -- rtcwake -m mem -s 20`.
    #[arg(long)]
    pub sleep: bool,
    /// Parameters to add to the kernel's command line.
    #[arg(long, allow_hyphen_values = true)]
    pub append: Vec<String>,
    /// Kernel modules to load at every boot; "" for none. By default the driver of the NTB
    /// (ntb_hw_intel, ntb_hw_idt or ntb_hw_amd) and plx_dma.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    pub modules: Option<Vec<String>>,
    /// Boot guests without any NTB and DMA engine.
    #[arg(long, conflicts_with_all = ["topology", "dma_channels", "model", "weak_order"])]
    pub no_devices: bool,
    /// Run this emulator instead of the built one.
    #[arg(long, value_name = "PROGRAM")]
    pub emulator: Option<PathBuf>,
    /// Run this agent in the guests instead of the built one.
    #[arg(long, value_name = "PROGRAM")]
    pub agent: Option<PathBuf>,
}

impl Up {
    /// Returns the configuration for the lab of that name.
    pub fn config(self, name: &str) -> Config {
        let none = self.no_devices;
        let topology = self
            .topology
            .unwrap_or_else(|| Topology::default_for(self.nodes));
        Config {
            name: name.to_owned(),
            nodes: self.nodes,
            topology: if none { Topology::None } else { topology },
            kernel: self.kernel,
            memory: self.mem.unwrap_or(self.kernel.default_memory()),
            processors: self.cpus,
            dma_channels: if none { 0 } else { self.dma_channels },
            personality: self.personality,
            windows: self.aperture.unwrap_or(self.windows),
            link_model: self.link_model,
            engine_rate: self.engine_rate,
            slowdown: self.slowdown.unwrap_or(DEFAULT_SLOWDOWN),
            weak_order: self.weak_order,
            more_links: if none { Vec::new() } else { self.more_links },
            iommu: self.iommu,
            device_memory: self.device_memory,
            sleep: self.sleep,
            append: self.append,
            modules: self
                .modules
                .unwrap_or_else(|| default_modules(self.personality))
                .into_iter()
                .filter(|name| !name.is_empty())
                .collect(),
            emulator: self.emulator,
            agent: self.agent,
        }
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "write NAME=VALUE".to_owned())
}
