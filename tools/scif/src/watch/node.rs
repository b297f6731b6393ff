// SPDX-License-Identifier: GPL-2.0

//! The nodes: sysfs shows those that are online on their bus, and debugfs those that were lost.

use super::table;
use serde::Serialize;
use std::io;
use std::path::Path;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Node {
    /// The id.
    pub id: u16,
    /// `self`, `online`, `lost`, or another word of the module.
    pub state: String,
    /// The link.
    pub link: Option<String>,
    /// The mode in which its memory is reached.
    pub aperture: Option<String>,
    /// A number that changes each time the node loads the module.
    pub generation: Option<String>,
    /// Connections of this machine with it.
    pub connections: Option<u64>,
    /// Windows of this machine that the node may be using.
    pub windows: Option<u64>,
}

/// Reads the nodes that are online, by id.
pub fn read(bus: &Path) -> io::Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir(bus)? {
        let path = entry?.path();
        let value = |name: &str| {
            let text = std::fs::read_to_string(path.join(name)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        // A node that has gone meanwhile has no number any more.
        let Some(id) = value("node").and_then(|text| text.parse().ok()) else {
            continue;
        };
        nodes.push(Node {
            id,
            state: value("state").unwrap_or_else(|| "online".into()),
            link: value("link"),
            aperture: value("aperture"),
            generation: value("generation"),
            connections: value("connections").and_then(|text| text.parse().ok()),
            windows: value("windows").and_then(|text| text.parse().ok()),
        });
    }
    nodes.sort_by_key(|node| node.id);
    Ok(nodes)
}

/// Adds the nodes that only debugfs shows.
pub fn add_lost(nodes: &mut Vec<Node>, debugfs: &str) {
    for row in table::rows(debugfs) {
        let (Some(id), Some(state)) = (row.number("node"), row.text("state")) else {
            continue;
        };
        if nodes.iter().all(|node| node.id != id) {
            nodes.push(Node {
                id,
                state,
                link: row.text("link"),
                generation: row.text("generation"),
                ..Node::default()
            });
        }
    }
    nodes.sort_by_key(|node| node.id);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::write_all;

    #[test]
    fn bus_devices_are_read_as_nodes() {
        let root = tempfile::tempdir().unwrap();
        write_all(
            root.path(),
            &[
                ("node2/node", "2\n"),
                ("node2/state", "online\n"),
                ("node2/aperture", "flat\n"),
                ("node2/connections", "17\n"),
                ("node0/node", "0\n"),
                ("gone/state", "online\n"),
            ],
        );
        let mut nodes = read(root.path()).unwrap();
        assert_eq!(nodes.len(), 2);
        assert_eq!((nodes[0].id, nodes[0].connections), (0, None));
        assert_eq!((nodes[1].id, nodes[1].connections), (2, Some(17)));
        assert_eq!(nodes[1].aperture.as_deref(), Some("flat"));

        add_lost(
            &mut nodes,
            "node state link aperture generation\n2 online a flat 1\n1 lost b - 2\n",
        );
        let ids: Vec<_> = nodes.iter().map(|node| node.id).collect();
        assert_eq!(ids, [0, 1, 2]);
        assert_eq!(nodes[1].link.as_deref(), Some("b"));
    }
}
