// SPDX-License-Identifier: GPL-2.0

//! `sisci-info`: shows nodes, the adapter, and the segments and interrupts of this host's programs.

mod names;

use std::process::ExitCode;

use clap::Parser;
use scif::command::columns::Columns;
use scif::command::columns::Side;
use scif::command::columns::or_dash;
use scif::command::columns::printable;
use scif::command::connect::open;
use scif::command::output::note;
use scif::command::output::print;
use scif::command::output::print_json;
use serde::Serialize;

use crate::api::DmaCapabilities;
use crate::api::Sisci;
use crate::error::EXIT_STATUS_HELP;
use crate::error::Result;
use crate::error::finish;
use crate::ffi;
use names::Name;

const EXAMPLES: &str = "\
Examples:
  sisci-info           nodes, the adapter, segments and interrupts of this host
  sisci-info --json    the same as JSON";

/// Show nodes, adapters, segments and interrupts of SISCI
///
/// The command shows segments and interrupts of all programs of this host. They come from the
/// module's file in debugfs, which only root can read.
#[derive(Debug, Parser)]
#[command(name = "sisci-info", version, after_help = format!("{EXAMPLES}\n\n{EXIT_STATUS_HELP}"))]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    finish("sisci-info", arguments.json, run(&arguments))
}

/// A node, as SISCI sees it.
#[derive(Clone, Debug, Serialize)]
struct Node {
    id: u32,
    /// The SCIF id.
    scif_node: u16,
    /// Whether it is this node.
    #[serde(rename = "self")]
    own: bool,
    /// The state that the module shows.
    state: String,
    link: Option<String>,
    /// Whether `SCIProbeNode()` reaches the node.
    reachable: bool,
    /// The reason, if the node is out of reach.
    error: Option<String>,
}

/// The queries of an adapter, and their names here.
const QUERIES: &[(u32, &str)] = &[
    (3, "node id"),
    (4, "link operational"),
    (5, "configured"),
    (6, "nodes within reach"),
    (7, "link width"),
    (8, "link speed"),
    (9, "link uptime"),
    (11, "DMA size alignment"),
    (12, "DMA offset alignment"),
    (13, "most bytes of a DMA transfer"),
    (14, "smallest DMA transfer that pays"),
    (15, "smallest block that pays"),
    (16, "broadcast groups"),
    (1, "serial number"),
    (2, "type of card"),
    (10, "place on the bus"),
];

#[derive(Debug, Serialize)]
struct Answer {
    what: &'static str,
    /// The answer; none if it is not known here.
    value: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    api: String,
    vendor: String,
    nodes: Vec<Node>,
    adapter: Vec<Answer>,
    dma: DmaCapabilities,
    /// The names; none if the module does not show them, or not to this user.
    names: Option<Vec<Name>>,
}

/// Returns the SISCI id of a SCIF node.
pub fn sisci_id(node: u16) -> u32 {
    4 * (u32::from(node) + 1)
}

fn nodes(sisci: &Sisci) -> Result<Vec<Node>> {
    let online = open()?.node_ids();
    let online = online.map_err(scif::error::Error::local("cannot list the nodes"))?;
    let details = std::fs::read_to_string(scif::nodes::DEBUGFS).ok();
    let merged = scif::nodes::merge(&online, details.as_deref());
    let nodes = merged.into_iter().map(|node| {
        let error = sisci.probe(sisci_id(node.id));
        Node {
            id: sisci_id(node.id),
            scif_node: node.id,
            own: node.own,
            state: node.state,
            link: node.link,
            reachable: error.is_none(),
            error,
        }
    });
    Ok(nodes.collect())
}

fn gather() -> Result<(Report, Option<std::io::Error>)> {
    let sisci = Sisci::open()?;
    let adapter = QUERIES.iter().map(|&(subcommand, what)| {
        let value = sisci.adapter(subcommand)?;
        Ok(Answer { what, value })
    });
    let (names, error) = match std::fs::read_to_string(names::DEBUGFS) {
        Ok(text) => (Some(names::parse(&text)), None),
        Err(error) => (None, Some(error)),
    };
    let report = Report {
        ok: true,
        api: sisci.string(ffi::QUERY_API)?,
        vendor: sisci.string(ffi::QUERY_VENDOR)?,
        nodes: nodes(&sisci)?,
        adapter: adapter.collect::<Result<_>>()?,
        dma: sisci.dma()?,
        names,
    };
    Ok((report, error))
}

fn run(arguments: &Arguments) -> Result<()> {
    let (report, error) = gather()?;
    if arguments.json {
        return Ok(print_json(&report)?);
    }
    for line in text(&report) {
        print(line)?;
    }
    if let Some(error) = error {
        note(format_args!(
            "sisci-info: segments and interrupts are not known: cannot read {}: {error}",
            names::DEBUGFS
        ));
    }
    Ok(())
}

fn text(report: &Report) -> Vec<String> {
    let mut lines = vec![report.api.clone(), String::new(), "Nodes".to_owned()];
    let mut columns = Columns::new(&[
        ("  ID", Side::Right),
        ("SCIF", Side::Right),
        ("STATE", Side::Left),
        ("LINK", Side::Left),
        ("PROBE", Side::Left),
    ]);
    for node in &report.nodes {
        columns.push([
            node.id.to_string(),
            node.scif_node.to_string(),
            node.state.clone(),
            or_dash(node.link.as_ref()),
            node.error.clone().unwrap_or_else(|| "ok".to_owned()),
        ]);
    }
    lines.extend(columns.lines());
    lines.extend([String::new(), "Adapter 0".to_owned()]);
    let known = report
        .adapter
        .iter()
        .filter(|answer| answer.value.is_some());
    lines.extend(known.map(|answer| format!("  {:<32} {}", answer.what, or_dash(answer.value))));
    lines.push(format!(
        "  {:<32} {}",
        "entries of a DMA vector", report.dma.max_vector_length
    ));
    if let Some(names) = &report.names {
        for (title, class) in names::CLASSES {
            lines.extend([String::new(), (*title).to_owned()]);
            lines.extend(table(names, class));
        }
    }
    lines
}

fn table(names: &[Name], class: &str) -> Vec<String> {
    let mut columns = Columns::new(&[
        ("  NUMBER", Side::Right),
        ("PORT", Side::Right),
        ("PROGRAM", Side::Left),
    ]);
    for name in names.iter().filter(|name| name.class == class) {
        columns.push([
            format!("0x{:x}", name.number),
            or_dash(name.port),
            printable(&or_dash(name.opener.as_ref())),
        ]);
    }
    match columns.lines() {
        lines if lines.len() > 1 => lines,
        _ => vec!["  none".to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_text_shows_nodes_and_adapter() {
        let node = Node {
            id: 8,
            scif_node: 1,
            own: false,
            state: "lost".into(),
            link: None,
            reachable: false,
            error: Some("SCI_ERR_X".into()),
        };
        let report = Report {
            ok: true,
            api: "SISCI 2".into(),
            vendor: String::new(),
            nodes: vec![node],
            adapter: vec![
                Answer {
                    what: "node id",
                    value: Some(4),
                },
                Answer {
                    what: "serial number",
                    value: None,
                },
            ],
            dma: DmaCapabilities::default(),
            names: Some(names::parse(
                "class name port opener\nsegment 4096 12 1234\n",
            )),
        };
        let text = text(&report).join("\n");
        assert!(
            text.contains("   8     1  lost   -     SCI_ERR_X"),
            "{text}"
        );
        assert!(text.contains("node id") && !text.contains("serial"));
        assert!(text.contains("  0x1000    12  1234"), "{text}");
        assert!(text.contains("Data interrupts\n  none"), "{text}");
        assert_eq!(sisci_id(61), 248);
    }

    #[test]
    fn command_line_definition_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
