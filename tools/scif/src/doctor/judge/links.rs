// SPDX-License-Identifier: GPL-2.0

//! The links, as the module shows them.

use super::bridges::bind;
use super::findings::Advice;
use super::findings::Findings;
use super::kernel_log;
use crate::doctor::facts::Facts;
use crate::format::size;
use crate::watch::Link;

pub(super) fn judge(facts: &Facts, findings: &mut Findings) {
    let Some(links) = &facts.links else {
        if facts.is_loaded {
            findings.advice(
                "link",
                "the state of links can't be seen",
                "run this as root, with debugfs mounted",
            );
        }
        return;
    };
    for each in links.iter().filter(|each| each.link != "loopback") {
        link(facts, each, findings);
    }
}

fn link(facts: &Facts, link: &Link, findings: &mut Findings) {
    let name = &link.link;
    if let ("up", Some(node)) = (link.state.as_str(), link.node) {
        let mode = link.aperture.as_deref().unwrap_or("?");
        let bytes = link.aperture_bytes.map_or_else(|| "?".to_owned(), size);
        findings.good(
            "link",
            format!("{name}: node {node} is online; this node reaches its memory through an aperture of {bytes} ({mode})"),
        );
        if link.engines == Some(0) {
            without_engine(facts, link, node, findings);
        }
        return;
    }
    // If this side has a reason of its own, the user need not check the other side.
    let address = name.trim_start_matches("ntb:");
    if let Some((line, meaning)) = kernel_log::obstacle(facts, address) {
        findings.problem(
            "link",
            format!("{name}: no link, as the kernel's log says: \"{line}\""),
            meaning,
        );
        return;
    }
    match link.state.as_str() {
        "offering" => findings.problem(
            "link",
            format!("{name}: the link is up, and no peer answers"),
            "load scif on the other host; if it is loaded there, run scif doctor there",
        ),
        "changing" => findings.advice(
            "link",
            format!("{name}: a session is ending"),
            "run this again in a moment",
        ),
        _ => findings.problem(
            "link",
            format!("{name}: the link does not come up"),
            "load the driver of the bridge and scif on both hosts; look at the cable; in the BIOS one end must be \
             upstream (USD) and the other downstream (DSD), both back to back (B2B)",
        ),
    }
}

/// Finds a link without an engine, although the machine has engines.
fn without_engine(facts: &Facts, link: &Link, node: u16, findings: &mut Findings) {
    let wants_none = facts
        .parameters
        .get("dma_channels")
        .is_some_and(|value| value == "0");
    if facts.engines.is_empty() || wants_none {
        return;
    }
    let (name, address) = (&link.link, link.link.trim_start_matches("ntb:"));
    let text = format!("{name}: no engine reaches node {node}'s memory, so CPUs copy");
    let free: Vec<&str> = facts
        .engines
        .iter()
        .filter(|engine| engine.users == 0)
        .map(|engine| engine.name.as_str())
        .collect();
    if free.is_empty() {
        findings.advice(
            "link",
            text,
            "other drivers use all channels, or scif has channels that can't reach through the bridge: an engine behind \
             an IOMMU needs a driver that can map another device's memory. Load the driver of another engine",
        );
        return;
    }
    findings.advice(
        "link",
        text,
        Advice::by(
            format!(
                "nothing uses {}, which may have come after the session began. A new session asks for it, and ends the \
                 connections of this one; if that changes nothing, the engine can't copy memory for others",
                free.join(", ")
            ),
            [bind(address, "unbind", "ntb", "scif"), bind(address, "bind", "ntb", "scif")],
        ),
    );
}
