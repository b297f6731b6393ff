// SPDX-License-Identifier: GPL-2.0

//! What is in a column.

use core::fmt;

/// A value, or `-` for none.
pub(super) struct OrDash<T>(pub(super) Option<T>);

impl<T: fmt::Display> fmt::Display for OrDash<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

/// A number as tracepoints show it, too.
pub(super) struct Hex<T>(pub(super) T);

impl<T: fmt::LowerHex> fmt::Display for Hex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
