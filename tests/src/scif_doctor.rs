// SPDX-License-Identifier: GPL-2.0
//! The findings of `scif doctor` on nodes where something is missing, and on nodes where nothing
//! is.

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use lab::Lab;
use serde_json::Value;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::PAIR;
use crate::scif;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Returns the doctor's findings, and whether its exit status says that SCIF can work.
fn findings(lab: &Lab, node: usize) -> Result<(Vec<Value>, bool)> {
    let output = scif::run_tool(lab, node, &["doctor", "--json"])?;
    let report: Value = serde_json::from_str(&output.stdout()).context("its JSON")?;
    let findings = report["findings"].as_array().context("no findings")?;
    let findings = findings.clone();
    Ok((findings, output.success().is_ok()))
}

/// Checks that the finding with these words has this grade, and that its advice contains `advice`.
fn says(lab: &Lab, node: usize, grade: &str, words: &str, advice: &str) -> Result<()> {
    let (findings, is_well) = findings(lab, node)?;
    let text = |finding: &Value, name: &str| finding[name].as_str().unwrap_or("").to_owned();
    let Some(found) = findings
        .iter()
        .find(|each| text(each, "text").contains(words))
    else {
        bail!("node {node}: nothing with '{words}' in {findings:#?}");
    };
    ensure!(
        text(found, "grade") == grade && text(found, "advice").contains(advice),
        "node {node}: {found:#?}"
    );
    let problems = findings.iter().any(|each| text(each, "grade") == "problem");
    ensure!(problems != is_well, "node {node}: the exit status is wrong");
    Ok(())
}

/// From an empty node to a link, one step at a time.
fn each_missing_step_is_found(lab: &Lab) -> Result<()> {
    says(lab, 0, "problem", "scif is not loaded", "load it")
        .or_else(|_| says(lab, 0, "problem", "scif is not installed", "scif-dkms"))?;
    says(lab, 0, "good", "is free for scif", "")?;
    lab.load_with(0, "ntb_tool", "")?;
    says(
        lab,
        0,
        "problem",
        "is used by ntb_tool",
        "take it from ntb_tool",
    )?;
    lab.rmmod(0, "ntb_tool")?;
    lab.rmmod(0, "ntb_hw_intel")?;
    says(lab, 0, "problem", "has no driver", "load it")?;
    scif::load(lab, 0, Loaded::LongHeartbeat)?;
    says(lab, 0, "good", "scif is loaded", "")?;
    lab.load_with(0, "ntb_hw_intel", "")?;
    says(lab, 0, "good", "is used by scif", "")?;
    says(lab, 0, "problem", "the link does not come up", "both hosts")?;
    scif::load(lab, 1, Loaded::LongHeartbeat)?;
    scif::online(lab, 0, 1)?;
    says(lab, 0, "good", "node 1 is online", "")?;
    scif::unload_everywhere(lab)
}

/// Without an IOMMU the link works, and the doctor warns that it is open.
fn flat_link_gets_warning(lab: &Lab) -> Result<()> {
    says(
        lab,
        0,
        "advice",
        "can reach all memory of this machine",
        "IOMMU",
    )?;
    says(lab, 1, "good", "is online", "")?;
    let output = scif::run_tool(lab, 0, &["doctor"])?;
    let text = output.success()?.stdout();
    ensure!(
        text.contains("note  memory") && text.contains("ok    engine"),
        "{text}"
    );
    let text = scif::run_tool(lab, 0, &["nodes", "--verbose"])?
        .success()?
        .stdout();
    ensure!(
        text.contains("node 1 reaches all memory of this machine"),
        "{text}"
    );
    Ok(())
}

/// With an IOMMU the link is closed. In this lab its aperture is small.
fn arena_link_is_closed(lab: &Lab) -> Result<()> {
    says(lab, 0, "advice", "have to fit into 32.0 MiB", "BAR larger")?;
    let text = scif::run_tool(lab, 1, &["nodes", "--verbose"])?
        .success()?
        .stdout();
    ensure!(
        text.contains("node 0 reaches memory registered for it")
            && text.contains("(arena: an IOMMU translates for the bridge)"),
        "{text}"
    );
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_doctor::each_missing_step_is_found",
        PAIR,
        each_missing_step_is_found,
    )
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_doctor::flat_link_gets_warning",
        SCIF_PAIR,
        flat_link_gets_warning,
    ),
    Test::new(
        "scif_doctor::arena_link_is_closed",
        ARENA_PAIR,
        arena_link_is_closed,
    ),
];
