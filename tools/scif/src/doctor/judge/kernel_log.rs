// SPDX-License-Identifier: GPL-2.0

//! The lines of the kernel's log, and their meaning.
//!
//! No finding refers to a line that does not exist: findings quote the log.

use super::findings::Findings;
use crate::doctor::facts::Facts;

/// The effect of a line of the module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The module does not take the bridge.
    Refusal,
    /// There is no session over the link.
    Obstacle,
    /// An operation works less well.
    Nuisance,
}

/// A line of the module, by words that it contains, and its meaning.
pub(super) struct Message {
    pub(super) words: &'static str,
    kind: Kind,
    pub(super) meaning: &'static str,
}

const fn message(kind: Kind, words: &'static str, meaning: &'static str) -> Message {
    Message {
        words,
        kind,
        meaning,
    }
}

const MEMORY: &str = "see \"memory\" above";

pub(super) const MESSAGES: &[Message] = &[
    message(
        Kind::Refusal,
        "the bridge is not used: scif needs",
        "this bridge has too few scratchpads or doorbells for scif",
    ),
    message(
        Kind::Refusal,
        "the first two ports of the switch have all doorbells",
        "connect the hosts by the first two ports of the switch",
    ),
    message(
        Kind::Refusal,
        "it reaches memory mapped for the other devices of the bridge's IOMMU group",
        "put the bridge into another slot, or switch ACS on in the BIOS; or, if the other host is trusted, load scif with \
         allow_flat=1",
    ),
    message(
        Kind::Refusal,
        "nothing keeps it from raising any interrupt of this machine",
        "switch interrupt remapping on (VT-d and x2APIC in the BIOS; boot without intremap=off); or, if the other host is \
         trusted, load scif with allow_flat=1",
    ),
    message(
        Kind::Refusal,
        "the other host sets where the windows of this bridge lead, and",
        MEMORY,
    ),
    message(
        Kind::Obstacle,
        "the driver of the bridge refuses the aperture",
        "the driver of the bridge refuses the translation: mostly alignment, as some bridges want an address that is a \
         multiple of the BAR's size; another BAR size, or an IOMMU (arena), helps",
    ),
    message(
        Kind::Obstacle,
        "can't offer a link: ENOMEM",
        "no memory in one piece: boot with cma=64M, and without swiotlb=force if that is there",
    ),
    message(
        Kind::Obstacle,
        "can't offer a link",
        "the driver of the bridge refuses to lead a window to memory, or to send the offer: another BAR size may help",
    ),
    message(
        Kind::Obstacle,
        "the IOMMU has no range of addresses that a memory window",
        "make the window larger (at least 64 KiB), or smaller if the IOMMU has few address bits",
    ),
    message(
        Kind::Obstacle,
        "no memory windows cover the",
        "a larger BAR, or an IOMMU",
    ),
    message(Kind::Obstacle, "aperture=arena needs", MEMORY),
    message(Kind::Obstacle, "aperture=flat lets", MEMORY),
    message(Kind::Obstacle, "aperture=bounce takes", MEMORY),
    message(
        Kind::Obstacle,
        "speaks version",
        "load the same version of scif on both hosts",
    ),
    message(
        Kind::Obstacle,
        "no session: the peer",
        "load the same version of scif on both hosts, whose kernels have pages of one size",
    ),
    message(
        Kind::Obstacle,
        "no session with node",
        "see the chapter \"Log messages\" of the user guide, which has each reason",
    ),
    message(
        Kind::Obstacle,
        "no room to keep more memory that the peer may still write to",
        "free memory, then unbind and bind the driver of the bridge",
    ),
    message(
        Kind::Nuisance,
        "its frame rings can't be made",
        "free memory, or make the BAR larger; then unload scif_net and load it again",
    ),
    message(
        Kind::Nuisance,
        "the aperture over this node's memory is full: no",
        "less registered memory at a time, or a larger BAR",
    ),
];

/// Returns the lines of the log about the present life of a bridge's link, and not about an earlier
/// one or another bridge.
fn lines<'a>(facts: &'a Facts, address: &str) -> Vec<&'a str> {
    let all = facts.log.as_deref().unwrap_or_default();
    // Lines before a peer came online are out of date.
    let begins = |line: &String| {
        line.contains(address)
            && (line.contains("this is node") || line.contains("is online through"))
    };
    let start = all.iter().rposition(begins).unwrap_or(0);
    let is_of_another = |line: &str| {
        let mut others = facts
            .bridges
            .iter()
            .filter(|other| other.address != address);
        others.any(|other| line.contains(&other.address))
    };
    let rest = all[start..].iter().map(String::as_str);
    rest.filter(|line| !is_of_another(line)).collect()
}

/// Returns the first message whose words are in this line.
fn meaning(line: &str) -> Option<&'static Message> {
    MESSAGES.iter().find(|message| line.contains(message.words))
}

/// Returns the last line of this kind about a bridge, and its meaning.
fn last<'a>(facts: &'a Facts, address: &str, kind: Kind) -> Option<(&'a str, &'static str)> {
    lines(facts, address).into_iter().rev().find_map(|line| {
        let message = meaning(line).filter(|message| message.kind == kind)?;
        Some((line, message.meaning))
    })
}

/// Returns why the module has not taken a bridge, if its last line about the bridge says so.
pub(super) fn refusal<'a>(facts: &'a Facts, address: &str) -> Option<(&'a str, &'static str)> {
    let all = facts.log.as_deref().unwrap_or_default();
    let mut own = all.iter().rev().filter(|line| line.contains("scif: "));
    let line = own.find(|line| line.contains(address))?;
    let message = meaning(line).filter(|message| message.kind == Kind::Refusal)?;
    Some((line, message.meaning))
}

/// Returns why there is no session over the link of a bridge.
pub(super) fn obstacle<'a>(facts: &'a Facts, address: &str) -> Option<(&'a str, &'static str)> {
    last(facts, address, Kind::Obstacle)
}

/// Returns the last line of a bridge's driver, unless that line says that all is well.
pub(super) fn said_by_driver<'a>(facts: &'a Facts, address: &str) -> Option<&'a str> {
    let mut lines = facts.log.as_deref().unwrap_or_default().iter().rev();
    let line = lines.find(|line| line.contains(address) && !line.contains("scif: "))?;
    (!line.contains("registered")).then_some(line)
}

/// Adds findings for lines that the links have not reported already.
pub(super) fn judge(facts: &Facts, findings: &mut Findings) {
    let mut said: Vec<&str> = Vec::new();
    for bridge in &facts.bridges {
        for message in MESSAGES
            .iter()
            .filter(|message| message.kind != Kind::Refusal)
        {
            let mut lines = lines(facts, &bridge.address).into_iter().rev();
            let is_this =
                |line: &&str| meaning(line).is_some_and(|found| found.words == message.words);
            let Some(line) = lines.find(is_this) else {
                continue;
            };
            let quoted = format!("\"{line}\"");
            let is_known = findings
                .0
                .iter()
                .any(|finding| finding.text.contains(&quoted));
            if !is_known && !said.contains(&line) {
                said.push(line);
                findings.advice("log", line, message.meaning);
            }
        }
    }
}
