// SPDX-License-Identifier: GPL-2.0

//! The nodes: the driver's list of those online, with details from its debugfs file.
//!
//! The file has a header line and then one line per node, `node state link aperture generation`,
//! with `-` where a field does not apply. It is for people and tools on the same machine. Newer
//! modules may add fields at the end. If the file is absent, only ids are known. The network device
//! of a node is in sysfs.

use crate::device::Nodes;
use crate::watch::network::Device;
use serde::Serialize;
use std::collections::BTreeMap;

/// The module's file with its nodes.
pub const DEBUGFS: &str = "/sys/kernel/debug/scif/nodes";

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The id.
    pub id: u16,
    /// Whether the node is this machine.
    #[serde(rename = "self")]
    pub own: bool,
    /// `self`, `online`, `lost`, or another word of the module.
    pub state: String,
    /// The link, as `loopback` or `ntb:0000:00:05.0`.
    pub link: Option<String>,
    /// The mode in which its memory is reached: `local`, `flat`, ...
    pub aperture: Option<String>,
    /// A number that changes each time the node loads the module.
    pub generation: Option<String>,
    /// The network device of the node, if `scif_net` has made one.
    pub network: Option<Device>,
}

/// Merges the driver's list with its debugfs file, if the file is there.
pub fn merge(nodes: &Nodes, debugfs: Option<&str>) -> Vec<Node> {
    let mut merged: BTreeMap<u16, Node> = debugfs
        .unwrap_or_default()
        .lines()
        .filter_map(parse)
        .map(|node| (node.id, node))
        .collect();
    for id in nodes.online.iter().chain([&nodes.own]) {
        let node = merged.entry(*id).or_insert_with(|| Node {
            id: *id,
            own: false,
            state: "online".into(),
            link: None,
            aperture: None,
            generation: None,
            network: None,
        });
        if *id == nodes.own {
            node.own = true;
            node.state = "self".into();
        }
    }
    merged.into_values().collect()
}

/// Gives nodes their network devices.
pub fn give_networks(nodes: &mut [Node], devices: Vec<Device>) {
    for device in devices {
        let node = nodes.iter_mut().find(|node| node.id == device.node);
        // Two devices of one peer are those of two networks that share nothing: the first counts.
        if let Some(node) = node.filter(|node| node.network.is_none()) {
            node.network = Some(device);
        }
    }
}

/// Parses a line of the file. Returns `None` for the header and for lines of unknown form.
fn parse(line: &str) -> Option<Node> {
    let mut fields = line.split_whitespace();
    let id = fields.next()?.parse().ok()?;
    let state = fields.next()?.to_owned();
    let mut optional = || {
        fields
            .next()
            .filter(|field| *field != "-")
            .map(str::to_owned)
    };
    Some(Node {
        id,
        own: state == "self",
        state,
        link: optional(),
        aperture: optional(),
        generation: optional(),
        network: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_debugfs_and_driver_are_merged() {
        let nodes = Nodes {
            online: vec![0, 2],
            own: 0,
        };
        let file = "node state link aperture generation\n\
            0 self loopback local 1a2b3c4d5e6f7788\n\
            1 lost ntb:0000:00:05.0 - 1122334455667788 later additions\n\
            2 online ntb:0000:00:06.0 flat -\n\
            \n70000 nonsense\n";
        let merged = merge(&nodes, Some(file));
        let ids: Vec<_> = merged.iter().map(|node| node.id).collect();
        assert_eq!(ids, [0, 1, 2]);
        assert!(merged[0].own && !merged[1].own);
        assert_eq!(merged[1].state, "lost");
        assert_eq!(merged[1].aperture, None);
        assert_eq!(merged[1].generation.as_deref(), Some("1122334455667788"));
        assert_eq!(merged[2].link.as_deref(), Some("ntb:0000:00:06.0"));
        assert_eq!(merged[2].generation, None);
    }

    #[test]
    fn network_device_goes_to_its_node() {
        let nodes = Nodes {
            online: vec![0, 1, 2],
            own: 0,
        };
        let mut merged = merge(&nodes, None);
        let device = |node, name: &str| Device {
            node,
            name: name.into(),
            ..Device::default()
        };
        let devices = vec![device(2, "scif0"), device(9, "scif1")];
        give_networks(&mut merged, devices);
        let names: Vec<_> = merged
            .iter()
            .map(|node| node.network.as_ref().map(|device| device.name.as_str()))
            .collect();
        assert_eq!(names, [None, None, Some("scif0")]);
    }

    #[test]
    fn missing_debugfs_leaves_node_ids_only() {
        let nodes = Nodes {
            online: vec![5, 3],
            own: 3,
        };
        let merged = merge(&nodes, None);
        assert_eq!(merged.len(), 2);
        assert_eq!((merged[0].id, merged[0].own), (3, true));
        assert_eq!((merged[1].id, merged[1].state.as_str()), (5, "online"));
    }
}
