// SPDX-License-Identifier: GPL-2.0

//! The link of a node to itself.
//!
//! It has one session as long as the module is loaded. The control ring's two ends lie in one
//! block: what is posted is what is taken. So the whole interface works on a machine without any
//! device, and through the same code.

use crate::{
    control::{
        self,
        ControlRing, //
    },
    node::Fabric,
    session::{
        PeerIdentity,
        Session, //
    },
    transport::{
        LoopbackTransport,
        Transport, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The session's nonce: there is no handshake in which it would mean something.
const NONCE: u32 = 1;

/// The loopback link; its session ends when this is dropped.
pub(crate) struct Loopback {
    fabric: Arc<Fabric>,
    session: Arc<Session>,
}

impl Loopback {
    pub(crate) fn new(fabric: &Arc<Fabric>) -> Result<Self> {
        let block = control::new_block(None)?;
        let address = block.bus_address();
        let peer = PeerIdentity {
            node: fabric.own_id(),
            generation: fabric.generation,
            nonce: NONCE,
        };
        let session = Session::new(
            fabric,
            peer,
            NONCE,
            Transport::Loopback(LoopbackTransport),
            None,
            None,
            ControlRing::new(block, address)?,
        )?;
        fabric.set_loopback(Some(session.clone()));
        Ok(Self {
            fabric: fabric.clone(),
            session,
        })
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.fabric.set_loopback(None);
        self.session.tear_down();
        self.session.release_windows();
        self.fabric.control_queue.flush();
        self.fabric.completion_queue.flush();
        self.session.bury();
    }
}
