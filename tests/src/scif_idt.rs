// SPDX-License-Identifier: GPL-2.0
//! SCIF over an emulated switch of IDT: hellos by messages, one doorbell register for both, and windows
//! that who uses them sets. What keeps the peer out is the IOMMU alone.

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Personality;

use crate::harness::Need;
use crate::harness::Test;
use crate::scif;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_conformance;

/// A pair behind IOMMUs.
const IDT_PAIR: Need = Need {
    personality: Personality::Idt,
    ..ARENA_PAIR
};

/// Both nodes are online, in an arena.
fn chosen(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        let links = scif::table(lab, node, "links")?;
        let link = links.iter().find(|link| link["link"].starts_with("ntb:"));
        ensure!(
            link.is_some_and(|link| link["state"] == "up" && link["own_aperture"] == "arena"),
            "node {node}: {links:#?}"
        );
    }
    Ok(())
}

/// All that SCIF promises.
fn conformance(lab: &Lab) -> Result<()> {
    scif_conformance::run(lab, "two")?;
    scif_conformance::nothing_left(lab)
}

pub const TESTS: &[Test] = &[
    Test::new("scif_idt::chosen", IDT_PAIR, chosen),
    Test::new("scif_idt::conformance", IDT_PAIR, conformance)
        .seconds(300)
        .releases_engine(),
];
