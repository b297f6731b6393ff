// SPDX-License-Identifier: GPL-2.0
//! Serves one PCI function to QEMU over vfio-user.
//!
//! A function is served on one socket to one QEMU at a time, on one thread. So the writes of a
//! guest to a function take effect in order. When QEMU goes away, for whatever reason, the function
//! is told, and the next QEMU is awaited.
//!
//! The vfio_user crate can return no error but "invalid input" to the client. So an access that
//! makes no sense is answered with all ones instead.

use std::fs::File;
use std::io::Error;
use std::io::ErrorKind;
use std::io::Result;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::Ordering::Release;

use anyhow::Context;
use vfio_bindings::bindings::vfio;
use vfio_user::DmaMapFlags;
use vfio_user::DmaUnmapFlags;
use vfio_user::IrqInfo;
use vfio_user::Server;
use vfio_user::ServerBackend;
use vfio_user::ServerRegion;
use vfio_user::SparseArea;

use crate::counters::Counters;
use crate::guest_memory::GuestMemory;
use crate::interrupt::Interrupts;
use crate::pci::CONFIG_SIZE;

/// Largest size of an access. Those of QEMU have up to 8 bytes, its reads of the whole
/// configuration space up to 4 KiB.
const MAX_ACCESS: usize = 64 << 10;

/// A BAR, as QEMU is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The number.
    pub bar: usize,
    /// The size.
    pub size: u64,
    /// The file that its first part is mapped from, unless all of it traps.
    pub mapped: Option<Mapped>,
}

/// The part of a BAR that guests access without trapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// The file. It must stay open as long as the function is served.
    pub file: RawFd,
    /// The offset of the BAR in the file.
    pub offset: u64,
    /// The size of the part in the file. The rest of the BAR traps.
    pub length: u64,
}

/// A PCI function.
///
/// All methods may be called on any thread, except for accesses and the life-cycle methods: the
/// thread that serves the function calls them.
pub trait Function: Send + Sync {
    /// Returns the name for messages.
    fn name(&self) -> &str;
    /// Returns the BARs.
    fn layout(&self) -> Vec<Layout>;
    /// Returns the part of its guest's RAM that the function reaches.
    fn memory(&self) -> &GuestMemory;
    /// Returns the vectors.
    fn interrupts(&self) -> &Interrupts;
    /// Returns the counters.
    fn counters(&self) -> &Arc<Counters>;
    /// Reads configuration space.
    fn config_read(&self, offset: u64, data: &mut [u8]);
    /// Writes configuration space.
    fn config_write(&self, offset: u64, data: &[u8]);
    /// Reads a BAR; the range is inside it.
    fn bar_read(&self, bar: usize, offset: u64, data: &mut [u8]);
    /// Writes a BAR; the range is inside it.
    fn bar_write(&self, bar: usize, offset: u64, data: &[u8]);
    /// Handles the connection of QEMU.
    fn connected(&self);
    /// Handles a reset of the guest.
    fn reset(&self);
    /// Handles the end of QEMU.
    fn disconnected(&self);
}

/// A function and its socket.
pub struct Served {
    server: Server,
    backend: Backend,
}

struct Backend {
    function: Arc<dyn Function>,
    bars: Vec<Layout>,
    connected: Arc<AtomicBool>,
}

impl Served {
    /// Binds the socket: from now on QEMU can connect. `connected` tells other threads whether a
    /// QEMU is connected.
    pub fn bind(
        path: &Path,
        function: Arc<dyn Function>,
        connected: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let bars = function.layout();
        let irqs = irqs(function.interrupts());
        let server = Server::new(path, true, irqs, regions(&bars))
            .with_context(|| format!("cannot listen on {}", path.display()))?;
        Ok(Self {
            server,
            backend: Backend {
                function,
                bars,
                connected,
            },
        })
    }

    /// Serves for ever. Returns only if serving has become impossible.
    pub fn run(mut self) -> anyhow::Error {
        loop {
            let result = self.server.run(&mut self.backend);
            let name = self.backend.function.name().to_owned();
            self.backend.disconnect();
            match result {
                Ok(()) => log::info!("{name}: QEMU has disconnected"),
                Err(
                    error @ (vfio_user::Error::StreamRead(_)
                    | vfio_user::Error::StreamWrite(_)
                    | vfio_user::Error::SendWithFd(_)
                    | vfio_user::Error::ReceiveWithFd(_)),
                ) => log::info!("{name}: QEMU has gone: {error}"),
                Err(error) => {
                    return anyhow::Error::new(error).context(format!("cannot serve {name}"));
                }
            }
        }
    }
}

impl Backend {
    /// Notes that QEMU is there; QEMU's first request calls this.
    fn connect(&mut self) {
        if !self.connected.swap(true, Relaxed) {
            log::info!("{}: QEMU has connected", self.function.name());
            self.function.connected();
        }
    }

    /// Notes that QEMU is gone. A thread that reads `connected` as false may rely on the function
    /// being quiet.
    fn disconnect(&mut self) {
        if self.connected.load(Relaxed) {
            self.function.disconnected();
            self.connected.store(false, Release);
        }
    }

    /// Returns the BAR of an access, if the access is inside one.
    fn bar(&self, region: u32, offset: u64, length: usize) -> Option<usize> {
        let layout = self
            .bars
            .iter()
            .find(|layout| layout.bar == region as usize)?;
        let end = offset.checked_add(length as u64)?;
        (end <= layout.size).then_some(layout.bar)
    }

    /// Passes a result on, and writes an error to the log.
    fn report(&self, result: Result<()>) -> Result<()> {
        result.inspect_err(|error| log::warn!("{}: {error}", self.function.name()))
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<()> {
        self.connect();
        let counters = self.function.counters();
        if region == vfio::VFIO_PCI_CONFIG_REGION_INDEX {
            Counters::count(&counters.config_accesses);
            self.function.config_read(offset, data);
            return Ok(());
        }
        Counters::count(&counters.trapped_reads);
        match self.bar(region, offset, data.len()) {
            Some(bar) if data.len() <= MAX_ACCESS => self.function.bar_read(bar, offset, data),
            _ => data.fill(0xff),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<()> {
        self.connect();
        let counters = self.function.counters();
        if region == vfio::VFIO_PCI_CONFIG_REGION_INDEX {
            Counters::count(&counters.config_accesses);
            self.function.config_write(offset, data);
            return Ok(());
        }
        Counters::count(&counters.trapped_writes);
        if let Some(bar) = self.bar(region, offset, data.len()) {
            self.function.bar_write(bar, offset, data);
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        file: Option<File>,
    ) -> Result<()> {
        self.connect();
        let readable = flags.contains(DmaMapFlags::READ);
        let writable = flags.contains(DmaMapFlags::WRITE);
        let result = self
            .function
            .memory()
            .map(address, size, offset, readable, writable, file);
        self.report(result)
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> Result<()> {
        self.connect();
        let memory = self.function.memory();
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            memory.clear();
        } else {
            memory.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        self.connect();
        self.function.reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        events: Vec<File>,
    ) -> Result<()> {
        self.connect();
        if index != self.function.interrupts().index() {
            // QEMU also switches off interrupts that a function does not have.
            return if count == 0 {
                Ok(())
            } else {
                Err(Error::new(
                    ErrorKind::InvalidInput,
                    "it has no such interrupts",
                ))
            };
        }
        let result = self.function.interrupts().set(flags, start, count, events);
        self.report(result)
    }
}

fn regions(bars: &[Layout]) -> Vec<ServerRegion> {
    (0..vfio::VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let mut region = ServerRegion {
                region_info: vfio::vfio_region_info {
                    argsz: size_of::<vfio::vfio_region_info>() as u32,
                    index,
                    ..Default::default()
                },
                sparse_areas: Vec::new(),
                mmap_fd: None,
            };
            let access = vfio::VFIO_REGION_INFO_FLAG_READ | vfio::VFIO_REGION_INFO_FLAG_WRITE;
            if index == vfio::VFIO_PCI_CONFIG_REGION_INDEX {
                region.region_info.size = CONFIG_SIZE as u64;
                region.region_info.flags = access;
            }
            if let Some(layout) = bars.iter().find(|layout| layout.bar == index as usize) {
                region.region_info.size = layout.size;
                region.region_info.flags = access;
                if let Some(mapped) = layout.mapped {
                    region.region_info.flags |= vfio::VFIO_REGION_INFO_FLAG_MMAP;
                    region.region_info.offset = mapped.offset;
                    region.mmap_fd = Some(mapped.file);
                    region.sparse_areas.push(SparseArea {
                        area: vfio::vfio_region_sparse_mmap_area {
                            offset: 0,
                            size: mapped.length,
                        },
                    });
                }
            }
            region
        })
        .collect()
}

/// Returns the interrupts. Without NORESIZE QEMU can set single vectors instead of all of them each
/// time.
fn irqs(interrupts: &Interrupts) -> Vec<IrqInfo> {
    (0..vfio::VFIO_PCI_NUM_IRQS)
        .map(|index| {
            let there = index == interrupts.index();
            IrqInfo {
                index,
                flags: if there {
                    vfio::VFIO_IRQ_INFO_EVENTFD
                } else {
                    0
                },
                count: if there { interrupts.count() as u32 } else { 0 },
            }
        })
        .collect()
}
