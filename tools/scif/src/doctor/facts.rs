// SPDX-License-Identifier: GPL-2.0

//! The facts about a machine: [`super::look`] fills them in, and [`super::judge`] reads them.

use crate::watch::Link;
use crate::watch::network;
use serde::Serialize;
use std::collections::BTreeMap;

/// The facts about a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The release of the kernel.
    pub kernel: String,
    /// The command line of the kernel.
    pub command_line: String,
    /// The options of the kernel, by name, if they can be read.
    pub options: Option<BTreeMap<String, String>>,
    /// Whether the module is loaded.
    pub is_loaded: bool,
    /// Whether the list of modules has the module; unknown without that list.
    pub is_installed: Option<bool>,
    /// The parameters.
    pub parameters: BTreeMap<String, String>,
    /// The device file.
    pub device: Device,
    /// The user who runs doctor.
    pub caller: Caller,
    /// The bridges.
    pub bridges: Vec<Bridge>,
    /// Whether the list of drivers for bridges could be read.
    pub knows_drivers: bool,
    /// Whether an IOMMU is switched on.
    pub has_iommu: bool,
    /// The engines.
    pub engines: Vec<Engine>,
    /// The modules of engines that have no driver yet.
    pub engine_modules: Vec<String>,
    /// The CPUs.
    pub cpus: Cpus,
    /// The links of the module; none if they can't be read, which takes root.
    pub links: Option<Vec<Link>>,
    /// The network devices, and their drivers.
    pub networks: Networks,
    /// The address where memory ends, if it can be read, which takes root.
    pub end_of_memory: Option<u64>,
    /// The lines of the kernel's log about SCIF and bridges, if the log can be read.
    pub log: Option<Vec<String>>,
}

/// The device file `/dev/scif`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Whether the file exists.
    pub exists: bool,
    /// The error when the caller opens it, as `EACCES`.
    pub refusal: Option<String>,
    /// The group that it belongs to.
    pub group: Option<String>,
    /// The number of the device in sysfs, as `240:0`.
    pub number: Option<String>,
}

/// The user who runs doctor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// The name, or the number if there is none.
    pub name: String,
    /// The members of the group `scif`, if there is such a group.
    pub members: Option<Vec<String>>,
    /// Number of bytes that may be pinned (RLIMIT_MEMLOCK); none if there is no limit.
    pub pins: Option<u64>,
    /// Whether the limit does not apply (CAP_IPC_LOCK).
    pub pins_all: bool,
}

/// The network devices of peers, and their drivers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Networks {
    /// Whether `scif_net` is loaded.
    pub is_loaded: bool,
    /// Whether the list of modules has `scif_net`; unknown without that list.
    pub is_installed: Option<bool>,
    /// Whether `ntb_netdev`, the kernel's driver for the same, is loaded.
    pub has_ntb_netdev: bool,
    /// The devices.
    pub devices: Vec<network::Device>,
}

/// A bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bridge {
    /// The address, as `0000:00:05.0`.
    pub address: String,
    /// The vendor and device, as `8086:0db4`.
    pub id: String,
    /// The module of the kernel that drives devices of this kind.
    pub module: Option<String>,
    /// Whether the driver in `module` is registered.
    pub has_module: bool,
    /// The present driver.
    pub driver: Option<String>,
    /// The sizes of the device's BARs, by number, without the first, which has the registers.
    pub bars: BTreeMap<usize, u64>,
    /// The numbers of the BARs that have no address.
    pub unassigned: Vec<usize>,
    /// `DMA`, `DMA-FQ`, `identity`, or none without an IOMMU.
    pub iommu: Option<String>,
    /// The other devices of its IOMMU group.
    pub companions: Vec<String>,
    /// The NUMA node that it is at.
    pub numa: Option<u32>,
    /// The interrupts.
    pub interrupts: Vec<Interrupt>,
    /// The client of the kernel's NTB bus that uses the bridge, if the driver has registered there.
    pub client: Option<Client>,
    /// The present and the best rate and lanes.
    pub speed: Option<Speed>,
}

/// The user of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// No client.
    Nobody,
    /// A client of this name.
    Named(String),
}

/// The speed of a device's connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Speed {
    /// The present rate, as `16.0 GT/s PCIe`.
    pub rate: String,
    /// The present number of lanes.
    pub lanes: u32,
    /// The best rate of the device.
    pub best_rate: String,
    /// The largest number of lanes of the device.
    pub most_lanes: u32,
}

/// An interrupt of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// The number.
    pub number: u32,
    /// The CPUs that it goes to.
    pub cpus: Vec<u32>,
}

/// The CPUs of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cpus {
    /// The CPUs that are online.
    pub online: Vec<u32>,
    /// The CPUs that are isolated for other programs.
    pub isolated: Vec<u32>,
}

/// A channel of a DMA engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Engine {
    /// The name, as `dma0chan0`.
    pub name: String,
    /// The driver of its device.
    pub driver: Option<String>,
    /// Number of users.
    pub users: u32,
    /// The NUMA node that it is at.
    pub numa: Option<u32>,
}
