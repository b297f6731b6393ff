// SPDX-License-Identifier: GPL-2.0

//! The part of this machine's memory that the other host reaches, and how fast.

use super::findings::Advice;
use super::findings::Findings;
use super::iommu;
use crate::doctor::facts::Bridge;
use crate::doctor::facts::Facts;
use crate::format::size;

/// The smallest arena that is of use: control blocks of two sessions take most of a smaller one.
const SMALLEST_ARENA: u64 = 512 << 10;
/// The size below which an arena is soon full.
const SMALL_ARENA: u64 = 64 << 20;

/// Returns the same commands with other words.
fn with_text(advice: Advice, words: impl FnOnce(String) -> String) -> Advice {
    Advice::by(words(advice.text), advice.commands)
}

/// Returns the commands that load the module with a parameter.
fn reload(parameter: &str) -> [String; 2] {
    [
        "modprobe -r scif".to_owned(),
        format!("modprobe scif {parameter}"),
    ]
}

/// Returns whether the kernel copies all memory of devices through one small piece, to which a
/// bridge can't lead.
fn has_no_memory(facts: &Facts) -> bool {
    let mut words = facts.command_line.split_whitespace();
    words.any(|word| {
        let values = word.strip_prefix("swiotlb=").unwrap_or_default();
        values.split(',').any(|value| value == "force")
    })
}

pub(super) fn judge(facts: &Facts, findings: &mut Findings) {
    for bridge in &facts.bridges {
        aperture(facts, bridge, findings);
    }
}

/// Finds the mode in which the other host reaches this host's memory.
fn aperture(facts: &Facts, bridge: &Bridge, findings: &mut Findings) {
    let name = format!("bridge {}", bridge.address);
    let room = room(facts, bridge);
    let wanted = facts
        .parameters
        .get("aperture")
        .map_or("auto", String::as_str);
    let is_translated = iommu::is_on(bridge);
    let allows_flat = facts
        .parameters
        .get("allow_flat")
        .is_some_and(|value| value != "0");
    let covers_all = facts.end_of_memory.is_none_or(|end| room >= end);
    if !is_translated && has_no_memory(facts) {
        findings.problem(
            "memory",
            format!("{name}: with swiotlb=force and no IOMMU, the kernel has no memory that the bridge may lead to"),
            "boot without swiotlb=force",
        );
        return;
    }
    if is_translated && leads_itself(bridge) && !bridge.companions.is_empty() && !allows_flat {
        findings.problem(
            "memory",
            format!(
                "{name}: the other host sets where its windows lead, so it reaches memory mapped for {}, too, with \
                 which the bridge shares an IOMMU group",
                bridge.companions.join(", ")
            ),
            "put the bridge into another slot, or switch ACS on in the BIOS; or, if the other host is trusted, say \
             allow_flat=1",
        );
        return;
    }
    match (wanted, is_translated) {
        ("auto" | "bounce", false) if leads_itself(bridge) => unguarded(facts, bridge, allows_flat, findings),
        ("flat", _) if !allows_flat => findings.problem(
            "memory",
            format!("{name}: aperture=flat lets the other host read and write all memory of this machine"),
            Advice::by(
                "say allow_flat=1 if the other host is trusted, or leave aperture=flat out (see /etc/modprobe.d)",
                reload("aperture=auto"),
            ),
        ),
        ("flat", _) => flat(facts, bridge, room, findings),
        ("arena", false) => findings.problem(
            "memory",
            format!("{name}: aperture=arena needs an IOMMU that translates for it"),
            iommu::switch_on(facts, bridge),
        ),
        ("auto" | "arena", true) => arena(&name, room, findings),
        ("auto", false) if allows_flat && covers_all => flat(facts, bridge, room, findings),
        _ => bounce(facts, bridge, (room, allows_flat), findings),
    }
}

/// Returns the size of the largest possible aperture of the memory windows, which the module uses
/// together.
fn room(facts: &Facts, bridge: &Bridge) -> u64 {
    let limit = facts.parameters.get("memory_windows");
    let limit = limit
        .and_then(|limit| limit.parse().ok())
        .filter(|limit| *limit != 0);
    let mut sizes: Vec<u64> = bridge
        .bars
        .values()
        .copied()
        .filter(|size| *size != 0)
        .collect();
    sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
    let together = (1u64..).zip(&sizes).take(limit.unwrap_or(usize::MAX));
    // Each window leads to as much as the smallest of them can, a power of two.
    let rooms = together.map(|(count, size)| match count {
        1 => *size,
        _ => count << size.ilog2(),
    });
    rooms.max().unwrap_or(0)
}

/// Returns whether the other host sets where its windows into this host lead, as on IDT's switches.
fn leads_itself(bridge: &Bridge) -> bool {
    let driver = bridge.driver.as_deref().or(bridge.module.as_deref());
    driver == Some("ntb_hw_idt")
}

fn unguarded(facts: &Facts, bridge: &Bridge, allows_flat: bool, findings: &mut Findings) {
    let text = format!(
        "bridge {}: the other host sets where its windows lead, so without an IOMMU it reaches all memory of this machine",
        bridge.address
    );
    let guard = iommu::switch_on(facts, bridge);
    if allows_flat {
        findings.advice(
            "memory",
            text,
            with_text(guard, |guard| format!("if it is not to: {guard}")),
        );
    } else if guard.commands.is_empty() {
        findings.problem(
            "memory",
            text,
            Advice::by(
                format!(
                    "{}; or, if the other host is trusted, say allow_flat=1",
                    guard.text
                ),
                reload("allow_flat=1"),
            ),
        );
    } else {
        let both = |guard| format!("say allow_flat=1 if the other host is trusted; or {guard}");
        findings.problem("memory", text, with_text(guard, both));
    }
}

fn bounce(
    facts: &Facts,
    bridge: &Bridge,
    (room, allows_flat): (u64, bool),
    findings: &mut Findings,
) {
    let name = format!("bridge {}", bridge.address);
    if room < SMALLEST_ARENA {
        findings.problem(
            "memory",
            format!("{name}: its memory windows have {}", size(room)),
            "make the BAR larger in the BIOS (\"NTB BAR size\"), or in the switch's configuration",
        );
        return;
    }
    let larger_bar = facts.end_of_memory.map(|end| {
        format!(
            "give it a BAR that covers the {} of this machine's memory",
            size(end)
        )
    });
    let trusting = match (allows_flat, larger_bar) {
        (true, Some(larger_bar)) => larger_bar,
        (false, Some(larger_bar)) if facts.end_of_memory.is_some_and(|end| room < end) => {
            format!("if the other host is trusted, {larger_bar} and say allow_flat=1")
        }
        _ => "if the other host is trusted, say allow_flat=1".to_owned(),
    };
    findings.advice(
        "memory",
        format!(
            "{name}: the other host reaches staging slots and nothing else (bounce): all data is copied twice, and windows can't be mapped"
        ),
        with_text(iommu::switch_on(facts, bridge), |guard| format!("for more, {trusting}; or {guard}")),
    );
}

fn arena(name: &str, room: u64, findings: &mut Findings) {
    let text = format!(
        "{name}: an IOMMU translates for it, so the other host reaches only registered memory (arena)"
    );
    if room < SMALLEST_ARENA {
        findings.problem(
            "memory",
            format!("{name}: its memory windows have {}", size(room)),
            "make the BAR larger in the BIOS (\"NTB BAR size\"), or in the switch's configuration",
        );
    } else if room < SMALL_ARENA {
        findings.advice(
            "memory",
            format!(
                "{text}; all of that, and the rings of connections, have to fit into {}",
                size(room)
            ),
            "make the BAR larger in the BIOS (\"NTB BAR size\"), or in the switch's configuration",
        );
    } else {
        findings.good("memory", format!("{text}, {} at a time", size(room)));
    }
}

fn flat(facts: &Facts, bridge: &Bridge, room: u64, findings: &mut Findings) {
    let name = format!("bridge {}", bridge.address);
    let guard = iommu::switch_on(facts, bridge);
    match facts.end_of_memory {
        Some(end) if room < end => findings.problem(
            "memory",
            format!(
                "{name}: without an IOMMU its memory windows have to cover the {} of this machine's memory, and have {}",
                size(end),
                size(room)
            ),
            with_text(guard, |guard| format!("make the BAR larger in the BIOS (\"NTB BAR size\"), or {guard}")),
        ),
        Some(_) => findings.advice(
            "memory",
            format!("{name}: the other host can reach all memory of this machine (flat)"),
            with_text(guard, |guard| format!("if it is not to: {guard}")),
        ),
        None => findings.advice(
            "memory",
            format!(
                "{name}: the other host could reach all memory of this machine (flat), if the {} of its memory windows cover it",
                size(room)
            ),
            with_text(guard, |guard| format!("run this as root, which may see how much that is; for less: {guard}")),
        ),
    }
}
