// SPDX-License-Identifier: GPL-2.0
//! Copies files between the host and a guest, for programs that have the lab themselves.

use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::command::Command;
use crate::command::Output;
use crate::command::describe;
use crate::guest::Guest;
use crate::whole_file::WholeFile;
use crate::wire::CHUNK;
use crate::wire::Outcome;
use crate::wire::Request;

/// Returns the last part of a path, for the case that the target is a folder.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(
        || "stdin".into(),
        |name| name.to_string_lossy().into_owned(),
    )
}

pub(crate) fn push(
    node: usize,
    guest: Guest,
    local: &Path,
    remote: &str,
    limit: Duration,
) -> Result<()> {
    let mut file = File::open(local)?;
    let request = Request::Push {
        path: remote.to_owned(),
        name: name_of(local),
        mode: file.metadata()?.permissions().mode() & 0o7777,
    };
    let process = Command::request(node, guest, request, limit).spawn()?;
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => process.write(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Dropping the process before the end of its input leaves no file.
            Err(error) => return Err(error.into()),
        }
    }
    process.close_stdin();
    match process.wait()?.outcome {
        Outcome::File { .. } => Ok(()),
        other => bail!("the copy {}", describe(&other)),
    }
}

/// Reads a file of a guest. The outcome is that of the guest.
pub(crate) fn read(node: usize, guest: Guest, remote: &str, limit: Duration) -> Result<Output> {
    let request = Request::Pull {
        path: remote.to_owned(),
    };
    Command::request(node, guest, request, limit).run()
}

pub(crate) fn pull(
    node: usize,
    guest: Guest,
    remote: &str,
    local: &Path,
    limit: Duration,
) -> Result<()> {
    let output = read(node, guest, remote, limit)?;
    let Outcome::File { mode, .. } = output.outcome else {
        bail!("the copy {}", describe(&output.outcome));
    };
    let mut file = WholeFile::create(local, &name_of(Path::new(remote)))
        .with_context(|| format!("cannot write {}", local.display()))?;
    file.write_all(&output.stdout)?;
    file.keep(mode)?;
    Ok(())
}
