// SPDX-License-Identifier: GPL-2.0
//! `lab push` and `lab pull` in the guest. A pushed file gets its name only when it is complete. If
//! a signal cuts off the input, no file is left.

use std::fs::File;
use std::io;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::channel::Channel;
use crate::whole_file::WholeFile;
use crate::wire::Kind;
use crate::wire::Outcome;

/// Writes the input to a file.
pub(super) fn receive(channel: &Channel, path: &str, name: &str, mode: u32) -> io::Result<Outcome> {
    let result = write_whole(channel, path, name, mode);
    if result.is_err() {
        // The lab goes on sending until it learns of the failure; the bytes are thrown away.
        while channel.next_input().is_some() {}
    }
    result.map(|size| Outcome::File { mode, size })
}

fn write_whole(channel: &Channel, path: &str, name: &str, mode: u32) -> io::Result<u64> {
    let mut file = WholeFile::create(Path::new(path), name)?;
    let mut size = 0;
    while let Some(bytes) = channel.next_input() {
        file.write_all(&bytes)?;
        size += bytes.len() as u64;
    }
    if channel.cancelled() {
        return Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "the lab gave up; the file was not written",
        ));
    }
    file.keep(mode)?;
    Ok(size)
}

/// Sends a file as the output.
pub(super) fn send(channel: &Channel, path: &str) -> io::Result<Outcome> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a directory; pack it with tar in the guest",
        ));
    }
    let size = channel.pump_out(file, Kind::Stdout)?;
    Ok(Outcome::File {
        mode: metadata.permissions().mode() & 0o7777,
        size,
    })
}
