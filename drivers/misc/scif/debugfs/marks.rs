// SPDX-License-Identifier: GPL-2.0

//! `marks`: a line for each connection of which something is in flight: transfers, or what waits
//! behind them.

use super::field::Hex;
use crate::endpoint::scif::Scif;
use kernel::fmt;

pub(super) fn show(scif: &Scif, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "node channel issued complete in_flight deferred asked")?;
    let mut result = Ok(());
    scif.for_each_in_flight(|(node, channel), progress| {
        if result.is_ok() {
            result = writeln!(
                f,
                "{node} {} {} {} {} {} {}",
                Hex(channel.0),
                progress.issued,
                progress.complete,
                progress.in_flight,
                progress.deferred,
                progress.asked
            );
        }
    });
    result
}
