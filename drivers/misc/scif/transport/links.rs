// SPDX-License-Identifier: GPL-2.0

//! The list of all links, shown to users. It includes links on which no peer answers.

use crate::sync::list::List;
use kernel::fmt;

/// A link in the list.
pub(crate) trait Link: Send + Sync {
    /// Shows one line with the [`COLUMNS`].
    /// Context: may sleep, but waits for no other node or process.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// The columns of a link's line. `-` stands for an absent value:
///
/// - the link: its name, as in [`Introduction`](super::sink::Introduction), and its state: `down`,
///   `offering`, `up`, or `changing`, which may take a while;
/// - the peer, while the link is up: its node, `-` if the peer is this node itself; how its memory
///   is reached, how much of it, and the number of engines that copy;
/// - the doorbells of this side, as bits;
/// - the aperture over this node's memory that the peer is offered or has: its mode and bytes; the
///   bytes used by registered memory and by rings, if these get places in it; the reason for the
///   mode; whether the peer reaches only the memory that it is given.
const COLUMNS: &str = "link state node aperture aperture_bytes engines doorbells own_aperture own_bytes own_windows own_rings own_reason own_guarded";

/// Writes a text with its spaces escaped as in `/proc/mounts`, because a space separates columns.
pub(super) fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for (index, word) in text.split(' ').enumerate() {
        if index > 0 {
            f.write_str("\\040")?;
        }
        f.write_str(word)?;
    }
    Ok(())
}

/// The list of all links.
pub(crate) type Links = List<dyn Link>;

/// Shows all links.
/// Context: may sleep.
pub(crate) fn show(links: &Links, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{COLUMNS}")?;
    links.iter().try_for_each(|link| link.show(f))
}
