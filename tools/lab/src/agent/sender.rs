// SPDX-License-Identifier: GPL-2.0
//! The connection to the lab, on which frames of all channels follow each other.

use std::fs::File;
use std::sync::Mutex;

use crate::lock::lock;
use crate::wire::Frame;

/// Sends frames to the lab.
pub(super) struct Sender {
    port: Mutex<File>,
}

impl Sender {
    pub(super) fn new(port: File) -> Sender {
        Sender {
            port: Mutex::new(port),
        }
    }

    /// Sends a frame. If the lab is gone, it takes the whole guest with it, so no code could handle
    /// an error here.
    pub(super) fn send(&self, frame: &Frame) {
        if let Err(error) = frame.write(&mut *lock(&self.port)) {
            eprintln!("lab-agent: cannot write to the lab: {error}");
        }
    }
}
