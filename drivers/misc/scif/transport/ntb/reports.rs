// SPDX-License-Identifier: GPL-2.0

//! Reports on a link to users: its line in the list of links, and log lines about its peer, or
//! about the lack of a session.

use kernel::{
    fmt,
    page::PAGE_SHIFT,
    prelude::*, //
};

use super::{
    aperture::{
        Aperture,
        Unsuitable,
        LARGEST_ALIGN,
        SMALLEST, //
    },
    link::NtbLink,
    path::NtbPath,
    state::Up, //
};
use crate::{
    logic::{
        envelope::VERSION,
        handshake::Refused,
        hello::Mode, //
    },
    sys::{
        dma_map::Guard,
        places::Purpose, //
    },
    transport::{
        links::{
            escape,
            Link, //
        },
        path::Path, //
    },
};

impl fmt::Display for Unsuitable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FlatNotAllowed => f.write_str(
                "aperture=flat lets the peer read and write all memory of this machine; load with allow_flat=1 to accept that, or without aperture=flat",
            ),
            Self::NoIommu => f.write_str(
                "aperture=arena needs an IOMMU that translates for the bridge; boot with intel_iommu=on, or amd_iommu=on, and without iommu=pt",
            ),
            Self::NoArena { largest } => write!(
                f,
                "the IOMMU has no range of addresses that a memory window could lead to (the largest window has {} KiB)",
                largest >> 10
            ),
            Self::TooSmall { needed, largest } => write!(
                f,
                "no memory windows cover the {} MiB of this machine (the largest has {} MiB), as aperture=flat demands; make the BARs larger, or load without aperture=flat",
                needed >> 20,
                largest >> 20
            ),
            Self::NoPool { largest, address } => write!(
                f,
                "aperture=bounce takes a memory window of at least {} KiB that can begin at a multiple of {} MiB or less (the largest has {} KiB, and can at those of {} KiB); make the BAR smaller, switch the IOMMU on, or load with allow_flat=1 if the other host is trusted",
                SMALLEST >> 10,
                LARGEST_ALIGN >> 20,
                largest >> 10,
                address >> 10
            ),
            Self::Device(error) => write!(f, "can't offer a link: {error:?}"),
        }
    }
}

/// Returns the weakness of a guard, and a remedy, for a bridge of which the peer sets the
/// translation of the windows. Returns `None` if the guard has no weakness.
pub(super) fn weakness(guard: Guard) -> Option<&'static str> {
    match guard {
        Guard::None => Some(
            "no IOMMU keeps it from any memory of this machine; switch the IOMMU on",
        ),
        Guard::Group => Some(
            "it reaches memory mapped for the other devices of the bridge's IOMMU group, too; switch ACS on, or put the bridge into another slot",
        ),
        Guard::Memory => Some(
            "nothing keeps it from raising any interrupt of this machine; switch interrupt remapping on",
        ),
        Guard::Whole => None,
    }
}

/// Logs that there is a session through these apertures. Each line counts against the peer's limit.
pub(super) fn online(link: &CStr, node: u16, path: &NtbPath, own: &Aperture, guard: Guard) {
    if path.may_log() {
        pr_info!(
            "node {node} is online through {link}: {} aperture of {} KiB, {}\n",
            path.mode(),
            path.reachable() >> 10,
            path.transfers()
        );
    }
    if own.windows.count() > 1 && path.may_log() {
        pr_info!(
            "{link}: its aperture is made of {} memory windows\n",
            own.windows.count()
        );
    }
    let mode = own.behind.mode();
    let reached = match (mode, guard) {
        (Mode::Flat, _) => "all memory of this machine",
        (_, Guard::None) => "all memory of this machine, as it sets where the windows of this bridge lead, and no IOMMU keeps it out",
        (_, Guard::Group) => "all memory mapped for a device of the bridge's IOMMU group, as it sets where the windows of this bridge lead",
        (_, Guard::Memory) => "all memory mapped for the bridge, and all interrupts, as it sets where the windows of this bridge lead",
        (Mode::Bounce, Guard::Whole) => "memory set apart for it",
        (Mode::Arena, Guard::Whole) => "memory registered for it",
    };
    if path.may_log() {
        pr_info!(
            "{link}: node {node} can reach {reached}: its aperture over this machine's memory, of {} KiB, is in mode {} ({})\n",
            own.len >> 10,
            mode.name(),
            own.reason
        );
    }
}

/// Logs why the peer can't be served, as its hello shows.
pub(super) fn refused(link: &CStr, refused: Refused) {
    match refused {
        Refused::Version(version) => pr_err!(
            "{link}: no session: the peer speaks version {} of the protocol, this side {VERSION}\n",
            version & 0xff
        ),
        Refused::Taken(node) => pr_err!(
            "{link}: no session with node {node}: its node id is taken by another; set node_id= on one of them, or leave this link as the spare one of the same node\n"
        ),
        Refused::PageSize(shift) => pr_err!(
            "{link}: no session: the peer's pages have 2^{shift} bytes, those of this side 2^{PAGE_SHIFT}\n"
        ),
    }
}

/// Logs why the agreed session could not begin. The handshake tries again.
pub(super) fn no_session(link: &CStr, node: u16, error: Error) {
    let reason = match error {
        EEXIST => "its node id is taken by another; set node_id= on one of them",
        EFAULT => "its control block can't be reached",
        ENOMEM => "there is not enough memory",
        _ => "its aperture can't be used",
    };
    pr_err!("{link}: no session with node {node}: {reason} ({error:?})\n");
}

impl Link for NtbLink {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A thread that takes a session down holds the lock all the time, and waits for others. So
        // this does not wait for the lock.
        let inner = self.inner.try_lock();
        let up = inner.as_ref().and_then(|inner| inner.up.as_ref());
        let state = match &inner {
            None => "changing",
            Some(_) if up.is_some() => "up",
            Some(inner) if inner.block.is_some() => "offering",
            Some(_) => "down",
        };
        write!(f, "ntb:{} {state} ", self.name.to_str().unwrap_or("?"))?;
        if let Some(Up { path, peer, .. }) = up {
            let engines = path.engines().len();
            write!(f, "{peer} {} {} {engines}", path.mode(), path.reachable())?;
        } else {
            f.write_str("- - - -")?;
        }
        write!(f, " {:#x} ", self.register.numbers())?;
        let aperture = inner.as_ref().and_then(|inner| inner.aperture.as_ref());
        let Some(aperture) = aperture.filter(|_| state != "down") else {
            return writeln!(f, "- - - - - -");
        };
        let behind = &aperture.behind;
        write!(f, "{} {} ", behind.mode().name(), aperture.len)?;
        match behind.places() {
            None => f.write_str("- - ")?,
            Some(places) => {
                let windows = places.bytes_for(Purpose::Windows);
                write!(f, "{windows} {} ", places.bytes_for(Purpose::Rings))?;
            }
        }
        escape(f, aperture.reason)?;
        let is_guarded = self.guard == Guard::Whole && behind.keeps_out();
        writeln!(f, " {}", if is_guarded { "yes" } else { "no" })
    }
}
