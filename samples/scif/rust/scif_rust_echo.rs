// SPDX-License-Identifier: GPL-2.0

//! Messages, in Rust: says back what it is told, on port 3001.
//!
//! Only for code in the same kernel tree as scif.ko, see `kernel_api/client.rs` there. The same in C,
//! for any module: `../kernel/echo.c`.

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
    description: "SCIF sample: says back what it is told, in Rust",
    license: "GPL",
}

const PORT: u16 = 3001;

struct Echo;

impl Handler for Echo {
    fn serve(&self, connection: &Endpoint, peer: PortId) {
        let mut byte = [0];
        // One by one, as nobody says how many there will be.
        while matches!(connection.receive(&mut byte), Ok(1)) {
            if connection.send(&byte).is_err() {
                break;
            }
        }
        pr_info!("node {}, port {} has gone\n", peer.node, peer.port);
    }
}

struct EchoModule {
    /// All connections are over when this is dropped.
    _service: Service,
}

impl kernel::Module for EchoModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let service = Service::new(c"scif_rust_echo", PORT, Arc::new(Echo, GFP_KERNEL)?)?;
        pr_info!("node {} echoes on port {}\n", own_node()?, PORT);
        Ok(Self { _service: service })
    }
}
