// SPDX-License-Identifier: GPL-2.0
//! The configuration of a lab: its nodes, the links between them, the kernel that they boot.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use clap::ValueEnum;
use ntb_emulator::config::Guest;
use ntb_emulator::config::Link;
use ntb_emulator::config::MAX_DMA_CHANNELS;
use ntb_emulator::config::Personality;
use ntb_emulator::config::Windows;
use ntb_emulator::model::figures::EngineFigures;
use ntb_emulator::model::figures::LinkFigures;
use ntb_emulator::model::figures::validate_slowdown;
use ntb_emulator::order::Engines;
use ntb_emulator::order::WeakOrder;
use serde::Deserialize;
use serde::Serialize;

use crate::drivers::default_modules;
use crate::iommu::Iommu;

/// Largest number of nodes, and of links at one node: more PCI slots do not exist.
const MAX_NODES: usize = 11;

/// The kernel that the guests boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Flavour {
    /// Debian's own kernel, which users have.
    Stock,
    /// A kernel built here: small, and with KUnit.
    Plain,
    /// A kernel with KASAN, lockdep, kmemleak and DMA-API debugging; about ten times slower.
    Debug,
    /// A kernel with KCSAN, which finds data races; also many times slower.
    Kcsan,
}

impl Flavour {
    /// Returns the name that scripts/kernel knows.
    pub fn name(self) -> &'static str {
        match self {
            Flavour::Stock => "stock",
            Flavour::Plain => "plain",
            Flavour::Debug => "debug",
            Flavour::Kcsan => "kcsan",
        }
    }

    /// Returns the factor by which operations may take longer than on the plain kernel.
    pub fn slowness(self) -> u32 {
        match self {
            Flavour::Stock | Flavour::Plain => 1,
            Flavour::Debug | Flavour::Kcsan => 8,
        }
    }

    /// Returns the default memory of a guest in MiB.
    pub fn default_memory(self) -> u32 {
        match self {
            Flavour::Stock | Flavour::Plain | Flavour::Kcsan => 512,
            Flavour::Debug => 1024,
        }
    }
}

/// The pairs of nodes that have an NTB between them. The lower number is the upstream side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Topology {
    /// No links.
    None,
    /// Nodes 0 and 1.
    Pair,
    /// Node 0 with every other.
    Star,
    /// Every node with the next.
    Chain,
    /// A chain whose ends meet.
    Ring,
}

impl Topology {
    /// Returns the default for `nodes` nodes.
    pub fn default_for(nodes: usize) -> Topology {
        match nodes {
            0 | 1 => Topology::None,
            2 => Topology::Pair,
            _ => Topology::Star,
        }
    }

    /// Returns the links as (upstream, downstream).
    pub fn links(self, nodes: usize) -> Vec<(usize, usize)> {
        let chain = (1..nodes).map(|node| (node - 1, node));
        match self {
            Topology::None => Vec::new(),
            Topology::Pair => chain.take(1).collect(),
            Topology::Star => (1..nodes).map(|node| (0, node)).collect(),
            Topology::Chain => chain.collect(),
            Topology::Ring if nodes > 2 => chain.chain([(0, nodes - 1)]).collect(),
            Topology::Ring => chain.collect(),
        }
    }
}

/// The default factor by which modelled operations are slower than on hardware: about the factor of
/// an emulated CPU. So the proportions are those of hardware.
pub const DEFAULT_SLOWDOWN: u64 = 20;

/// The PCIe link whose time links take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LinkModel {
    /// Gen 3, 8 lanes.
    #[value(alias = "default")]
    Gen3x8,
    /// Gen 4, 8 lanes.
    Gen4x8,
    /// Gen 4, 16 lanes.
    Gen4x16,
}

impl LinkModel {
    /// Returns the figures of such links.
    pub fn figures(self) -> LinkFigures {
        match self {
            LinkModel::Gen3x8 => LinkFigures::GEN3_X8,
            LinkModel::Gen4x8 => LinkFigures::GEN4_X8,
            LinkModel::Gen4x16 => LinkFigures::GEN4_X16,
        }
    }
}

/// Parses the size of windows that trap.
pub fn parse_aperture(text: &str) -> Result<Windows, String> {
    parse_windows(&format!("trapped:{text}"))
}

/// Parses windows: `aperture`, `mixed`, `trapped:SIZE` or `fixed:BASE:SIZE`.
pub fn parse_windows(text: &str) -> Result<Windows, String> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        ["aperture"] => Ok(Windows::Aperture),
        ["mixed"] => Ok(Windows::Mixed),
        ["trapped", size] => Ok(Windows::Trapped {
            size: parse_size(size)?,
        }),
        ["fixed", base, size] => Ok(Windows::Fixed {
            base: parse_size(base)?,
            size: parse_size(size)?,
        }),
        _ => Err(
            "it is 'aperture', 'mixed', 'trapped:SIZE' or 'fixed:BASE:SIZE', for example fixed:256M:2M"
                .to_owned(),
        ),
    }
}

/// Parses a weak order: `SEED`, or `SEED,root`.
pub fn parse_weak_order(text: &str) -> Result<WeakOrder, String> {
    let (seed, engines) = match text.split_once(',') {
        None => (text, Engines::Switch),
        Some((seed, "switch")) => (seed, Engines::Switch),
        Some((seed, "root")) => (seed, Engines::Root),
        Some((_, place)) => {
            return Err(format!(
                "engines are in the 'switch' or at the 'root', not '{place}'"
            ));
        }
    };
    let seed = seed.parse();
    let seed = seed.map_err(|_| "it is a number, such as 7 or 7,root".to_owned())?;
    Ok(WeakOrder { seed, engines })
}

/// Parses an NTB personality: `gen3`, `gen5`, `idt` or `amd`.
pub fn parse_personality(text: &str) -> Result<Personality, String> {
    match text {
        "gen3" => Ok(Personality::Gen3),
        "gen5" => Ok(Personality::Gen5),
        "idt" => Ok(Personality::Idt),
        "amd" => Ok(Personality::Amd),
        _ => Err("it is gen3, gen5, idt or amd".to_owned()),
    }
}

/// Parses a rate: bytes per second with an optional K, M or G, of a thousand each.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1_000),
        Some((at, 'M' | 'm')) => (&text[..at], 1_000_000),
        Some((at, 'G' | 'g')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("'{text}' is no rate; write for example 500M, bytes per second"))
}

/// Parses a number with an optional K, M or G.
fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("'{text}' is no size; write for example 2M"))
}

/// The configuration of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The name; it tells labs apart that run at once.
    pub name: String,
    /// Number of nodes.
    pub nodes: usize,
    /// The links.
    pub topology: Topology,
    /// The kernel.
    pub kernel: Flavour,
    /// The memory of a node in MiB.
    pub memory: u32,
    /// CPUs of a node.
    pub processors: u32,
    /// DMA engines of a node.
    pub dma_channels: usize,
    /// The kind of NTB.
    pub personality: Personality,
    /// The kind of its windows.
    pub windows: Windows,
    /// The model of links; without one, links are as fast as this machine.
    pub link_model: Option<LinkModel>,
    /// Bytes per second that a DMA engine copies, before it is slowed down; without it the rate of
    /// the link model, if there is one.
    pub engine_rate: Option<u64>,
    /// The factor by which everything that has a model is slowed down.
    pub slowdown: u64,
    /// The way in which writes across links are reordered, if they are.
    #[serde(default)]
    pub weak_order: Option<WeakOrder>,
    /// The windows of further links beside each link, for other drivers at the same time.
    #[serde(default)]
    pub more_links: Vec<Windows>,
    /// The devices behind the nodes' IOMMU.
    #[serde(default)]
    pub iommu: Iommu,
    /// Whether each node has a PCI device that only has memory, see [`Config::device_size`].
    #[serde(default)]
    pub device_memory: bool,
    /// Whether the nodes can sleep (suspend to RAM, or to idle) and wake up again.
    pub sleep: bool,
    /// Words that are added to the kernel's command line.
    pub append: Vec<String>,
    /// In-tree modules to load at every boot; the modules that they need are loaded, too.
    pub modules: Vec<String>,
    /// The path of the emulator, if it is not beside the running program.
    pub emulator: Option<PathBuf>,
    /// The path of the guest's agent, if it is not beside the running program.
    pub agent: Option<PathBuf>,
}

impl Config {
    /// Returns the configuration of a lab of `nodes` nodes with all defaults.
    pub fn new(name: &str, nodes: usize, kernel: Flavour) -> Config {
        Config {
            name: name.to_owned(),
            nodes,
            topology: Topology::default_for(nodes),
            kernel,
            memory: kernel.default_memory(),
            processors: 2,
            dma_channels: 1,
            personality: Personality::Gen5,
            windows: Windows::Aperture,
            link_model: None,
            engine_rate: None,
            slowdown: DEFAULT_SLOWDOWN,
            weak_order: None,
            more_links: Vec::new(),
            iommu: Iommu::None,
            device_memory: false,
            sleep: false,
            append: Vec::new(),
            modules: default_modules(Personality::Gen5),
            emulator: None,
            agent: None,
        }
    }

    /// Checks the configuration. The error says what can't be built.
    pub fn check(&self) -> Result<()> {
        check_name(&self.name)?;
        if self.nodes == 0 || self.nodes > MAX_NODES {
            bail!("a lab has 1 to {MAX_NODES} nodes, not {}", self.nodes);
        }
        if self.dma_channels > MAX_DMA_CHANNELS {
            bail!(
                "a node has up to {MAX_DMA_CHANNELS} DMA channels, not {}",
                self.dma_channels
            );
        }
        if !(128..=2048).contains(&self.memory) {
            bail!(
                "a node has 128 to 2048 MiB of memory, not {}: above 2 GiB, its memory is not one piece",
                self.memory
            );
        }
        if !(1..=4).contains(&self.processors) {
            bail!("a node has 1 to 4 CPUs, not {}", self.processors);
        }
        validate_slowdown(self.slowdown)?;
        if let Some(engine) = self.engine() {
            engine.validate().context("the rate of an engine")?;
        }
        Ok(())
    }

    /// Returns the links as (upstream, downstream).
    pub fn links(&self) -> Vec<(usize, usize)> {
        self.topology.links(self.nodes)
    }

    /// Returns the size of the BAR of the device that has memory, if there is one. The BAR is the
    /// whole file whose lower part is the node's RAM, as emulated devices reach nothing else. Tests
    /// use the upper part.
    pub fn device_size(&self) -> Option<u64> {
        self.device_memory
            .then(|| (u64::from(self.memory) << 20).next_power_of_two() * 2)
    }

    /// Returns the figures of the DMA engines, unless they are as fast as this machine.
    fn engine(&self) -> Option<EngineFigures> {
        let default = EngineFigures::default();
        match (self.link_model, self.engine_rate) {
            (None, None) => None,
            (_, None) => Some(default),
            (_, Some(bandwidth)) => Some(EngineFigures {
                bandwidth,
                ..default
            }),
        }
    }

    /// Describes the modelled times for people, if there are any.
    pub fn model(&self) -> Option<String> {
        let engine = self.engine()?;
        let link = match self.link_model {
            Some(model) => format!(
                "links as {}, ",
                model
                    .to_possible_value()
                    .map_or_else(String::new, |value| value.get_name().to_owned())
            ),
            None => String::new(),
        };
        Some(format!(
            "{link}DMA channels of {} MB/s, {} times as slow",
            engine.bandwidth / 1_000_000,
            self.slowdown
        ))
    }

    /// Describes for people how writes are reordered, if they are.
    pub fn order(&self) -> Option<String> {
        let WeakOrder { seed, engines } = self.weak_order?;
        let place = match engines {
            Engines::Switch => "in the switch",
            Engines::Root => "at the root",
        };
        Some(format!("weak, seed {seed}, engines {place}"))
    }

    /// Returns the configuration for the emulator, whose sockets are in `folder` and which holds
    /// the nodes' memory in `ram_files`.
    pub fn emulated(
        &self,
        folder: &Path,
        ram_files: Vec<PathBuf>,
    ) -> ntb_emulator::config::Topology {
        ntb_emulator::config::Topology {
            directory: folder.to_owned(),
            guests: ram_files
                .into_iter()
                .map(|ram_file| Guest {
                    ram_file,
                    ram_size: self.device_size().unwrap_or(u64::from(self.memory) << 20),
                    dma_channels: self.dma_channels,
                    engine: self.engine(),
                })
                .collect(),
            links: [self.windows]
                .iter()
                .chain(&self.more_links)
                .flat_map(|windows| self.links_with(*windows))
                .collect(),
            slowdown: self.slowdown,
            weak_order: self.weak_order,
        }
    }

    /// Returns one link for each of [`Config::links`].
    fn links_with(&self, windows: Windows) -> impl Iterator<Item = Link> {
        let personality = self.personality;
        let model = self.link_model.map(LinkModel::figures);
        self.links()
            .into_iter()
            .map(move |(upstream, downstream)| Link {
                upstream,
                downstream,
                personality,
                windows,
                model,
            })
    }

    /// Returns whether the lab needs the emulator.
    pub fn needs_emulator(&self) -> bool {
        self.dma_channels > 0 || !self.links().is_empty()
    }
}

/// Checks a name. It goes into the names of sockets, which are short.
pub fn check_name(name: &str) -> Result<()> {
    let fits = (1..=40).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if !fits {
        bail!("'{name}' is no name for a lab: it takes 1 to 40 letters, digits, '-' or '_'");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
