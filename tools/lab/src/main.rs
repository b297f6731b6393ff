// SPDX-License-Identifier: GPL-2.0
//! The command `lab`: starts a lab in the background and drives it.
//!
//! All it does is parse, call `lab::client`, and print.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use clap::Parser;
use clap::Subcommand;
use lab::Config;
use lab::Flavour;
use lab::GuestCounters;
use lab::Personality;
use lab::Terminal;
use lab::Topology;
use lab::Windows;
use lab::client;
use lab::control::Control;
use lab::control::Report;
use lab::wire::Exec;
use lab::wire::Outcome;

/// What this program's own troubles exit with, as with env(1) and docker(1).
const TROUBLE: u8 = 125;

const EXAMPLES: &str = "\
Examples:
  scripts/lab up                          two nodes with an NTB between them
  scripts/lab exec 0 -- uname -a          run a command in node 0
  scripts/lab push 1 driver.conf /etc/    copy a file into node 1
  scripts/lab console 1                   its serial console; leave with Ctrl-]
  scripts/lab kill 1                      cut its power
  scripts/lab restart 1                   boot it again
  scripts/lab down                        end it all

  scripts/lab --name big up --nodes 3 --kernel debug
                                          another lab beside it: a star on the debug kernel

Guests see the environment's root (writes go to memory), the repository as /src and the
cache folder as /cache (read-only), and /exchange, which they share with each other and
the host.";

/// Boots and drives Linux guests joined by emulated NTBs.
#[derive(Parser)]
#[command(name = "lab", version, after_help = EXAMPLES)]
struct Arguments {
    /// Which lab, if there are several.
    #[arg(long, global = true, env = "SCIF_LAB", default_value = "default")]
    name: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a lab.
    Up(Up),
    /// End the lab.
    Down,
    /// Run a command in a node; exits as the command does.
    ///
    /// Standard input, output and error are those of the command. The exit status is that of
    /// the command, 128 + N if signal N ended it, 127 if it does not exist, 126 if it cannot
    /// be run, and 125 if the lab has a problem.
    #[command(after_help = "Example: scripts/lab exec 1 -- sh -c 'dmesg | grep ntb'")]
    Exec {
        /// Give it no input.
        #[arg(short = 'n', long)]
        no_stdin: bool,
        /// Add a variable to its environment.
        #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
        env: Vec<(String, String)>,
        /// Its working folder.
        #[arg(short = 'C', long, value_name = "FOLDER")]
        cwd: Option<String>,
        /// Which node.
        node: usize,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Copy a file into a node.
    Push {
        /// Which node.
        node: usize,
        /// The file, or "-" for the standard input.
        local: PathBuf,
        /// Where to, in the node; a folder keeps the name of the file.
        remote: String,
    },
    /// Copy a file out of a node.
    Pull {
        /// Which node.
        node: usize,
        /// The file, in the node.
        remote: String,
        /// Where to, or "-" for the standard output.
        #[arg(default_value = ".")]
        local: PathBuf,
    },
    /// The serial console of a node; leave it with Ctrl-].
    Console {
        /// Which node.
        node: usize,
        /// Print what it said so far instead.
        #[arg(long)]
        log: bool,
    },
    /// Kill a node at once, as a power failure would.
    Kill {
        /// Which node.
        node: usize,
    },
    /// Kill a node if it runs, and boot it again.
    Restart {
        /// Which node.
        node: usize,
    },
    /// Stop a node's processors; from outside it looks like one that hangs.
    Pause {
        /// Which node.
        node: usize,
    },
    /// Let a paused node go on.
    Resume {
        /// Which node.
        node: usize,
    },
    /// Set the link between two nodes up or down.
    Link {
        /// What it shall be.
        #[arg(value_parser = ["up", "down"])]
        state: String,
        /// One node.
        a: usize,
        /// The other.
        b: usize,
    },
    /// Count trapped accesses, doorbells and DMA since the start.
    Counters {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show what there is and how it is doing.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the labs that run.
    List,
    /// The kernel log of a node.
    Dmesg {
        /// Which node.
        node: usize,
        /// Only what the kernel's checkers and the module complained about; exits with 1 if
        /// there is anything.
        #[arg(long)]
        check: bool,
    },
    /// The background process of a lab; "up" starts it.
    #[command(hide = true)]
    Owner,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  scripts/lab up --nodes 3 --topology chain
  scripts/lab up --kernel debug --dma-channels 4
  scripts/lab up --iommu
  scripts/lab up --windows fixed:256M:2M --append cma=64M@256M

Node N sees its K-th NTB in PCI slot 5 + K and its K-th DMA engine in slot 0x10 + K.")]
struct Up {
    /// How many nodes.
    #[arg(long, default_value_t = 2)]
    nodes: usize,
    /// Which links there are; a pair, or a star around node 0, by default.
    #[arg(long, value_enum)]
    topology: Option<Topology>,
    /// Which kernel.
    #[arg(long, value_enum, default_value = "stock", env = "KERNEL")]
    kernel: Flavour,
    /// Memory of a node; 512, or 1024 with the debug kernel, by default.
    #[arg(long, value_name = "MIB")]
    mem: Option<u32>,
    /// Processors of a node.
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// DMA engines of a node.
    #[arg(long, default_value_t = 1)]
    dma_channels: usize,
    /// Which NTB: gen5 (page alignment) or gen3 (alignment = size of the window).
    #[arg(long, value_parser = lab::parse_personality, default_value = "gen5")]
    personality: Personality,
    /// What the NTB's memory windows are: aperture, trapped:SIZE or fixed:BASE:SIZE.
    #[arg(long, value_parser = lab::parse_windows, default_value = "aperture")]
    windows: Windows,
    /// Give the nodes an IOMMU and let their kernels use it.
    #[arg(long)]
    iommu: bool,
    /// Words for the kernel's command line.
    #[arg(long, allow_hyphen_values = true)]
    append: Vec<String>,
    /// Modules of the kernel to load at every boot; "" for none.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ntb_hw_intel,plx_dma",
        value_name = "NAME,..."
    )]
    modules: Vec<String>,
    /// Guests without any NTB and DMA engine.
    #[arg(long, conflicts_with_all = ["topology", "dma_channels"])]
    no_devices: bool,
    /// Another emulator.
    #[arg(long, value_name = "PROGRAM")]
    emulator: Option<PathBuf>,
    /// Another agent for the guests.
    #[arg(long, value_name = "PROGRAM")]
    agent: Option<PathBuf>,
}

impl Up {
    fn config(self, name: &str) -> Config {
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
            windows: self.windows,
            iommu: self.iommu,
            append: self.append,
            modules: self
                .modules
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

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(code) => code,
        // As if SIGPIPE had ended us: "lab exec 0 -- seq 1000000 | head".
        Err(error) if is_broken_pipe(&error) => ExitCode::from(128 + 13),
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::from(TROUBLE)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .root_cause()
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let name = arguments.name.as_str();
    match arguments.command {
        Command::Up(up) => {
            let nodes = up.nodes;
            let progress = Terminal::new();
            client::up(&up.config(name), &progress)?;
            drop(progress);
            let option = if name == "default" {
                String::new()
            } else {
                format!("--name {name} ")
            };
            eprintln!(
                "try: scripts/lab {option}exec {} -- uname -a; end it with: scripts/lab {option}down",
                nodes - 1
            );
        }
        Command::Down => client::down(name)?,
        Command::Exec {
            no_stdin,
            env,
            cwd,
            node,
            command,
        } => {
            let exec = Exec {
                argv: command,
                env,
                cwd,
                stdin: !no_stdin,
            };
            return Ok(exit_code(client::exec(name, node, exec)?));
        }
        Command::Push {
            node,
            local,
            remote,
        } => whole(client::push(name, node, &local, &remote)?)?,
        Command::Pull {
            node,
            remote,
            local,
        } => whole(client::pull(name, node, &remote, &local)?)?,
        Command::Console { node, log: false } => lab::console::attach(name, node)?,
        Command::Console { node, log: true } => {
            let file = lab::paths::LabPaths::new(name)?.console_log(node);
            let log = std::fs::read(&file)
                .with_context(|| format!("cannot read the console of node {node}"))?;
            print!("{}", lab::printable(&String::from_utf8_lossy(&log)));
        }
        Command::Kill { node } => {
            client::call(name, &Control::Kill { node })?;
        }
        Command::Restart { node } => {
            client::call(name, &Control::Restart { node })?;
        }
        Command::Pause { node } => {
            client::call(name, &Control::Pause { node })?;
        }
        Command::Resume { node } => {
            client::call(name, &Control::Resume { node })?;
        }
        Command::Link { state, a, b } => {
            let up = state == "up";
            client::call(name, &Control::Link { a, b, up })?;
        }
        Command::Counters { json } => {
            let value = client::call(name, &Control::Counters)?;
            if json {
                println!("{}", serde_json::to_string_pretty(&value)?);
            } else {
                let counters: Vec<GuestCounters> = serde_json::from_value(value)?;
                print!("{}", lab::control::counters_table(&counters));
            }
        }
        Command::Status { json } => {
            let value = client::call(name, &Control::Report)?;
            if json {
                println!("{}", serde_json::to_string_pretty(&value)?);
            } else {
                let report: Report = serde_json::from_value(value)?;
                print!("{report}");
            }
        }
        Command::List => {
            for name in client::running() {
                println!("{name}");
            }
        }
        Command::Dmesg { node, check } => {
            let argv = if check {
                ["dmesg", "--raw"]
            } else {
                ["dmesg", "--color=never"]
            };
            let exec = Exec {
                argv: argv.map(str::to_owned).to_vec(),
                ..Exec::default()
            };
            if !check {
                return Ok(exit_code(client::exec(name, node, exec)?));
            }
            let log = client::output(name, node, exec)?;
            let reports = lab::kernel_log::scan(&log, &[]);
            for report in &reports {
                println!("{report}\n");
            }
            if !reports.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Owner => lab::owner::main(),
    }
    Ok(ExitCode::SUCCESS)
}

fn exit_code(outcome: Outcome) -> ExitCode {
    const NOT_FOUND: i32 = 2;
    let code = match outcome {
        Outcome::Exited(code) => u8::try_from(code).unwrap_or(1),
        Outcome::Signaled(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        Outcome::File { .. } => 0,
        Outcome::Failed { message, errno } => {
            eprintln!("lab: {message}");
            if errno == NOT_FOUND { 127 } else { 126 }
        }
        Outcome::Lost(reason) => {
            eprintln!("lab: {reason}");
            TROUBLE
        }
    };
    ExitCode::from(code)
}

fn whole(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::File { .. } => Ok(()),
        Outcome::Failed { message, .. } => bail!("{message}"),
        Outcome::Lost(reason) => bail!("{reason}"),
        other => bail!("the copy {}", lab::describe(&other)),
    }
}
