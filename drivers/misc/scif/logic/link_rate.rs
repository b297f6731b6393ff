// SPDX-License-Identifier: GPL-2.0

//! The rate at which a PCI Express link carries data.

/// Bytes that a packet takes on the link beside its data: framing, sequence number, a header with a
/// 64-bit address, and the CRC.
const OVERHEAD: u32 = 24;

/// Maximum number of lanes of a link.
const MOST_LANES: u32 = 32;

/// Returns the Mb/s that one lane carries, encoding removed, in a generation of PCI Express. `None`
/// if the generation is not known. From generation 6 on, the overhead is another one.
fn lane(generation: u32) -> Option<u32> {
    match generation {
        1 => Some(2000),
        2 => Some(4000),
        3 => Some(7876),
        4 => Some(15753),
        5 => Some(31507),
        _ => None,
    }
}

/// Returns the Mb/s of data that a link carries in full packets, with `payload` bytes of data each.
/// `None` if the link has no known speed.
pub(crate) fn megabits(generation: u32, lanes: u32, payload: u32) -> Option<u32> {
    if lanes == 0 || lanes > MOST_LANES {
        return None;
    }
    let raw = u64::from(lane(generation)?.checked_mul(lanes)?);
    let packet = payload.checked_add(OVERHEAD)?;
    let rate = raw
        .checked_mul(u64::from(payload))?
        .checked_div(u64::from(packet))?;
    u32::try_from(rate).ok().filter(|rate| *rate != 0)
}
