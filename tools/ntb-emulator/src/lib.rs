// SPDX-License-Identifier: GPL-2.0
//! Emulated PCIe non-transparent bridges and DMA engines for QEMU guests.
//!
//! One process serves all guests of a lab over vfio-user: for each link between two guests
//! an NTB function in both (bound by an unmodified driver: ntb_hw_intel, ntb_hw_idt or
//! ntb_hw_amd), and for each guest some DMA functions (bound by plx_dma). It holds the RAM files of all guests, so a window
//! of one guest is a mapping of the other one's RAM, and a DMA engine copies between both.
//!
//! ```text
//! config, control      what to emulate; how to look at it and change it while it runs
//! emulator             puts it together: files, sockets, threads
//! server               one PCI function to one QEMU
//! ntb   dma            what the functions do
//! pci   mmio           configuration space, register accesses
//! bus                  memory as a DMA engine sees it
//! address              bus address -> own RAM | a peer's RAM through a window | nothing
//! guest_memory  ram    what a device may reach; the memory itself
//! model                what all that takes on hardware, if it is to take as long
//! order                what may overtake what on hardware, if it is to do so
//! interrupt  counters
//! priority             devices come before processors
//! ```
//!
//! Nothing that a guest does can end the process; a failure of its own does, with a
//! message, because guests cannot do without it.

pub mod address;
pub mod bus;
pub mod config;
pub mod control;
pub mod counters;
pub mod dma;
pub mod emulator;
pub mod guest_memory;
pub mod interrupt;
pub mod mmio;
pub mod model;
pub mod ntb;
pub mod order;
pub mod pci;
pub mod priority;
pub mod raid;
pub mod ram;
pub mod server;
