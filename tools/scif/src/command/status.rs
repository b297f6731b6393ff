// SPDX-License-Identifier: GPL-2.0

//! `scif status`: shows the state of SCIF once.

use crate::command::columns::Columns;
use crate::command::columns::Side;
use crate::command::columns::or_dash;
use crate::command::columns::printable;
use crate::command::metrics::metrics;
use crate::command::output::note;
use crate::command::output::print;
use crate::command::output::print_json;
use crate::error::Result;
use crate::format::size;
use crate::watch::Link;
use crate::watch::Picture;
use crate::watch::Pins;
use crate::watch::Places;
use crate::watch::endpoint::Endpoint;
use crate::watch::network::Device;
use crate::watch::node::Node;

const EXAMPLES: &str = "\
Examples:
  scif status                    nodes and their network devices, and your own endpoints
  sudo scif status               all endpoints, links, pinned memory, counters
  scif status --json             the same as JSON
  scif status --metrics >/var/lib/node_exporter/scif.prom
                                 for Prometheus, by node_exporter's textfile collector";

/// Show nodes, endpoints, connections and the bytes they have moved
///
/// Each user sees the nodes, their network devices, and the endpoints of the user's own processes. Root also sees all other
/// endpoints, the kernel's included. Root also sees links, pinned memory and counters, which are in
/// debugfs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Print JSON
    #[arg(long, conflicts_with = "metrics")]
    pub json: bool,
    /// Print metrics in the text format of Prometheus
    #[arg(long)]
    pub metrics: bool,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let picture = Picture::take(&Places::default())?;
    if arguments.json {
        return print_json(&picture);
    }
    if arguments.metrics {
        return print(metrics(&picture).trim_end());
    }
    print(text(&picture))?;
    if !picture.all_endpoints {
        note(
            "scif: you see only processes that you may inspect; run as root to see links, pinned \
             memory and counters, which are in debugfs",
        );
    }
    Ok(())
}

fn text(picture: &Picture) -> String {
    let mut parts = vec![nodes(&picture.nodes)];
    if !picture.networks.is_empty() {
        parts.push(networks(&picture.networks));
    }
    parts.extend(picture.links.as_deref().map(links));
    parts.push(endpoints(&picture.endpoints));
    parts.extend(
        picture
            .pins
            .as_deref()
            .filter(|pins| !pins.is_empty())
            .map(pins),
    );
    if let Some(counters) = &picture.counters {
        let mut columns = Columns::new(&[("COUNTER", Side::Left), ("VALUE", Side::Right)]);
        for (name, value) in counters {
            columns.push([name.clone(), value.to_string()]);
        }
        parts.push(columns.lines());
    }
    let parts: Vec<String> = parts.iter().map(|lines| lines.join("\n")).collect();
    parts.join("\n\n")
}

fn nodes(nodes: &[Node]) -> Vec<String> {
    let mut columns = Columns::new(&[
        ("NODE", Side::Right),
        ("STATE", Side::Left),
        ("LINK", Side::Left),
        ("APERTURE", Side::Left),
        ("CONNECTIONS", Side::Right),
        ("WINDOWS", Side::Right),
    ]);
    for node in nodes {
        columns.push([
            node.id.to_string(),
            node.state.clone(),
            or_dash(node.link.as_ref()),
            or_dash(node.aperture.as_ref()),
            or_dash(node.connections),
            or_dash(node.windows),
        ]);
    }
    columns.lines()
}

fn networks(devices: &[Device]) -> Vec<String> {
    let mut columns = Columns::new(&[
        ("NETWORK", Side::Left),
        ("NODE", Side::Right),
        ("STATE", Side::Left),
        ("MTU", Side::Right),
        ("SENT", Side::Right),
        ("RECEIVED", Side::Right),
        ("ERRORS", Side::Right),
        ("DROPPED", Side::Right),
        ("ADDRESSES", Side::Left),
    ]);
    for device in devices {
        let (sent, received) = (&device.sent, &device.received);
        columns.push([
            printable(&device.name),
            device.node.to_string(),
            device.state().to_owned(),
            or_dash(device.mtu),
            size(sent.bytes),
            size(received.bytes),
            sent.errors.saturating_add(received.errors).to_string(),
            sent.dropped.saturating_add(received.dropped).to_string(),
            device.addresses.join(" "),
        ]);
    }
    columns.lines()
}

fn links(links: &[Link]) -> Vec<String> {
    let mut columns = Columns::new(&[
        ("LINK", Side::Left),
        ("STATE", Side::Left),
        ("NODE", Side::Right),
        ("APERTURE", Side::Left),
        ("SIZE", Side::Right),
        ("ENGINES", Side::Right),
        ("OWN APERTURE", Side::Left),
        ("OWN SIZE", Side::Right),
    ]);
    for link in links {
        let own = link.own.as_ref();
        columns.push([
            link.link.clone(),
            link.state.clone(),
            or_dash(link.node),
            or_dash(link.aperture.as_ref()),
            or_dash(link.aperture_bytes.map(size)),
            or_dash(link.engines),
            or_dash(own.map(|own| &own.aperture)),
            or_dash(own.map(|own| size(own.bytes))),
        ]);
    }
    columns.lines()
}

fn endpoints(endpoints: &[Endpoint]) -> Vec<String> {
    let mut columns = Columns::new(&[
        ("PID", Side::Right),
        ("NAME", Side::Left),
        ("STATE", Side::Left),
        ("OWN", Side::Left),
        ("PEER", Side::Left),
        ("SENT", Side::Right),
        ("RECEIVED", Side::Right),
        ("WRITTEN", Side::Right),
        ("READ", Side::Right),
        ("IN FLIGHT", Side::Right),
        ("WINDOWS", Side::Right),
    ]);
    for endpoint in endpoints {
        let traffic = &endpoint.traffic;
        let state = match endpoint.queued {
            0 => endpoint.state.clone(),
            queued => format!("{} ({queued} wait)", endpoint.state),
        };
        let windows = match traffic.windows {
            0 => "0".to_owned(),
            windows => format!("{windows} ({})", size(traffic.window_bytes)),
        };
        columns.push([
            or_dash(endpoint.pid),
            printable(endpoint.name.as_deref().unwrap_or("-")),
            state,
            or_dash(endpoint.own.as_ref()),
            or_dash(endpoint.peer.as_ref()),
            size(traffic.sent_bytes),
            size(traffic.received_bytes),
            size(traffic.written_bytes),
            size(traffic.read_bytes),
            traffic.in_flight.to_string(),
            windows,
        ]);
    }
    columns.lines()
}

fn pins(pins: &[Pins]) -> Vec<String> {
    let mut columns = Columns::new(&[
        ("PID", Side::Right),
        ("NAME", Side::Left),
        ("UID", Side::Right),
        ("PINNED", Side::Right),
    ]);
    for each in pins {
        columns.push([
            each.pid.to_string(),
            printable(&each.name),
            each.uid.to_string(),
            size(each.bytes),
        ]);
    }
    columns.lines()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::watch::Own;
    use crate::watch::endpoint::Traffic;
    use crate::watch::network::Counts;

    /// Returns a picture with something of everything.
    pub fn picture() -> Picture {
        Picture {
            nodes: vec![Node {
                id: 1,
                state: "online".into(),
                link: Some("ntb:x".into()),
                connections: Some(3),
                ..Node::default()
            }],
            networks: vec![Device {
                name: "scif0".into(),
                node: 1,
                is_up: true,
                carrier: Some(true),
                mtu: Some(1500),
                addresses: vec!["10.9.0.1/24".into()],
                sent: Counts {
                    packets: 3,
                    bytes: 4096,
                    errors: 1,
                    dropped: 0,
                },
                received: Counts {
                    packets: 4,
                    bytes: 1024,
                    errors: 0,
                    dropped: 2,
                },
                ..Device::default()
            }],
            links: Some(vec![Link {
                link: "ntb:x".into(),
                state: "up".into(),
                node: Some(1),
                aperture: Some("flat".into()),
                aperture_bytes: Some(1 << 30),
                engines: Some(1),
                own: Some(Own {
                    aperture: "arena".into(),
                    bytes: 16 << 20,
                    windows: Some(0),
                    rings: Some(4096),
                    is_guarded: true,
                    reason: None,
                }),
            }]),
            endpoints: vec![Endpoint {
                state: "listening".into(),
                own: Some("0:5".into()),
                queued: 2,
                pid: Some(7),
                name: Some("pro\"g".into()),
                traffic: Traffic {
                    written_bytes: 2048,
                    windows: 1,
                    window_bytes: 4096,
                    ..Traffic::default()
                },
                ..Endpoint::default()
            }],
            all_endpoints: true,
            pins: Some(vec![Pins {
                pid: 7,
                uid: 1000,
                name: "prog".into(),
                bytes: 4096,
            }]),
            counters: Some([("dma_bytes".to_owned(), 9)].into()),
        }
    }

    #[test]
    fn status_text_shows_all_tables() {
        let expected = "\
NODE  STATE   LINK   APERTURE  CONNECTIONS  WINDOWS
   1  online  ntb:x  -                   3        -

NETWORK  NODE  STATE   MTU      SENT  RECEIVED  ERRORS  DROPPED  ADDRESSES
scif0       1  up     1500  4.00 KiB  1.00 KiB       1        2  10.9.0.1/24

LINK   STATE  NODE  APERTURE      SIZE  ENGINES  OWN APERTURE  OWN SIZE
ntb:x  up        1  flat      1.00 GiB        1  arena         16.0 MiB

PID  NAME   STATE               OWN  PEER  SENT  RECEIVED   WRITTEN  READ  IN FLIGHT       WINDOWS
  7  pro\"g  listening (2 wait)  0:5  -      0 B       0 B  2.00 KiB   0 B          0  1 (4.00 KiB)

PID  NAME   UID    PINNED
  7  prog  1000  4.00 KiB

COUNTER    VALUE
dma_bytes      9";
        assert_eq!(text(&picture()), expected);
    }

    #[test]
    fn status_json_has_stable_names() {
        let json = serde_json::to_value(picture()).unwrap();
        assert_eq!(json["endpoints"][0]["written_bytes"], 2048);
        assert_eq!(json["nodes"][0]["connections"], 3);
        assert_eq!(json["networks"][0]["sent"]["bytes"], 4096);
        assert_eq!(json["links"][0]["state"], "up");
        assert_eq!(json["pins"][0]["bytes"], 4096);
        assert_eq!(json["counters"]["dma_bytes"], 9);
        assert_eq!(json["all_endpoints"], true);
    }
}
