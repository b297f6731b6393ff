// SPDX-License-Identifier: GPL-2.0

//! `scif nodes`: lists the nodes.

use crate::command::columns::Columns;
use crate::command::columns::Side;
use crate::command::columns::or_dash;
use crate::command::columns::printable;
use crate::command::connect::open;
use crate::command::output::note;
use crate::command::output::print;
use crate::command::output::print_json;
use crate::error::Error;
use crate::error::Result;
use crate::format::size;
use crate::nodes::DEBUGFS;
use crate::nodes::Node;
use crate::nodes::give_networks;
use crate::nodes::merge;
use crate::watch::Link;
use crate::watch::links;
use crate::watch::network;
use crate::watch::table::rows;
use std::io::IsTerminal;
use std::path::Path;

/// List the nodes: id, state, link, aperture mode, boot generation, network device
///
/// Details come from the module's file in debugfs, which only root can read. For other users the
/// command lists only the ids of nodes that are online. A generation tells one start of a node from
/// the next.
///
/// The network device is there while scif_net is loaded. It is shown with its name, `up`, `down` or
/// `no-carrier`, and its MTU; `--json` also has its addresses and counts. A device without a carrier
/// waits for scif_net on the other node.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Also show for each link which memory of this node the other node reaches, how, and why; as
    /// root
    #[arg(long, short, conflicts_with = "json")]
    pub verbose: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let nodes = open()?
        .node_ids()
        .map_err(Error::local("cannot list the nodes"))?;
    let details = std::fs::read_to_string(DEBUGFS);
    let mut merged = merge(&nodes, details.as_deref().ok());
    give_networks(
        &mut merged,
        network::read_with_addresses(Path::new(NETWORKS)),
    );
    if arguments.json {
        return print_json(&merged);
    }
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    print(table(&merged, colour))?;
    if let Err(error) = details {
        note(format_args!(
            "scif: only the ids of nodes are known: cannot read {DEBUGFS}: {error}"
        ));
    }
    if arguments.verbose {
        match std::fs::read_to_string(LINKS) {
            Ok(text) => {
                let windows = std::fs::read_to_string(WINDOWS).unwrap_or_default();
                print(apertures(&links(&text), &windows))?;
            }
            Err(error) => note(format_args!(
                "scif: cannot show links: cannot read {LINKS}: {error}"
            )),
        }
    }
    Ok(())
}

/// Returns how many of this node's windows another node reaches by itself, and how many it does
/// not.
fn windows_of(node: u64, windows: &str) -> (usize, usize) {
    let all: Vec<bool> = rows(windows)
        .filter(|row| row.number("node") == Some(node))
        .map(|row| row.number::<u8>("reached") != Some(0))
        .collect();
    let reached = all.iter().filter(|reached| **reached).count();
    (reached, all.len() - reached)
}

/// Describes what other nodes reach of this node: a paragraph for each link.
fn apertures(links: &[Link], windows: &str) -> String {
    let paragraphs = links.iter().filter_map(|link| {
        let own = link.own.as_ref()?;
        let reacher = match link.node {
            Some(node) => format!("node {node} reaches"),
            None => "the next peer will reach".to_owned(),
        };
        let memory = match own.aperture.as_str() {
            "flat" => "all memory of this machine",
            _ if !own.is_guarded => {
                "all memory of this machine, as it sets the targets of the bridge's windows and there is no IOMMU"
            }
            "bounce" => "memory set apart for it: staging slots, and the rings of connections",
            _ => "memory registered for it, and the rings of connections",
        };
        let reason = own.reason.as_deref().unwrap_or("no reason is known");
        let mut text = format!(
            "\n{}: {reacher} {memory},\n  through an aperture of {} ({}: {reason})",
            link.link,
            size(own.bytes),
            own.aperture
        );
        if let (Some(windows), Some(rings)) = (own.windows, own.rings) {
            text += &format!(
                ",\n  of which registered memory takes {} and rings take {}",
                size(windows),
                size(rings)
            );
        }
        let (reached, staged) = link
            .node
            .map_or((0, 0), |node| windows_of(node.into(), windows));
        if reached + staged > 0 {
            text += &format!(
                "\n  Of {} windows it reaches {reached} directly, and {staged} by staging",
                reached + staged
            );
        }
        Some(text)
    });
    paragraphs.collect::<Vec<_>>().join("\n")
}

/// The folder of the network devices.
const NETWORKS: &str = "/sys/class/net";

/// The module's file with its links.
const LINKS: &str = "/sys/kernel/debug/scif/links";

/// The module's file with the windows of this node.
const WINDOWS: &str = "/sys/kernel/debug/scif/windows";

/// Describes the network device of a node in a few words.
fn device(node: &Node) -> Option<String> {
    let device = node.network.as_ref()?;
    let mut text = format!("{} {}", printable(&device.name), device.state());
    if let Some(mtu) = device.mtu {
        text += &format!(" mtu {mtu}");
    }
    Some(text)
}

fn table(nodes: &[Node], colour: bool) -> String {
    let mut columns = Columns::new(&[
        (" NODE", Side::Right),
        ("STATE", Side::Left),
        ("LINK", Side::Left),
        ("APERTURE", Side::Left),
        ("GENERATION", Side::Left),
        ("NETWORK", Side::Left),
    ]);
    for node in nodes {
        columns.push([
            node.id.to_string(),
            node.state.clone(),
            or_dash(node.link.as_ref()),
            or_dash(node.aperture.as_ref()),
            or_dash(node.generation.as_ref()),
            or_dash(device(node)),
        ]);
    }
    let mut lines = columns.lines();
    let states = nodes.iter().map(|node| node.state.as_str());
    for (line, state) in lines.iter_mut().skip(1).zip(states).filter(|_| colour) {
        let start = match state {
            "online" => "\x1b[32m",
            "lost" => "\x1b[31m",
            _ => continue,
        };
        // The id before it has digits only.
        *line = line.replacen(state, &format!("{start}{state}\x1b[0m"), 1);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Nodes;
    use crate::watch::network::Device;

    #[test]
    fn reachable_memory_is_described_in_words() {
        let file = "link state node aperture own_aperture own_bytes own_windows own_rings own_reason\n\
            loopback up - local - - - - -\n\
            ntb:x up 1 flat arena 16777216 4096 221184 an\\040IOMMU\n\
            ntb:y offering - - flat 1073741824 - - aperture=flat\n";
        let expected = "
ntb:x: node 1 reaches memory registered for it, and the rings of connections,
  through an aperture of 16.0 MiB (arena: an IOMMU),
  of which registered memory takes 4.00 KiB and rings take 216.0 KiB

ntb:y: the next peer will reach all memory of this machine,
  through an aperture of 1.00 GiB (flat: aperture=flat)";
        assert_eq!(apertures(&links(file), ""), expected);
        let file = "link state node aperture own_aperture own_bytes own_windows own_rings own_reason own_guarded\n\
            ntb:x up 1 flat bounce 65536 0 32768 aperture=bounce yes\n\
            ntb:y up 2 flat bounce 65536 0 32768 aperture=bounce no\n";
        let windows = "node window reached\n1 1 0\n2 2 1\n1 3 0\n1 4 1\n";
        let expected = "
ntb:x: node 1 reaches memory set apart for it: staging slots, and the rings of connections,
  through an aperture of 64.0 KiB (bounce: aperture=bounce),
  of which registered memory takes 0 B and rings take 32.0 KiB
  Of 3 windows it reaches 1 directly, and 2 by staging

ntb:y: node 2 reaches all memory of this machine, as it sets the targets of the bridge's windows and there is no IOMMU,
  through an aperture of 64.0 KiB (bounce: aperture=bounce),
  of which registered memory takes 0 B and rings take 32.0 KiB
  Of 1 windows it reaches 1 directly, and 0 by staging";
        assert_eq!(apertures(&links(file), windows), expected);
    }

    #[test]
    fn nodes_table_is_aligned() {
        let nodes = Nodes {
            online: vec![0, 1],
            own: 0,
        };
        let file = "0 self loopback local 12\n1 online ntb:0000:00:05.0 flat 34\n2 lost ntb:0000:00:06.0 - -";
        let mut merged = merge(&nodes, Some(file));
        merged[1].network = Some(Device {
            name: "scif0".into(),
            node: 1,
            is_up: true,
            carrier: Some(true),
            mtu: Some(1500),
            ..Device::default()
        });
        let expected = "\x20NODE  STATE   LINK              APERTURE  GENERATION  NETWORK
    0  self    loopback          local     12          -
    1  online  ntb:0000:00:05.0  flat      34          scif0 up mtu 1500
    2  lost    ntb:0000:00:06.0  -         -           -";
        assert_eq!(table(&merged, false), expected);
        assert!(table(&merged, true).contains("\x1b[31mlost\x1b[0m    ntb"));
        let json = serde_json::to_value(&merged).unwrap();
        assert_eq!(json[0]["network"], serde_json::Value::Null);
        assert_eq!(json[1]["network"]["name"], "scif0");
        assert_eq!(json[1]["network"]["carrier"], true);
    }
}
