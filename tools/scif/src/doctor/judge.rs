// SPDX-License-Identifier: GPL-2.0

//! The meaning of facts in plain words: what works, in which mode, and what to change.
//!
//! Advice that the user can follow here and now has commands. Tests run the commands as they are
//! printed, and end in a working link. So a command is complete, and uses nothing but the facts.

mod bridges;
mod engines;
mod findings;
mod iommu;
mod kernel_log;
mod links;
mod memory;
mod networks;
mod users;

use super::Finding;
use super::facts::Facts;
use findings::Advice;
use findings::Findings;
use findings::device_file;

/// The first kernel that the module is for.
const FIRST_KERNEL: (u32, u32) = (7, 3);
/// The options that a kernel needs for the module.
const OPTIONS: [&str; 3] = ["CONFIG_RUST", "CONFIG_NTB", "CONFIG_DMA_ENGINE"];

/// Returns all findings about a machine, from the kernel upwards.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings = Findings::default();
    kernel(facts, &mut findings);
    module(facts, &mut findings);
    users::judge(facts, &mut findings);
    bridges::judge(facts, &mut findings);
    memory::judge(facts, &mut findings);
    engines::judge(facts, &mut findings);
    links::judge(facts, &mut findings);
    networks::judge(facts, &mut findings);
    kernel_log::judge(facts, &mut findings);
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
        (true, _) if facts.device.exists => findings.good("module", "scif is loaded"),
        (true, _) => findings.problem(
            "module",
            "scif is loaded, but there is no /dev/scif",
            device_file(
                facts,
                "a container has to be given it (--device /dev/scif); elsewhere, make it",
            ),
        ),
        (false, Some(false)) => findings.problem(
            "module",
            format!("scif is not installed for Linux {}", facts.kernel),
            "install the package scif-dkms, or build it: make modules modules_install KDIR=...",
        ),
        (false, _) => findings.problem(
            "module",
            "scif is not loaded",
            Advice::by("load it", ["modprobe scif".to_owned()]),
        ),
    }
}

#[cfg(test)]
mod tests;
