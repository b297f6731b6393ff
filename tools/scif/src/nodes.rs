// SPDX-License-Identifier: GPL-2.0

//! What is known of the nodes: the driver's list of those online, and its debugfs file for the rest.
//!
//! The file has a header line and then one line per node, `node state link aperture generation`,
//! with `-` for what does not apply. It is for people and tools on the same machine, newer modules
//! may add fields at the end, and it may be absent: then only ids are known.

use crate::device::Nodes;
use serde::Serialize;
use std::collections::BTreeMap;

/// Where the module shows its nodes.
pub const DEBUGFS: &str = "/sys/kernel/debug/scif/nodes";

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its id.
    pub id: u16,
    /// Whether it is this machine.
    #[serde(rename = "self")]
    pub own: bool,
    /// `self`, `online`, `lost`, or what the module says besides.
    pub state: String,
    /// What connects it, as `loopback` or `ntb:0000:00:05.0`.
    pub link: Option<String>,
    /// How its memory is reached: `local`, `flat`, ...
    pub aperture: Option<String>,
    /// A number that is another one after each start.
    pub generation: Option<String>,
}

/// Puts together what the driver and, if it is there, its debugfs file say.
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
        });
        if *id == nodes.own {
            node.own = true;
            node.state = "self".into();
        }
    }
    merged.into_values().collect()
}

/// A line of the file; `None` for the header and for what is not understood.
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugfs_and_driver_are_merged() {
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
    fn without_debugfs_there_are_ids() {
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
