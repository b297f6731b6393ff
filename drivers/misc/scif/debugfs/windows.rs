// SPDX-License-Identifier: GPL-2.0

//! `windows`: a line for each window of this node that a peer was offered, until the peer lets go.

use super::field::Hex;
use crate::endpoint::scif::Scif;
use kernel::fmt;

pub(super) fn show(scif: &Scif, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "node channel window offset bytes protection state uses held_by_peer reached"
    )?;
    let mut result = Ok(());
    scif.for_each_window(|node, window| {
        if result.is_ok() {
            result = writeln!(
                f,
                "{node} {} {} {} {} {} {} {} {} {}",
                Hex(window.channel.0),
                window.id.0,
                Hex(window.range.start()),
                window.range.len(),
                window.protection_name(),
                window.state,
                window.uses,
                u8::from(window.is_held_by_peer),
                u8::from(window.is_reached)
            );
        }
    });
    result
}
