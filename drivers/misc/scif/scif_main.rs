// SPDX-License-Identifier: GPL-2.0

//! SCIF: connections and one-sided memory access between hosts joined by PCIe NTBs.
//!
//! This file loads and unloads the module and wires its parts together. The module consists of
//! layers, and a file imports only from its own layer and the layers below it. `LAYERS` lists the
//! layers from top to bottom, and `make check` enforces the order.
//!
//! # Path of a message
//!
//! On the sender's node, from the ioctl down to the doorbell:
//!
//! 1. `device_file.rs` takes the arguments of the ioctl apart.
//! 2. `endpoint/messages.rs` implements the call.
//! 3. `endpoint/stream.rs` waits for room in the peer's ring.
//! 4. `endpoint/rings.rs` puts the bytes into the peer's ring.
//! 5. `transport/ntb/path.rs` stores them in the peer's memory, and rings its doorbell.
//!
//! On the receiver's node, from the doorbell up to the receiver:
//!
//! 1. `transport/ntb/client.rs` handles the doorbell's interrupt.
//! 2. `peer/doorbells.rs` finds the channel that it was rung for.
//! 3. `endpoint/stream.rs` handles the arrival.
//! 4. `peer/channel.rs` wakes the receiver.
//!
//! # Path of a control message
//!
//! - Down: `peer.rs` -> `peer/control.rs` -> `transport/ntb/path.rs`.
//! - Up: `transport/ntb/client.rs` -> `peer.rs` -> `peer/dispatch.rs` -> `endpoint/service.rs`,
//!   which calls the part that the message is for.
//!
//! # Path of a frame
//!
//! Out: a sister module -> `frames/queue.rs` -> `transport/ntb/path.rs`. In: `peer/doorbells.rs` ->
//! `frames.rs` -> a sister module, which takes frames from `frames/queue.rs`.
//!
//! # Path of a transfer
//!
//! `endpoint/connected.rs` -> `rma/transfers.rs` -> `rma/transfer_policy.rs`, which chooses one of
//! these:
//!
//! - `rma/cpu_copy.rs`: the CPU copies.
//! - `rma/transfer.rs`: a DMA engine copies.
//! - `rma/staging.rs`: the data goes through slots at the peer, which copies it on.
//! - `rma/peer_reads.rs`: the peer writes the data that this node wants to read.
//!
//! The transfer completes in `rma/operation.rs` -> `rma/marks.rs`.
//!
//! # Path of the loss of a node
//!
//! `peer.rs` (`Peer::fail`) -> `transport/ntb/path.rs` -> `transport/ntb/link.rs` ->
//! `transport/ntb/sessions.rs` -> `peer.rs` (`tear_down`) -> `endpoint/service.rs` ->
//! `endpoint/connection.rs`.
//!
//! # Lock order
//!
//! A thread takes a lock only while all locks that it holds stand above that lock in this list. It
//! never holds two locks of one line, except where the line says which lock is below.
//!
//! Mutexes:
//!
//! 0. `Roster::members`; below it `Door::registering`, the mutex of the peer bus
//! 1. The work of `Peer`, for which `Peer::wait_for_handler` waits
//! 2. `Endpoint::state`
//! 3. `NtbLink::inner`, `Home::state`; below them `Arrivals::services`, below that
//!    `FrameService::stations` and `frames::Link::inner`, and below those the locks of the clients of
//!    frame rings
//! 4. `Connection::losing`; below it `EndpointState::name`
//! 5. `Nodes::watcher`, `Nodes::table`, `Engines::list`, `Peer::attachments`, `OwnRing::open`,
//!    `NtbLink::timer`, `NodeStatuses::table`, `Registry::table`, `Devices::list`
//! 6. `Listener::accepted`, `Staging::subscription`, `ReceiveSlots::emptied`, `PeerQueue::queue`,
//!    `RegistrationCache::removing`
//! 7. `RegistrationCache::table`, `Places::taking`
//!
//! Spinlocks, all below the mutexes. Interrupts may only take a lock that disables interrupts
//! (`SpinLockIrq`):
//!
//! 8. `SpinLockIrq`: `NtbLink::current`.
//!    `SpinLock`: `WakeRequest::turn`, `Connection::subscription`, `Ring::writer`, `Ring::reader`,
//!    `Ports::inner`, `Listener::queue`, `Names::ports`, `PeerConnections::connections`,
//!    `Exports::table`, `RemoteWindows::tables`, `Windows::active`, `FenceState::deferred`,
//!    `frames::Queue::receiver`, `frames::Queue::sender`, which are taken with bottom halves
//!    disabled, and the first of which is never taken under the second,
//!    `SharedTable::entries`
//! 9. `SpinLockIrq`: `Doorbells::inner`
//! 10. `SpinLockIrq`: `Channel::waiters`, `Channel::hold`, `Channel::reservations`, `Ring::late`,
//!     `FenceState::numbers`, `Engine::running`, `NtbLink::device`, `NtbPath::held`,
//!     `LoopbackPath::session`, `NodeStatus::sessions`, `Channel::choosing`, `SendSlots::state`,
//!     `TransferPolicy::reservations`.
//!     `SpinLock`: `Window::revocation`, `Questions::table`, `Transfers::peer_last`,
//!     `TransferPolicy::refused`, `EndpointState::exits_since`
//!
//! `Watch::begun_at` is a leaf spinlock outside of this list. The memory management calls the code
//! that takes it, possibly during reclaim, so no lock is taken under it (`sys/mmu_notifier.rs`).
//!
//! The kernel holds `mmap_lock` when it calls for `mmap` and for faults, so `mmap_lock` stands
//! above all of these locks. Pinning, and copies from and to user space, may take `mmap_lock`. They
//! are done with none of these locks held, and outside of peers, because the process decides how
//! long they take.
//!
//! DMA engines are requested under `NtbLink::inner` and `Engines::list`. An engine that can't be
//! kept is given back under them, too. This takes the `device_lock` of the engine's device, which
//! lockdep does not see. So a device that is NTB and engine in one could not be unbound.
//!
//! An object whose destructor may sleep is never freed while a lock is held.

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
mod frames;
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

// Rust code in the same kernel tree uses this.
pub use kernel_api::{
    client,
    sister, //
};

use device_file::Devices;
use endpoint::scif::Scif;
use kernel_api::{
    sister::Sisters,
    KernelApi, //
};
use logic::{
    hello::Mode,
    window_set::MOST_WINDOWS, //
};
use names::Names;
use node::{
    Arrivals,
    Nodes, //
};
use peer::Common;
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

// The parameters that can be changed after loading are in `sys/tunables.c`.
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
            description: "Milliseconds without a heartbeat after which a peer is lost (at least 300)",
        },
        mic_compat: u8 {
            default: 0,
            description: "1: offer /dev/mic/scif and the ioctl numbers of the MIC library",
        },
        reg_cache_limit: u32 {
            default: 64,
            description: "MiB that an end of a connection keeps pinned for SCIF_RMA_USECACHE; 0: none",
        },
        ring_size: i32 {
            default: 1048576,
            description: "Largest size of a receive ring in bytes: a power of two from 4096 to 1048576",
        },
        dma_channels: i32 {
            default: 1,
            description: "Number of DMA channels to take, 0 to 16; each connection uses one of them",
        },
        memory_windows: u32 {
            default: 0,
            description: "Number of memory windows of a bridge that may form one aperture; 0: all",
        },
    },
}

/// The module parameters, checked.
struct Settings {
    node_id: Option<u16>,
    policy: ntb::Policy,
    /// Milliseconds without a heartbeat after which a peer is lost.
    heartbeat_timeout: u32,
    mic_compat: bool,
    /// Pages that a connection keeps pinned for later transfers.
    kept_pages: usize,
    /// Largest size of a receive ring in bytes.
    ring_size: u32,
    dma_channels: usize,
}

/// Returns EINVAL, with a line in the log, unless `is_one` says that `value` is allowed.
fn check(name: &str, value: i32, wanted: &str, is_one: bool) -> Result {
    if is_one {
        return Ok(());
    }
    pr_err!(
        "{}={} is not {}: the module does not load\n",
        name,
        value,
        wanted
    );
    Err(EINVAL)
}

impl Settings {
    fn read() -> Result<Self> {
        let id = module_parameters::node_id.value();
        let is_id = (-1..=65535).contains(&id);
        check("node_id", id, "a node id (0 to 65535)", is_id)?;
        let size = module_parameters::ring_size.value();
        let is_size = (4096..=1 << 20).contains(&size) && size.count_ones() == 1;
        let wanted = "a ring size (a power of two from 4096 to 1048576)";
        check("ring_size", size, wanted, is_size)?;
        let count = module_parameters::dma_channels.value();
        let wanted = "a number of DMA channels (0 to 16)";
        check("dma_channels", count, wanted, (0..=16).contains(&count))?;
        let cache_limit = module_parameters::reg_cache_limit.value() as usize;
        Ok(Self {
            // -1, the default, becomes `None`.
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

/// Parts of the module that are undone at unload, in this order.
struct ScifModule {
    // Stops the creation of endpoints first. Existing endpoints keep the module loaded.
    _debugfs: Pin<KBox<Scope<debugfs::Sources>>>,
    _memory_pressure: Shrinker<Caches>,
    _sisters: Sisters,
    _kernel_api: KernelApi,
    _devices: Devices,
    // Removes all peers.
    _ntb: Ntb,
    _loopback: Loopback,
    _drained: Drained,
}

/// Queues and engines, which are dropped last: queued work runs, then all engines are given back.
struct Drained {
    queues: Arc<WorkQueues>,
    engines: Arc<Engines>,
}

impl Drop for Drained {
    fn drop(&mut self) {
        self.queues.flush_all();
        // An engine's interrupt may still be armed.
        self.engines.give_back();
        // Runs the work that engines have queued, also for an engine that was just found stopped.
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
        let links = Links::new()?;
        let sources = debugfs::Sources {
            scif: scif.clone(),
            engines: engines.clone(),
            links: links.clone(),
        };
        let common = Common {
            queues: queues.clone(),
            observer: nodes.clone(),
            heartbeat_timeout: settings.heartbeat_timeout,
        };
        let arrivals = Arrivals::new(&nodes, common)?;
        arrivals.add_service(scif.clone())?;
        let sink: Arc<dyn Sink> = arrivals.clone();
        let ntb = Ntb::start(ntb::Context {
            sink: sink.clone(),
            engines,
            links: links.clone(),
            queues: queues.clone(),
            policy: settings.policy,
        })?;
        let loopback = Loopback::start(&sink, &queues, &links)?;
        Ok(Self {
            // Registers the devices last, so that a process that opens one finds everything in
            // place.
            _debugfs: debugfs::open(sources)?,
            _memory_pressure: caches.offer_memory()?,
            _sisters: Sisters::new(&arrivals),
            _kernel_api: KernelApi::new(&scif)?,
            _devices: Devices::register(&scif)?,
            _ntb: ntb,
            _loopback: loopback,
            _drained: drained,
        })
    }
}
