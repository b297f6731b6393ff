// SPDX-License-Identifier: GPL-2.0

//! Messages, in Rust: sends all received bytes back, on port 3001.
//!
//! This is only for code in the same kernel tree as scif.ko, see `kernel_api/client.rs` there.
//! `../kernel/echo.c` does the same in C, for any module.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use scif_main::client::{
    own_node,
    Endpoint,
    Handler,
    PortId,
    Service, //
};

module! {
    type: EchoModule,
    name: "scif_rust_echo",
    authors: ["The SCIF for Linux authors"],
    description: "SCIF sample: an echo server in Rust",
    license: "GPL",
}

const PORT: u16 = 3001;

struct Echo;

impl Handler for Echo {
    fn serve(&self, connection: &Endpoint, peer: PortId) {
        let mut byte = [0];
        // Receives one byte at a time, as the number of bytes is unknown.
        while matches!(connection.receive(&mut byte), Ok(1)) {
            if connection.send(&byte).is_err() {
                break;
            }
        }
        pr_info!("node {}, port {} has disconnected\n", peer.node, peer.port);
    }
}

struct EchoModule {
    /// The service. Dropping it ends all connections.
    _service: Service,
}

impl kernel::Module for EchoModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let service = Service::new(c"scif_rust_echo", PORT, Arc::new(Echo, GFP_KERNEL)?)?;
        pr_info!("node {} echoes on port {}\n", own_node()?, PORT);
        Ok(Self { _service: service })
    }
}
