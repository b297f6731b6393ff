// SPDX-License-Identifier: GPL-2.0
//! SCIF over an emulated AMD NTB. It has 8 scratchpads, so hellos are sent in parts. Its link is up
//! as soon as both nodes have their driver. Its windows lose their translation when the other side
//! is reset.

use anyhow::Result;
use lab::Lab;
use lab::Personality;

use crate::harness::Test;
use crate::need::Need;
use crate::scif_arena;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_conformance;
use crate::scif_idt;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// A pair behind IOMMUs.
pub const ARENA: Need = Need {
    personality: Personality::Amd,
    ..ARENA_PAIR
};

/// A pair without IOMMUs, whose windows cover all memory.
const FLAT: Need = Need {
    personality: Personality::Amd,
    ..SCIF_PAIR
};

fn arena_is_chosen(lab: &Lab) -> Result<()> {
    scif_idt::check_links(
        lab,
        &[
            ("state", "up"),
            ("aperture", "arena"),
            ("own_aperture", "arena"),
            ("own_guarded", "yes"),
            ("doorbells", "0x7fff"),
        ],
    )
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_amd::arena_is_chosen", ARENA, arena_is_chosen),
    Test::new(
        "scif_amd::long_attack_reaches_only_aperture",
        ARENA,
        scif_arena::long_attack_reaches_only_aperture,
    )
    .seconds(400)
    .by_name(),
    Test::new(
        "scif_amd::new_session_after_loss",
        ARENA,
        scif_idt::new_session_after_loss,
    )
    .seconds(60)
    .expects(&["is lost: "])
    .leaves_disorder(),
    Test::new("scif_amd::arena_conformance", ARENA, scif_conformance::two)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
    Test::new("scif_amd::flat_conformance", FLAT, scif_conformance::two)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
];
