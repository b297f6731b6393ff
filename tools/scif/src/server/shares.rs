// SPDX-License-Identifier: GPL-2.0

//! What the clients of one node may hold of this server, so that no node takes it from the others.
//!
//! A [`Share`] is counted from [`Shares::take`] until it is dropped. Only counting is done here: whoever
//! takes a share holds the thing itself.

use crate::error::Error;
use crate::error::Result;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;

/// Where a client comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A node.
    Node(u16),
    /// TCP, all of it.
    Tcp,
    /// Anywhere: for what all share.
    Any,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Clients, each with a thread.
    Clients,
    /// Bytes of files that were put, those being written included.
    Stored,
    /// Bytes of memory to measure with.
    Memory,
    /// Connections that are held to be measured.
    Connections,
    /// Threads that poll. All nodes share these, for they take whole CPUs.
    Pollers,
}

/// The most of each.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Clients of a node.
    pub clients: u64,
    /// Bytes that a node may put.
    pub stored: u64,
    /// Bytes that a node may measure with.
    pub memory: u64,
    /// Connections that a node may measure.
    pub connections: u64,
    /// Pollers of all nodes.
    pub pollers: u64,
}

impl Default for Limits {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
        Self {
            clients: 16,
            stored: u64::MAX,
            memory: 512 << 20,
            connections: MOST_CONNECTIONS.into(),
            // A round trip with two threads is possible anywhere.
            pollers: (cpus / 2).max(2),
        }
    }
}

impl Limits {
    fn most(&self, what: What) -> u64 {
        match what {
            What::Clients => self.clients,
            What::Stored => self.stored,
            What::Memory => self.memory,
            What::Connections => self.connections,
            What::Pollers => self.pollers,
        }
    }
}

/// The most connections that a node may measure at a time.
pub const MOST_CONNECTIONS: u32 = 20_000;

/// What is held, by whom.
#[derive(Debug, Default)]
pub struct Shares {
    limits: Limits,
    held: Mutex<BTreeMap<(Origin, What), u64>>,
}

impl Shares {
    /// Nobody holds anything.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: Mutex::default(),
        }
    }

    /// Takes so much, or refuses.
    pub fn take(&self, origin: Origin, what: What, amount: u64) -> Result<Share<'_>> {
        let origin = match what {
            What::Pollers => Origin::Any,
            _ => origin,
        };
        let most = self.limits.most(what);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = held.entry((origin, what)).or_default();
        match now.checked_add(amount) {
            Some(sum) if sum <= most => *now = sum,
            _ => return Err(refusal(what, amount, most)),
        }
        Ok(Share {
            shares: self,
            key: (origin, what),
            amount,
        })
    }
}

fn refusal(what: What, amount: u64, most: u64) -> Error {
    Error::Refused(match what {
        What::Clients => format!(
            "there are {most} clients of this node already: end one, or try again later \
             (`scif serve --clients` allows more)"
        ),
        What::Stored => format!(
            "{amount} bytes more are too many: each node may put {most} bytes here \
             (`scif serve --max-bytes`)"
        ),
        What::Memory => format!(
            "{amount} bytes more are too many: each node may measure with {most} bytes here \
             (`scif serve --bench-memory`); measure smaller sizes, or with fewer connections"
        ),
        What::Connections => {
            format!("{most} connections of a node can be measured at a time, not {amount} more")
        }
        What::Pollers => format!(
            "{most} clients can poll here at a time: measure with fewer threads, or without --poll"
        ),
    })
}

/// Something that is held.
#[derive(Debug)]
pub struct Share<'a> {
    shares: &'a Shares,
    key: (Origin, What),
    amount: u64,
}

impl Share<'_> {
    /// Counts it for ever.
    pub fn keep(mut self) {
        self.amount = 0;
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let held = &self.shares.held;
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = held.get_mut(&self.key) {
            *now = now.saturating_sub(self.amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_own() {
        let shares = Shares::new(Limits {
            clients: 2,
            pollers: 1,
            ..Limits::default()
        });
        let take = |node, what| shares.take(Origin::Node(node), what, 1);
        let held = [1, 1, 2, 2].map(|node| take(node, What::Clients).unwrap());
        assert!(take(1, What::Clients).is_err());
        assert!(take(2, What::Clients).is_err());
        drop(held);
        take(1, What::Clients).unwrap().keep();
        let second = take(1, What::Clients).unwrap();
        assert!(take(1, What::Clients).is_err());
        drop(second);
        let poller = take(1, What::Pollers).unwrap();
        assert!(take(2, What::Pollers).is_err());
        drop(poller);
        take(2, What::Pollers).unwrap();
        let (origin, what) = (Origin::Node(3), What::Memory);
        assert!(shares.take(origin, what, u64::MAX).is_err());
    }
}
