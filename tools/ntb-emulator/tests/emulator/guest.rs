// SPDX-License-Identifier: GPL-2.0
//! Clients that do to a function what QEMU and the drivers in its guest do.

use std::fs::File;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use ntb_emulator::config::Topology;
use ntb_emulator::config::dma_socket;
use ntb_emulator::config::ntb_socket;
use rustix::event::EventfdFlags;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::eventfd;
use rustix::event::poll;
use vfio_bindings::bindings::vfio;
use vfio_user::Client;

/// Address of BAR 0.
pub const REGISTERS: u64 = 0xf000_0000;
/// Address of window 0 (BAR 2).
pub const WINDOW_0: u64 = 0xf100_0000;
/// Address of window 1 (BAR 4).
pub const WINDOW_1: u64 = 0xf200_0000;

/// The timeout only catches hangs, so it is generous.
const TIMEOUT: Duration = Duration::from_secs(200);
const EVENTS: u32 = vfio::VFIO_IRQ_SET_ACTION_TRIGGER | vfio::VFIO_IRQ_SET_DATA_EVENTFD;
const NOTHING: u32 = vfio::VFIO_IRQ_SET_ACTION_TRIGGER | vfio::VFIO_IRQ_SET_DATA_NONE;

/// The common part of both kinds of function.
struct Function {
    client: Client,
    /// The index of the vectors in VFIO.
    interrupts: u32,
    vectors: Vec<File>,
    ram: File,
}

impl Function {
    fn connect(socket: &Path, ram: &Path, interrupts: u32, vectors: usize) -> Self {
        let ram = OpenOptions::new().read(true).write(true).open(ram).unwrap();
        let size = ram.metadata().unwrap().len();
        let mut client = Client::new(socket).unwrap();
        client.dma_map(0, 0, size, ram.as_raw_fd()).unwrap();
        let vectors = (0..vectors)
            .map(|_| File::from(eventfd(0, EventfdFlags::NONBLOCK).unwrap()))
            .collect();
        let mut function = Self {
            client,
            interrupts,
            vectors,
            ram,
        };
        function.give_vectors();
        function
    }

    /// Gives QEMU's event descriptors, in runs of at most 8, as messages carry only so many.
    fn give_vectors(&mut self) {
        let all: Vec<RawFd> = self.vectors.iter().map(AsRawFd::as_raw_fd).collect();
        for (run, events) in all.chunks(8).enumerate() {
            self.client
                .set_irqs(
                    self.interrupts,
                    EVENTS,
                    run as u32 * 8,
                    events.len() as u32,
                    events,
                )
                .unwrap();
        }
    }

    fn config_write(&mut self, offset: u64, data: &[u8]) {
        self.client
            .region_write(vfio::VFIO_PCI_CONFIG_REGION_INDEX, offset, data)
            .unwrap();
    }

    fn read(&mut self, region: u32, offset: u64, width: usize) -> u64 {
        let mut data = [0; 8];
        self.client
            .region_read(region, offset, &mut data[..width])
            .unwrap();
        u64::from_le_bytes(data)
    }

    fn write(&mut self, region: u32, offset: u64, width: usize, value: u64) {
        self.client
            .region_write(region, offset, &value.to_le_bytes()[..width])
            .unwrap();
    }

    fn expect(&mut self, vector: usize) {
        let event = &mut self.vectors[vector];
        let mut poll_fds = [PollFd::new(event, PollFlags::IN)];
        let timeout = Timespec::try_from(TIMEOUT).unwrap();
        let ready = poll(&mut poll_fds, Some(&timeout)).unwrap();
        assert_eq!(ready, 1, "no interrupt {vector}");
        event.read_exact(&mut [0; 8]).unwrap();
    }

    fn expect_nothing(&mut self, vector: usize) {
        let error = self.vectors[vector].read(&mut [0; 8]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "interrupt {vector}");
    }

    fn raw(&mut self, region: u32, offset: u64, data: &[u8]) {
        self.client.region_write(region, offset, data).unwrap();
        let mut answer = vec![0; data.len()];
        self.client
            .region_read(region, offset, &mut answer)
            .unwrap();
    }
}

/// A client of an NTB function, with the needed part of ntb_hw_intel (gen5).
pub struct NtbClient {
    function: Function,
}

impl NtbClient {
    /// Connects, gives access to the guest's RAM, sets vectors, places BARs, and lines up
    /// vectors with sources.
    pub fn connect(topology: &Topology, guest: usize, index: usize) -> Self {
        let socket = ntb_socket(&topology.directory, guest, index);
        let ram = &topology.guests[guest].ram_file;
        let mut client = Self {
            function: Function::connect(&socket, ram, vfio::VFIO_PCI_MSIX_IRQ_INDEX, 33),
        };
        client.place();
        client
    }

    /// Connects to an IDT, which has one vector.
    pub fn connect_idt(topology: &Topology, guest: usize) -> Self {
        Self::connect_first(topology, guest, vfio::VFIO_PCI_MSI_IRQ_INDEX, 1)
    }

    /// Connects to an AMD NTB, which has 24 vectors.
    pub fn connect_amd(topology: &Topology, guest: usize) -> Self {
        Self::connect_first(topology, guest, vfio::VFIO_PCI_MSIX_IRQ_INDEX, 24)
    }

    fn connect_first(topology: &Topology, guest: usize, signalling: u32, vectors: usize) -> Self {
        let socket = ntb_socket(&topology.directory, guest, 0);
        let ram = &topology.guests[guest].ram_file;
        let mut client = Self {
            function: Function::connect(&socket, ram, signalling, vectors),
        };
        client.place_at(0);
        client
    }

    /// Places BARs, and lines up vectors with sources.
    pub fn place(&mut self) {
        self.place_at(0);
        for source in 0..33 {
            self.write(0x50 + source, 1, source);
        }
    }

    /// Moves the BARs up.
    pub fn place_at(&mut self, offset: u64) {
        for (bar, base) in [(0x10, REGISTERS), (0x18, WINDOW_0), (0x20, WINDOW_1)] {
            let address = base + offset;
            self.function.config_write(bar, &address.to_le_bytes());
        }
        self.function.config_write(4, &[6, 0]);
    }

    pub fn enable_link(&mut self) {
        self.write(0xb050, 2, 0);
        let training = self.read(0xb0d4, 4);
        self.write(0xb0d4, 4, training | 8);
        assert_eq!(self.read(0xb0d4, 4) & 8, 8);
    }

    pub fn disable_link(&mut self) {
        self.write(0xb050, 2, 0x10);
    }

    pub fn link_is_up(&mut self) -> bool {
        self.read(0xb052, 2) & 0x2000 != 0
    }

    pub fn config(&mut self, offset: u64, width: usize) -> u64 {
        self.function
            .read(vfio::VFIO_PCI_CONFIG_REGION_INDEX, offset, width)
    }

    pub fn read(&mut self, offset: u64, width: usize) -> u64 {
        self.function.read(0, offset, width)
    }

    pub fn write(&mut self, offset: u64, width: usize, value: u64) {
        self.function.write(0, offset, width, value);
    }

    pub fn window_read(&mut self, window: u32, offset: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.function
            .client
            .region_read(2 + 2 * window, offset, &mut data)
            .unwrap();
        data
    }

    pub fn window_write(&mut self, window: u32, offset: u64, data: &[u8]) {
        self.function
            .client
            .region_write(2 + 2 * window, offset, data)
            .unwrap();
    }

    pub fn mapped_length(&self, window: u32) -> u64 {
        let region = self.function.client.region(2 + 2 * window).unwrap();
        assert_eq!(region.sparse_areas.len(), 1);
        assert_eq!(region.sparse_areas[0].offset, 0);
        region.sparse_areas[0].size
    }

    /// Returns the window as the guest's CPU sees it.
    pub fn mapped_window(&self, window: u32) -> Window {
        let region = self.function.client.region(2 + 2 * window).unwrap();
        let place = region.file_offset.as_ref().unwrap();
        Window {
            file: place.file().try_clone().unwrap(),
            start: place.start(),
            length: self.mapped_length(window),
        }
    }

    /// Reads the guest's own RAM.
    pub fn ram(&self, address: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.function.ram.read_exact_at(&mut data, address).unwrap();
        data
    }

    /// Changes the guest's own RAM.
    pub fn set_ram(&self, address: u64, data: &[u8]) {
        self.function.ram.write_all_at(data, address).unwrap();
    }

    /// Waits for an interrupt.
    pub fn expect(&mut self, vector: usize) {
        self.function.expect(vector);
    }

    /// Checks that there is no interrupt. Everything that could have caused one must be over.
    pub fn expect_nothing(&mut self, vector: usize) {
        self.function.expect_nothing(vector);
    }

    pub fn take_vectors(&mut self) {
        self.function
            .client
            .set_irqs(vfio::VFIO_PCI_MSIX_IRQ_INDEX, NOTHING, 0, 0, &[])
            .unwrap();
    }

    pub fn give_vectors(&mut self) {
        self.function.give_vectors();
    }

    pub fn reset(&mut self) {
        self.function.client.reset().unwrap();
    }

    /// Writes any bytes to a place of the function, and reads the place back.
    pub fn raw(&mut self, region: u32, offset: u64, data: &[u8]) {
        self.function.raw(region, offset, data);
    }
}

/// A mapped window.
pub struct Window {
    file: File,
    start: u64,
    length: u64,
}

impl Window {
    pub fn write(&self, offset: u64, data: &[u8]) {
        assert!(offset + data.len() as u64 <= self.length);
        self.file.write_all_at(data, self.start + offset).unwrap();
    }
}

/// A client of a DMA function, with the needed part of plx_dma.
pub struct DmaClient {
    function: Function,
    ring: u64,
    next: u64,
}

impl DmaClient {
    /// The ring of the first channel; those of the other channels are behind it.
    const RING: u64 = 0x70_0000;
    const COUNT: u64 = 16;
    const STARTED: u64 = 0x174c;

    /// Connects and sets the ring up.
    pub fn connect(topology: &Topology, guest: usize, index: usize) -> Self {
        let socket = dma_socket(&topology.directory, guest, index);
        let ram = &topology.guests[guest].ram_file;
        let mut client = Self {
            function: Function::connect(&socket, ram, vfio::VFIO_PCI_MSIX_IRQ_INDEX, 1),
            ring: Self::RING + 0x1000 * index as u64,
            next: 0,
        };
        client.set_up(Self::COUNT);
        client
    }

    fn set_up(&mut self, count: u64) {
        let nothing = vec![0; 16 * Self::COUNT as usize];
        self.function.ram.write_all_at(&nothing, self.ring).unwrap();
        self.function.write(0, 0x238, 4, 0x1700);
        self.function.write(0, 0x214, 4, self.ring);
        self.function.write(0, 0x218, 4, 0);
        self.function.write(0, 0x21c, 4, self.ring);
        self.function.write(0, 0x220, 4, count);
        self.next = 0;
    }

    fn descriptor(source: u64, destination: u64, length: u64) -> [u8; 16] {
        let mut raw = [0; 16];
        raw[..4].copy_from_slice(&(0xc000_0000 | length as u32).to_le_bytes());
        raw[4..6].copy_from_slice(&destination.to_le_bytes()[4..6]);
        raw[6..8].copy_from_slice(&source.to_le_bytes()[4..6]);
        raw[8..12].copy_from_slice(&destination.to_le_bytes()[..4]);
        raw[12..].copy_from_slice(&source.to_le_bytes()[..4]);
        raw
    }

    /// Copies, waits for the interrupt, and returns the word that was written back.
    pub fn copy(&mut self, source: u64, destination: u64, length: u64) -> u32 {
        let at = self.ring + 16 * self.next;
        self.next = (self.next + 1) % Self::COUNT;
        let raw = Self::descriptor(source, destination, length);
        self.function.ram.write_all_at(&raw, at).unwrap();
        self.function.write(0, 0x238, 2, Self::STARTED);
        self.function.expect(0);
        let status = self.function.read(0, 0x23e, 2);
        assert_eq!(status, 4);
        self.function.write(0, 0x23e, 2, status);
        let start = Instant::now();
        loop {
            let mut flags = [0; 4];
            self.function.ram.read_exact_at(&mut flags, at).unwrap();
            let flags = u32::from_le_bytes(flags);
            if flags & (1 << 31) == 0 {
                return flags;
            }
            assert!(start.elapsed() < TIMEOUT, "descriptor not written back");
        }
    }

    /// Makes the engine copy without end: descriptors are not written back and stay valid.
    pub fn forever(&mut self, copies: &[(u64, u64, u64)]) {
        self.set_up(copies.len() as u64);
        for (index, (source, destination, length)) in copies.iter().enumerate() {
            let raw = Self::descriptor(*source, *destination, *length);
            let at = self.ring + 16 * index as u64;
            self.function.ram.write_all_at(&raw, at).unwrap();
        }
        self.function.write(0, 0x238, 2, Self::STARTED & !4);
    }

    pub fn reset(&mut self) {
        self.function.client.reset().unwrap();
    }

    /// Writes any bytes to a place of the function, and reads the place back.
    pub fn raw(&mut self, region: u32, offset: u64, data: &[u8]) {
        self.function.raw(region, offset, data);
    }

    /// Submits any bits as a descriptor.
    pub fn submit_raw(&mut self, low: u64, high: u64) {
        self.set_up(Self::COUNT);
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&low.to_le_bytes());
        raw[8..].copy_from_slice(&high.to_le_bytes());
        // A valid descriptor of any size up to 64 KiB.
        raw[2..4].copy_from_slice(&[0, 0x80]);
        if low & 1 == 0 {
            // An address near the RAM, which may lead to memory.
            raw[4..8].fill(0);
            raw[11] = 0;
            raw[15] = 0;
        }
        self.function.ram.write_all_at(&raw, self.ring).unwrap();
        self.function.write(0, 0x238, 2, Self::STARTED);
    }
}
