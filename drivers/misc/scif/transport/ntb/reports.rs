// SPDX-License-Identifier: GPL-2.0

//! What the log says of a peer: that it is there and how, or why there can be no session with it.

use super::{
    aperture::Aperture,
    path::NtbPath, //
};
use crate::{
    logic::{
        envelope::VERSION,
        handshake::Refused,
        hello::Mode, //
    },
    transport::path::Path,
};
use kernel::{
    page::PAGE_SHIFT,
    prelude::*, //
};

/// There is a session, through these apertures; `is_exposed` as in [`NtbLink`](super::link::NtbLink).
pub(super) fn online(link: &CStr, node: u16, path: &NtbPath, (own, is_exposed): (&Aperture, bool)) {
    pr_info!(
        "node {} is online through {}: {} aperture of {} KiB, {}\n",
        node,
        link,
        path.mode(),
        path.size() >> 10,
        path.transfers()
    );
    if own.windows.count() > 1 {
        pr_info!(
            "{}: its aperture is made of {} memory windows\n",
            link,
            own.windows.count()
        );
    }
    match own.mode() {
        Mode::Flat => pr_info!(
            "{}: node {} can reach all memory of this machine: its aperture over it is flat ({})\n",
            link,
            node,
            own.reason
        ),
        mode if is_exposed => pr_info!(
            "{}: node {} can reach all memory of this machine: it says itself where the windows of this bridge lead, and no IOMMU keeps it out (its aperture, of {} KiB, is in mode {}: {})\n",
            link,
            node,
            own.len >> 10,
            mode.name(),
            own.reason
        ),
        mode => pr_info!(
            "{}: node {} can reach what is {} for it: its aperture over this machine's memory, of {} KiB, is in mode {} ({})\n",
            link,
            node,
            match mode {
                Mode::Bounce => "set apart",
                _ => "registered",
            },
            own.len >> 10,
            mode.name(),
            own.reason
        ),
    }
}

/// The peer can't be served, as its hello shows.
pub(super) fn refused(link: &CStr, refused: Refused) {
    match refused {
        Refused::Version(version) => pr_err!(
            "{}: the peer speaks version {} of the protocol, this side {}\n",
            link,
            version & 0xff,
            VERSION
        ),
        Refused::PageSize(shift) => pr_err!(
            "{}: no session: the peer's pages have 2^{} bytes, those of this side 2^{}\n",
            link,
            shift,
            PAGE_SHIFT
        ),
        Refused::Mode(mode) => pr_err!(
            "{}: no session: the peer's aperture is in mode {}, which this side can't use\n",
            link,
            mode
        ),
        Refused::OurMode(mode) => pr_err!(
            "{}: no session: the peer can't use an aperture in mode {}\n",
            link,
            mode
        ),
        Refused::Features(features) => pr_err!(
            "{}: no session: the peer demands features {:#x}, which this side does not know\n",
            link,
            features
        ),
    }
}

/// The session that both sides wanted could not begin.
pub(super) fn no_session(link: &CStr, node: u16, error: Error) {
    let reason = match error {
        EEXIST => "its node id is taken by another; set node_id= on one of them",
        EFAULT => "its control block can't be reached",
        ENOMEM => "there is not enough memory",
        _ => "its aperture can't be used",
    };
    pr_err!(
        "{}: no session with node {}: {} ({:?})\n",
        link,
        node,
        reason,
        error
    );
}
