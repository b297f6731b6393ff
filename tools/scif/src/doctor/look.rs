// SPDX-License-Identifier: GPL-2.0

//! The facts, as the files of the kernel have them. A fact that can't be read is absent.

use super::facts::Bridge;
use super::facts::Caller;
use super::facts::Client;
use super::facts::Cpus;
use super::facts::Device;
use super::facts::Engine;
use super::facts::Facts;
use super::facts::Interrupt;
use super::facts::Networks;
use super::facts::Speed;
use super::modules::Aliases;
use crate::error::errno_name;
use crate::watch::links;
use crate::watch::network;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

/// The flag of a BAR that has no address.
const IORESOURCE_UNSET: u64 = 0x2000_0000;
/// The number of the capability to pin without limit.
const CAP_IPC_LOCK: u32 = 14;

/// Collects the facts of a machine whose files are below `root`.
pub fn look(root: &Path) -> Facts {
    let at = |path: &str| root.join(path);
    let text = |path: &str| fs::read_to_string(at(path)).ok();
    let kernel = text("proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim().to_owned();
    let list = |name: &str| text(&format!("lib/modules/{kernel}/{name}"));
    let alias = list("modules.alias").unwrap_or_default();
    let aliases = Aliases::of_bridges(&alias);
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
        device: device(root),
        caller: caller(root),
        bridges: bridges(root, &aliases),
        knows_drivers: !aliases.is_empty(),
        has_iommu: !names(&at("sys/class/iommu")).is_empty(),
        engines: engines(&at("sys/class/dma")),
        engine_modules: engine_modules(root, &Aliases::of_engines(&alias)),
        cpus: Cpus {
            online: cpus(at("sys/devices/system/cpu/online")),
            isolated: cpus(at("sys/devices/system/cpu/isolated")),
        },
        links: text("sys/kernel/debug/scif/links").map(|text| links(&text)),
        networks: Networks {
            is_loaded: at("sys/module/scif_net").exists(),
            is_installed: list("modules.dep").map(|text| text.contains("/scif_net.ko")),
            has_ntb_netdev: at("sys/module/ntb_netdev").exists(),
            devices: network::read_with_addresses(&at("sys/class/net")),
        },
        end_of_memory: text("proc/iomem").and_then(|text| end_of_memory(&text)),
        log: log(&at("dev/kmsg")),
        kernel,
    }
}

/// Returns the names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Reads a file of one line.
fn line(path: PathBuf) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Returns the last part of a link's target.
fn target(link: PathBuf) -> Option<String> {
    let name = fs::read_link(link).ok()?;
    Some(name.file_name()?.to_str()?.to_owned())
}

fn options(text: &str) -> BTreeMap<String, String> {
    let set = text.lines().filter_map(|line| line.split_once('='));
    set.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the numbers of a list such as `0-2,5`.
fn cpus(file: PathBuf) -> Vec<u32> {
    let text = line(file).unwrap_or_default();
    let parts = text.split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    parts.flatten().collect()
}

/// Returns the NUMA node of a device; -1 in the file means none.
fn numa(device: &Path) -> Option<u32> {
    line(device.join("numa_node"))?.parse().ok()
}

/// Returns the lines of `/etc/passwd` or `/etc/group`, split into fields.
fn accounts(file: PathBuf) -> Vec<Vec<String>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let parts = |line: &str| line.split(':').map(str::to_owned).collect();
    text.lines().map(parts).collect()
}

fn with_id(accounts: &[Vec<String>], id: u32) -> Option<String> {
    let id = id.to_string();
    let found = accounts.iter().find(|parts| parts.get(2) == Some(&id));
    found?.first().cloned()
}

/// Examines the device file, and opens it to see whether that works.
fn device(root: &Path) -> Device {
    let path = root.join("dev/scif");
    let groups = accounts(root.join("etc/group"));
    let about = fs::metadata(&path).ok();
    let opened = || {
        let mut options = fs::File::options();
        options.read(true).write(true).open(&path).err()
    };
    Device {
        exists: about.is_some(),
        refusal: about.as_ref().and_then(|_| Some(errno_name(&opened()?))),
        group: about.and_then(|about| with_id(&groups, about.gid())),
        number: line(root.join("sys/class/scif/scif/dev")),
    }
}

/// Returns the user who runs doctor, and the rights of that user.
fn caller(root: &Path) -> Caller {
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let uid = value("Uid:").and_then(|ids| ids.split_whitespace().next()?.parse().ok());
    let users = accounts(root.join("etc/passwd"));
    let groups = accounts(root.join("etc/group"));
    let group = groups.iter().find(|parts| parts[0] == "scif");
    let members = |parts: &Vec<String>| {
        let list = parts.get(3).map_or("", String::as_str).split(',');
        list.filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let capabilities = value("CapEff:").and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    let limits = fs::read_to_string(root.join("proc/self/limits")).unwrap_or_default();
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"));
    Caller {
        name: uid.map_or_else(String::new, |uid: u32| {
            with_id(&users, uid).unwrap_or_else(|| uid.to_string())
        }),
        members: group.map(members),
        // The file says `unlimited` if there is no limit.
        pins: limit.and_then(|limit| limit.split_whitespace().next()?.parse().ok()),
        pins_all: capabilities.is_some_and(|set| set & (1 << CAP_IPC_LOCK) != 0),
    }
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
    let drivers = root.join("sys/bus/pci/drivers");
    let resource = fs::read_to_string(device.join("resource")).unwrap_or_default();
    let (bars, unassigned) = bars(&resource);
    let mut companions = names(&device.join("iommu_group/devices"));
    // Bridges of the PCI bus need no mappings.
    let is_bus = |name: &str| {
        let class = line(root.join("sys/bus/pci/devices").join(name).join("class"));
        class.is_some_and(|class| class.starts_with("0x0604"))
    };
    companions.retain(|name| *name != address && !is_bus(name));
    Bridge {
        has_module: module
            .as_ref()
            .is_some_and(|module| drivers.join(module).exists()),
        id: format!("{}:{}", hexadecimal("vendor"), hexadecimal("device")),
        module,
        driver,
        bars,
        unassigned,
        iommu: line(device.join("iommu_group/type")),
        companions,
        numa: numa(device),
        interrupts: interrupts(root, device),
        client,
        speed: speed(device),
        address,
    }
}

/// Returns the interrupts of a device that a driver has requested.
fn interrupts(root: &Path, device: &Path) -> Vec<Interrupt> {
    let numbers = names(&device.join("msi_irqs"));
    let mut found: Vec<Interrupt> = numbers
        .into_iter()
        .filter_map(|number| {
            let folder = root.join("proc/irq").join(&number);
            Some(Interrupt {
                number: number.parse().ok()?,
                cpus: targets(&folder),
            })
        })
        .collect();
    found.sort_by_key(|interrupt| interrupt.number);
    found
}

/// Returns the CPUs that an interrupt goes to. After a change of the affinity the kernel shows the
/// former CPUs until the next interrupt comes.
fn targets(folder: &Path) -> Vec<u32> {
    let wanted = cpus(folder.join("smp_affinity_list"));
    let mut last = cpus(folder.join("effective_affinity_list"));
    last.retain(|cpu| wanted.contains(cpu));
    if last.is_empty() { wanted } else { last }
}

/// Parses the file `resource`: first and last address and flags of each BAR; the seventh line is
/// the ROM. Returns the sizes, and the numbers of BARs that have no address.
fn bars(text: &str) -> (BTreeMap<usize, u64>, Vec<usize>) {
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
    let (mut sizes, mut unassigned) = (BTreeMap::new(), Vec::new());
    for (index, line) in text.lines().take(6).enumerate() {
        let words: Vec<u64> = line.split_whitespace().filter_map(number).collect();
        let [first, last, flags] = words[..] else {
            continue;
        };
        if flags & IORESOURCE_UNSET != 0 {
            unassigned.push(index);
        } else if let (true, Some(size)) =
            (index > 0 && last > first, (last - first).checked_add(1))
        {
            sizes.insert(index, size);
        }
    }
    (sizes, unassigned)
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

/// Returns the modules for engines that have no driver, each once.
fn engine_modules(root: &Path, aliases: &Aliases) -> Vec<String> {
    let devices = root.join("sys/bus/pci/devices");
    let mut modules: Vec<String> = names(&devices)
        .into_iter()
        .filter(|address| target(devices.join(address).join("driver")).is_none())
        .filter_map(|address| line(devices.join(address).join("modalias")))
        .filter_map(|alias| aliases.module(&alias).map(str::to_owned))
        .collect();
    modules.sort();
    modules.dedup();
    modules
}

fn engines(class: &Path) -> Vec<Engine> {
    let found = names(class).into_iter().map(|name| Engine {
        driver: target(class.join(&name).join("device/driver")),
        users: line(class.join(&name).join("in_use"))
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        numa: numa(&class.join(&name).join("device")),
        name,
    });
    found.collect()
}

/// Returns the end of memory from the list of resources. A user who may not read the addresses sees
/// zeroes.
fn end_of_memory(text: &str) -> Option<u64> {
    let ends = text.lines().filter_map(|line| {
        let (range, name) = line.split_once(" : ")?;
        let (_, last) = range.trim().split_once('-')?;
        (name == "System RAM").then(|| u64::from_str_radix(last, 16).ok())?
    });
    ends.max().filter(|last| *last > 0)?.checked_add(1)
}

/// Returns the lines of the kernel's log about SCIF and bridges. Reads the log to its end, without
/// waiting for more.
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
            // The record was overwritten while it was read.
            Err(rustix::io::Errno::PIPE) => {}
            Err(_) => break,
        }
    }
    Some(lines)
}

/// Returns the text of a record of the log, if the text is about SCIF or bridges.
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
    fn facts_of_a_machine_with_a_bridge_are_collected() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "proc/sys/kernel/osrelease", "7.3.4\n");
        write(root, "proc/cmdline", "intel_iommu=on\n");
        write(
            root,
            "lib/modules/7.3.4/modules.alias",
            "alias pci:v00008086d00000DB4sv*sd*bc*sc*i* ntb_hw_intel\n\
             alias pci:v000010B5d*sv*sd*bc*sc*i* plx_dma\n",
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
        for name in ["0000:00:05.0", "0000:00:06.0"] {
            write(root, &format!("{device}/iommu_group/devices/{name}"), "");
        }
        write(root, "sys/class/iommu/dmar0", "");
        write(root, "sys/bus/pci/drivers/ntb_hw_intel/bind", "");
        write(root, &format!("{device}/numa_node"), "1\n");
        write(root, &format!("{device}/msi_irqs/34"), "msix\n");
        write(root, "proc/irq/34/smp_affinity_list", "2-3\n");
        write(root, "proc/irq/34/effective_affinity_list", "3\n");
        // The interrupt was moved, and none has come since.
        write(root, &format!("{device}/msi_irqs/35"), "msix\n");
        write(root, "proc/irq/35/smp_affinity_list", "0\n");
        write(root, "proc/irq/35/effective_affinity_list", "3\n");
        write(root, "sys/devices/system/cpu/online", "0-3\n");
        write(root, "sys/devices/system/cpu/isolated", "2-3\n");
        write(
            root,
            "sys/bus/pci/devices/0000:00:01.0/modalias",
            "pci:v000010B5d1sv0sd0bc0sc0i0\n",
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
        write(root, "sys/module/scif_net/refcnt", "0\n");
        network::tests::write_device(&root.join("sys/class/net"), "scif0", 1);
        let facts = look(root);
        assert_eq!(facts.kernel, "7.3.4");
        assert_eq!(facts.is_installed, Some(true));
        assert!(facts.is_loaded && !facts.device.exists && facts.knows_drivers && facts.has_iommu);
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
        assert!(bridge.has_module);
        assert_eq!(bridge.companions, ["0000:00:06.0"]);
        assert_eq!(bridge.numa, Some(1));
        let interrupt = |number, cpu| Interrupt {
            number,
            cpus: vec![cpu],
        };
        assert_eq!(bridge.interrupts, [interrupt(34, 3), interrupt(35, 0)]);
        assert_eq!(facts.cpus.online, [0, 1, 2, 3]);
        assert_eq!(facts.cpus.isolated, [2, 3]);
        assert_eq!((facts.engines.len(), facts.engines[0].users), (1, 1));
        assert_eq!(facts.engines[0].numa, None);
        assert_eq!(facts.engine_modules, ["plx_dma"]);
        assert_eq!(facts.end_of_memory, Some(0x2000_0000));
        assert_eq!((facts.links, facts.log), (None, None));
        let networks = facts.networks;
        assert!(networks.is_loaded && !networks.has_ntb_netdev);
        assert_eq!(networks.is_installed, Some(false));
        assert_eq!((networks.devices.len(), networks.devices[0].node), (1, 1));
    }

    #[test]
    fn empty_machine_has_default_facts() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(look(folder.path()), Facts::default());
    }

    #[test]
    fn bars_without_an_address_are_listed() {
        let text = "0xfebe0000 0xfebeffff 0x140204\n0x0 0x0 0x0\n\
            0x0 0xfffff 0x2014220c\n0x0 0x0 0x0\n0xc0000000 0xdfffffff 0x14220c\n";
        assert_eq!(bars(text), (BTreeMap::from([(4, 512 << 20)]), vec![2]));
    }

    #[test]
    fn facts_of_caller_and_device_are_collected() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(
            root,
            "proc/self/status",
            "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0\n",
        );
        let limits = "Max locked memory         8388608              8388608              bytes\n";
        write(root, "proc/self/limits", limits);
        write(
            root,
            "etc/passwd",
            "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:/bin/sh\n",
        );
        write(root, "etc/group", "scif:x:1234:ann,bob\n");
        write(root, "sys/class/scif/scif/dev", "240:0\n");
        let expected = Caller {
            name: "ann".into(),
            members: Some(vec!["ann".into(), "bob".into()]),
            pins: Some(8 << 20),
            pins_all: false,
        };
        assert_eq!(caller(root), expected);
        assert!(!device(root).exists);
        // A folder can't be opened for writing.
        write(root, "dev/scif/file", "");
        let device = device(root);
        assert!(device.exists && device.refusal.is_some());
        assert_eq!(device.number.as_deref(), Some("240:0"));
        write(
            root,
            "proc/self/status",
            "Uid:\t7\t7\nCapEff:\t000001ffffffffff\n",
        );
        write(
            root,
            "proc/self/limits",
            &limits.replace("8388608", "unlimited"),
        );
        let caller = caller(root);
        assert_eq!((caller.name.as_str(), caller.pins), ("7", None));
        assert!(caller.pins_all);
    }

    #[test]
    fn hidden_memory_map_gives_no_end_of_memory() {
        assert_eq!(end_of_memory("00000000-00000000 : System RAM\n"), None);
    }

    #[test]
    fn only_scif_records_of_the_log_are_taken() {
        assert_eq!(
            message("6,1,2,-;scif: node 1 is online"),
            Some("scif: node 1 is online")
        );
        assert_eq!(message("6,1,2,-;usb 1-1: new device"), None);
        assert_eq!(message(" SUBSYSTEM=pci"), None);
    }
}
