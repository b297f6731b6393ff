// SPDX-License-Identifier: GPL-2.0
//! Boots and drives Linux guests joined by emulated NTBs.
//!
//! [`Lab`] is a whole lab for a program such as a test. It starts the emulator and the guests, runs
//! commands in them, and ends everything when it is dropped. The command `lab` keeps a lab in a
//! background process and communicates with it ([`owner`], [`client`]).
//!
//! Labs run inside the pinned environment (`scripts/environment`), and not with a machine's own
//! tools. This crate does not know SCIF: the module is only a file that tests load.
//!
//! ```no_run
//! use lab::{Config, Flavour, Lab, Silent};
//!
//! # fn main() -> anyhow::Result<()> {
//! let lab = Lab::start(Config::new("example", 2, Flavour::Stock), &Silent)?;
//! let kernel = lab.exec(0, ["uname", "-r"])?.success()?.stdout();
//! println!("node 0 runs {kernel}");
//! # Ok(())
//! # }
//! ```

pub mod agent;
pub mod arguments;
mod built;
pub mod client;
mod command;
mod config;
pub mod console;
pub mod control;
mod debugger;
mod drivers;
mod emulator;
mod error;
mod guest;
mod initramfs;
mod inspection;
pub mod interrupt;
mod iommu;
mod kernel;
pub mod kernel_log;
mod kunit;
mod lab;
mod limits;
mod lock;
mod machines;
mod monitor;
mod node;
pub mod owner;
pub mod paths;
mod process;
mod progress;
mod qemu;
mod server;
mod speed;
mod steps;
mod text;
mod transfer;
mod wait;
mod whole_file;
pub mod wire;

pub use command::Command;
pub use command::Output;
pub use command::Process;
pub use command::describe;
pub use config::Config;
pub use config::Flavour;
pub use config::LinkModel;
pub use config::Topology;
pub use config::parse_personality;
pub use config::parse_rate;
pub use config::parse_weak_order;
pub use config::parse_windows;
pub use drivers::default_modules;
pub use error::Error;
pub use guest::Event;
pub use inspection::Pins;
pub use iommu::Iommu;
pub use kernel::Kernel;
pub use kunit::KunitResults;
pub use lab::Lab;
pub use lab::Node;
pub use ntb_emulator::config::Personality;
pub use ntb_emulator::config::Windows;
pub use ntb_emulator::control::GuestCounters;
pub use ntb_emulator::control::State as EmulatorState;
pub use ntb_emulator::counters::Snapshot as Counters;
pub use ntb_emulator::order::Engines as WeakOrderEngines;
pub use ntb_emulator::order::WeakOrder;
pub use ntb_emulator::raid::Loot;
pub use ntb_emulator::raid::Writes as RaidWrites;
pub use progress::Progress;
pub use progress::Silent;
pub use progress::Step;
pub use progress::Terminal;
pub use qemu::dma_slot;
pub use qemu::ntb_slot;
pub use speed::Speed;
pub use steps::Steps;
pub use steps::Stopped;
pub use text::last_lines;
pub use text::printable;
pub use wait::wait_until;
pub use wire::Outcome;
