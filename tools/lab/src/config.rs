// SPDX-License-Identifier: GPL-2.0
//! What a lab consists of: its nodes, the links between them, the kernel they boot.

use std::path::Path;
use std::path::PathBuf;

use anyhow::Result;
use anyhow::bail;
use clap::ValueEnum;
use ntb_emulator::config::Guest;
use ntb_emulator::config::Link;
use ntb_emulator::config::MAX_DMA_CHANNELS;
use ntb_emulator::config::Personality;
use ntb_emulator::config::Windows;
use serde::Deserialize;
use serde::Serialize;

/// More nodes or links at one node than this are refused; PCI slots run out.
const MAX_NODES: usize = 11;

/// Which kernel the guests boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Flavour {
    /// Debian's own, which people have.
    Stock,
    /// Built here: small, and with KUnit.
    Plain,
    /// KASAN, lockdep, kmemleak, DMA-API debugging; about ten times slower.
    Debug,
}

impl Flavour {
    /// The name that scripts/kernel knows.
    pub fn name(self) -> &'static str {
        match self {
            Flavour::Stock => "stock",
            Flavour::Plain => "plain",
            Flavour::Debug => "debug",
        }
    }

    /// How much longer things may take than on the plain kernel.
    pub fn slowness(self) -> u32 {
        match self {
            Flavour::Stock | Flavour::Plain => 1,
            Flavour::Debug => 8,
        }
    }

    /// The memory of a guest in MiB.
    pub fn default_memory(self) -> u32 {
        match self {
            Flavour::Stock | Flavour::Plain => 512,
            Flavour::Debug => 1024,
        }
    }
}

/// Which nodes have an NTB between them. The lower number is the upstream side.
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
    /// What `nodes` nodes get by default.
    pub fn default_for(nodes: usize) -> Topology {
        match nodes {
            0 | 1 => Topology::None,
            2 => Topology::Pair,
            _ => Topology::Star,
        }
    }

    /// The links as (upstream, downstream).
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

/// Windows from text: `aperture`, `trapped:SIZE` or `fixed:BASE:SIZE`.
pub fn parse_windows(text: &str) -> Result<Windows, String> {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        ["aperture"] => Ok(Windows::Aperture),
        ["trapped", size] => Ok(Windows::Trapped {
            size: parse_size(size)?,
        }),
        ["fixed", base, size] => Ok(Windows::Fixed {
            base: parse_size(base)?,
            size: parse_size(size)?,
        }),
        _ => Err(
            "it is 'aperture', 'trapped:SIZE' or 'fixed:BASE:SIZE', for example fixed:256M:2M"
                .to_owned(),
        ),
    }
}

/// An NTB personality from text: `gen3` or `gen5`.
pub fn parse_personality(text: &str) -> Result<Personality, String> {
    match text {
        "gen3" => Ok(Personality::Gen3),
        "gen5" => Ok(Personality::Gen5),
        _ => Err("it is gen3 or gen5".to_owned()),
    }
}

/// A number with an optional K, M or G.
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

/// A lab as it is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The name; it tells labs apart that run at once.
    pub name: String,
    /// How many nodes.
    pub nodes: usize,
    /// Which links.
    pub topology: Topology,
    /// Which kernel.
    pub kernel: Flavour,
    /// The memory of a node in MiB.
    pub memory: u32,
    /// Processors of a node.
    pub processors: u32,
    /// DMA engines of a node.
    pub dma_channels: usize,
    /// Which NTB.
    pub personality: Personality,
    /// What its windows are.
    pub windows: Windows,
    /// Whether the nodes have an IOMMU, and use it.
    pub iommu: bool,
    /// Added to the kernel's command line.
    pub append: Vec<String>,
    /// In-tree modules to load at every boot, without those they need.
    pub modules: Vec<String>,
    /// Where the emulator is, if not beside the running program.
    pub emulator: Option<PathBuf>,
    /// Where the guest's agent is, if not beside the running program.
    pub agent: Option<PathBuf>,
}

impl Config {
    /// A lab of `nodes` nodes with all defaults.
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
            iommu: false,
            append: Vec::new(),
            modules: vec!["ntb_hw_intel".to_owned(), "plx_dma".to_owned()],
            emulator: None,
            agent: None,
        }
    }

    /// Says what cannot be built.
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
            bail!("a node has 1 to 4 processors, not {}", self.processors);
        }
        Ok(())
    }

    /// The links as (upstream, downstream).
    pub fn links(&self) -> Vec<(usize, usize)> {
        self.topology.links(self.nodes)
    }

    /// The same for the emulator, whose sockets are in `folder` and which holds the nodes'
    /// memory in `ram_files`.
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
                    ram_size: u64::from(self.memory) << 20,
                    dma_channels: self.dma_channels,
                })
                .collect(),
            links: self
                .links()
                .into_iter()
                .map(|(upstream, downstream)| Link {
                    upstream,
                    downstream,
                    personality: self.personality,
                    windows: self.windows,
                })
                .collect(),
        }
    }

    /// Whether anything of it is emulated.
    pub fn needs_emulator(&self) -> bool {
        self.dma_channels > 0 || !self.links().is_empty()
    }
}

/// A name goes into the names of sockets, which are short.
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
mod tests {
    use super::*;

    #[test]
    fn topologies() {
        assert_eq!(Topology::Pair.links(2), [(0, 1)]);
        assert_eq!(Topology::Star.links(4), [(0, 1), (0, 2), (0, 3)]);
        assert_eq!(Topology::Chain.links(3), [(0, 1), (1, 2)]);
        assert_eq!(Topology::Ring.links(3), [(0, 1), (1, 2), (0, 2)]);
        assert_eq!(Topology::Ring.links(2), [(0, 1)]);
        assert!(Topology::Star.links(1).is_empty());
    }

    #[test]
    fn the_emulator_accepts_it() {
        let mut config = Config::new("x", 3, Flavour::Plain);
        config.dma_channels = 2;
        let files = (0..3).map(|n| PathBuf::from(format!("/ram-{n}"))).collect();
        let topology = config.emulated(Path::new("/run"), files);
        topology.validate().unwrap();
        assert_eq!(topology.ntb_sockets(0).len(), 2);
        assert_eq!(topology.ntb_sockets(2).len(), 1);
        assert_eq!(topology.dma_sockets(2).len(), 2);
    }

    #[test]
    fn windows() {
        assert_eq!(parse_windows("aperture"), Ok(Windows::Aperture));
        assert_eq!(
            parse_windows("fixed:256M:2M"),
            Ok(Windows::Fixed {
                base: 256 << 20,
                size: 2 << 20
            })
        );
        assert_eq!(
            parse_windows("trapped:1M"),
            Ok(Windows::Trapped { size: 1 << 20 })
        );
        assert!(parse_windows("fixed:1").is_err());
        assert!(parse_windows("fixed:99999999999G:1").is_err());
        assert!(parse_windows("").is_err());
    }

    #[test]
    fn names() {
        assert!(check_name("default").is_ok());
        assert!(check_name("").is_err());
        assert!(check_name("../etc").is_err());
        assert!(check_name(&"x".repeat(41)).is_err());
    }
}
