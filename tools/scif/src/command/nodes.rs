// SPDX-License-Identifier: GPL-2.0

//! `scif nodes`: who is out there.

use crate::command::connect::open;
use crate::command::output::note;
use crate::command::output::print;
use crate::command::output::print_json;
use crate::error::Error;
use crate::error::Result;
use crate::format::size;
use crate::nodes::DEBUGFS;
use crate::nodes::Node;
use crate::nodes::merge;

use crate::watch::Link;
use crate::watch::links;
use crate::watch::table::rows;
use std::io::IsTerminal;

/// List the nodes: id, state, link, aperture mode, boot generation
///
/// Details come from the module's file in debugfs, which root can read; without it, only the nodes
/// that are online are listed, by id. A generation tells one start of a node from the next.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Say for each link what the other node reaches of this one, how, and why so; as root
    #[arg(long, short, conflicts_with = "json")]
    pub verbose: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let nodes = open()?
        .node_ids()
        .map_err(Error::local("cannot list the nodes"))?;
    let details = std::fs::read_to_string(DEBUGFS);
    let merged = merge(&nodes, details.as_deref().ok());
    if arguments.json {
        return print_json(&merged);
    }
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    print(table(&merged, colour))?;
    if let Err(error) = details {
        note(format_args!(
            "scif: only ids are known: cannot read {DEBUGFS}: {error}"
        ));
    }
    if arguments.verbose {
        match std::fs::read_to_string(LINKS) {
            Ok(text) => {
                let windows = std::fs::read_to_string(WINDOWS).unwrap_or_default();
                print(apertures(&links(&text), &windows))?;
            }
            Err(error) => note(format_args!(
                "scif: nothing is known of links: cannot read {LINKS}: {error}"
            )),
        }
    }
    Ok(())
}

/// How many of this node's windows another one reaches by itself, and how many not.
fn windows_of(node: u64, windows: &str) -> (usize, usize) {
    let all: Vec<bool> = rows(windows)
        .filter(|row| row.number("node") == Some(node))
        .map(|row| row.number::<u8>("reached") != Some(0))
        .collect();
    let reached = all.iter().filter(|reached| **reached).count();
    (reached, all.len() - reached)
}

/// What other nodes reach of this one: a paragraph for each link.
fn apertures(links: &[Link], windows: &str) -> String {
    let paragraphs = links.iter().filter_map(|link| {
        let own = link.own.as_ref()?;
        let who = match link.node {
            Some(node) => format!("node {node} reaches"),
            None => "whoever comes will reach".to_owned(),
        };
        let what = match own.aperture.as_str() {
            "flat" => "all memory of this machine",
            _ if !own.is_guarded => {
                "all memory of this machine, as the bridge lets it say where windows lead and there is no IOMMU"
            }
            "bounce" => "what is set apart for it: staging slots, and the rings of connections",
            _ => "what is registered for it, and the rings of connections",
        };
        let reason = own.reason.as_deref().unwrap_or("no reason is known");
        let mut text = format!(
            "\n{}: {who} {what},\n  through an aperture of {} ({}: {reason})",
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
                "\n  Of {} windows it reaches {reached} by itself, and {staged} by staging",
                reached + staged
            );
        }
        Some(text)
    });
    paragraphs.collect::<Vec<_>>().join("\n")
}

/// Where the module shows its links.
const LINKS: &str = "/sys/kernel/debug/scif/links";

/// Where it shows the windows of this node.
const WINDOWS: &str = "/sys/kernel/debug/scif/windows";

fn table(nodes: &[Node], colour: bool) -> String {
    let width = |field: fn(&Node) -> &str, title: &str| {
        let longest = nodes.iter().map(|node| field(node).len()).max();
        longest.unwrap_or(0).max(title.len())
    };
    let link: fn(&Node) -> &str = |node| node.link.as_deref().unwrap_or("-");
    let aperture: fn(&Node) -> &str = |node| node.aperture.as_deref().unwrap_or("-");
    let generation: fn(&Node) -> &str = |node| node.generation.as_deref().unwrap_or("-");
    let state: fn(&Node) -> &str = |node| &node.state;
    let (states, links) = (width(state, "STATE"), width(link, "LINK"));
    let apertures = width(aperture, "APERTURE");
    let mut lines = vec![format!(
        "{:>5}  {:states$}  {:links$}  {:apertures$}  GENERATION",
        "NODE", "STATE", "LINK", "APERTURE"
    )];
    for node in nodes {
        let (start, end) = match node.state.as_str() {
            _ if !colour => ("", ""),
            "online" => ("\x1b[32m", "\x1b[0m"),
            "lost" => ("\x1b[31m", "\x1b[0m"),
            _ => ("", ""),
        };
        lines.push(format!(
            "{:>5}  {start}{:states$}{end}  {:links$}  {:apertures$}  {}",
            node.id,
            node.state,
            link(node),
            aperture(node),
            generation(node)
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Nodes;

    #[test]
    fn what_others_reach_is_said_in_words() {
        let file = "link state node aperture own_aperture own_bytes own_windows own_rings own_reason\n\
            loopback up - local - - - - -\n\
            ntb:x up 1 flat arena 16777216 4096 221184 an\\040IOMMU\n\
            ntb:y offering - - flat 1073741824 - - aperture=flat\n";
        let expected = "
ntb:x: node 1 reaches what is registered for it, and the rings of connections,
  through an aperture of 16.0 MiB (arena: an IOMMU),
  of which registered memory takes 4.00 KiB and rings take 216.0 KiB

ntb:y: whoever comes will reach all memory of this machine,
  through an aperture of 1.00 GiB (flat: aperture=flat)";
        assert_eq!(apertures(&links(file), ""), expected);
        let file = "link state node aperture own_aperture own_bytes own_windows own_rings own_reason own_guarded\n\
            ntb:x up 1 flat bounce 65536 0 32768 aperture=bounce yes\n\
            ntb:y up 2 flat bounce 65536 0 32768 aperture=bounce no\n";
        let windows = "node window reached\n1 1 0\n2 2 1\n1 3 0\n1 4 1\n";
        let expected = "
ntb:x: node 1 reaches what is set apart for it: staging slots, and the rings of connections,
  through an aperture of 64.0 KiB (bounce: aperture=bounce),
  of which registered memory takes 0 B and rings take 32.0 KiB
  Of 3 windows it reaches 1 by itself, and 2 by staging

ntb:y: node 2 reaches all memory of this machine, as the bridge lets it say where windows lead and there is no IOMMU,
  through an aperture of 64.0 KiB (bounce: aperture=bounce),
  of which registered memory takes 0 B and rings take 32.0 KiB
  Of 1 windows it reaches 1 by itself, and 0 by staging";
        assert_eq!(apertures(&links(file), windows), expected);
    }

    #[test]
    fn columns_line_up() {
        let nodes = Nodes {
            online: vec![0, 1],
            own: 0,
        };
        let file = "0 self loopback local 12\n1 online ntb:0000:00:05.0 flat 34\n2 lost ntb:0000:00:06.0 - -";
        let merged = merge(&nodes, Some(file));
        let expected = "\x20NODE  STATE   LINK              APERTURE  GENERATION
    0  self    loopback          local     12
    1  online  ntb:0000:00:05.0  flat      34
    2  lost    ntb:0000:00:06.0  -         -";
        assert_eq!(table(&merged, false), expected);
        assert!(table(&merged, true).contains("\x1b[31mlost  \x1b[0m"));
    }
}
