// SPDX-License-Identifier: GPL-2.0
//! Each allocation, and each copy from and to user space, that the module makes for a call fails once, and
//! the call says so and leaves nothing behind (tests/programs/scif_inject.c): those of the caller, those of
//! the kernel's threads on its node, and those of its peer's. Only what is called by the module's code fails:
//! the kernel looks for that in the stack.

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;

use crate::harness::Test;
use crate::need::Need;
use crate::scif;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Where the server listens.
const PORT: &str = "2411";

/// Has what is called by some code of a node's kernel fail, when a program says so: `code` is a program of awk
/// that prints where a symbol of that code is.
fn choose(lab: &Lab, node: usize, code: &str) -> Result<()> {
    let script = format!(
        r#"cd /sys/kernel/debug
        range=$(awk '{code}' /proc/kallsyms | sort)
        start=$(echo "$range" | head -n 1)
        end=$(echo "$range" | tail -n 1)
        # What the kernel's check of the DMA API keeps is its own: it gives up without memory.
        check=$(echo $(awk 'found {{ print $1; exit }} / add_dma_entry$/ {{ print $1; found = 1 }}' /proc/kallsyms))
        for kind in failslab fail_page_alloc fail_usercopy; do
            echo 0 >$kind/probability
            echo -1 >$kind/times
            echo 0 >$kind/verbose
            echo 32 >$kind/stacktrace-depth
            echo 0x$start >$kind/require-start
            echo 0x$end >$kind/require-end
            echo 0x${{check%% *}} >$kind/reject-start
            echo 0x${{check##* }} >$kind/reject-end
        done
        echo N >failslab/ignore-gfp-wait
        echo N >fail_page_alloc/ignore-gfp-wait
        echo N >fail_page_alloc/ignore-gfp-highmem
        echo 0 >fail_page_alloc/min-order"#
    );
    lab.shell(node, &script)?;
    Ok(())
}

/// The code of the module.
const MODULE: &str = r#"$4 == "[scif]" && tolower($2) == "t" { print $1 }"#;

/// Has all scenarios run with the failures of somebody.
fn inject(lab: &Lab, who: &str, peer: usize) -> Result<()> {
    for node in 0..lab.nodes() {
        choose(lab, node, MODULE)?;
    }
    let server = scif::start_server(lab, peer, "scif_inject", &["serve", PORT], 600)?;
    let name = peer.to_string();
    scif::run_tap(lab, 0, "scif_inject", &[who, &name, PORT], 600)?;
    server.kill();
    server.wait()?;
    for node in 0..lab.nodes() {
        scif::check_idle(lab, node)?;
        let report = lab.kmemleak(node)?;
        ensure!(report.is_empty(), "node {node} has leaked:\n{report}");
    }
    Ok(())
}

fn loopback(lab: &Lab) -> Result<()> {
    inject(lab, "caller", 0)
}

fn caller(lab: &Lab) -> Result<()> {
    inject(lab, "caller", 1)
}

fn workers(lab: &Lab) -> Result<()> {
    inject(lab, "workers", 1)
}

fn peers(lab: &Lab) -> Result<()> {
    inject(lab, "peers", 1)
}

const fn test(name: &'static str, need: Need, run: fn(&Lab) -> Result<()>) -> Test {
    Test::new(name, need, run)
        .seconds(600)
        .on_debug()
        // Said of each.
        .expects(&["for lack of memory"])
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    test("scif_injection::loopback", SCIF_PAIR, loopback).by_name(),
    test("scif_injection::caller", SCIF_PAIR, caller),
    test("scif_injection::workers", SCIF_PAIR, workers).by_name(),
    test("scif_injection::peers", SCIF_PAIR, peers).by_name(),
    test("scif_injection::caller_arena", ARENA_PAIR, caller).by_name(),
    test("scif_injection::caller_bounce", scif_bounce::USUAL, caller).by_name(),
];
