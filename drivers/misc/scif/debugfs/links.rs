// SPDX-License-Identifier: GPL-2.0

//! `links`: a line for each link, also for those on which nobody answers.

use super::field::{
    Hex,
    OrDash, //
};
use crate::transport::links::{
    Facts,
    Links, //
};
use kernel::fmt;

pub(super) fn show(links: &Links, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "link state node aperture aperture_bytes engines doorbells own_aperture own_bytes own_windows own_rings own_reason own_guarded"
    )?;
    let mut result = Ok(());
    links.for_each(|facts| {
        if result.is_ok() {
            result = line(facts, f);
        }
    });
    result
}

fn line(facts: &Facts<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = facts.name.to_str().unwrap_or("?");
    write!(f, "{name} {} ", facts.state)?;
    match facts.up {
        Some(up) => {
            let (mode, aperture, engines) = (up.mode, up.aperture, up.engines);
            write!(f, "{} {mode} {aperture} {engines}", OrDash(up.node))?;
        }
        None => f.write_str("- - - -")?,
    }
    write!(f, " {} ", Hex(facts.doorbells))?;
    let Some(own) = facts.own else {
        return writeln!(f, "- - - - - -");
    };
    let (windows, rings) = own.taken.unzip();
    let (windows, rings) = (OrDash(windows), OrDash(rings));
    write!(f, "{} {} {windows} {rings} ", own.mode, own.aperture)?;
    escape(f, own.reason)?;
    writeln!(f, " {}", if own.is_guarded { "yes" } else { "no" })
}

/// As in `/proc/mounts`: what is in a column has no spaces.
fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for (index, word) in text.split(' ').enumerate() {
        if index > 0 {
            f.write_str("\\040")?;
        }
        f.write_str(word)?;
    }
    Ok(())
}
