// SPDX-License-Identifier: GPL-2.0
//! Ctrl-C, SIGTERM and a closed terminal: end the children, remove the folders, exit.
//!
//! Without [`install`] the children still die with this process; only folders would stay.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use anyhow::Context;
use anyhow::Result;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use crate::lock::lock;
use crate::process;

/// The folders to remove if this process is interrupted.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Installs the handler: an interrupt ends all labs of this process, and then the process with
/// status 128 + signal.
pub fn install() -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot handle interrupts")?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            end(128 + signal);
        }
    });
    Ok(())
}

/// Ends all labs of this process, and the process.
pub fn end(status: i32) -> ! {
    process::kill_all();
    for folder in lock(&FOLDERS).drain(..) {
        let _ = fs::remove_dir_all(folder);
    }
    std::process::exit(status)
}

pub(crate) fn register(folder: &Path) {
    lock(&FOLDERS).push(folder.to_owned());
}

pub(crate) fn unregister(folder: &Path) {
    lock(&FOLDERS).retain(|known| known != folder);
}
