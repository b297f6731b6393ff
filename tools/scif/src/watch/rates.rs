// SPDX-License-Identifier: GPL-2.0

//! The bytes moved per second, from the difference of two pictures.

use super::endpoint::Endpoint;
use super::endpoint::Traffic;
use crate::format::rate;
use serde::Serialize;
use std::collections::HashMap;
use std::ops::AddAssign;
use std::time::Duration;

/// Bytes per second in each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Bytes sent by messages.
    pub sent: f64,
    /// Bytes received by messages.
    pub received: f64,
    /// Bytes of transfers to the peer.
    pub written: f64,
    /// Bytes of transfers from the peer.
    pub read: f64,
}

impl Rates {
    fn between(before: &Traffic, now: &Traffic, time: Duration) -> Self {
        let rate = |before: u64, now: u64| rate(now.saturating_sub(before), time);
        Self {
            sent: rate(before.sent_bytes, now.sent_bytes),
            received: rate(before.received_bytes, now.received_bytes),
            written: rate(before.written_bytes, now.written_bytes),
            read: rate(before.read_bytes, now.read_bytes),
        }
    }

    /// Returns the sum of all ways.
    pub fn total(&self) -> f64 {
        self.sent + self.received + self.written + self.read
    }
}

impl AddAssign for Rates {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.written += other.written;
        self.read += other.read;
    }
}

/// A connection, and its rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Connection {
    /// The present state.
    #[serde(flatten)]
    pub endpoint: Endpoint,
    /// Bytes per second since the last picture.
    pub bytes_per_second: Rates,
}

/// A process, and the rates of its connections.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// The process id; none for connections without a process.
    pub pid: Option<u32>,
    /// The user.
    pub uid: Option<u32>,
    /// The name.
    pub name: Option<String>,
    /// Bytes per second of all its connections.
    pub bytes_per_second: Rates,
    /// Transfers in flight.
    pub in_flight: u64,
    /// Registered windows.
    pub windows: u64,
    /// Bytes of registered windows.
    pub window_bytes: u64,
    /// The connections; the one with the highest rate comes first.
    pub connections: Vec<Connection>,
}

/// Returns the bytes that the processes have moved between two pictures. The process with the
/// highest rate comes first. For a new connection all of its bytes count.
pub fn processes(before: &[Endpoint], now: &[Endpoint], time: Duration) -> Vec<Process> {
    let before: HashMap<_, _> = before
        .iter()
        .filter_map(|endpoint| Some((endpoint.connection()?, endpoint.traffic)))
        .collect();
    let mut by_pid: HashMap<Option<u32>, Process> = HashMap::new();
    for endpoint in now {
        let Some(connection) = endpoint.connection() else {
            continue;
        };
        let traffic = &endpoint.traffic;
        let known = before.get(&connection).copied().unwrap_or_default();
        let rates = Rates::between(&known, traffic, time);
        let process = by_pid.entry(endpoint.pid).or_insert_with(|| Process {
            pid: endpoint.pid,
            uid: endpoint.uid,
            name: endpoint.name.clone(),
            bytes_per_second: Rates::default(),
            in_flight: 0,
            windows: 0,
            window_bytes: 0,
            connections: Vec::new(),
        });
        process.bytes_per_second += rates;
        process.in_flight += traffic.in_flight;
        process.windows += traffic.windows;
        process.window_bytes += traffic.window_bytes;
        process.connections.push(Connection {
            endpoint: endpoint.clone(),
            bytes_per_second: rates,
        });
    }
    let mut all: Vec<Process> = by_pid.into_values().collect();
    for process in &mut all {
        // Connections with equal rates keep their order.
        process.connections.sort_by(|a, b| {
            let (a, b) = (a.bytes_per_second.total(), b.bytes_per_second.total());
            b.total_cmp(&a)
        });
    }
    all.sort_by(|a, b| {
        let by_rate = b
            .bytes_per_second
            .total()
            .total_cmp(&a.bytes_per_second.total());
        by_rate.then(a.pid.cmp(&b.pid))
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(pid: u32, channel: &str, sent: u64, written: u64) -> Endpoint {
        Endpoint {
            state: "connected".into(),
            peer: Some("1:5".into()),
            channel: Some(channel.into()),
            pid: Some(pid),
            traffic: Traffic {
                sent_bytes: sent,
                written_bytes: written,
                windows: 1,
                ..Traffic::default()
            },
            ..Endpoint::default()
        }
    }

    #[test]
    fn busiest_process_is_listed_first() {
        let before = [endpoint(1, "0x1", 100, 0), endpoint(2, "0x2", 0, 1000)];
        let now = [
            endpoint(1, "0x1", 300, 0),
            endpoint(1, "0x4", 50, 0),
            endpoint(2, "0x2", 0, 5000),
            // The number of its endpoint was given to another endpoint, which has moved less.
            endpoint(3, "0x3", 0, 0),
            Endpoint::default(),
        ];
        let all = processes(&before, &now, Duration::from_secs(2));
        let pids: Vec<_> = all.iter().map(|process| process.pid).collect();
        assert_eq!(pids, [Some(2), Some(1), Some(3)]);
        assert_eq!(all[0].bytes_per_second.written, 2000.0);
        assert_eq!(all[1].bytes_per_second.sent, 125.0);
        assert_eq!((all[1].windows, all[1].connections.len()), (2, 2));
        let first = &all[1].connections[0];
        assert_eq!(first.endpoint.channel.as_deref(), Some("0x1"));
    }

    #[test]
    fn decreased_counter_gives_rate_zero() {
        let (before, now) = (endpoint(1, "0x1", 9, 9), endpoint(1, "0x1", 3, 10));
        let all = processes(&[before], &[now], Duration::from_secs(1));
        assert_eq!(all[0].bytes_per_second.sent, 0.0);
        assert_eq!(all[0].bytes_per_second.written, 1.0);
        assert_eq!(all[0].bytes_per_second.total(), 1.0);
    }
}
