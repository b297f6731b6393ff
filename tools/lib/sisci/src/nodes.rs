// SPDX-License-Identifier: LGPL-2.1

//! Nodes, by SISCI's ids, and the state of the link to each.
//!
//! The kernel keeps a status page for each node. The library maps a page at the first use and never
//! unmaps it, so that sequences are checked by loads alone.

use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Release;

use rustix::io::retry_on_intr;

use crate::endpoint;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::process::NewProcess;
use crate::process::PerProcess;

/// The id that stands for all nodes that have a group.
pub const BROADCAST: u32 = 252;

/// Largest number of nodes, by the range of SISCI's ids.
pub const MOST: u16 = 62;

/// Returns the SISCI id of a SCIF node.
pub fn sisci_id(node: u16) -> u32 {
    4 * (u32::from(node) + 1)
}

/// Returns the SCIF node of a SISCI id. ILLEGAL_NODEID: the id can't be a node.
pub fn scif_node(id: u32) -> Result<u16> {
    if id == 0 || id % 4 != 0 || id > 4 * u32::from(MOST) {
        return Err(Error::ILLEGAL_NODEID);
    }
    u16::try_from(id / 4 - 1).map_err(|_| Error::ILLEGAL_NODEID)
}

/// Checks the number of an adapter: there is adapter 0 only.
pub fn check_adapter(number: u32) -> Result<()> {
    match number {
        0 => Ok(()),
        1..=15 => Err(Error::NO_SUCH_ADAPTERNO),
        _ => Err(Error::ILLEGAL_ADAPTERNO),
    }
}

/// `struct scif_status_page`
#[repr(C)]
pub struct Status {
    version: u32,
    node: u32,
    epoch: AtomicU64,
    errors: AtomicU64,
    boot_id: [AtomicU64; 2],
}

impl Status {
    /// Returns the epoch. It is odd if the node is within reach, and grows with each change.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// Returns the number of failed accesses to the node.
    pub fn errors(&self) -> u64 {
        self.errors.load(Acquire)
    }

    /// Returns the epoch and the boot id, if the node is within reach.
    pub fn life(&self) -> Option<(u64, [u64; 2])> {
        loop {
            let epoch = self.epoch();
            if epoch % 2 == 0 {
                return None;
            }
            let id = [self.boot_id[0].load(Acquire), self.boot_id[1].load(Acquire)];
            if self.epoch() == epoch {
                return Some((epoch, id));
            }
        }
    }
}

static PAGES: [AtomicPtr<Status>; MOST as usize] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MOST as usize];
static MAKING: PerProcess<Mutex<()>> = PerProcess::new(Mutex::new(()));

/// Returns the status page of a node.
pub fn status(node: u16) -> Result<&'static Status> {
    let place = PAGES.get(usize::from(node)).ok_or(Error::ILLEGAL_NODEID)?;
    // SAFETY: The pointer is null, or a page that is never unmapped.
    if let Some(status) = unsafe { place.load(Acquire).as_ref() } {
        return Ok(status);
    }
    let _making = lock(&MAKING);
    if place.load(Acquire).is_null() {
        let mapping = page_of(node)?;
        place.store(mapping.address().cast(), Release);
        mapping.forget();
    }
    // SAFETY: As above, and not null.
    unsafe { place.load(Acquire).as_ref() }.ok_or(Error::SYSTEM)
}

/// Forgets the parent's pages, which are not mapped in a child.
pub fn forget(process: &NewProcess) {
    for page in &PAGES {
        page.store(core::ptr::null_mut(), Release);
    }
    MAKING.renew(Mutex::new(()), process);
}

fn page_of(node: u16) -> endpoint::Result<Mapping> {
    let endpoint = Endpoint::open()?;
    let page = retry_on_intr(|| scif_sys::node_status(&endpoint, node))?;
    Mapping::new(page.as_fd(), 0, size_of::<Status>(), false, Place::Any)
}

/// Checks whether a node is within reach. The error says why it is not.
pub fn check_reachable(node: u16) -> Result<()> {
    let epoch = status(node)?.epoch();
    if epoch % 2 == 1 {
        return Ok(());
    }
    if epoch > 0 {
        return Err(Error::NODE_NOT_RESPONDING);
    }
    match endpoint::nodes()?.online.len() {
        0 | 1 => Err(Error::NO_LINK_ACCESS),
        _ => Err(Error::NO_SUCH_NODEID),
    }
}

/// Returns the own node.
pub fn own() -> Result<u16> {
    Ok(endpoint::nodes()?.own)
}

/// Returns the number of other nodes that are within reach.
pub fn links() -> Result<usize> {
    let nodes = endpoint::nodes()?;
    Ok(nodes
        .online
        .iter()
        .filter(|node| **node != nodes.own)
        .count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_must_be_multiples_of_four() {
        for node in [0, 1, 61] {
            assert_eq!(scif_node(sisci_id(node)), Ok(node));
        }
        assert_eq!(scif_node(0), Err(Error::ILLEGAL_NODEID));
        assert_eq!(scif_node(BROADCAST), Err(Error::ILLEGAL_NODEID));
        assert_eq!(scif_node(5), Err(Error::ILLEGAL_NODEID));
        assert_eq!(check_adapter(0), Ok(()));
        assert_eq!(check_adapter(1), Err(Error::NO_SUCH_ADAPTERNO));
        assert_eq!(check_adapter(16), Err(Error::ILLEGAL_ADAPTERNO));
    }
}
