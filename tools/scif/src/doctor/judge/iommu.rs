// SPDX-License-Identifier: GPL-2.0

//! The IOMMU: whether it translates for a bridge, and how to make it do so.

use super::bridges::bind;
use super::findings::Advice;
use crate::doctor::facts::Bridge;
use crate::doctor::facts::Facts;

/// Words of the command line with which an IOMMU lets all addresses through.
const PASSES: [&str; 4] = [
    "iommu=pt",
    "iommu.passthrough=1",
    "iommu.passthrough=on",
    "iommu.passthrough=y",
];
/// Words of the command line with which the IOMMU is off.
const OFF: [&str; 3] = ["iommu=off", "intel_iommu=off", "amd_iommu=off"];

/// Returns whether an IOMMU translates for the bridge.
pub(super) fn is_on(bridge: &Bridge) -> bool {
    let kind = bridge.iommu.as_deref();
    kind.is_some_and(|kind| kind.starts_with("DMA"))
}

/// Returns the word of the kernel's command line that is one of these.
fn word(facts: &Facts, words: &[&str]) -> Option<String> {
    let mut all = facts.command_line.split_whitespace();
    all.find(|word| words.contains(word)).map(str::to_owned)
}

/// Returns the advice that makes an IOMMU translate for the bridge.
pub(super) fn switch_on(facts: &Facts, bridge: &Bridge) -> Advice {
    if bridge.iommu.is_some() {
        return change_type(facts, bridge);
    }
    match word(facts, &OFF) {
        Some(word) => format!("boot without {word}").into(),
        None if facts.has_iommu => {
            "the IOMMU of this machine is on, but the firmware has not put the bridge behind it: \
            look for a newer BIOS, or another slot"
                .into()
        }
        None => "switch the IOMMU on (VT-d or AMD-Vi in the BIOS; boot with intel_iommu=on)".into(),
    }
}

/// Returns the advice for an IOMMU that is on, but passes on the addresses of this group of
/// devices.
fn change_type(facts: &Facts, bridge: &Bridge) -> Advice {
    let address = bridge.address.as_str();
    let kind = bridge.iommu.as_deref().unwrap_or("unknown");
    let forever = match word(facts, &PASSES) {
        Some(word) => format!("boot without {word}"),
        None => "boot with iommu.passthrough=0".to_owned(),
    };
    let mut text = format!(
        "let the IOMMU, which is on, translate for the bridge: the type of its group is {kind}. For good, {forever}; \
         until the next boot, which ends the connections of the link"
    );
    if !bridge.companions.is_empty() {
        let others = bridge.companions.join(", ");
        text.push_str(&format!(", with the drivers of {others} unbound as well"));
    }
    let driver = bridge.driver.as_deref();
    let with_driver = |verb: &str| driver.map(|driver| bind(address, verb, "pci", driver));
    let write = format!("echo DMA > /sys/bus/pci/devices/{address}/iommu_group/type");
    let commands = [with_driver("unbind"), Some(write), with_driver("bind")];
    Advice::by(text, commands.into_iter().flatten())
}
