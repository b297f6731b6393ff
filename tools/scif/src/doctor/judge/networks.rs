// SPDX-License-Identifier: GPL-2.0

//! The network devices of `scif_net`, by which IP crosses the links.
//!
//! SCIF works without them, so that no finding here is a problem.

use super::findings::Advice;
use super::findings::Findings;
use crate::doctor::facts::Client;
use crate::doctor::facts::Facts;
use crate::format::size;
use crate::watch::Link;
use crate::watch::network::Counts;
use crate::watch::network::Device;

/// Fewest dropped frames that are worth a finding. Some are dropped whenever a device comes up.
const FEW_DROPS: u64 = 32;
/// The part of all frames above which drops are worth a finding: one in so many.
const PART: u64 = 1000;
/// The part of an aperture that frames take at most: one in so many. See `frames/link.rs` of the
/// module.
const FRAMES: u64 = 8;
/// Bytes for frames with which one queue has its full size.
const ENOUGH: u64 = 1 << 20;

pub(super) fn judge(facts: &Facts, findings: &mut Findings) {
    others(facts, findings);
    if !facts.is_loaded {
        return;
    }
    let networks = &facts.networks;
    if !networks.is_loaded && networks.devices.is_empty() {
        findings.advice(
            "network",
            "scif_net is not loaded: no IP crosses the links",
            match networks.is_installed {
                Some(false) => "if you want ssh or NFS between the hosts, install scif_net \
                                (scif-dkms), and load it on both"
                    .into(),
                _ => Advice::by(
                    "if you want ssh or NFS between the hosts, load it on both",
                    ["modprobe scif_net".to_owned()],
                ),
            },
        );
        return;
    }
    let links = facts.links.iter().flatten();
    for link in links.filter(|link| link.link != "loopback") {
        if let ("up", Some(node)) = (link.state.as_str(), link.node) {
            peer(facts, link, node, findings);
        }
    }
    for each in &networks.devices {
        let is_to = |link: &Link| link.node == Some(each.node) && link.state == "up";
        let links = facts.links.as_ref();
        let is_alone = links.is_some_and(|links| !links.iter().any(is_to));
        device(each, is_alone, findings);
        counts(each, findings);
    }
    parts(&networks.devices, findings);
}

/// Finds the kernel's own network driver for bridges, which has no use beside scif.
fn others(facts: &Facts, findings: &mut Findings) {
    if !facts.networks.has_ntb_netdev {
        return;
    }
    let its = facts.bridges.iter().find(
        |bridge| matches!(&bridge.client, Some(Client::Named(client)) if client == "ntb_transport"),
    );
    match its {
        Some(bridge) => findings.advice(
            "network",
            format!("ntb_netdev carries IP over bridge {}", bridge.address),
            "scif_net does so over scif's links; both can't share a bridge",
        ),
        None if facts.is_loaded => findings.advice(
            "network",
            "ntb_netdev is loaded, and carries nothing, as no bridge is left for it",
            Advice::by(
                "scif_net carries IP over scif's links; ntb_netdev is of no use beside it",
                ["modprobe -r ntb_netdev".to_owned()],
            ),
        ),
        None => (),
    }
}

/// Finds a peer without a device, and one for whose frames there is little room.
fn peer(facts: &Facts, link: &Link, node: u16, findings: &mut Findings) {
    if facts.networks.devices.iter().all(|each| each.node != node) {
        findings.advice(
            "network",
            format!("node {node} has no network device here"),
            "it may be in another network namespace, as of a container (ip netns list); else the \
             kernel's log has the reason",
        );
        return;
    }
    let Some(own) = link.own.as_ref().filter(|own| own.aperture != "flat") else {
        return;
    };
    let room = own.bytes / FRAMES;
    if room < ENOUGH {
        findings.advice(
            "network",
            format!(
                "frames of node {node} get {} at most, an eighth of the aperture over this \
                 host's memory, so that it sends fewer at a time",
                size(room)
            ),
            "make the BAR larger, or switch an IOMMU on; see \"memory\" above",
        );
    }
}

/// Finds whether frames can cross. A device outlives the sessions with its peer: `is_alone` tells
/// that there is none now.
fn device(device: &Device, is_alone: bool, findings: &mut Findings) {
    let Device { name, node, .. } = device;
    if !device.is_up {
        findings.advice(
            "network",
            format!("{name} (node {node}) is down"),
            Advice::by(
                "set it up, and have that done at each boot: see the chapter \
                 \"IP over the link\" of the user guide",
                [format!("ip link set {name} up")],
            ),
        );
        return;
    }
    if device.carrier != Some(true) && is_alone {
        findings.advice(
            "network",
            format!("{name} has no carrier, as node {node} is not online"),
            "see \"link\" above; the device keeps its addresses",
        );
        return;
    }
    if device.carrier != Some(true) {
        findings.advice(
            "network",
            format!("{name} (node {node}) has no carrier"),
            format!(
                "load scif_net on node {node}; if it is loaded there, the kernel's log of one of \
                 the two has the reason"
            ),
        );
        return;
    }
    let mtu = device
        .mtu
        .map_or_else(|| "?".to_owned(), |mtu| mtu.to_string());
    let begin = format!("{name} reaches node {node}, MTU {mtu}");
    if let Some(master) = &device.master {
        findings.good("network", format!("{begin}, as a part of {master}"));
        return;
    }
    let is_local = |address: &&String| address.starts_with("fe80:");
    if device.addresses.iter().all(|address| is_local(&address)) {
        findings.advice(
            "network",
            format!("{begin}, but has no address of yours"),
            format!(
                "give it one, and another one of the same net to node {node}: see the chapter \
                 \"IP over the link\" of the user guide"
            ),
        );
        return;
    }
    let addresses: Vec<&str> = device.addresses.iter().map(String::as_str).collect();
    findings.good("network", format!("{begin}, with {}", addresses.join(", ")));
}

/// Finds frames that were wrong or dropped.
fn counts(device: &Device, findings: &mut Findings) {
    let Device { name, node, .. } = device;
    let many =
        |counts: &Counts| counts.dropped >= FEW_DROPS && counts.dropped > counts.packets / PART;
    let sent = &device.sent;
    let received = &device.received;
    if received.errors > 0 {
        findings.advice(
            "network",
            format!(
                "{name}: {} frames of node {node} were not as they should be, and were dropped",
                received.errors
            ),
            format!(
                "load the same version of scif_net on both hosts; if it is the same, node {node} \
                 is faulty or hostile"
            ),
        );
    }
    if sent.errors > 0 {
        findings.advice(
            "network",
            format!(
                "{name}: {} frames could not be sent to node {node}",
                sent.errors
            ),
            "ip -s -s link and ethtool -S have the kinds; ethtool -k has the offloads, to switch \
             off by ethtool -K",
        );
    }
    if many(received) {
        findings.advice(
            "network",
            format!(
                "{name}: {} of {} frames of node {node} were dropped",
                received.dropped,
                received.packets.saturating_add(received.dropped)
            ),
            "they came while the device was down, or this host had no memory for them: set the \
             device up before the other host sends, and look at free memory",
        );
    }
    if many(sent) {
        findings.advice(
            "network",
            format!(
                "{name}: {} of {} frames to node {node} were dropped",
                sent.dropped,
                sent.packets.saturating_add(sent.dropped)
            ),
            "they were sent while the device had no carrier: look whether scif_net comes and goes \
             on the other host",
        );
    }
}

/// Finds devices in one bridge of the kernel whose MTUs differ. The bridge drops what is too large
/// for the device by which it has to leave.
fn parts(devices: &[Device], findings: &mut Findings) {
    for (place, device) in devices.iter().enumerate() {
        let (Some(master), Some(mtu)) = (&device.master, device.mtu) else {
            continue;
        };
        let before = devices[..place].iter();
        let mut others = before.filter(|other| other.master.as_ref() == Some(master));
        let Some((other, large)) = others.find_map(|other| {
            let other_mtu = other.mtu.filter(|other_mtu| *other_mtu != mtu)?;
            Some((other, other_mtu))
        }) else {
            continue;
        };
        let (small, mtu) = match large > mtu {
            true => (device, large),
            false => (other, mtu),
        };
        findings.advice(
            "network",
            format!(
                "{} and {} are parts of {master}, and have different MTUs",
                other.name, device.name
            ),
            Advice::by(
                "set one MTU, here and at the other ends",
                [format!("ip link set {} mtu {mtu}", small.name)],
            ),
        );
        return;
    }
}
