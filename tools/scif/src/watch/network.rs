// SPDX-License-Identifier: GPL-2.0

//! The network devices of `scif_net`, one for each peer.
//!
//! sysfs has all of a device but its addresses ([`super::addresses`]). Every user may read it. A
//! device that is in another network namespace is not there.

use super::addresses;
use super::addresses::Address;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// The flag of a device that the administrator has set up.
const IFF_UP: u32 = 1;

/// The network device of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The name, as `scif0`.
    pub name: String,
    /// The id of the peer's node.
    pub node: u16,
    /// The address of the bridge's PCI device.
    pub bridge: Option<String>,
    /// The number by which the kernel knows it.
    #[serde(skip)]
    pub index: Option<u32>,
    /// Whether the administrator has set it up.
    pub is_up: bool,
    /// Whether the peer can take frames; unknown while the device is down.
    pub carrier: Option<bool>,
    /// The largest packet in bytes.
    pub mtu: Option<u32>,
    /// The state as the kernel has it: `up`, `down`, `dormant`, ...
    pub operstate: Option<String>,
    /// The speed in Mb/s.
    pub speed: Option<u64>,
    /// The MAC address.
    pub mac: Option<String>,
    /// The bridge or bond of the kernel of which it is a part.
    pub master: Option<String>,
    /// The addresses with the length of their prefix, as `10.9.0.1/24`.
    pub addresses: Vec<String>,
    /// The counts of frames to the peer.
    pub sent: Counts,
    /// The counts of frames of the peer.
    pub received: Counts,
}

/// Counts of frames in one direction since the device was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets. A frame that is still to be cut counts as the packets that it becomes.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Frames that were wrong.
    pub errors: u64,
    /// Frames that were right, and got no further.
    pub dropped: u64,
}

impl Device {
    /// Returns the state in a word: `up`, `no-carrier` or `down`.
    pub fn state(&self) -> &'static str {
        match (self.is_up, self.carrier) {
            (true, Some(true)) => "up",
            (true, _) => "no-carrier",
            (false, _) => "down",
        }
    }
}

/// Reads the devices of `scif_net` below a folder such as `/sys/class/net`, by node and name.
pub fn read(class: &Path) -> Vec<Device> {
    let entries = fs::read_dir(class).into_iter().flatten().flatten();
    let mut devices: Vec<Device> = entries
        .filter_map(|entry| device(&entry.path(), entry.file_name().into_string().ok()?))
        .collect();
    devices.sort_by(|a, b| (a.node, &a.name).cmp(&(b.node, &b.name)));
    devices
}

/// Reads the devices, and asks the kernel for their addresses, if there are devices.
pub fn read_with_addresses(class: &Path) -> Vec<Device> {
    let mut devices = read(class);
    if !devices.is_empty() {
        // Without addresses the rest is of use, too.
        give(&mut devices, &addresses::read().unwrap_or_default());
    }
    devices
}

/// Gives devices their addresses.
fn give(devices: &mut [Device], all: &[Address]) {
    for device in devices {
        let own = all.iter().filter(|each| Some(each.device) == device.index);
        device.addresses = own.map(ToString::to_string).collect();
    }
}

/// Reads a device. `None` if it is not of `scif_net`, or has just gone.
fn device(folder: &Path, name: String) -> Option<Device> {
    let text = |file: &str| {
        let text = fs::read_to_string(folder.join(file)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let target = |link: &str| {
        let target = fs::read_link(folder.join(link)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    };
    if !text("uevent")?.lines().any(|line| line == "DEVTYPE=scif") {
        return None;
    }
    let flags = text("flags").unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
    let count = |direction: &str, what: &str| {
        let text = text(&format!("statistics/{direction}_{what}"));
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let counts = |direction: &str| Counts {
        packets: count(direction, "packets"),
        bytes: count(direction, "bytes"),
        errors: count(direction, "errors"),
        dropped: count(direction, "dropped"),
    };
    Some(Device {
        node: text("dev_port")?.parse().ok()?,
        bridge: target("device"),
        index: text("ifindex").and_then(|text| text.parse().ok()),
        is_up: flags & IFF_UP != 0,
        // The kernel refuses to read it while the device is down.
        carrier: text("carrier").map(|text| text == "1"),
        mtu: text("mtu").and_then(|text| text.parse().ok()),
        operstate: text("operstate"),
        // -1 means unknown.
        speed: text("speed").and_then(|text| text.parse().ok()),
        mac: text("address"),
        master: target("master"),
        addresses: Vec::new(),
        sent: counts("tx"),
        received: counts("rx"),
        name,
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::watch::tests::write_all;
    use std::net::Ipv4Addr;
    use std::os::unix::fs::symlink;

    /// Writes the files of a device with a carrier below a folder.
    pub fn write_device(class: &Path, name: &str, node: u16) {
        let path = |file: &str| format!("{name}/{file}");
        let port = format!("{node}\n");
        write_all(
            class,
            &[
                (&path("uevent"), "DEVTYPE=scif\nINTERFACE=x\nIFINDEX=7\n"),
                (&path("dev_port"), &port),
                (&path("ifindex"), "2147483647\n"),
                (&path("flags"), "0x1003\n"),
                (&path("carrier"), "1\n"),
                (&path("mtu"), "1500\n"),
                (&path("operstate"), "up\n"),
                (&path("speed"), "-1\n"),
                (&path("address"), "02:5c:00:00:00:01\n"),
                (&path("statistics/tx_packets"), "10\n"),
                (&path("statistics/tx_bytes"), "1000\n"),
                (&path("statistics/tx_errors"), "1\n"),
                (&path("statistics/rx_packets"), "20\n"),
                (&path("statistics/rx_dropped"), "2\n"),
            ],
        );
        symlink("../../0000:00:05.0", class.join(name).join("device")).unwrap();
    }

    #[test]
    fn devices_of_scif_are_read_by_node() {
        let root = tempfile::tempdir().unwrap();
        write_device(root.path(), "enp5s0d2", 2);
        write_device(root.path(), "scif1", 1);
        symlink("../br0", root.path().join("scif1/master")).unwrap();
        write_all(
            root.path(),
            &[
                ("eth0/uevent", "INTERFACE=eth0\n"),
                ("eth0/dev_port", "1\n"),
                ("bonding_masters", ""),
                ("enp5s0d2/flags", "0x1002\n"),
                ("enp5s0d2/speed", "31504\n"),
            ],
        );
        // As the kernel does it while a device is down.
        fs::remove_file(root.path().join("enp5s0d2/carrier")).unwrap();
        let mut devices = read(root.path());
        let [up, down] = &devices[..] else {
            panic!("{devices:?}");
        };
        assert_eq!((up.name.as_str(), up.node, up.state()), ("scif1", 1, "up"));
        assert_eq!((up.mtu, up.speed), (Some(1500), None));
        assert_eq!(up.bridge.as_deref(), Some("0000:00:05.0"));
        assert_eq!(up.master.as_deref(), Some("br0"));
        assert_eq!((up.sent.packets, up.sent.errors), (10, 1));
        assert_eq!((up.received.packets, up.received.dropped), (20, 2));
        assert_eq!((down.node, down.state(), down.carrier), (2, "down", None));
        assert_eq!((down.speed, down.master.as_ref()), (Some(31504), None));

        let of = |device, last| Address {
            device,
            ip: Ipv4Addr::new(10, 9, 0, last).into(),
            prefix: 24,
        };
        give(&mut devices, &[of(1, 1), of(2147483647, 2)]);
        assert_eq!(devices[0].addresses, ["10.9.0.2/24"]);
    }

    #[test]
    fn device_without_carrier_says_so() {
        let device = Device {
            is_up: true,
            carrier: Some(false),
            ..Device::default()
        };
        assert_eq!(device.state(), "no-carrier");
    }

    #[test]
    fn folder_without_devices_is_empty() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read_with_addresses(root.path()), []);
        assert_eq!(read(&root.path().join("absent")), []);
    }
}
