// SPDX-License-Identifier: LGPL-2.1

//! The lives of nodes. A node's life tells why a connection ended: because the other process ended
//! it, or because the link is down for a while. The life also tells when the link is up again.
//!
//! A link that flaps ends SCIF connections. If the node comes back in the same life, that is with
//! the same boot id, its connections are made again. If the node comes back in another life, or not
//! within the grace period, they are lost.

use std::sync::OnceLock;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::error::Error;
use crate::error::Result;
use crate::nodes;
use crate::process::NewProcess;
use crate::process::PerProcess;

/// Interval at which a node that is away is polled, which costs a load.
pub const LOOK: Duration = Duration::from_millis(5);

/// A node's life: the time from one load of its module to the next, named by the boot id. The epoch
/// names a part of that life in which the node has been within reach all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    node: u16,
    epoch: u64,
    boot_id: [u64; 2],
}

/// The state of a node that was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// The node is still away.
    Away,
    /// The node is back, in the same life.
    Same(Life),
    /// The node is back in another life.
    Other,
}

impl Life {
    /// Returns the present life of a node.
    pub fn of(node: u16) -> Result<Self> {
        let (epoch, boot_id) = nodes::status(node)?
            .life()
            .ok_or(Error::NODE_NOT_RESPONDING)?;
        Ok(Self {
            node,
            epoch,
            boot_id,
        })
    }

    /// Returns the present life of a node, or an error that says why the node is out of reach.
    pub fn within_reach(node: u16) -> Result<Self> {
        nodes::check_reachable(node)?;
        Self::of(node)
    }

    /// Returns the epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns whether the node has been within reach all the time.
    pub fn goes_on(&self) -> bool {
        nodes::status(self.node).is_ok_and(|status| status.epoch() == self.epoch)
    }

    /// Returns whether the node is back.
    pub fn returned(&self) -> Return {
        match Self::of(self.node) {
            Err(_) => Return::Away,
            Ok(now) if now.boot_id == self.boot_id => Return::Same(now),
            Ok(_) => Return::Other,
        }
    }
}

/// Connects to a node within one epoch: the node must have been within reach since before the
/// connection was made. Without that check the connection could be taken for one of an epoch that
/// had ended.
pub fn connect_within<C, W>(
    node: u16,
    deadline: Deadline,
    connect: impl Fn() -> Result<(C, W)>,
) -> Result<(Life, C, W)> {
    loop {
        let life = Life::within_reach(node)?;
        let (connection, welcome) = connect()?;
        if life.goes_on() {
            return Ok((life, connection, welcome));
        }
        drop(connection);
        if deadline.is_over() {
            return Err(Error::NODE_NOT_RESPONDING);
        }
    }
}

static SECONDS: PerProcess<OnceLock<u64>> = PerProcess::new(OnceLock::new());

/// Forgets the value, which the parent may just have been reading.
pub fn forget(process: &NewProcess) {
    SECONDS.renew(OnceLock::new(), process);
}

/// Returns the end of a grace period that begins now.
pub fn end_of_grace() -> Deadline {
    let seconds = SECONDS.get_or_init(|| {
        let said = std::env::var("SISCI_GRACE_SECONDS").ok();
        said.and_then(|text| text.parse().ok()).unwrap_or(60)
    });
    Deadline::in_time(Duration::from_secs(*seconds))
}
