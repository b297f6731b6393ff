// SPDX-License-Identifier: GPL-2.0
//! Emulated PCIe non-transparent bridges and DMA engines for QEMU guests.
//!
//! One process serves all guests of a lab over vfio-user. For each link between two guests it has
//! an NTB function in both, bound by an unmodified driver: ntb_hw_intel, ntb_hw_idt or ntb_hw_amd.
//! For each guest it has some DMA functions, bound by plx_dma. It holds the RAM files of all
//! guests. So a window of one guest is a mapping of the other guest's RAM, and a DMA engine copies
//! between both.
//!
//! ```text
//! config, control      what to emulate; how to look at it and change it while it runs
//! emulator             puts it together: files, sockets, threads
//! server               one PCI function to one QEMU
//! ntb   dma            the work of the functions
//! pci   mmio           configuration space, register accesses
//! bus                  memory as a DMA engine sees it
//! address              bus address -> own RAM | a peer's RAM through a window | nothing
//! guest_memory  ram    the memory that a device may reach; the memory itself
//! model                how long each operation takes on hardware, if it is to take as long
//! order                which writes may overtake others on hardware, if they are to do so
//! interrupt  counters
//! priority             devices come before CPUs
//! ```
//!
//! No action of a guest can end the process. An internal failure ends it with a message, because
//! guests can't do without it.

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
