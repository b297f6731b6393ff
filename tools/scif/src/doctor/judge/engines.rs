// SPDX-License-Identifier: GPL-2.0

//! The DMA engines, and their NUMA nodes.

use super::findings::Advice;
use super::findings::Findings;
use crate::doctor::facts::Engine;
use crate::doctor::facts::Facts;

/// Drivers whose engines the module does not use, and the reason: `scif_unfit` in its
/// `sys/helpers.c`.
const UNFIT: [(&str, &str); 2] = [
    (
        "ptdma",
        "it completes copies that are in flight, and does not report copies that fail",
    ),
    (
        "ae4dma",
        "it may sleep in atomic context, and does not begin all submitted copies",
    ),
];

/// Returns the reason why the module does not use an engine, if it does not.
fn unfit(engine: &Engine) -> Option<(&'static str, &'static str)> {
    let driver = engine.driver.as_deref()?;
    UNFIT.into_iter().find(|(name, _)| *name == driver)
}

pub(super) fn judge(facts: &Facts, findings: &mut Findings) {
    let mut refused: Vec<_> = facts.engines.iter().filter_map(unfit).collect();
    refused.sort_unstable();
    refused.dedup();
    for (driver, why) in refused {
        findings.advice(
            "engine",
            format!("the DMA engines of {driver} are not used: {why}"),
            "use the engine of the switch (plx_dma, switchtec_dma), or let CPUs copy",
        );
    }
    let fit = facts
        .engines
        .iter()
        .filter(|engine| unfit(engine).is_none());
    let engines: Vec<&Engine> = fit.collect();
    if engines.is_empty() {
        findings.advice(
            "engine",
            "no DMA engine: CPUs copy, and read across the bridge at some 15 MB/s, however fast the link is",
            missing(facts),
        );
        return;
    }
    let count = engines.len();
    let drivers = engines.iter().find_map(|engine| engine.driver.as_deref());
    let driver = drivers.unwrap_or("unknown");
    let wanted = facts.parameters.get("dma_channels");
    if wanted.is_some_and(|value| value == "0") {
        findings.advice(
            "engine",
            format!("{count} DMA channels ({driver}), but scif takes none of them"),
            "load scif without dma_channels=0",
        );
    } else {
        findings.good("engine", format!("{count} DMA channels ({driver})"));
    }
    places(facts, &engines, findings);
}

/// Returns the advice for a machine without an engine.
fn missing(facts: &Facts) -> Advice {
    let modules = &facts.engine_modules;
    if modules.is_empty() {
        return "switch on the engine of the CPU in the BIOS (ioatdma, Intel's), or the engine of the switch (plx_dma, \
            switchtec_dma)"
            .into();
    }
    let load = modules.iter().map(|module| format!("modprobe {module}"));
    Advice::by("this machine has one: load its driver", load)
}

/// Finds engines at another NUMA node than the bridge, which are of less use.
fn places(facts: &Facts, engines: &[&Engine], findings: &mut Findings) {
    for bridge in &facts.bridges {
        let Some(place) = bridge.numa else { continue };
        let known: Option<Vec<u32>> = engines.iter().map(|engine| engine.numa).collect();
        let Some(elsewhere) = known.filter(|places| !places.contains(&place)) else {
            continue;
        };
        findings.advice(
            "engine",
            format!(
                "no DMA engine is at NUMA node {place}, where bridge {} is, but at {}: all copies go from socket to \
                 socket",
                bridge.address,
                numbers(elsewhere)
            ),
            "load the driver of an engine of that socket, or put bridge and engine into slots of one socket",
        );
    }
}

/// Returns the numbers in order, each once.
fn numbers(mut all: Vec<u32>) -> String {
    all.sort_unstable();
    all.dedup();
    let all: Vec<String> = all.iter().map(u32::to_string).collect();
    all.join(", ")
}
