// SPDX-License-Identifier: GPL-2.0

//! Room on disk for files that are put.
//!
//! A file that is being written has no name yet, so `du` does not see it. The file system counts
//! the part that was written. This module counts the part that was announced and not yet written.

use crate::error::Error;
use crate::error::Result;
use crate::format;
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::PoisonError;

/// Bytes that are kept free by default, or a twentieth of the file system if that is less.
const KEPT_FREE: u64 = 1 << 30;

/// The room of one served folder.
#[derive(Debug, Default)]
pub struct Room {
    /// Bytes of the file system that copies to the server must leave free.
    keep_free: Option<u64>,
    /// Bytes that were announced and not yet written.
    coming: Mutex<u64>,
}

impl Room {
    /// Creates room that leaves this many bytes free; `None` is the default.
    pub fn new(keep_free: Option<u64>) -> Self {
        Self {
            keep_free,
            coming: Mutex::default(),
        }
    }

    /// Admits `size` bytes to the file system of `file`, or refuses.
    pub fn admit(&self, file: impl AsFd, size: u64) -> Result<Coming<'_>> {
        let space = rustix::fs::fstatvfs(file)
            .map_err(io::Error::from)
            .map_err(Error::local(
                "cannot ask the file system for its free space",
            ))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        let all = space.f_blocks.saturating_mul(space.f_frsize);
        let kept = self.keep_free.unwrap_or((all / 20).min(KEPT_FREE));
        let mut coming = self.coming.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = coming.saturating_add(size).saturating_add(kept);
        // A file system without blocks has no limit here.
        if all > 0 && size > 0 && wanted > free {
            return Err(Error::Refused(format!(
                "no room for {size} bytes: {} are free, {} of other copies are on their way, and {} are \
                 kept free (`scif serve --keep-free`)",
                format::size(free),
                format::size(*coming),
                format::size(kept)
            )));
        }
        *coming = coming.saturating_add(size);
        Ok(Coming {
            room: self,
            left: size,
        })
    }
}

/// Announced bytes, until they are written or this is dropped.
#[derive(Debug)]
pub struct Coming<'a> {
    room: &'a Room,
    left: u64,
}

impl Coming<'_> {
    /// Notes that `bytes` more were written: the file system counts them from now on.
    pub fn written(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        let mut coming = (self.room.coming.lock()).unwrap_or_else(PoisonError::into_inner);
        *coming = coming.saturating_sub(bytes);
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.written(self.left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_file_reserves_disk_space() {
        let file = tempfile::tempfile().unwrap();
        let space = rustix::fs::fstatvfs(&file).unwrap();
        let free = space.f_bavail * space.f_frsize;
        // Other processes write here as well, so the test compares large parts and not bytes.
        let room = Room::new(Some(0));
        let mut first = room.admit(&file, free / 3 * 2).unwrap();
        let error = room.admit(&file, free / 3 * 2).unwrap_err().to_string();
        assert!(error.contains("no room"), "{error}");
        first.written(free / 3);
        assert!(room.admit(&file, free / 3).is_ok());
        drop(first);
        assert!(room.admit(&file, free / 3 * 2).is_ok());
        assert!(Room::new(Some(u64::MAX)).admit(&file, 1).is_err());
        assert!(Room::default().admit(&file, free).is_err());
    }
}
