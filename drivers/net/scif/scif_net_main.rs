// SPDX-License-Identifier: GPL-2.0

//! A network device for each peer that SCIF reaches: Ethernet over the bridge.
//!
//! The module is a sister of scif.ko, which joins the rings of frames with a peer
//! (`scif_main::sister`). A frame of the network stack becomes one frame of these rings, segments
//! that are still to be cut included.
//!
//! - `device.rs`: the device of one peer, and what the rings tell it
//! - `port.rs`: a pair of queues of a device, and the way of a frame
//! - `sys/`: the kernel's C behind safe types, and nearly all unsafe code
//!
//! # The way of a frame
//!
//! Out: `sys/netdev.c` (`scif_net_start_xmit`) -> `sys/calls.rs` -> [`port::Port::send`] ->
//! `scif_main::sister::Sending`. In: the doorbell's interrupt -> [`device::Ports`] (`rung`) -> NAPI
//! -> `sys/calls.rs` -> [`port::Port::poll`] -> `napi_gro_receive`.
//!
//! # Locks
//!
//! `Port::rx`, below it the receiver of the rings; `Port::tx`, below it the sender. All are taken
//! with bottom halves disabled.

mod device;
mod port;
mod sys;

use device::Ports;
use kernel::{
    cpu::nr_cpu_ids,
    prelude::*,
    sync::Arc, //
};
use scif_main::sister::{
    Client,
    Driver,
    PeerInfo,
    Registration, //
};

module! {
    type: NetModule,
    name: "scif_net",
    authors: ["The SCIF for Linux authors"],
    description: "Network devices over the links of SCIF",
    license: "GPL",
}

/// The driver: it makes a device for each peer but this node itself.
struct Network;

impl Driver for Network {
    fn attach(&self, peer: &PeerInfo) -> Result<Option<Arc<dyn Client>>> {
        if peer.is_this {
            return Ok(None);
        }
        let client: Arc<dyn Client> = Ports::register(peer)?;
        Ok(Some(client))
    }
}

struct NetModule {
    /// The registration. Its drop removes all devices.
    _registration: Registration,
}

impl kernel::Module for NetModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _registration: Registration::new(Arc::new(Network, GFP_KERNEL)?, nr_cpu_ids())?,
        })
    }
}
