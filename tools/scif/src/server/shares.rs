// SPDX-License-Identifier: GPL-2.0

//! The resources of the server that the clients of one node may hold, so that no node takes them
//! from the others.
//!
//! A [`Share`] is counted from [`Shares::take`] until it is dropped. This module only counts: the
//! caller that takes a share holds the resource itself.

use crate::error::Error;
use crate::error::Result;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;

/// The origin of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A node.
    Node(u16),
    /// TCP, from any address.
    Tcp,
    /// Any origin, for resources that all share.
    Any,
}

/// The kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResourceKind {
    /// Clients, each with a thread.
    Clients,
    /// Bytes of files that were put, those being written included.
    Stored,
    /// Bytes of memory to measure with.
    Memory,
    /// Connections that are held for a measurement.
    Connections,
    /// Threads that poll. All nodes share these, as they take whole CPUs.
    Pollers,
}

/// The limits of each kind.
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
            // This allows a round trip with two threads on any machine.
            pollers: (cpus / 2).max(2),
        }
    }
}

impl Limits {
    fn most(&self, kind: ResourceKind) -> u64 {
        match kind {
            ResourceKind::Clients => self.clients,
            ResourceKind::Stored => self.stored,
            ResourceKind::Memory => self.memory,
            ResourceKind::Connections => self.connections,
            ResourceKind::Pollers => self.pollers,
        }
    }
}

/// The most connections that a node may measure at a time.
pub const MOST_CONNECTIONS: u32 = 20_000;

/// The resources that are held, by origin.
#[derive(Debug, Default)]
pub struct Shares {
    limits: Limits,
    held: Mutex<BTreeMap<(Origin, ResourceKind), u64>>,
}

impl Shares {
    /// Creates the count, with nothing held.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: Mutex::default(),
        }
    }

    /// Takes this amount, or refuses.
    pub fn take(&self, origin: Origin, kind: ResourceKind, amount: u64) -> Result<Share<'_>> {
        let origin = match kind {
            ResourceKind::Pollers => Origin::Any,
            _ => origin,
        };
        let most = self.limits.most(kind);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = held.entry((origin, kind)).or_default();
        match now.checked_add(amount) {
            Some(sum) if sum <= most => *now = sum,
            _ => return Err(refusal(kind, amount, most)),
        }
        Ok(Share {
            shares: self,
            key: (origin, kind),
            amount,
        })
    }
}

fn refusal(kind: ResourceKind, amount: u64, most: u64) -> Error {
    Error::Refused(match kind {
        ResourceKind::Clients => format!(
            "there are {most} clients of this node already: end one, or try again later \
             (`scif serve --clients` allows more)"
        ),
        ResourceKind::Stored => format!(
            "{amount} bytes more are too many: each node may put {most} bytes here \
             (`scif serve --max-bytes`)"
        ),
        ResourceKind::Memory => format!(
            "{amount} bytes more are too many: each node may measure with {most} bytes here \
             (`scif serve --bench-memory`); measure smaller sizes, or with fewer connections"
        ),
        ResourceKind::Connections => {
            format!("{most} connections of a node can be measured at a time, not {amount} more")
        }
        ResourceKind::Pollers => format!(
            "{most} clients can poll here at a time: measure with fewer threads, or without --poll"
        ),
    })
}

/// An amount of a resource that is held.
#[derive(Debug)]
pub struct Share<'a> {
    shares: &'a Shares,
    key: (Origin, ResourceKind),
    amount: u64,
}

impl Share<'_> {
    /// Counts the amount for ever.
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
    fn each_node_has_its_own_share() {
        let shares = Shares::new(Limits {
            clients: 2,
            pollers: 1,
            ..Limits::default()
        });
        let take = |node, kind| shares.take(Origin::Node(node), kind, 1);
        let held = [1, 1, 2, 2].map(|node| take(node, ResourceKind::Clients).unwrap());
        assert!(take(1, ResourceKind::Clients).is_err());
        assert!(take(2, ResourceKind::Clients).is_err());
        drop(held);
        take(1, ResourceKind::Clients).unwrap().keep();
        let second = take(1, ResourceKind::Clients).unwrap();
        assert!(take(1, ResourceKind::Clients).is_err());
        drop(second);
        let poller = take(1, ResourceKind::Pollers).unwrap();
        assert!(take(2, ResourceKind::Pollers).is_err());
        drop(poller);
        take(2, ResourceKind::Pollers).unwrap();
        let (origin, kind) = (Origin::Node(3), ResourceKind::Memory);
        assert!(shares.take(origin, kind, u64::MAX).is_err());
    }
}
