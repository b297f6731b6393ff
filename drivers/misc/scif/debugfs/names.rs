// SPDX-License-Identifier: GPL-2.0

//! `names`: a line for each name that a port of this node has.

use crate::names::service::Names;
use kernel::fmt;

pub(super) fn show(names: &Names, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "class name port")?;
    let mut result = Ok(());
    names.for_each(|name, port| {
        if result.is_ok() {
            result = writeln!(f, "{} {} {}", name.class, name.number, port);
        }
    });
    result
}
