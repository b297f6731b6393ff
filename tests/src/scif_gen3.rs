// SPDX-License-Identifier: GPL-2.0
//! SCIF over an emulated Intel NTB of the third generation. The target of a window has to be
//! aligned to the window's size. So an arena, and the rings and slots of bounce mode, need memory
//! with that alignment.

use anyhow::Result;
use lab::Lab;
use lab::Personality;

use crate::harness::Test;
use crate::need::Need;
use crate::scif_arena;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_idt;

/// A pair behind IOMMUs.
const ARENA: Need = Need {
    personality: Personality::Gen3,
    ..ARENA_PAIR
};

/// A pair without IOMMUs, whose windows are small.
const BOUNCE: Need = Need {
    personality: Personality::Gen3,
    ..scif_bounce::USUAL
};

fn arena_reaches_only_rings(lab: &Lab) -> Result<()> {
    let wanted = [
        ("state", "up"),
        ("aperture", "arena"),
        ("own_aperture", "arena"),
        ("own_bytes", "33554432"),
    ];
    scif_idt::check_links(lab, &wanted)?;
    scif_arena::only_rings(lab, "before")?;
    scif_idt::part(lab)
}

fn bounce_conformance(lab: &Lab) -> Result<()> {
    let wanted = [
        ("state", "up"),
        ("aperture", "bounce"),
        ("own_aperture", "bounce"),
        ("own_bytes", "2097152"),
    ];
    scif_idt::check_links(lab, &wanted)?;
    scif_bounce::conformance(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_gen3::arena_reaches_only_rings",
        ARENA,
        arena_reaches_only_rings,
    )
    .seconds(300)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_gen3::new_session_after_loss",
        ARENA,
        scif_idt::new_session_after_loss,
    )
    .seconds(60)
    .expects(&["is lost: "])
    .leaves_disorder()
    .by_name(),
    Test::new("scif_gen3::bounce_conformance", BOUNCE, bounce_conformance)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
];
