// SPDX-License-Identifier: GPL-2.0

//! The functions for who wants to hear of nodes that come and go.

use super::door::Door;
use crate::sys::{
    kernel_calls::{
        exported,
        scif_client,
        Address, //
    },
    peer_bus::NewClient,
    published::TheOnly, //
};
use kernel::{
    bindings,
    ffi,
    prelude::*,
    sync::Arc, //
};

exported! {
    fn __scif_client_register(
        TheOnly<Door>[],
        NewClient[client: *mut scif_client],
        Address[owner: *mut bindings::module]
    ) -> ffi::c_int = register_client;
    fn scif_client_unregister(TheOnly<Door>[], Address[client: *mut scif_client]) -> ()
        = unregister_client;
}

fn register_client(door: Result<Arc<Door>>, client: NewClient, owner: usize) -> Result {
    let door = door?;
    // Nodes that are there have their devices after this.
    door.bus_work.flush();
    let address = client.address();
    let _registering = door.registering.lock();
    if door.clients.owner(address).is_some() {
        return Err(EEXIST);
    }
    door.clients.add(address, owner, client.register()?)
}

fn unregister_client(door: Result<Arc<Door>>, client: usize) {
    let taken = door.ok().and_then(|door| door.clients.take(client));
    if taken.is_none() {
        pr_warn!("a client is unregistered that is not registered\n");
    }
}
