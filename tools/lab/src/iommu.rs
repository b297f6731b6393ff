// SPDX-License-Identifier: GPL-2.0
//! The devices behind the IOMMU of a node.
//!
//! QEMU tells the emulator of a device's mapping as long as it maps memory of the guest. It drops
//! the mapping of another device's memory. So an engine behind the IOMMU can't copy through the
//! window of a bridge. If only the bridges are behind it, both work, as on a host whose engine is
//! passed through.

use clap::ValueEnum;
use serde::Deserialize;
use serde::Serialize;

/// The devices behind the IOMMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Iommu {
    /// There is no IOMMU.
    #[default]
    None,
    /// The bridges; engines use physical addresses.
    Bridges,
    /// The bridges of node 0; the other nodes have no IOMMU.
    First,
    /// All devices.
    All,
}

impl Iommu {
    /// Returns whether a node has an IOMMU.
    pub fn exists(self, node: usize) -> bool {
        match self {
            Iommu::None => false,
            Iommu::First => node == 0,
            Iommu::Bridges | Iommu::All => true,
        }
    }

    /// Returns the shell commands to run before drivers are loaded, if any, with engines in these
    /// slots. The kernel changes the type of a group only while its device has no driver.
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
    fn engines_bypass_an_iommu_meant_for_bridges_only() {
        assert_eq!(Iommu::All.preparation(0, [16].into_iter()), None);
        assert_eq!(Iommu::None.preparation(0, [16].into_iter()), None);
        assert_eq!(Iommu::Bridges.preparation(0, [].into_iter()), None);
        assert_eq!(Iommu::First.preparation(1, [16].into_iter()), None);
        assert!(Iommu::First.preparation(0, [16].into_iter()).is_some());
        let commands = Iommu::Bridges.preparation(1, [16, 17].into_iter()).unwrap();
        assert!(commands.contains("0000:00:10.0") && commands.contains("0000:00:11.0"));
    }
}
