// SPDX-License-Identifier: GPL-2.0

//! What facts mean, in plain words: what works, in which mode, and what to change for better.

use super::Finding;
use super::Grade;
use super::look::Bridge;
use super::look::Client;
use super::look::Facts;
use crate::format::size;
use crate::watch::Link;

/// An arena that is smaller is of no use: control blocks of two sessions take most of it.
const SMALLEST_ARENA: u64 = 512 << 10;
/// An arena that is smaller is soon full.
const SMALL_ARENA: u64 = 64 << 20;
/// The first kernel that the module is for.
const FIRST_KERNEL: (u32, u32) = (7, 3);
/// What a kernel needs to have the module.
const OPTIONS: [&str; 3] = ["CONFIG_RUST", "CONFIG_NTB", "CONFIG_DMA_ENGINE"];

/// Collects findings.
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, about: &'static str, grade: Grade, text: String, advice: Option<String>) {
        self.0.push(Finding {
            about,
            grade,
            text,
            advice,
        });
    }

    fn good(&mut self, about: &'static str, text: impl Into<String>) {
        self.add(about, Grade::Good, text.into(), None);
    }

    fn advice(&mut self, about: &'static str, text: impl Into<String>, advice: impl Into<String>) {
        self.add(about, Grade::Advice, text.into(), Some(advice.into()));
    }

    fn problem(&mut self, about: &'static str, text: impl Into<String>, advice: impl Into<String>) {
        self.add(about, Grade::Problem, text.into(), Some(advice.into()));
    }
}

/// All that is to be said of a machine, from the ground up.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    kernel(facts, &mut findings);
    module(facts, &mut findings);
    bridges(facts, &mut findings);
    engines(facts, &mut findings);
    links(facts, &mut findings);
    log(facts, &mut findings);
    findings.0
}

fn kernel(facts: &Facts, findings: &mut Findings) {
    let version = version(&facts.kernel);
    if version.is_some_and(|version| version < FIRST_KERNEL) {
        findings.problem(
            "kernel",
            format!("Linux {} is too old", facts.kernel),
            "the module is for Linux 7.3 and newer",
        );
    }
    let Some(options) = facts.options.as_ref().filter(|_| !facts.is_loaded) else {
        return;
    };
    for option in OPTIONS {
        if !options.contains_key(option) {
            findings.problem(
                "kernel",
                format!("this kernel was built without {option}"),
                "take one that has it, as Debian's and Fedora's have, or build one",
            );
        }
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn module(facts: &Facts, findings: &mut Findings) {
    match (facts.is_loaded, facts.is_installed) {
        (true, _) if facts.has_device_file => findings.good("module", "scif is loaded"),
        (true, _) => findings.problem(
            "module",
            "scif is loaded, but there is no /dev/scif",
            "the kernel log says why; in a container, /dev/scif has to be let in",
        ),
        (false, Some(false)) => findings.problem(
            "module",
            format!("scif is not installed for Linux {}", facts.kernel),
            "install the package scif-dkms, or build it: make modules modules_install KDIR=...",
        ),
        (false, _) => findings.problem("module", "scif is not loaded", "modprobe scif"),
    }
}

fn bridges(facts: &Facts, findings: &mut Findings) {
    if facts.bridges.is_empty() {
        match facts.knows_drivers {
            true => findings.problem(
                "bridge",
                "no PCI device of this machine is a non-transparent bridge that this kernel has a driver for",
                "switch the port to NTB in the BIOS of both machines (one \"upstream\", one \"downstream\"), or \
                 configure the switch; lspci -nn shows what there is. Without one, this node has only itself",
            ),
            false => findings.problem(
                "bridge",
                "this kernel has no drivers for bridges (ntb_hw_...)",
                "install all modules of the kernel; Debian's has none, see \"make ntb-modules\"",
            ),
        }
    }
    for bridge in &facts.bridges {
        bound(facts, bridge, findings);
        slow(bridge, findings);
        aperture(facts, bridge, findings);
    }
}

/// Who drives it, and who uses it.
fn bound(facts: &Facts, bridge: &Bridge, findings: &mut Findings) {
    let name = format!("bridge {} ({})", bridge.address, bridge.id);
    match (&bridge.driver, &bridge.client) {
        (None, _) => {
            let module = bridge.module.as_deref().unwrap_or("its driver");
            findings.problem("bridge", format!("{name} has no driver"), format!("modprobe {module}"));
        }
        (Some(driver), None) => findings.problem(
            "bridge",
            format!("{name}: {driver} has it, but has not made an NTB device of it"),
            "the kernel log says why; mostly the BIOS has set the port up as half of another topology",
        ),
        (Some(_), Some(Client::Named(client))) if client == "scif" => {
            findings.good("bridge", format!("{name} is used by scif"));
        }
        (Some(_), Some(Client::Named(client))) => findings.problem(
            "bridge",
            format!("{name} is used by {client}, and a bridge has one user"),
            format!("unload that first: rmmod {client} (and what is above it: ntb_netdev for ntb_transport)"),
        ),
        (Some(_), Some(Client::Nobody)) if facts.is_loaded => findings.problem(
            "bridge",
            format!("{name}: scif does not take it"),
            "the kernel log says why: it wants 2 scratchpads or message registers, and 3 doorbells each way",
        ),
        (Some(_), Some(Client::Nobody)) => {
            findings.good("bridge", format!("{name} is there for scif"));
        }
    }
}

/// Connected with less than it can.
fn slow(bridge: &Bridge, findings: &mut Findings) {
    let Some(speed) = &bridge.speed else { return };
    if speed.rate == speed.best_rate && speed.lanes == speed.most_lanes {
        return;
    }
    // What is not connected at all says 0 lanes.
    findings.advice(
        "bridge",
        format!(
            "bridge {}: connected with {} on {} lanes, and can {} on {}",
            bridge.address, speed.rate, speed.lanes, speed.best_rate, speed.most_lanes
        ),
        "look at the cable and its seat, the other end's slot, and the BIOS's limit for the port",
    );
}

/// In which mode the other host reaches this one's memory.
fn aperture(facts: &Facts, bridge: &Bridge, findings: &mut Findings) {
    let name = format!("bridge {}", bridge.address);
    let room = room(facts, bridge);
    let wanted = facts
        .parameters
        .get("aperture")
        .map_or("auto", String::as_str);
    let is_translated = bridge
        .iommu
        .as_deref()
        .is_some_and(|kind| kind.starts_with("DMA"));
    let allows_flat = facts
        .parameters
        .get("allow_flat")
        .is_some_and(|value| value != "0");
    let covers_all = facts.end_of_memory.is_none_or(|end| room >= end);
    match (wanted, is_translated) {
        ("auto" | "bounce", false) if leads_itself(bridge) => unguarded(facts, &name, allows_flat, findings),
        ("flat", _) if !allows_flat => findings.problem(
            "memory",
            format!("{name}: aperture=flat lets the other host read and write all memory of this machine"),
            "leave aperture=flat out, or say allow_flat=1 if the other host is trusted",
        ),
        ("flat", _) => flat(facts, &name, room, findings),
        ("arena", false) => findings.problem(
            "memory",
            format!("{name}: aperture=arena needs an IOMMU that translates for it"),
            switch_iommu_on(facts),
        ),
        ("auto" | "arena", true) => arena(&name, room, findings),
        ("auto", false) if allows_flat && covers_all => flat(facts, &name, room, findings),
        _ => bounce(facts, &name, (room, allows_flat), findings),
    }
}

/// Bytes of the largest aperture that its memory windows, which the module uses together, can be.
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
    // Each leads to as much as the smallest of them can, a power of two.
    let rooms = together.map(|(count, size)| match count {
        1 => *size,
        _ => count << size.ilog2(),
    });
    rooms.max().unwrap_or(0)
}

/// Whether the other host says where its windows into this one lead, as on IDT's switches.
fn leads_itself(bridge: &Bridge) -> bool {
    let driver = bridge.driver.as_deref().or(bridge.module.as_deref());
    driver == Some("ntb_hw_idt")
}

fn unguarded(facts: &Facts, name: &str, allows_flat: bool, findings: &mut Findings) {
    let text = format!(
        "{name}: the other host says itself where its windows lead, so without an IOMMU it reaches all memory of this machine"
    );
    let advice = switch_iommu_on(facts);
    if allows_flat {
        findings.advice("memory", text, format!("if it is not to: {advice}"));
    } else {
        findings.problem(
            "memory",
            text,
            format!("{advice}; or, if the other host is trusted, say allow_flat=1"),
        );
    }
}

fn bounce(facts: &Facts, name: &str, (room, allows_flat): (u64, bool), findings: &mut Findings) {
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
            "{name}: the other host reaches staging slots and nothing else (bounce): each copy is made twice, and windows can't be mapped"
        ),
        format!("for more: {}; or, {trusting}", switch_iommu_on(facts)),
    );
}

fn arena(name: &str, room: u64, findings: &mut Findings) {
    let text = format!(
        "{name}: an IOMMU translates for it, so the other host reaches what is registered and nothing else (arena)"
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

fn flat(facts: &Facts, name: &str, room: u64, findings: &mut Findings) {
    match facts.end_of_memory {
        Some(end) if room < end => findings.problem(
            "memory",
            format!(
                "{name}: without an IOMMU its memory windows have to cover the {} of this machine's memory, and have {}",
                size(end),
                size(room)
            ),
            format!("{}; or make the BAR larger in the BIOS (\"NTB BAR size\")", switch_iommu_on(facts)),
        ),
        Some(_) => findings.advice(
            "memory",
            format!("{name}: the other host can reach all memory of this machine (flat)"),
            format!("if it is not to: {}", switch_iommu_on(facts)),
        ),
        None => findings.advice(
            "memory",
            format!(
                "{name}: the other host could reach all memory of this machine (flat), if the {} of its memory windows cover it",
                size(room)
            ),
            format!("run this as root, which may see how much that is; for less: {}", switch_iommu_on(facts)),
        ),
    }
}

/// How an IOMMU comes to translate.
fn switch_iommu_on(facts: &Facts) -> String {
    let words = || facts.command_line.split_whitespace();
    let passes = |word: &&str| ["iommu=pt", "iommu.passthrough=1", "iommu=off"].contains(word);
    let off = |word: &&str| ["intel_iommu=off", "amd_iommu=off"].contains(word);
    match words().find(passes).or(words().find(off)) {
        Some(word) => format!("boot without {word}"),
        None => {
            "switch the IOMMU on (VT-d or AMD-Vi in the BIOS; boot with intel_iommu=on)".to_owned()
        }
    }
}

fn engines(facts: &Facts, findings: &mut Findings) {
    if facts.engines.is_empty() {
        findings.advice(
            "engine",
            "no DMA engine: processors copy, and read across the bridge at some 15 MB/s, however fast the link is",
            "load the driver of one: ioatdma (Intel), ptdma (AMD), plx_dma or switchtec_dma (in a switch)",
        );
        return;
    }
    let count = facts.engines.len();
    let driver = facts
        .engines
        .iter()
        .find_map(|engine| engine.driver.as_deref());
    let driver = driver.unwrap_or("unknown");
    if facts
        .parameters
        .get("dma_channels")
        .is_some_and(|value| value == "0")
    {
        findings.advice(
            "engine",
            format!("{count} DMA channels ({driver}), of which scif takes none"),
            "load scif without dma_channels=0",
        );
    } else {
        findings.good("engine", format!("{count} DMA channels ({driver})"));
    }
}

fn links(facts: &Facts, findings: &mut Findings) {
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
    match (link.state.as_str(), link.node) {
        ("up", Some(node)) => {
            let mode = link.aperture.as_deref().unwrap_or("?");
            let bytes = link.aperture_bytes.map_or_else(|| "?".to_owned(), size);
            findings.good(
                "link",
                format!("{name}: node {node} is online; its memory is reached through an aperture of {bytes} ({mode})"),
            );
            if link.engines == Some(0) && !facts.engines.is_empty() {
                findings.advice(
                    "link",
                    format!("{name}: no engine reaches node {node}'s memory, so processors copy"),
                    "see /sys/class/dma/*/in_use for who has the channels; an engine behind an IOMMU needs a driver \
                     that can map another device's memory",
                );
            }
        }
        ("offering", _) => findings.problem(
            "link",
            format!("{name}: the link is up, and nobody answers"),
            "load scif on the other host; if it is loaded there, run scif doctor there",
        ),
        ("changing", _) => findings.advice(
            "link",
            format!("{name}: a session is ending"),
            "look again in a moment",
        ),
        _ => findings.problem(
            "link",
            format!("{name}: the link does not come up"),
            "load the driver of the bridge and scif on both hosts; look at the cable; in the BIOS one end has to be \
             upstream (USD) and the other downstream (DSD), both back to back (B2B)",
        ),
    }
}

/// What the log says, and what it means: the last word of each kind since the module was loaded.
const MESSAGES: [(&str, &str); 11] = [
    (
        "the device does not take the aperture",
        "the driver of the bridge refuses the translation: mostly alignment, as some bridges want an address that is a \
         multiple of the BAR's size; another BAR size, or an IOMMU (arena), helps",
    ),
    ("says itself where the windows", "see \"memory\" above"),
    ("no memory windows cover", "a larger BAR, or an IOMMU"),
    ("aperture=arena needs", "see \"memory\" above"),
    ("aperture=flat lets", "see \"memory\" above"),
    ("aperture=bounce takes", "see \"memory\" above"),
    (
        "speaks version",
        "load the same version of scif on both hosts",
    ),
    (
        "no session with node",
        "see the user guide, \"What the kernel log says\"",
    ),
    (
        "is full: no",
        "less registered memory at a time, or a larger BAR",
    ),
    (
        "it takes a device with",
        "this bridge has too few scratchpads or doorbells for scif",
    ),
    (
        "is not aligned",
        "another client of the bridge was refused a window; scif is not concerned",
    ),
];

fn log(facts: &Facts, findings: &mut Findings) {
    let Some(lines) = &facts.log else { return };
    // Of the life before nothing counts.
    let start = lines.iter().rposition(|line| line.contains("this is node"));
    let lines = lines.get(start.unwrap_or(0)..).unwrap_or_default();
    for (words, meaning) in MESSAGES {
        // What was before a peer came online is over.
        let last = lines.iter().rposition(|line| line.contains(words));
        let online = lines
            .iter()
            .rposition(|line| line.contains("is online through"));
        if let Some(line) = last.filter(|last| online.is_none_or(|online| online < *last)) {
            findings.advice("log", lines[line].clone(), meaning);
        }
    }
}

#[cfg(test)]
mod tests;
