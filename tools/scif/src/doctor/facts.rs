// SPDX-License-Identifier: GPL-2.0

//! What is known of a machine: what [`super::look`] fills in, and [`super::judge`] reads.

use crate::watch::Link;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a machine has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The release of the kernel.
    pub kernel: String,
    /// What the kernel was booted with.
    pub command_line: String,
    /// The options of the kernel, by name, if they can be read.
    pub options: Option<BTreeMap<String, String>>,
    /// Whether the module is loaded.
    pub is_loaded: bool,
    /// Whether it could be, as far as the list of modules says; unknown without that.
    pub is_installed: Option<bool>,
    /// Its parameters.
    pub parameters: BTreeMap<String, String>,
    /// The device file.
    pub device: Device,
    /// The user who asks.
    pub caller: Caller,
    /// The bridges.
    pub bridges: Vec<Bridge>,
    /// Whether the drivers that this kernel has for bridges are known.
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
    /// Where memory ends, if it can be read, which takes root.
    pub end_of_memory: Option<u64>,
    /// What the kernel's log has of SCIF and of bridges, if it can be read.
    pub log: Option<Vec<String>>,
}

/// The device file `/dev/scif`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Whether it is there.
    pub exists: bool,
    /// Why the caller can't open it, as `EACCES`.
    pub refusal: Option<String>,
    /// The group that it belongs to.
    pub group: Option<String>,
    /// What sysfs says that its number is, as `240:0`.
    pub number: Option<String>,
}

/// The user who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// The name, or the number if there is none.
    pub name: String,
    /// The members of the group `scif`, if there is such a group.
    pub members: Option<Vec<String>>,
    /// How many bytes may be pinned (RLIMIT_MEMLOCK); none if there is no limit.
    pub pins: Option<u64>,
    /// Whether that limit does not count (CAP_IPC_LOCK).
    pub pins_all: bool,
}

/// A bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bridge {
    /// Where it is, as `0000:00:05.0`.
    pub address: String,
    /// Its vendor and device, as `8086:0db4`.
    pub id: String,
    /// The module of the kernel that drives such a device.
    pub module: Option<String>,
    /// Whether that module is there already.
    pub has_module: bool,
    /// The driver that it has.
    pub driver: Option<String>,
    /// The sizes of its BARs, by number, without the first, in which the registers are.
    pub bars: BTreeMap<usize, u64>,
    /// The numbers of those BARs that have no address.
    pub unassigned: Vec<usize>,
    /// `DMA`, `DMA-FQ`, `identity`, or none without an IOMMU.
    pub iommu: Option<String>,
    /// The other devices of its IOMMU group.
    pub companions: Vec<String>,
    /// The NUMA node that it is at.
    pub numa: Option<u32>,
    /// Its interrupts.
    pub interrupts: Vec<Interrupt>,
    /// What the driver has registered with the kernel's NTB bus: who uses it, if somebody does.
    pub client: Option<Client>,
    /// GT/s and lanes now, and at best.
    pub speed: Option<Speed>,
}

/// Who uses a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Client {
    /// Nobody.
    Nobody,
    /// A client of this name.
    Named(String),
}

/// How fast a device is connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Speed {
    /// As `16.0 GT/s PCIe`.
    pub rate: String,
    /// Lanes.
    pub lanes: u32,
    /// The best rate that the device can.
    pub best_rate: String,
    /// Its most lanes.
    pub most_lanes: u32,
}

/// An interrupt of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The CPUs that it goes to.
    pub cpus: Vec<u32>,
}

/// The CPUs of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cpus {
    /// Those that are online.
    pub online: Vec<u32>,
    /// Those that are kept for somebody.
    pub isolated: Vec<u32>,
}

/// A channel of a DMA engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Engine {
    /// As `dma0chan0`.
    pub name: String,
    /// The driver of its device.
    pub driver: Option<String>,
    /// How many use it.
    pub users: u32,
    /// The NUMA node that it is at.
    pub numa: Option<u32>,
}
