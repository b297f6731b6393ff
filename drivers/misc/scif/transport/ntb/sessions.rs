// SPDX-License-Identifier: GPL-2.0

//! Start and end of a session with the peer of a link.

use super::{
    link::NtbLink,
    path::NtbPath,
    reports,
    state::{
        Inner,
        Kept,
        Up, //
    },
};
use crate::{
    logic::{
        control_block::ControlGeometry,
        handshake::Reason,
        hello::Hello, //
    },
    sys::{
        ntb::NtbDevice,
        shared_memory::SharedMemory,
        trace, //
    },
    transport::{
        doorbell,
        path::Path,
        sink::{
            Introduction, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

impl NtbLink {
    /// Creates the session that both sides have agreed on, and returns whether it was created.
    /// Context: may sleep.
    pub(super) fn begin(
        self: &Arc<Self>,
        inner: &mut Inner,
        device: Option<&Arc<NtbDevice>>,
        nonce: u32,
        hello: &Hello,
    ) -> bool {
        let (Some(device), Some(block)) = (device, inner.block.take()) else {
            return false;
        };
        match self.introduce(device, inner, &block, nonce, hello) {
            Ok(up) => {
                let session = up.session.clone();
                inner.up = Some(up);
                inner.reported = false;
                let none = self.current.lock().replace(session.clone());
                drop(none);
                // The peer may have begun its session, and posted messages, before.
                session
                    .as_arc_borrow()
                    .doorbells(doorbell::bit(doorbell::CONTROL));
                true
            }
            Err(error) => {
                // The peer has begun its session, and writes to this side's block.
                inner.close_aperture(Some(device));
                inner.grace.keep(hello.nonce, Kept::Block(block));
                self.report(inner, || reports::no_session(&self.name, hello.node, error));
                false
            }
        }
    }

    fn introduce(
        self: &Arc<Self>,
        device: &Arc<NtbDevice>,
        inner: &Inner,
        block: &Arc<SharedMemory>,
        nonce: u32,
        hello: &Hello,
    ) -> Result<Up> {
        let own = inner.aperture.as_ref().ok_or(EINVAL)?;
        let path = NtbPath::new(self, device, own, inner.downs, hello, block.fate())?;
        let introduction = Introduction {
            link: &self.shown_name,
            node: Some(hello.node),
            generation: hello.generation,
            own_nonce: nonce,
            peer_nonce: hello.nonce,
            block: block.clone(),
            geometry: ControlGeometry::for_aperture(own.len),
            peer_block: hello.control,
            peer_geometry: ControlGeometry::for_aperture(hello.aperture_len),
        };
        // A thread may still hold the path. It must not keep the device.
        let session = self
            .context
            .sink
            .online(path.clone(), introduction)
            .inspect_err(|_| path.detach())?;
        trace::link_up(|| trace::Link::new(&self.name, hello.node, hello.generation, path.mode()));
        reports::online(&self.name, hello.node, &path, own, self.guard);
        Ok(Up {
            session,
            path,
            peer: hello.node,
            generation: hello.generation,
        })
    }

    /// Ends the present session.
    /// Context: may sleep.
    pub(super) fn end(&self, inner: &mut Inner, device: Option<&NtbDevice>, reason: Reason) {
        let current = self.current.lock().take();
        drop(current);
        let Some(Up {
            session,
            path,
            peer,
            generation,
        }) = inner.up.take()
        else {
            return;
        };
        let nonce = inner.handshake.peer_nonce().unwrap_or(0);
        session.going();
        if self.may_log() {
            pr_info!("node {} is offline: {}\n", peer, reason.text());
        }
        trace::link_down(|| trace::Link::new(&self.name, peer, generation, reason.text()));
        // Does nothing without a device, as when its driver is being unbound. `NtbLink::withdraw`
        // then closes the windows later, so that the peer has time to release memory first.
        let closed = inner.close_aperture(device);
        let drained = session.tear_down();
        path.unmap(&drained);
        if session.ended() == Some(Reason::Left) {
            session.unreachable();
            session.forget();
            return;
        }
        // An arena or pool cuts the peer off from what it could use, even if the device does not
        // close its window.
        if closed || inner.keeps_out() {
            session.unreachable();
        }
        inner
            .grace
            .keep(nonce, Kept::Session(session, path.fate.clone()));
    }
}
