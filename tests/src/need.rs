// SPDX-License-Identifier: GPL-2.0
//! The lab that a test needs: its machines, and how the module is loaded in them.

use lab::Flavour;
use lab::Iommu;
use lab::Personality;
use lab::Topology;
use lab::WeakOrder;
use lab::Windows;

use crate::loaded::Loaded;

/// The lab that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Number of nodes.
    pub nodes: usize,
    /// The links between the nodes.
    pub topology: Topology,
    /// Number of DMA engines of a node.
    pub dma_channels: usize,
    /// Bytes that each engine copies in a second, if that is limited.
    pub engine_rate: Option<u64>,
    /// Model of the NTB.
    pub personality: Personality,
    /// The memory windows of the NTB.
    pub windows: Windows,
    /// The order of writes across links, if the lab reorders them.
    pub weak_order: Option<WeakOrder>,
    /// The devices that are behind the nodes' IOMMU.
    pub iommu: Iommu,
    /// Whether the kernel has to have KUnit and run the cases of modules. Debian's kernel has no
    /// KUnit.
    pub kunit: bool,
    /// Whether a PCI device of each node has memory.
    pub device_memory: bool,
    /// Whether nodes can sleep.
    pub sleep: bool,
    /// Words for the guests' kernel command line; those that begin with "scif." are parameters of
    /// the module.
    pub append: &'static [&'static str],
    /// Whether the module under test is loaded.
    pub scif: Loaded,
}

impl Need {
    /// Returns the machines alone: without the module, and with a fixed seed, because a lab can
    /// change its seed.
    pub fn machines(self) -> Need {
        let order = |order| WeakOrder { seed: 0, ..order };
        Need {
            weak_order: self.weak_order.map(order),
            scif: Loaded::No,
            ..self
        }
    }

    /// Returns the kernel that the nodes boot if the user has asked for `asked`.
    pub fn kernel(&self, asked: Flavour) -> Flavour {
        match asked {
            Flavour::Stock if self.kunit => Flavour::Plain,
            asked => asked,
        }
    }
}

/// One node without links.
pub const ONE: Need = Need {
    nodes: 1,
    topology: Topology::None,
    dma_channels: 1,
    engine_rate: None,
    personality: Personality::Gen5,
    windows: Windows::Aperture,
    weak_order: None,
    iommu: Iommu::None,
    kunit: false,
    device_memory: false,
    sleep: false,
    append: &[],
    scif: Loaded::No,
};

/// Two nodes with a link.
pub const PAIR: Need = Need {
    nodes: 2,
    topology: Topology::Pair,
    ..ONE
};

/// Node 0 with links to nodes 1 and 2.
pub const STAR: Need = Need {
    nodes: 3,
    topology: Topology::Star,
    ..ONE
};
