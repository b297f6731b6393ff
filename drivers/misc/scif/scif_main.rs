// SPDX-License-Identifier: GPL-2.0

//! SCIF: connections and one-sided memory access between hosts joined by PCIe NTBs.
//!
//! # The way of a message, from ioctl to doorbell
//!
//! `device_file.rs` (ioctl) -> `endpoint.rs` (the call) -> `stream.rs` (bytes into the peer's ring)
//! -> `session.rs` (the peer) -> `transport.rs` (its memory and bells). A transfer takes the way
//! `endpoint.rs` -> `rma.rs` -> `transfer.rs` -> `engine.rs`; what the peer says comes in through
//! `link/ntb.rs` (doorbell) -> `session.rs` -> `dispatch.rs` -> `connection.rs` and its kin.
//!
//! # Lock order
//!
//! A lock is taken only while holding locks that stand above it. Mutexes:
//!
//! 1. `Endpoint::state`, `Fabric::pending`
//! 2. `NtbLink::inner`
//! 3. `Session::connections`, `Session::exports`, `Windows::tables`, `RemoteWindows::tables`,
//!    `Fences::deferred`, `Mappings::table`
//! 4. `Fabric::nodes`, `Fabric::ports`, `Fabric::engine`, `Fabric::loopback`
//! 5. `Listener::queue`
//! 6. `ControlRing::writer`, `ControlRing::reader`, `RegistrationCache::table`
//!
//! Spinlocks, all below the mutexes, in interrupts:
//!
//! 7. `NtbLink::current`
//! 8. `Session::buckets`
//! 9. `Connection::waiters`, `Connection::phase`, `Transfers::state`, `Fences::questions`, `Windows::revoking`,
//!    `NtbLink::device`, `Session::device`
//!
//! `Watch::state` is a spinlock, too, and special: it is taken inside the memory management, which
//! may be reclaiming memory, and nothing is taken under it. See `sys/mmu_notifier.rs`.
//!
//! `mmap_lock`, which the kernel holds when it calls for `mmap` and faults, stands above them all:
//! whatever may take it, that is pinning and copies from and to user space, is done with none of
//! them held, and outside of sessions, because the process decides how long it takes.
//!
//! Locks of one line are never held together. Nothing is freed that may sleep in its destructor
//! while a lock is held.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        global_lock,
        Arc, //
    },
};

mod connection;
mod connection_table;
mod control;
mod debugfs;
mod device_file;
mod dispatch;
mod endpoint;
mod engine;
mod fence;
mod link;
mod listener;
mod local_memory;
mod logic;
mod mapping;
mod memory_pressure;
mod node;
mod registration_cache;
mod remote_window;
mod rma;
mod session;
mod signal;
mod stream;
mod sys;
mod transfer;
mod transport;
mod turn;
mod users;
mod window;

use endpoint::Endpoint;
use link::{
    loopback::Loopback,
    ntb::NtbLink, //
};
use node::{
    Fabric,
    Settings, //
};
use sys::chardev::Device;

/// Who may open the devices where udev does not say: RMA pins memory, and a peer's memory can be
/// written to.
const DEVICE_MODE: u16 = 0o600;

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
        allow_flat: u8 {
            default: 0,
            description: "1: let peers reach all memory although there is an IOMMU",
        },
        heartbeat_timeout_ms: u32 {
            default: 1500,
            description: "A peer without a sign of life for so long is lost (at least 300)",
        },
        mic_compat: u8 {
            default: 0,
            description: "1: offer /dev/mic/scif and the ioctl numbers of the older (KNC) library",
        },
        reg_cache_limit: u32 {
            default: 64,
            description: "MiB that a connection keeps pinned for SCIF_RMA_USECACHE; 0: nothing",
        },
    },
}

global_lock! {
    // SAFETY: Initialised in module initialiser before first use.
    unsafe(uninit) static FABRIC: Mutex<Option<Arc<Fabric>>> = None;
}

/// The fabric; ENODEV while the module is not all there.
fn fabric() -> Result<Arc<Fabric>> {
    FABRIC.lock().clone().ok_or(ENODEV)
}

/// Whether the numbers of the older library are served, see `device_file/older.rs`.
fn serves_older_numbers() -> bool {
    module_parameters::mic_compat.value() != 0
}

/// Everything that is undone at unload, in this order.
struct ScifModule {
    // No new endpoints; those that exist keep the module loaded.
    _device: Pin<KBox<Device<Endpoint>>>,
    _older_device: Option<Pin<KBox<Device<Endpoint>>>>,
    _files: debugfs::Files,
    _pressure: memory_pressure::MemoryPressure,
    // No more peers.
    _ntb: sys::ntb::Registration<NtbLink>,
    _loopback: Loopback,
    _published: Published,
}

/// While it exists, [`fabric`] finds the fabric.
struct Published(Arc<Fabric>);

impl Drop for Published {
    fn drop(&mut self) {
        let fabric = FABRIC.lock().take();
        drop(fabric);
        self.0.link_queue.flush();
        self.0.control_queue.flush();
        self.0.completion_queue.flush();
        self.0.watch_queue.flush();
        // A watch that was about to end may have told its cache of a change.
        self.0.completion_queue.flush();
        self.0.drop_engine();
    }
}

fn settings() -> Result<Settings> {
    let node_id = match module_parameters::node_id.value() {
        -1 => None,
        id => match u16::try_from(id) {
            Ok(id) => Some(id),
            Err(_) => {
                pr_err!("node_id={} is not a node id: 0 to 65535\n", id);
                return Err(EINVAL);
            }
        },
    };
    Ok(Settings {
        node_id,
        allow_flat: module_parameters::allow_flat.value() != 0,
        kept_pages: (module_parameters::reg_cache_limit.value() as usize)
            .saturating_mul((1 << 20) / PAGE_SIZE),
        heartbeat_timeout: module_parameters::heartbeat_timeout_ms.value().max(300),
    })
}

impl kernel::Module for ScifModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        // SAFETY: Called exactly once, before the lock is used.
        unsafe { FABRIC.init() };

        let fabric = Fabric::new(settings()?)?;
        *FABRIC.lock() = Some(fabric.clone());
        let published = Published(fabric.clone());
        let loopback = Loopback::new(&fabric)?;
        let files = debugfs::Files::new(&fabric)?;
        let pressure = memory_pressure::MemoryPressure::new(&fabric)?;
        let ntb = sys::ntb::Registration::new(c"scif", fabric.clone())?;
        // The devices come last, so that whoever opens them finds all there.
        let older_device = match serves_older_numbers() {
            true => Some(Device::register(c"mic_scif", c"mic/scif", DEVICE_MODE)?),
            false => None,
        };
        Ok(Self {
            _device: Device::register(c"scif", c"scif", DEVICE_MODE)?,
            _older_device: older_device,
            _files: files,
            _pressure: pressure,
            _ntb: ntb,
            _loopback: loopback,
            _published: published,
        })
    }
}
