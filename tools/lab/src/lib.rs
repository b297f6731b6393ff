// SPDX-License-Identifier: GPL-2.0
//! Boots and drives Linux guests joined by emulated NTBs.
//!
//! [`Lab`] is the whole thing for a program such as a test: it starts the emulator and the
//! guests, runs commands in them, and ends everything when it is dropped. The command
//! `lab` keeps one in a background process and talks to it ([`owner`], [`client`]).
//!
//! Labs run inside the pinned environment (`scripts/environment`), on no machine's own
//! tools. This crate knows nothing of SCIF: the module is only a file that tests load.
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
pub mod client;
mod command;
mod config;
pub mod console;
pub mod control;
mod emulator;
mod error;
mod guest;
mod initramfs;
pub mod interrupt;
mod kernel;
pub mod kernel_log;
mod kunit;
mod lab;
mod limits;
mod monitor;
mod node;
pub mod owner;
pub mod paths;
mod process;
mod progress;
mod qemu;
mod server;
mod speed;
mod transfer;
mod whole_file;
pub mod wire;

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

pub use command::Command;
pub use command::Output;
pub use command::Process;
pub use command::describe;
pub use config::Config;
pub use config::Flavour;
pub use config::Topology;
pub use config::parse_personality;
pub use config::parse_windows;
pub use error::Error;
pub use guest::Event;
pub use kernel::Kernel;
pub use kunit::KunitResults;
pub use lab::Lab;
pub use lab::Node;
pub use lab::Pins;
pub use lab::wait_until;
pub use ntb_emulator::config::Personality;
pub use ntb_emulator::config::Windows;
pub use ntb_emulator::control::GuestCounters;
pub use ntb_emulator::control::State as EmulatorState;
pub use ntb_emulator::counters::Snapshot as Counters;
pub use progress::Progress;
pub use progress::Silent;
pub use progress::Step;
pub use progress::Terminal;
pub use qemu::dma_slot;
pub use qemu::ntb_slot;
pub use speed::Speed;
pub use wire::Outcome;

/// Locks; what a thread left that panicked is as good as any other state here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last lines of a text, without a newline at the end.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// A text without terminal control sequences.
pub fn printable(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => {
                if characters.next_if_eq(&'[').is_some() {
                    // Parameters, then one final letter.
                    while characters.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
                } else {
                    characters.next();
                }
            }
            '\n' | '\t' => result.push(character),
            character if character.is_control() => {}
            character => result.push(character),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_vanish() {
        assert_eq!(
            printable("\u{1b}[2J\u{1b}[01;31mred\u{1b}[0m\r\n\u{1b}c."),
            "red\n."
        );
        assert_eq!(printable("cut\u{1b}["), "cut");
    }

    #[test]
    fn tails() {
        assert_eq!(last_lines("a\n\nb\r\nc\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
    }
}
