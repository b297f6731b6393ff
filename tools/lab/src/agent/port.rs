// SPDX-License-Identifier: GPL-2.0
//! The virtio-serial port: finding it without udev, and reading it while no peer is connected at
//! the other end.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rustix::event::PollFd;
use rustix::event::PollFlags;

use crate::limits::hang_limit;
use crate::wire::PORT_NAME;

const CLASS: &str = "/sys/class/virtio-ports";

/// Opens the lab's port; waits a little for the kernel to show it.
pub(super) fn open() -> io::Result<File> {
    let deadline = Instant::now() + hang_limit(60);
    loop {
        if let Some(path) = find() {
            return OpenOptions::new().read(true).write(true).open(path);
        }
        if Instant::now() > deadline {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("no virtio-serial port is named {PORT_NAME}"),
            ));
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn find() -> Option<PathBuf> {
    fs::read_dir(CLASS).ok()?.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        (name.trim() == PORT_NAME).then(|| PathBuf::from("/dev").join(entry.file_name()))
    })
}

/// A buffered reader of the port. Without a peer a read of the port returns 0 at once, so the
/// reader waits.
pub(super) struct Reader {
    port: File,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Reader {
    pub(super) fn new(port: File) -> Reader {
        Reader {
            port,
            buffer: vec![0; 64 * 1024],
            start: 0,
            end: 0,
        }
    }
}

impl Read for Reader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.start == self.end {
            let mut poll = [PollFd::new(&self.port, PollFlags::IN)];
            rustix::io::retry_on_intr(|| rustix::event::poll(&mut poll, None))?;
            let events = poll[0].revents();
            if events.contains(PollFlags::IN) {
                self.start = 0;
                self.end = self.port.read(&mut self.buffer)?;
            } else {
                thread::sleep(Duration::from_millis(20));
            }
        }
        let length = to.len().min(self.end - self.start);
        to[..length].copy_from_slice(&self.buffer[self.start..self.start + length]);
        self.start += length;
        Ok(length)
    }
}
