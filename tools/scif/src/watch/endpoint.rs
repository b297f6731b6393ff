// SPDX-License-Identifier: GPL-2.0

//! One endpoint: its state, its process, and its traffic.

use super::table::Row;
use serde::Serialize;

/// The traffic and the resources of an endpoint, in the names of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Bytes sent by messages.
    pub sent_bytes: u64,
    /// Calls that have sent something.
    pub sent_messages: u64,
    /// Bytes received by messages.
    pub received_bytes: u64,
    /// Calls that have received something.
    pub received_messages: u64,
    /// Bytes of transfers to the peer.
    pub written_bytes: u64,
    /// Number of transfers to the peer.
    pub written_transfers: u64,
    /// Bytes of transfers from the peer.
    pub read_bytes: u64,
    /// Number of transfers from the peer.
    pub read_transfers: u64,
    /// Transfers in flight.
    pub in_flight: u64,
    /// Registered windows.
    pub windows: u64,
    /// Bytes of registered windows.
    pub window_bytes: u64,
}

/// An endpoint, or a connection that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// `listening`, `connected` and so on.
    pub state: String,
    /// The node and port, as `0:2050`.
    pub own: Option<String>,
    /// Node and port at the other end.
    pub peer: Option<String>,
    /// The id of this end, as tracepoints show it.
    pub channel: Option<String>,
    /// Requests that wait for accept.
    pub queued: u64,
    /// The process id.
    pub pid: Option<u32>,
    /// The user of the process.
    pub uid: Option<u32>,
    /// The name of the process.
    pub name: Option<String>,
    /// The traffic and the resources.
    #[serde(flatten)]
    pub traffic: Traffic,
}

impl Traffic {
    /// Collects the numbers by name; a missing number is 0.
    fn of(number: impl Fn(&str) -> Option<u64>) -> Self {
        let number = |name| number(name).unwrap_or(0);
        Self {
            sent_bytes: number("sent_bytes"),
            sent_messages: number("sent_messages"),
            received_bytes: number("received_bytes"),
            received_messages: number("received_messages"),
            written_bytes: number("written_bytes"),
            written_transfers: number("written_transfers"),
            read_bytes: number("read_bytes"),
            read_transfers: number("read_transfers"),
            in_flight: number("in_flight"),
            windows: number("windows"),
            window_bytes: number("window_bytes"),
        }
    }
}

impl Endpoint {
    /// Parses a line of debugfs. Returns `None` if the line is not understood.
    pub fn of(row: &Row<'_>) -> Option<Self> {
        Some(Self {
            state: row.text("state")?,
            // A node without a port is no address.
            own: row.text("own").filter(|own| !own.ends_with('-')),
            peer: row.text("peer"),
            channel: row.text("channel"),
            queued: row.number("queued").unwrap_or(0),
            pid: row.number("pid"),
            uid: row.number("uid"),
            name: row.text("name"),
            traffic: Traffic::of(|name| row.number(name)),
        })
    }

    /// Parses the `fdinfo` of a file. Returns `None` if the file is not of SCIF. The process is not
    /// in there.
    pub fn of_fdinfo(text: &str) -> Option<Self> {
        let value = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.strip_prefix("scif-")?.split_once(':')?;
                (key == name).then(|| value.trim())
            })
        };
        let text = |name| value(name).map(str::to_owned);
        let number = |name: &str| value(name)?.parse().ok();
        Some(Self {
            state: text("state")?,
            own: text("own"),
            peer: text("peer"),
            channel: text("channel"),
            queued: number("queued").unwrap_or(0),
            pid: None,
            uid: None,
            name: None,
            traffic: Traffic::of(number),
        })
    }

    /// Returns the key of the endpoint's connection: equal for two of its descriptors, in any
    /// process.
    pub fn connection(&self) -> Option<(&str, &str)> {
        Some((self.peer.as_deref()?, self.channel.as_deref()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::table::rows;

    #[test]
    fn table_line_and_fdinfo_give_the_same_endpoint() {
        let table = "state own peer channel queued pid uid name sent_bytes in_flight later\n\
            connected 0:5 1:6 0x100001 0 7 1 x 30 2 9\nunbound 0:- - - 0 7 1 x 0 0 9\n";
        let all: Vec<_> = rows(table).filter_map(|row| Endpoint::of(&row)).collect();
        let fdinfo = "pos:\t0\nflags:\t02\nscif-state:\tconnected\nscif-own:\t0:5\nscif-peer:\t1:6\n\
            scif-channel:\t0x100001\nscif-pid:\t7\nscif-queued:\t0\nscif-sent_bytes:\t30\n\
            scif-in_flight:\t2\nscif-later:\t1\n";
        let mut endpoint = Endpoint::of_fdinfo(fdinfo).unwrap();
        (endpoint.pid, endpoint.uid) = (Some(7), Some(1));
        endpoint.name = Some("x".into());
        assert_eq!(all[0], endpoint);
        assert_eq!(endpoint.connection(), Some(("1:6", "0x100001")));
        assert_eq!((all[1].own.as_deref(), all[1].connection()), (None, None));
        assert_eq!(Endpoint::of_fdinfo("pos:\t0\nflags:\t02\n"), None);
    }
}
