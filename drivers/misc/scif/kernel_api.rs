// SPDX-License-Identifier: GPL-2.0

//! The interface for other modules of the kernel: `linux/scif.h`.
//!
//! - `calls.rs`: the functions on endpoints and memory
//! - `peer_bus.rs`: the nodes as devices, and the functions for clients that follow them
//! - `door.rs`: the state behind the functions, and a record of what other modules hold
//! - `exports.c`: the names that other modules see
//! - `client.rs`: for Rust code in the same tree
//! - `sister.rs`: frame rings for the sister modules
//!
//! A module that uses the functions keeps this module loaded. So when this interface closes, no
//! caller is in one of the functions. If a module is unloaded and has left resources, the log names
//! the module. The resources are released before the module's code is gone.
//!
//! The flags are in `arguments.rs`, and the calls themselves in `endpoint.rs`.

mod calls;
pub mod client;
mod door;
mod peer_bus;
pub mod sister;

use crate::{
    endpoint::scif::Scif,
    sys::{
        notifiers::{
            Chain,
            Event,
            Watch, //
        },
        peer_bus::Bus,
        published::Publication, //
    },
};
use door::{
    Door,
    DOOR, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use peer_bus::PeerBus;

/// The interface for other modules. The drop closes it.
pub(crate) struct KernelApi {
    // Dropped in this order.
    _watch: Pin<KBox<Watch>>,
    _published: Publication<Door>,
    _bus: PeerBus,
}

impl KernelApi {
    /// Opens the interface. Other modules may call its functions before this returns.
    /// Context: may sleep.
    pub(crate) fn new(scif: &Arc<Scif>) -> Result<Self> {
        let bus = PeerBus::new(Bus::register()?, scif)?;
        let door = Door::new(scif, bus.queue.clone())?;
        let told = {
            let door = door.clone();
            move |event: Event<'_>| {
                if let Event::ModuleGone { module, name } = event {
                    close_forgotten(&door, module, name);
                }
            }
        };
        Ok(Self {
            _watch: Watch::new(Chain::Modules, KBox::new(told, GFP_KERNEL)?)?,
            _published: DOOR.publish(door),
            _bus: bus,
        })
    }
}

/// Closes everything that a module has left open.
fn close_forgotten(door: &Door, module: usize, name: &CStr) {
    // Clients go first, as their functions may use the endpoints. Memory goes last, as windows are
    // made of it.
    let clients = door.clients.clear_of(module, drop);
    let ranges = door.held.clear_of(module, drop);
    let endpoints = door.endpoints.clear_of(module, |endpoint| endpoint.close());
    let pinned = door.pinned.clear_of(module, drop);
    if clients + ranges + endpoints + pinned > 0 {
        pr_warn!(
            "module {} has gone and left {} endpoint(s) open, {} client(s) registered, \
             {} piece(s) of memory pinned, {} range(s) of pages not put: scif has released all\n",
            name.to_str().unwrap_or("?"),
            endpoints,
            clients,
            pinned,
            ranges
        );
    }
}

#[kunit_tests(scif_kernel_api_forgotten)]
mod tests {
    use super::*;
    use crate::{
        arguments::{
            PortId,
            WindowOptions,
            PROTECTION_READ, //
        },
        endpoint::Endpoint,
        sys::{
            tests::TestMemory, //
        },
    };
    use kernel::page::PAGE_SIZE;

    /// Addresses that stand for modules, but belong to none.
    const FORGETFUL: usize = 0x5c1f;
    const OTHER: usize = 0x5c20;

    /// Connects this node with itself, and hands out both ends.
    fn connect(door: &Door, listener: &Endpoint) -> Result<(Arc<Endpoint>, Arc<Endpoint>)> {
        let to = PortId {
            node: door.scif.nodes.own_id(),
            port: listener.bind(0)?,
        };
        listener.listen(1)?;
        let near = Endpoint::new(&door.scif)?;
        assert!(matches!(near.connect(to, true), Err(EINPROGRESS)));
        let (_, far) = listener.accept_endpoint(true)?;
        near.connect(to, false)?;
        for endpoint in [&near, &far] {
            door.keep(endpoint.clone(), FORGETFUL)?;
        }
        Ok((near, far))
    }

    #[test]
    fn module_unload_closes_its_forgotten_endpoints_and_pages() -> Result {
        let door = DOOR.get()?;
        let listener = Endpoint::new(&door.scif)?;
        let kept = door.keep(listener.clone(), OTHER)?;
        let (near, far) = connect(&door, &listener)?;
        let memory = TestMemory::new(1)?;
        let options = WindowOptions {
            protection: PROTECTION_READ,
            fixed: false,
        };
        let offset = far.register(memory.buffer(), 0, options)?;
        let pages = near.remote_pages(offset, PAGE_SIZE as u64)?;
        let key = pages.list.as_raw().addr();
        door.held.add(key, FORGETFUL, pages)?;

        close_forgotten(&door, FORGETFUL, c"scif_test");
        for endpoint in [&near, &far] {
            assert_eq!(endpoint.facts().state, "closed");
            assert!(matches!(door.owner_of(endpoint), Err(EBADF)));
        }
        assert!(door.held.owner(key).is_none());
        // The endpoint of the other module is untouched.
        assert_eq!(listener.facts().state, "listening");
        assert_eq!(door.owner_of(&listener), Ok(OTHER));
        drop(door.endpoints.take(kept.addr()));
        // The test holds the last reference to each.
        for endpoint in [near, far, listener] {
            assert!(Arc::into_unique_or_drop(endpoint).is_some());
        }
        Ok(())
    }

    #[test]
    fn module_unload_keeps_endpoints_of_other_modules() -> Result {
        let door = DOOR.get()?;
        let endpoint = Endpoint::new(&door.scif)?;
        let kept = door.keep(endpoint.clone(), OTHER)?;
        close_forgotten(&door, FORGETFUL, c"scif_test");
        assert_eq!(door.owner_of(&endpoint), Ok(OTHER));
        drop(door.endpoints.take(kept.addr()));
        assert!(door.endpoints.owner(kept.addr()).is_none());
        Ok(())
    }
}
