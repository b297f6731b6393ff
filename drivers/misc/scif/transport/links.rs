// SPDX-License-Identifier: GPL-2.0

//! The links that there are, for people: also those on which nobody answers.

use crate::sync::list::List;
use kernel::fmt;

/// A link, as it is listed.
pub(crate) trait Link: Send + Sync {
    /// Shows a line with the [`COLUMNS`]. May sleep, but waits for nobody.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// What is shown of a link; `-` stands for what there is not:
///
/// - its name, as in [`Introduction`](super::sink::Introduction), and its state: `down`, `offering`, `up`; or `changing`,
///   which may take a while;
/// - of the peer, while the link is up: the node, none if it is this one itself; how its memory is reached, and how much
///   of it; engines that copy;
/// - the doorbells of this side, as bits;
/// - of the aperture over this node's memory, which the peer is offered or has: the mode, the bytes, and how many of them
///   registered memory and rings have, where these are given a place; why it is in this mode; whether the peer reaches
///   what is given to it and nothing else.
const COLUMNS: &str = "link state node aperture aperture_bytes engines doorbells own_aperture own_bytes own_windows own_rings own_reason own_guarded";

/// Writes a text without spaces, as what is in a column has none: in the manner of `/proc/mounts`.
pub(super) fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for (index, word) in text.split(' ').enumerate() {
        if index > 0 {
            f.write_str("\\040")?;
        }
        f.write_str(word)?;
    }
    Ok(())
}

/// See the head of this file.
pub(crate) type Links = List<dyn Link>;

/// Shows all of them. May sleep.
pub(crate) fn show(links: &Links, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{COLUMNS}")?;
    links.iter().try_for_each(|link| link.show(f))
}
