// SPDX-License-Identifier: GPL-2.0

//! How much is moved per second: what lies between two looks.

use super::endpoint::Endpoint;
use super::endpoint::Traffic;
use crate::format::rate;
use serde::Serialize;
use std::collections::HashMap;
use std::ops::AddAssign;
use std::time::Duration;

/// Bytes per second, each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// By messages.
    pub sent: f64,
    /// By messages.
    pub received: f64,
    /// By transfers to the peer.
    pub written: f64,
    /// By transfers from the peer.
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

    /// All ways together.
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

/// A connection, and how much it moves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Connection {
    /// As it is now.
    #[serde(flatten)]
    pub endpoint: Endpoint,
    /// Bytes per second since the last look.
    pub bytes_per_second: Rates,
}

/// A process, and how much its connections move.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// None for those that belong to nobody.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: Option<u32>,
    /// What it is called.
    pub name: Option<String>,
    /// Bytes per second of all its connections.
    pub bytes_per_second: Rates,
    /// Transfers that run.
    pub in_flight: u64,
    /// Registered windows.
    pub windows: u64,
    /// Bytes of those.
    pub window_bytes: u64,
    /// Those, who moves most first.
    pub connections: Vec<Connection>,
}

/// What the processes have moved between two looks; who has moved most comes first. A connection
/// that is new has moved all that it has.
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
        // Those that move as much keep their order.
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
    fn who_moves_most_comes_first() {
        let before = [endpoint(1, "0x1", 100, 0), endpoint(2, "0x2", 0, 1000)];
        let now = [
            endpoint(1, "0x1", 300, 0),
            endpoint(1, "0x4", 50, 0),
            endpoint(2, "0x2", 0, 5000),
            // Its number was given to another, which has moved less.
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
    fn less_than_before_is_nothing() {
        let (before, now) = (endpoint(1, "0x1", 9, 9), endpoint(1, "0x1", 3, 10));
        let all = processes(&[before], &[now], Duration::from_secs(1));
        assert_eq!(all[0].bytes_per_second.sent, 0.0);
        assert_eq!(all[0].bytes_per_second.written, 1.0);
        assert_eq!(all[0].bytes_per_second.total(), 1.0);
    }
}
