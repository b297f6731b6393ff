// SPDX-License-Identifier: GPL-2.0

//! The state of SCIF as metrics, in the text format of Prometheus (version 0.0.4).
//!
//! Names and labels are stable: dashboards rely on them. A metric that the caller may not know is
//! absent, which is not the same as 0.

use crate::watch::Picture;
use crate::watch::endpoint::Endpoint;
use crate::watch::endpoint::Traffic;
use crate::watch::network::Device;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Whether a value may go down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// Metrics that are written one after another.
#[derive(Default)]
struct Text(String);

type Labels<'a> = &'a [(&'a str, String)];

impl Text {
    /// Writes the lines before the values of a metric.
    fn head(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: Labels<'_>, value: u64) {
        let labels: Vec<String> = labels
            .iter()
            .map(|(label, text)| format!("{label}=\"{}\"", escape(text)))
            .collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

/// Returns all metrics of a picture.
pub fn metrics(picture: &Picture) -> String {
    let mut text = Text::default();
    nodes(&mut text, picture);
    networks(&mut text, &picture.networks);
    links(&mut text, picture);
    endpoints(&mut text, &picture.endpoints);
    connections(&mut text, &picture.endpoints);
    if let Some(pins) = &picture.pins {
        text.head(
            "scif_pinned_bytes",
            Kind::Gauge,
            "Memory of a process that is pinned and counts as locked.",
        );
        for each in pins {
            let labels = [
                ("pid", each.pid.to_string()),
                ("uid", each.uid.to_string()),
                ("name", each.name.clone()),
            ];
            text.value("scif_pinned_bytes", &labels, each.bytes);
        }
    }
    if let Some(values) = &picture.counters {
        counters(&mut text, values);
    }
    text.0
}

fn nodes(text: &mut Text, picture: &Picture) {
    text.head("scif_node_up", Kind::Gauge, "Whether a node is online.");
    for node in &picture.nodes {
        let labels = [
            ("node", node.id.to_string()),
            ("link", node.link.clone().unwrap_or_default()),
            ("state", node.state.clone()),
        ];
        text.value("scif_node_up", &labels, (node.state != "lost").into());
    }
    let optional: [(_, _, fn(&_) -> _); 2] = [
        (
            "scif_node_connections",
            "Connections with a node.",
            |node: &crate::watch::node::Node| node.connections,
        ),
        (
            "scif_node_windows",
            "Windows of this machine that a node may be using.",
            |node| node.windows,
        ),
    ];
    for (name, help, value) in optional {
        text.head(name, Kind::Gauge, help);
        for node in &picture.nodes {
            if let Some(value) = value(node) {
                text.value(name, &[("node", node.id.to_string())], value);
            }
        }
    }
}

/// A metric of a network device: the end of its name, its kind, its help text, and its value.
type OfNetwork = (&'static str, Kind, &'static str, fn(&Device) -> Option<u64>);

const NETWORK: [OfNetwork; 11] = {
    use Kind::Counter;
    use Kind::Gauge;
    [
        (
            "carrier",
            Gauge,
            "Whether the network device of a node is up, and the node takes frames.",
            |of| Some((of.carrier == Some(true)).into()),
        ),
        (
            "mtu_bytes",
            Gauge,
            "The largest packet of the device.",
            |of| of.mtu.map(u64::from),
        ),
        (
            "speed_bits_per_second",
            Gauge,
            "The speed of the device.",
            |of| of.speed.map(|megabits| megabits.saturating_mul(1_000_000)),
        ),
        (
            "sent_packets_total",
            Counter,
            "Packets sent to the node.",
            |of| Some(of.sent.packets),
        ),
        (
            "sent_bytes_total",
            Counter,
            "Bytes of the packets sent.",
            |of| Some(of.sent.bytes),
        ),
        (
            "sent_errors_total",
            Counter,
            "Frames that could not be sent.",
            |of| Some(of.sent.errors),
        ),
        (
            "sent_dropped_total",
            Counter,
            "Frames that were not sent, as the node took none.",
            |of| Some(of.sent.dropped),
        ),
        (
            "received_packets_total",
            Counter,
            "Packets received from the node.",
            |of| Some(of.received.packets),
        ),
        (
            "received_bytes_total",
            Counter,
            "Bytes of the packets received.",
            |of| Some(of.received.bytes),
        ),
        (
            "received_errors_total",
            Counter,
            "Frames of the node that were wrong.",
            |of| Some(of.received.errors),
        ),
        (
            "received_dropped_total",
            Counter,
            "Frames of the node that came while the device was down, or found no memory.",
            |of| Some(of.received.dropped),
        ),
    ]
};

fn networks(text: &mut Text, devices: &[Device]) {
    for (name, kind, help, value) in NETWORK {
        let name = format!("scif_net_{name}");
        let values: Vec<(&Device, u64)> = devices
            .iter()
            .filter_map(|device| Some((device, value(device)?)))
            .collect();
        if values.is_empty() {
            continue;
        }
        text.head(&name, kind, help);
        for (device, value) in values {
            let labels = [
                ("node", device.node.to_string()),
                ("device", device.name.clone()),
            ];
            text.value(&name, &labels, value);
        }
    }
}

fn links(text: &mut Text, picture: &Picture) {
    let Some(links) = &picture.links else { return };
    text.head("scif_link_up", Kind::Gauge, "Whether a link has a session.");
    for link in links {
        let labels = [("link", link.link.clone())];
        text.value("scif_link_up", &labels, (link.state == "up").into());
    }
}

fn endpoints(text: &mut Text, endpoints: &[Endpoint]) {
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    for endpoint in endpoints {
        *states.entry(&endpoint.state).or_default() += 1;
    }
    text.head("scif_endpoints", Kind::Gauge, "Endpoints by state.");
    for (state, count) in states {
        text.value("scif_endpoints", &[("state", state.to_owned())], count);
    }
}

/// A metric of a connection: the end of its name, its kind, its help text, and its value.
type OfTraffic = (&'static str, Kind, &'static str, fn(&Traffic) -> u64);

const TRAFFIC: [OfTraffic; 11] = {
    use Kind::Counter;
    use Kind::Gauge;
    [
        (
            "sent_bytes_total",
            Counter,
            "Bytes sent by messages.",
            |of| of.sent_bytes,
        ),
        (
            "sent_messages_total",
            Counter,
            "Calls that have sent at least one byte.",
            |of| of.sent_messages,
        ),
        (
            "received_bytes_total",
            Counter,
            "Bytes received by messages.",
            |of| of.received_bytes,
        ),
        (
            "received_messages_total",
            Counter,
            "Calls that have received at least one byte.",
            |of| of.received_messages,
        ),
        (
            "written_bytes_total",
            Counter,
            "Bytes written to the peer by RMA.",
            |of| of.written_bytes,
        ),
        (
            "written_transfers_total",
            Counter,
            "Transfers to the peer.",
            |of| of.written_transfers,
        ),
        (
            "read_bytes_total",
            Counter,
            "Bytes read from the peer by RMA.",
            |of| of.read_bytes,
        ),
        (
            "read_transfers_total",
            Counter,
            "Transfers from the peer.",
            |of| of.read_transfers,
        ),
        ("transfers_in_flight", Gauge, "Transfers in flight.", |of| {
            of.in_flight
        }),
        ("windows", Gauge, "Registered windows.", |of| of.windows),
        (
            "window_bytes",
            Gauge,
            "Bytes of registered windows.",
            |of| of.window_bytes,
        ),
    ]
};

fn connections(text: &mut Text, endpoints: &[Endpoint]) {
    for (name, kind, help, value) in TRAFFIC {
        let name = format!("scif_connection_{name}");
        text.head(&name, kind, help);
        for endpoint in endpoints {
            let Some((peer, channel)) = endpoint.connection() else {
                continue;
            };
            let labels = [
                ("own", endpoint.own.clone().unwrap_or_default()),
                ("peer", peer.to_owned()),
                ("channel", channel.to_owned()),
                (
                    "pid",
                    endpoint.pid.map_or_else(String::new, |pid| pid.to_string()),
                ),
                ("name", endpoint.name.clone().unwrap_or_default()),
            ];
            text.value(&name, &labels, value(&endpoint.traffic));
        }
    }
}

/// The module's counters: their names in the module, their metrics, kinds and help texts.
const COUNTERS: [(&str, &str, Kind, &str); 12] = {
    use Kind::Counter;
    use Kind::Gauge;
    [
        ("connections", "scif_connections", Gauge, "Connections."),
        (
            "closing_connections",
            "scif_closing_connections",
            Gauge,
            "Connections that this node has closed and that wait for the peer.",
        ),
        (
            "exported_windows",
            "scif_exported_windows",
            Gauge,
            "Windows that peers may be using.",
        ),
        (
            "mappings",
            "scif_mappings",
            Gauge,
            "Mappings of memory of peers.",
        ),
        (
            "cache_hits",
            "scif_cache_hits_total",
            Counter,
            "Transfers that found their memory in the registration cache.",
        ),
        (
            "cache_misses",
            "scif_cache_misses_total",
            Counter,
            "Transfers that did not find their memory in the registration cache.",
        ),
        (
            "cache_pages",
            "scif_cache_pages",
            Gauge,
            "Pages in registration caches.",
        ),
        (
            "cache_invalidations",
            "scif_cache_invalidations_total",
            Counter,
            "Registrations whose mapping has changed.",
        ),
        (
            "cache_evictions",
            "scif_cache_evictions_total",
            Counter,
            "Registrations evicted from the cache to make room for others.",
        ),
        (
            "dma_channels",
            "scif_dma_channels",
            Gauge,
            "DMA channels in use.",
        ),
        (
            "dma_bytes",
            "scif_dma_bytes_total",
            Counter,
            "Bytes copied by DMA engines.",
        ),
        (
            "dma_errors",
            "scif_dma_errors_total",
            Counter,
            "Descriptors of DMA engines that failed.",
        ),
    ]
};

fn counters(text: &mut Text, values: &BTreeMap<String, u64>) {
    for (there, name, kind, help) in COUNTERS {
        if let Some(value) = values.get(there) {
            text.head(name, kind, help);
            text.value(name, &[], *value);
        }
    }
    let engines: Vec<(String, u64)> = values
        .iter()
        .filter_map(|(name, value)| {
            let number = name.strip_prefix("engine_")?.strip_suffix("_bytes")?;
            Some((number.to_owned(), *value))
        })
        .collect();
    if !engines.is_empty() {
        let name = "scif_engine_bytes_total";
        text.head(name, Kind::Counter, "Bytes copied by a DMA engine.");
        for (number, value) in engines {
            text.value(name, &[("engine", number)], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::status::tests::picture;
    use std::collections::HashSet;

    #[test]
    fn metrics_have_labels() {
        let mut picture = picture();
        let endpoint = &mut picture.endpoints[0];
        endpoint.peer = Some("1:6".into());
        endpoint.channel = Some("0x1".into());
        let counters = picture.counters.as_mut().unwrap();
        counters.insert("engine_0_bytes".into(), 4);
        counters.insert("later".into(), 1);
        let text = metrics(&picture);
        for line in [
            "scif_node_up{node=\"1\",link=\"ntb:x\",state=\"online\"} 1",
            "scif_node_connections{node=\"1\"} 3",
            "scif_link_up{link=\"ntb:x\"} 1",
            "scif_endpoints{state=\"listening\"} 1",
            "scif_net_carrier{node=\"1\",device=\"scif0\"} 1",
            "scif_net_mtu_bytes{node=\"1\",device=\"scif0\"} 1500",
            "scif_net_sent_bytes_total{node=\"1\",device=\"scif0\"} 4096",
            "scif_net_received_dropped_total{node=\"1\",device=\"scif0\"} 2",
            "scif_connection_written_bytes_total{own=\"0:5\",peer=\"1:6\",channel=\"0x1\",pid=\"7\",name=\"pro\\\"g\"} 2048",
            "scif_pinned_bytes{pid=\"7\",uid=\"1000\",name=\"prog\"} 4096",
            "scif_dma_bytes_total 9",
            "scif_engine_bytes_total{engine=\"0\"} 4",
        ] {
            assert!(
                text.lines().any(|each| each == line),
                "no {line} in\n{text}"
            );
        }
        assert!(!text.contains("later"));
    }

    /// Checks the format: the lines of each metric are together, behind HELP and TYPE, and its name
    /// fits its kind.
    #[test]
    fn metrics_follow_the_exposition_format() {
        let text = metrics(&picture());
        let (mut known, mut current) = (HashSet::new(), String::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                current = help.split(' ').next().unwrap().to_owned();
                assert!(known.insert(current.clone()), "{current} twice");
                let kind = lines.next().unwrap();
                let is_counter = kind == format!("# TYPE {current} counter");
                assert!(is_counter || kind == format!("# TYPE {current} gauge"));
                assert_eq!(current.ends_with("_total"), is_counter, "{current}");
            } else {
                let name = line.split(['{', ' ']).next().unwrap();
                assert_eq!(name, current);
                assert!(line.rsplit(' ').next().unwrap().parse::<u64>().is_ok());
            }
        }
    }

    #[test]
    fn device_that_is_down_has_no_carrier() {
        let mut picture = picture();
        picture.networks[0].carrier = None;
        let text = metrics(&picture);
        assert!(text.contains("\nscif_net_carrier{node=\"1\",device=\"scif0\"} 0\n"));
        assert!(!text.contains("scif_net_speed"));
    }

    #[test]
    fn unknown_metric_is_omitted() {
        let text = metrics(&Picture::default());
        for name in [
            "scif_link_up",
            "scif_net_",
            "scif_pinned_bytes",
            "scif_dma_bytes_total",
        ] {
            assert!(!text.contains(name), "{name}");
        }
    }
}
