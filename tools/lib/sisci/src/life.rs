// SPDX-License-Identifier: LGPL-2.1

//! Whether a connection ended because its other end did, or because the way to it is away for a
//! while; and the end of that while.
//!
//! A link that flaps ends connections of SCIF. If the node then comes back in the same life, that
//! is with the same boot id, what was connected is connected again; if it does not within the grace
//! period, or in another life, it is lost.

use std::sync::OnceLock;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::error::Error;
use crate::error::Result;
use crate::nodes;
use crate::process::NewProcess;
use crate::process::PerProcess;

/// How often a node that is away is looked for, which costs a load.
pub const LOOK: Duration = Duration::from_millis(5);

/// A node's life, and the stretch of it in which it has been within reach all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    node: u16,
    epoch: u64,
    boot_id: [u64; 2],
}

/// How a node is that was away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// It still is.
    Away,
    /// It is back, in the same life.
    Same(Life),
    /// It is another life.
    Other,
}

impl Life {
    /// That of a node now.
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

    /// As [`Self::of`], with an error that says what is wrong with a node that is not within reach.
    pub fn within_reach(node: u16) -> Result<Self> {
        nodes::check_reachable(node)?;
        Self::of(node)
    }

    /// The stretch's number.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the node has been within reach all the time.
    pub fn goes_on(&self) -> bool {
        nodes::status(self.node).is_ok_and(|status| status.epoch() == self.epoch)
    }

    /// Whether it is back.
    pub fn returned(&self) -> Return {
        match Self::of(self.node) {
            Err(_) => Return::Away,
            Ok(now) if now.boot_id == self.boot_id => Return::Same(now),
            Ok(_) => Return::Other,
        }
    }
}

/// Connects to a node, in a stretch in which it was within reach from before the connection was made: else the
/// connection would be taken for one of a stretch that had ended.
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

/// Forgets what the parent may just have been finding out.
pub fn forget(process: &NewProcess) {
    SECONDS.renew(OnceLock::new(), process);
}

/// The end of the grace period that begins now.
pub fn end_of_grace() -> Deadline {
    let seconds = SECONDS.get_or_init(|| {
        let said = std::env::var("SISCI_GRACE_SECONDS").ok();
        said.and_then(|text| text.parse().ok()).unwrap_or(60)
    });
    Deadline::in_time(Duration::from_secs(*seconds))
}
