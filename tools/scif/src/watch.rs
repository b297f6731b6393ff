// SPDX-License-Identifier: GPL-2.0

//! The state of SCIF on this machine, merged from the places where the kernel shows it.
//!
//! - the nodes: `/sys/bus/scif_peer/devices`, which every user may read;
//! - the network devices: `/sys/class/net`, and netlink for their addresses;
//! - endpoints and their connections: `fdinfo` of the open files of processes that the caller may
//!   inspect; debugfs has all endpoints, also those of the kernel, for root;
//! - links, pinned memory, counters and lost nodes: in debugfs only.
//!
//! A part that is absent, or that the caller may not read, is missing from the picture. That is no
//! error as long as the module is loaded. Newer modules may show more than this module understands.

pub mod addresses;
pub mod endpoint;
pub mod network;
pub mod node;
pub mod processes;
pub mod rates;
pub mod table;

use crate::error::Error;
use crate::error::Result;
use endpoint::Endpoint;
use node::Node;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use table::Row;

/// The places to read.
#[derive(Clone, Debug)]
pub struct Places {
    /// The folder of the processes.
    pub proc: PathBuf,
    /// The folder of the nodes' bus.
    pub bus: PathBuf,
    /// The folder of the network devices.
    pub network: PathBuf,
    /// The module's folder in debugfs.
    pub debugfs: PathBuf,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            proc: "/proc".into(),
            bus: "/sys/bus/scif_peer/devices".into(),
            network: "/sys/class/net".into(),
            debugfs: "/sys/kernel/debug/scif".into(),
        }
    }
}

/// A link to a node, whether or not a node answers on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The name.
    pub link: String,
    /// `down`, `offering`, `up` or `changing`.
    pub state: String,
    /// The node at the other end.
    pub node: Option<u16>,
    /// The mode in which this node reaches the memory there.
    pub aperture: Option<String>,
    /// Bytes of the other node's memory that this node reaches.
    pub aperture_bytes: Option<u64>,
    /// Number of DMA engines that copy.
    pub engines: Option<u64>,
    /// The way in which the node there reaches the memory here, or will.
    pub own: Option<Own>,
}

/// The aperture over this node's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Own {
    /// The mode of the aperture.
    pub aperture: String,
    /// The size of the aperture.
    pub bytes: u64,
    /// The part that registered memory takes, if memory takes any.
    pub windows: Option<u64>,
    /// The part that rings take.
    pub rings: Option<u64>,
    /// Whether the other node reaches only the memory that is given to it.
    pub is_guarded: bool,
    /// The reason for the mode.
    pub reason: Option<String>,
}

/// The memory that a process has pinned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pins {
    /// The process; it may have ended.
    pub pid: u32,
    /// The user.
    pub uid: u32,
    /// The name of the process.
    pub name: String,
    /// Number of bytes.
    pub bytes: u64,
}

/// The state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Picture {
    /// The nodes, by id.
    pub nodes: Vec<Node>,
    /// The network devices of peers, by node.
    pub networks: Vec<network::Device>,
    /// The links, if the caller may see them.
    pub links: Option<Vec<Link>>,
    /// The endpoints that the caller may see.
    pub endpoints: Vec<Endpoint>,
    /// Whether these are all endpoints.
    pub all_endpoints: bool,
    /// The processes with pinned memory, if the caller may see them.
    pub pins: Option<Vec<Pins>>,
    /// The counters of the module, if the caller may see them.
    pub counters: Option<BTreeMap<String, u64>>,
}

impl Picture {
    /// Reads the state.
    pub fn take(places: &Places) -> Result<Self> {
        let read = |name: &str| std::fs::read_to_string(places.debugfs.join(name)).ok();
        let mut nodes = node::read(&places.bus).map_err(|source| Error::NotLoaded {
            path: places.bus.display().to_string(),
            source,
        })?;
        if let Some(text) = read("nodes") {
            node::add_lost(&mut nodes, &text);
        }
        let all = read("endpoints");
        let endpoints = match &all {
            Some(text) => table::rows(text)
                .filter_map(|row| Endpoint::of(&row))
                .collect(),
            None => processes::endpoints(&places.proc)?,
        };
        Ok(Self {
            nodes,
            networks: network::read_with_addresses(&places.network),
            links: read("links").map(|text| links(&text)),
            endpoints,
            all_endpoints: all.is_some(),
            pins: read("pins").map(|text| table::rows(&text).filter_map(pins).collect()),
            counters: read("counters").map(|text| counters(&text)),
        })
    }
}

fn link(row: Row<'_>) -> Option<Link> {
    Some(Link {
        link: row.text("link")?,
        state: row.text("state")?,
        node: row.number("node"),
        aperture: row.text("aperture"),
        aperture_bytes: row.number("aperture_bytes"),
        engines: row.number("engines"),
        own: own(&row),
    })
}

fn own(row: &Row<'_>) -> Option<Own> {
    Some(Own {
        aperture: row.text("own_aperture")?,
        bytes: row.number("own_bytes")?,
        windows: row.number("own_windows"),
        rings: row.number("own_rings"),
        is_guarded: row.text("own_guarded").is_none_or(|word| word == "yes"),
        reason: row.text("own_reason"),
    })
}

/// Parses the file of the links in debugfs.
pub fn links(text: &str) -> Vec<Link> {
    table::rows(text).filter_map(link).collect()
}

fn pins(row: Row<'_>) -> Option<Pins> {
    Some(Pins {
        pid: row.number("pid")?,
        uid: row.number("uid")?,
        name: row.text("name")?,
        bytes: row.number("bytes")?,
    })
}

fn counters(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
        .collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::fs::create_dir_all;
    use std::fs::write;
    use std::path::Path;

    /// Writes files below a folder, and makes their folders.
    pub fn write_all(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        }
    }

    fn places(root: &Path) -> Places {
        Places {
            proc: root.join("proc"),
            bus: root.join("bus"),
            network: root.join("net"),
            debugfs: root.join("debugfs"),
        }
    }

    #[test]
    fn root_sees_all_sources() {
        let root = tempfile::tempdir().unwrap();
        write_all(
            root.path(),
            &[
                ("bus/node0/node", "0\n"),
                ("bus/node0/state", "self\n"),
                (
                    "debugfs/nodes",
                    "node state link aperture generation\n0 self loopback local 01\n3 lost ntb:x - 02\n",
                ),
                (
                    "debugfs/links",
                    "link state node aperture aperture_bytes engines doorbells own_aperture own_bytes own_windows own_rings own_reason own_guarded\n\
                     loopback up - local 4096 0 0xff - - - - - -\nntb:x offering - - - - 0x7 arena 8192 0 4096 just\\040so yes\n",
                ),
                (
                    "debugfs/endpoints",
                    "state own peer channel queued pid uid name sent_bytes\n\
                     connected 0:5 1:6 0x100001 0 12 1000 my\\040prog 7\nclosing 0:5 1:7 0x2 0 - - - 0\n",
                ),
                (
                    "debugfs/pins",
                    "pid uid name pages bytes\n12 1000 x 2 8192\n",
                ),
                (
                    "debugfs/counters",
                    "connections 1\ncache_pages -1\ndma_bytes 9\n",
                ),
            ],
        );
        network::tests::write_device(&root.path().join("net"), "scif0", 3);
        let picture = Picture::take(&places(root.path())).unwrap();
        assert_eq!(picture.nodes.len(), 2);
        assert_eq!(picture.nodes[1].state, "lost");
        assert_eq!(picture.networks[0].name, "scif0");
        let links = picture.links.unwrap();
        assert_eq!(links[0].aperture_bytes, Some(4096));
        assert_eq!((links[1].state.as_str(), links[1].node), ("offering", None));
        assert_eq!(links[0].own, None);
        let own = links[1].own.as_ref().unwrap();
        assert_eq!((own.bytes, own.rings), (8192, Some(4096)));
        assert_eq!(own.reason.as_deref(), Some("just so"));
        assert!(picture.all_endpoints);
        assert_eq!(picture.endpoints[0].name.as_deref(), Some("my prog"));
        assert_eq!(picture.endpoints[1].pid, None);
        assert_eq!(picture.pins.unwrap()[0].bytes, 8192);
        // A value that is no number is left out.
        assert_eq!(picture.counters.unwrap().len(), 2);
    }

    #[test]
    fn unprivileged_user_sees_only_permitted_sources() {
        let root = tempfile::tempdir().unwrap();
        write_all(
            root.path(),
            &[("bus/node0/node", "0\n"), ("proc/version", "")],
        );
        let picture = Picture::take(&places(root.path())).unwrap();
        assert_eq!(picture.nodes[0].state, "online");
        assert!(!picture.all_endpoints && picture.endpoints.is_empty());
        assert_eq!(
            (picture.links, picture.pins, picture.counters),
            (None, None, None)
        );
    }

    #[test]
    fn missing_module_gives_advice() {
        let root = tempfile::tempdir().unwrap();
        let error = Picture::take(&places(root.path())).unwrap_err();
        assert_eq!(error.exit_status(), 7);
        assert!(error.to_string().contains("modprobe scif"), "{error}");
    }
}
