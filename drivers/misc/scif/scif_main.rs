// SPDX-License-Identifier: GPL-2.0

//! SCIF: connections and one-sided memory access between hosts joined by PCIe NTBs.
//!
//! The module is layers, and imports point down them only: `LAYERS` names them, from top to bottom,
//! and `make check` keeps it so. This file loads and unloads the module and wires the parts together.
//!
//! # The way of a message, from ioctl to doorbell and up again
//!
//! `device_file.rs` (ioctl) -> `endpoint/messages.rs` (the call) -> `endpoint/stream.rs` (waits) -> `endpoint/rings.rs`
//! (bytes into the peer's ring) -> `transport/ntb/path.rs` (its memory, and the doorbell). On the other side
//! `transport/ntb/client.rs` (the doorbell) -> `peer/doorbells.rs` -> `endpoint/stream.rs` -> `peer/channel.rs` (wakes
//! the receiver).
//!
//! A control message goes `peer.rs` -> `peer/control.rs` -> `transport/ntb/path.rs`,
//! and comes up by `transport/ntb/client.rs` -> `peer.rs` -> `peer/dispatch.rs` ->
//! `endpoint/service.rs` -> the part that it is for.
//!
//! A transfer: `endpoint/connected.rs` -> `rma/transfers.rs` -> `rma/ways.rs` (chooses) -> `rma/cpu_copy.rs`,
//! `rma/transfer.rs` (an engine), `rma/staging.rs` or `rma/pulls.rs`; its end: `rma/operation.rs` -> `rma/marks.rs`.
//!
//! A lost node: `peer.rs` (`Peer::fail`) -> `transport/ntb/path.rs` -> `transport/ntb/link.rs` ->
//! `transport/ntb/sessions.rs` -> `peer.rs` (`tear_down`) -> `endpoint/service.rs` -> `endpoint/connection.rs`.
//!
//! # Lock order
//!
//! A lock is taken only while holding locks that stand above it. Mutexes:
//!
//! 0. `Roster::members`; below it `Door::registering`, the mutex of the peer bus
//! 1. The work of `Peer`, for which `Peer::wait_for_handler` waits
//! 2. `Endpoint::state`
//! 3. `NtbLink::inner`, `Home::state`
//! 4. `Connection::losing`; below it `Standing::name`
//! 5. `Nodes::watcher`, `Nodes::table`, `Engines::list`, `Peer::attachments`, `OwnRing::open`,
//!    `NtbLink::timer`, `Statuses::table`, `Registry::table`, `Devices::list`
//! 6. `Listener::accepted`, `Staging::subscription`, `Inbox::emptied`, `PeerQueue::queue`,
//!    `RegistrationCache::removing`
//! 7. `RegistrationCache::table`, `Places::taking`
//!
//! Spinlocks, all below the mutexes, in interrupts:
//!
//! 8. `NtbLink::current`, `Wish::turn`, `Connection::subscription`; not in interrupts: `Ring::writer`, `Ring::reader`,
//!    `Ports::inner`, `Listener::queue`, `Names::ports`, `Contact::connections`, `Exports::table`,
//!    `RemoteWindows::tables`, `Windows::active`, `Marks::deferred`, `SharedTable::entries`
//! 9. `Doorbells::inner`
//! 10. `Channel::waiters`, `Channel::hold`, `Channel::reservations`, `Ring::late`, `Window::revocation`, `Marks::numbers`,
//!     `Engine::running`, `NtbLink::device`, `NtbPath::held`, `LoopbackPath::session`, `Questions::table`,
//!     `NodeStatus::sessions`, `Channel::choosing`, `Outbox::state`, `Transfers::peer_last`, `Ways::refused`,
//!     `Ways::reservations`, `Standing::exits_since`
//!
//! `Watch::begun_at` is a spinlock, too, and special: it is taken inside the memory management, which
//! may be reclaiming memory, and nothing is taken under it. See `sys/mmu_notifier.rs`.
//!
//! `mmap_lock`, which the kernel holds when it calls for `mmap` and faults, stands above them all:
//! whatever may take it, that is pinning and copies from and to user space, is done with none of
//! them held, and outside of peers, because the process decides how long it takes.
//!
//! Engines are requested under `NtbLink::inner` and `Engines::list`, where one that can't be kept is given back, too,
//! and take the `device_lock` of the engine's device, which lockdep does not see: a device that were NTB and engine in
//! one could not be unbound.
//!
//! Locks of one line are never held together. Nothing is freed that may sleep in its destructor
//! while a lock is held.

use kernel::{
    debugfs::Scope,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

mod arguments;
mod debugfs;
mod device_file;
mod endpoint;
mod kernel_api;
mod logic;
mod memory;
mod names;
mod node;
mod peer;
mod rma;
mod sync;
mod sys;
mod transport;

// For Rust code in the same kernel tree.
pub use kernel_api::client;

use device_file::Devices;
use endpoint::scif::Scif;
use kernel_api::KernelApi;
use logic::{
    hello::Mode,
    window_set::MOST_WINDOWS, //
};
use names::Names;
use node::{
    Arrivals,
    Nodes, //
};
use peer::{
    service::Service,
    Common, //
};
use rma::caches::Caches;
use sync::work_queues::WorkQueues;
use sys::{
    shrinker::Shrinker,
    tunables, //
};
use transport::{
    engine::Engines,
    links::Links,
    loopback::Loopback,
    ntb::{
        self,
        Ntb, //
    },
    sink::Sink, //
};

// Those that can be changed later are in `sys/tunables.c`.
module! {
    type: ScifModule,
    name: "scif",
    authors: ["The SCIF for Linux authors"],
    description: "Symmetric Communications Interface over PCIe NTB",
    license: "GPL",
    params: {
        node_id: i32 {
            default: -1,
            description: "Id of this node, 0 to 65535; by default the number of its NTB port",
        },
        heartbeat_timeout_ms: u32 {
            default: 1500,
            description: "A peer without a sign of life for so long is lost (at least 300)",
        },
        mic_compat: u8 {
            default: 0,
            description: "1: offer /dev/mic/scif and the ioctl numbers of the MIC library",
        },
        reg_cache_limit: u32 {
            default: 64,
            description: "MiB that a connection keeps pinned for SCIF_RMA_USECACHE; 0: nothing",
        },
        ring_size: i32 {
            default: 1048576,
            description: "Bytes of a receive ring at most: a power of two from 4096 to 1048576",
        },
        dma_channels: i32 {
            default: 1,
            description: "DMA channels to take, over which connections are spread: 0 to 16",
        },
        memory_windows: u32 {
            default: 0,
            description: "Memory windows of a bridge that may form one aperture; 0: all",
        },
    },
}

/// What an administrator can choose, checked.
struct Settings {
    node_id: Option<u16>,
    policy: ntb::Policy,
    /// In milliseconds.
    heartbeat_timeout: u32,
    mic_compat: bool,
    /// Pages that a connection keeps for later transfers.
    kept_pages: usize,
    /// Bytes of a receive ring, at most.
    ring_size: u32,
    dma_channels: usize,
}

/// EINVAL, with a word in the log, for a `value` that can't be one.
fn check(name: &str, value: i32, wanted: &str, is_one: bool) -> Result {
    if is_one {
        return Ok(());
    }
    pr_err!("{}={} is not {}\n", name, value, wanted);
    Err(EINVAL)
}

impl Settings {
    fn read() -> Result<Self> {
        let id = module_parameters::node_id.value();
        let is_id = (-1..=65535).contains(&id);
        check("node_id", id, "a node id: 0 to 65535", is_id)?;
        let size = module_parameters::ring_size.value();
        let is_size = (4096..=1 << 20).contains(&size) && size.count_ones() == 1;
        let wanted = "a ring size: a power of two from 4096 to 1048576";
        check("ring_size", size, wanted, is_size)?;
        let count = module_parameters::dma_channels.value();
        let wanted = "a number of DMA channels: 0 to 16";
        check("dma_channels", count, wanted, (0..=16).contains(&count))?;
        let cache_limit = module_parameters::reg_cache_limit.value() as usize;
        Ok(Self {
            // By default none.
            node_id: id.try_into().ok(),
            policy: ntb::Policy {
                wanted: Mode::from_number(u8::try_from(tunables::aperture())?),
                allow_flat: tunables::allow_flat(),
                most_windows: match module_parameters::memory_windows.value() {
                    0 => MOST_WINDOWS,
                    most => most,
                },
            },
            heartbeat_timeout: module_parameters::heartbeat_timeout_ms.value().max(300),
            mic_compat: module_parameters::mic_compat.value() != 0,
            kept_pages: cache_limit.saturating_mul((1 << 20) / PAGE_SIZE),
            ring_size: size as u32,
            dma_channels: count as usize,
        })
    }
}

/// Everything that is undone at unload, in this order.
struct ScifModule {
    // The front doors: no new endpoints; those that exist keep the module loaded.
    _debugfs: Pin<KBox<Scope<debugfs::Sources>>>,
    _memory_pressure: Shrinker<Caches>,
    _kernel_api: KernelApi,
    _devices: Devices,
    // No more peers.
    _ntb: Ntb,
    _loopback: Loopback,
    _drained: Drained,
}

/// The last to go: what is still queued runs, and then nobody has an engine any more.
struct Drained {
    queues: Arc<WorkQueues>,
    engines: Arc<Engines>,
}

impl Drop for Drained {
    fn drop(&mut self) {
        self.queues.flush_all();
        // An interrupt of an engine may be armed still.
        self.engines.give_back();
        // What engines have left, and one that has just been found to have stopped.
        self.queues.flush_all();
    }
}

impl kernel::Module for ScifModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let settings = Settings::read()?;
        let queues = WorkQueues::new()?;
        let engines = Engines::new(settings.dma_channels, &queues)?;
        let drained = Drained {
            queues: queues.clone(),
            engines: engines.clone(),
        };
        let nodes = Nodes::new(settings.node_id)?;
        let caches = Caches::new(settings.kept_pages, &queues)?;
        let names = Names::new()?;
        let scif = Scif::new(
            &nodes,
            &names,
            &caches,
            settings.ring_size,
            settings.mic_compat,
        )?;
        // The services, a line each.
        let mut services: KVec<Arc<dyn Service>> = KVec::new();
        services.push(scif.clone(), GFP_KERNEL)?;
        let links = Links::new()?;
        let sources = debugfs::Sources {
            scif: scif.clone(),
            engines: engines.clone(),
            links: links.clone(),
        };
        let arrivals = Arrivals {
            nodes: nodes.clone(),
            common: Common {
                queues: queues.clone(),
                observer: nodes,
                heartbeat_timeout: settings.heartbeat_timeout,
            },
            services,
        };
        let sink: Arc<dyn Sink> = Arc::new(arrivals, GFP_KERNEL)?;
        let ntb = Ntb::start(ntb::Context {
            sink: sink.clone(),
            engines,
            links: links.clone(),
            queues: queues.clone(),
            policy: settings.policy,
        })?;
        let loopback = Loopback::start(&sink, &queues, &links)?;
        Ok(Self {
            // The devices come last, so that whoever opens them finds all there.
            _debugfs: debugfs::open(sources)?,
            _memory_pressure: caches.offer_memory()?,
            _kernel_api: KernelApi::new(&scif)?,
            _devices: Devices::register(&scif)?,
            _ntb: ntb,
            _loopback: loopback,
            _drained: drained,
        })
    }
}
