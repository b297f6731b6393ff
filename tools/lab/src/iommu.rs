// SPDX-License-Identifier: GPL-2.0
//! What stands behind the IOMMU of a node.
//!
//! QEMU tells the emulator of what is mapped for a device as long as it is memory of the guest. It drops
//! the mapping of another device's memory: an engine behind the IOMMU can't copy through the window of a
//! bridge. With the bridges alone behind it both work, as on a host whose engine is passed through.

use clap::ValueEnum;
use serde::Deserialize;
use serde::Serialize;

/// See the head of this file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Iommu {
    /// There is none.
    #[default]
    None,
    /// The bridges; engines name memory by physical addresses.
    Bridges,
    /// The bridges of node 0; the others have none.
    First,
    /// All devices.
    All,
}

impl Iommu {
    /// Whether a node has one.
    pub fn exists(self, node: usize) -> bool {
        match self {
            Iommu::None => false,
            Iommu::First => node == 0,
            Iommu::Bridges | Iommu::All => true,
        }
    }

    /// What a node's shell does before it loads drivers, if anything, with engines in these slots: the
    /// kernel changes the kind of a group while nobody drives its device.
    pub(crate) fn preparation(
        self,
        node: usize,
        engines: impl Iterator<Item = usize>,
    ) -> Option<String> {
        if !self.exists(node) || self == Iommu::All {
            return None;
        }
        let commands: Vec<String> = engines
            .map(|slot| {
                format!("echo identity >/sys/bus/pci/devices/0000:00:{slot:02x}.0/iommu_group/type")
            })
            .collect();
        (!commands.is_empty()).then(|| commands.join(" && "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_passed_through_if_only_bridges_are_behind_it() {
        assert_eq!(Iommu::All.preparation(0, [16].into_iter()), None);
        assert_eq!(Iommu::None.preparation(0, [16].into_iter()), None);
        assert_eq!(Iommu::Bridges.preparation(0, [].into_iter()), None);
        assert_eq!(Iommu::First.preparation(1, [16].into_iter()), None);
        assert!(Iommu::First.preparation(0, [16].into_iter()).is_some());
        let commands = Iommu::Bridges.preparation(1, [16, 17].into_iter()).unwrap();
        assert!(commands.contains("0000:00:10.0") && commands.contains("0000:00:11.0"));
    }
}
