// SPDX-License-Identifier: GPL-2.0

//! What goes to standard output.

use crate::error::Error;
use crate::error::Result;
use serde::Serialize;
use std::fmt::Display;
use std::io;
use std::io::Write;

/// Prints a line to standard output. A reader that has seen enough is no error.
pub fn print(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::local("cannot write to standard output")(error))
        }
        _ => Ok(()),
    }
}

/// The same for a value, as JSON.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Refused(format!("cannot make JSON: {error}")))?;
    print(text)
}
