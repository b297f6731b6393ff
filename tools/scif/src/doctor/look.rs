// SPDX-License-Identifier: GPL-2.0

//! The facts, as the files of the kernel have them. What can't be read is not there.

use super::modules::Aliases;
use crate::watch::Link;
use crate::watch::links;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

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
    /// The device file is there.
    pub has_device_file: bool,
    /// The bridges.
    pub bridges: Vec<Bridge>,
    /// Whether the drivers that this kernel has for bridges are known.
    pub knows_drivers: bool,
    /// The engines.
    pub engines: Vec<Engine>,
    /// The links of the module; none if they can't be read, which takes root.
    pub links: Option<Vec<Link>>,
    /// Where memory ends, if it can be read, which takes root.
    pub end_of_memory: Option<u64>,
    /// What the kernel's log has of SCIF and of bridges, if it can be read.
    pub log: Option<Vec<String>>,
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
    /// The driver that it has.
    pub driver: Option<String>,
    /// The sizes of its BARs, by number, without the first, in which the registers are.
    pub bars: BTreeMap<usize, u64>,
    /// `DMA`, `DMA-FQ`, `identity`, or none without an IOMMU.
    pub iommu: Option<String>,
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

/// A channel of a DMA engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Engine {
    /// As `dma0chan0`.
    pub name: String,
    /// The driver of its device.
    pub driver: Option<String>,
    /// How many use it.
    pub users: u32,
}

/// Looks at a machine whose files are below `root`.
pub fn look(root: &Path) -> Facts {
    let at = |path: &str| root.join(path);
    let text = |path: &str| fs::read_to_string(at(path)).ok();
    let kernel = text("proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim().to_owned();
    let list = |name: &str| text(&format!("lib/modules/{kernel}/{name}"));
    let aliases = Aliases::of_bridges(&list("modules.alias").unwrap_or_default());
    let parameters = names(&at("sys/module/scif/parameters"));
    Facts {
        command_line: text("proc/cmdline").unwrap_or_default().trim().to_owned(),
        options: text(&format!("boot/config-{kernel}")).map(|text| options(&text)),
        is_loaded: at("sys/module/scif").exists(),
        is_installed: list("modules.dep").map(|text| text.contains("/scif.ko")),
        parameters: parameters
            .into_iter()
            .filter_map(|name| {
                let value = text(&format!("sys/module/scif/parameters/{name}"))?;
                Some((name, value.trim().to_owned()))
            })
            .collect(),
        has_device_file: at("dev/scif").exists(),
        bridges: bridges(root, &aliases),
        knows_drivers: !aliases.is_empty(),
        engines: engines(&at("sys/class/dma")),
        links: text("sys/kernel/debug/scif/links").map(|text| links(&text)),
        end_of_memory: text("proc/iomem").and_then(|text| end_of_memory(&text)),
        log: log(&at("dev/kmsg")),
        kernel,
    }
}

/// What is in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// A file of one line.
fn line(path: PathBuf) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The last part of what a link leads to.
fn target(link: PathBuf) -> Option<String> {
    let name = fs::read_link(link).ok()?;
    Some(name.file_name()?.to_str()?.to_owned())
}

fn options(text: &str) -> BTreeMap<String, String> {
    let set = text.lines().filter_map(|line| line.split_once('='));
    set.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn bridges(root: &Path, aliases: &Aliases) -> Vec<Bridge> {
    let devices = root.join("sys/bus/pci/devices");
    let found = names(&devices).into_iter().filter_map(|address| {
        let device = devices.join(&address);
        let modalias = line(device.join("modalias"))?;
        let driver = target(device.join("driver"));
        let module = aliases.module(&modalias).map(str::to_owned);
        let is_bridge = |name: &str| name.starts_with("ntb_hw_") || name == "switchtec";
        if module.is_none() && !driver.as_deref().is_some_and(is_bridge) {
            return None;
        }
        Some(bridge(root, address, &device, driver, module))
    });
    found.collect()
}

fn bridge(
    root: &Path,
    address: String,
    device: &Path,
    driver: Option<String>,
    module: Option<String>,
) -> Bridge {
    let hexadecimal = |file: &str| {
        let text = line(device.join(file)).unwrap_or_default();
        text.trim_start_matches("0x").to_owned()
    };
    let registered = root.join("sys/bus/ntb/devices").join(&address);
    let client = registered
        .exists()
        .then(|| target(registered.join("driver")).map_or(Client::Nobody, Client::Named));
    Bridge {
        id: format!("{}:{}", hexadecimal("vendor"), hexadecimal("device")),
        module,
        driver,
        bars: fs::read_to_string(device.join("resource"))
            .map(|text| bars(&text))
            .unwrap_or_default(),
        iommu: line(device.join("iommu_group/type")),
        client,
        speed: speed(device),
        address,
    }
}

/// The file `resource`: first and last address and flags of each BAR; the seventh line is the ROM.
fn bars(text: &str) -> BTreeMap<usize, u64> {
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let lines = text.lines().take(6).enumerate().skip(1);
    let sizes = lines.filter_map(|(index, line)| {
        let mut words = line.split_whitespace();
        let (first, last) = (number(words.next()?)?, number(words.next()?)?);
        let size = last.checked_sub(first)?.checked_add(1)?;
        (last > 0).then_some((index, size))
    });
    sizes.collect()
}

fn speed(device: &Path) -> Option<Speed> {
    let lanes = |file: &str| line(device.join(file))?.parse().ok();
    Some(Speed {
        rate: line(device.join("current_link_speed"))?,
        lanes: lanes("current_link_width")?,
        best_rate: line(device.join("max_link_speed"))?,
        most_lanes: lanes("max_link_width")?,
    })
}

fn engines(class: &Path) -> Vec<Engine> {
    let found = names(class).into_iter().map(|name| Engine {
        driver: target(class.join(&name).join("device/driver")),
        users: line(class.join(&name).join("in_use"))
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        name,
    });
    found.collect()
}

/// From the list of resources: those who may not read it see zeroes.
fn end_of_memory(text: &str) -> Option<u64> {
    let ends = text.lines().filter_map(|line| {
        let (range, what) = line.split_once(" : ")?;
        let (_, last) = range.trim().split_once('-')?;
        (what == "System RAM").then(|| u64::from_str_radix(last, 16).ok())?
    });
    ends.max().filter(|last| *last > 0)?.checked_add(1)
}

/// What of the kernel's log is about SCIF and bridges. It is read to its end, without waiting for more.
fn log(path: &Path) -> Option<Vec<String>> {
    use rustix::fs::Mode;
    use rustix::fs::OFlags;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).ok()?;
    let mut lines = Vec::new();
    let mut record = [0; 8192];
    loop {
        match rustix::io::read(&file, &mut record) {
            Ok(0) => break,
            Ok(count) => {
                let text = String::from_utf8_lossy(&record[..count]);
                lines.extend(text.lines().filter_map(message).map(str::to_owned));
            }
            // Overwritten while it was read.
            Err(rustix::io::Errno::PIPE) => {}
            Err(_) => break,
        }
    }
    Some(lines)
}

/// A record of the log: numbers, then the text, if it is about us.
fn message(record: &str) -> Option<&str> {
    let (_, text) = record.split_once(';')?;
    let ours = ["scif", "ntb", "NTB", "switchtec"];
    ours.iter().any(|word| text.contains(word)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_machine_with_a_bridge() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "proc/sys/kernel/osrelease", "7.3.4\n");
        write(root, "proc/cmdline", "intel_iommu=on\n");
        write(
            root,
            "lib/modules/7.3.4/modules.alias",
            "alias pci:v00008086d00000DB4sv*sd*bc*sc*i* ntb_hw_intel\n",
        );
        write(root, "lib/modules/7.3.4/modules.dep", "updates/scif.ko: \n");
        write(
            root,
            "boot/config-7.3.4",
            "# CONFIG_A is not set\nCONFIG_RUST=y\n",
        );
        write(root, "sys/module/scif/parameters/aperture", "auto\n");
        let device = "sys/bus/pci/devices/0000:00:05.0";
        write(
            root,
            &format!("{device}/modalias"),
            "pci:v00008086d00000DB4sv0sd0bc06sc80i00\n",
        );
        write(root, &format!("{device}/vendor"), "0x8086\n");
        write(root, &format!("{device}/device"), "0x0db4\n");
        write(
            root,
            &format!("{device}/resource"),
            "0x1000 0x1fff 0x40200\n0x0 0x0 0x0\n0x800000 0x8fffff 0x14220c\n",
        );
        write(root, &format!("{device}/iommu_group/type"), "DMA-FQ\n");
        write(
            root,
            "sys/bus/pci/devices/0000:00:01.0/modalias",
            "pci:v1d1sv0sd0bc0sc0i0\n",
        );
        fs::create_dir_all(root.join("sys/bus/ntb/devices/0000:00:05.0")).unwrap();
        symlink("x/ntb_hw_intel", root.join(device).join("driver")).unwrap();
        symlink(
            "x/scif",
            root.join("sys/bus/ntb/devices/0000:00:05.0/driver"),
        )
        .unwrap();
        write(root, "sys/class/dma/dma0chan0/in_use", "1\n");
        write(
            root,
            "proc/iomem",
            "00001000-1fffffff : System RAM\n  01000000-01ffffff : Kernel code\n",
        );
        let facts = look(root);
        assert_eq!(facts.kernel, "7.3.4");
        assert_eq!(facts.is_installed, Some(true));
        assert!(facts.is_loaded && !facts.has_device_file && facts.knows_drivers);
        assert_eq!(facts.parameters["aperture"], "auto");
        assert_eq!(facts.options.unwrap()["CONFIG_RUST"], "y");
        let [bridge] = &facts.bridges[..] else {
            panic!("{:?}", facts.bridges);
        };
        assert_eq!(bridge.id, "8086:0db4");
        assert_eq!(bridge.bars, BTreeMap::from([(2, 1 << 20)]));
        assert_eq!(bridge.iommu.as_deref(), Some("DMA-FQ"));
        assert_eq!(bridge.driver.as_deref(), Some("ntb_hw_intel"));
        assert_eq!(bridge.client, Some(Client::Named("scif".into())));
        assert_eq!((facts.engines.len(), facts.engines[0].users), (1, 1));
        assert_eq!(facts.end_of_memory, Some(0x2000_0000));
        assert_eq!((facts.links, facts.log), (None, None));
    }

    #[test]
    fn a_machine_with_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(look(folder.path()), Facts::default());
    }

    #[test]
    fn memory_that_is_hidden_is_not_known() {
        assert_eq!(end_of_memory("00000000-00000000 : System RAM\n"), None);
    }

    #[test]
    fn records_of_the_log() {
        assert_eq!(
            message("6,1,2,-;scif: node 1 is online"),
            Some("scif: node 1 is online")
        );
        assert_eq!(message("6,1,2,-;usb 1-1: new device"), None);
        assert_eq!(message(" SUBSYSTEM=pci"), None);
    }
}
