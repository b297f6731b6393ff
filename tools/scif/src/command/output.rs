// SPDX-License-Identifier: GPL-2.0

//! Output to standard output and standard error.

use crate::error::Error;
use crate::error::Result;
use serde::Serialize;
use std::fmt::Display;
use std::io;
use std::io::Write;

/// Prints a line to standard output. A reader that has closed the pipe is no error.
pub fn print(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::local("cannot write to standard output")(error))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error. Nothing depends on this output, so a full disk or a closed pipe
/// is ignored.
pub fn note(text: impl Display) {
    // In one call, so that lines of threads do not mix.
    let _ = io::stderr()
        .lock()
        .write_all(format!("{text}\n").as_bytes());
}

/// Prints a value as JSON, like [`print`].
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Refused(format!("cannot make JSON: {error}")))?;
    print(text)
}
