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
        "link state node aperture aperture_bytes engines doorbells"
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
    writeln!(f, " {}", Hex(facts.doorbells))
}
