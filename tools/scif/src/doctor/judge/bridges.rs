// SPDX-License-Identifier: GPL-2.0

//! The bridges: their drivers and clients, their connection, and the CPUs of their interrupts.

use super::findings::Advice;
use super::findings::Findings;
use super::kernel_log;
use crate::doctor::facts::Bridge;
use crate::doctor::facts::Client;
use crate::doctor::facts::Facts;

pub(super) fn judge(facts: &Facts, findings: &mut Findings) {
    if facts.bridges.is_empty() {
        none(facts, findings);
    }
    for bridge in &facts.bridges {
        match &bridge.driver {
            None => without_driver(facts, bridge, findings),
            Some(driver) => with_driver(facts, bridge, driver, findings),
        }
        slow(bridge, findings);
        interrupts(facts, bridge, findings);
        companions(bridge, findings);
    }
}

fn none(facts: &Facts, findings: &mut Findings) {
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

fn name(bridge: &Bridge) -> String {
    format!("bridge {} ({})", bridge.address, bridge.id)
}

/// Returns the command by which a driver or a client of a bus takes a device, or releases it.
pub(super) fn bind(address: &str, verb: &str, bus: &str, driver: &str) -> String {
    format!("echo {address} > /sys/bus/{bus}/drivers/{driver}/{verb}")
}

fn without_driver(facts: &Facts, bridge: &Bridge, findings: &mut Findings) {
    let (name, address) = (name(bridge), bridge.address.as_str());
    let Some(module) = &bridge.module else { return };
    if !bridge.has_module {
        findings.problem(
            "bridge",
            format!("{name} has no driver"),
            Advice::by("load it", [format!("modprobe {module}")]),
        );
        return;
    }
    let said = kernel_log::said_by_driver(facts, address);
    let said = said.map_or_else(String::new, |line| {
        format!("; the kernel's log says \"{line}\"")
    });
    if !bridge.unassigned.is_empty() {
        let list: Vec<String> = bridge.unassigned.iter().map(usize::to_string).collect();
        findings.problem(
            "bridge",
            format!("{name}: {module} is loaded, but can't drive it: BAR {} has no address{said}", list.join(", ")),
            Advice::by(
                "make room: switch on \"above 4G decoding\" in the BIOS, make \"MMIO high size\" larger or the BARs \
                 of the bridge smaller, or boot with pci=realloc. If there is room already, run",
                [
                    format!("echo 1 > /sys/bus/pci/devices/{address}/remove"),
                    "echo 1 > /sys/bus/pci/rescan".to_owned(),
                ],
            ),
        );
        return;
    }
    findings.problem(
        "bridge",
        format!("{name}: {module} is loaded, but does not drive it{said}"),
        Advice::by(
            "let the driver try again; if it refuses, mostly the BIOS has set the port up as half of another topology",
            [bind(address, "bind", "pci", module)],
        ),
    );
}

fn with_driver(facts: &Facts, bridge: &Bridge, driver: &str, findings: &mut Findings) {
    let (name, address) = (name(bridge), bridge.address.as_str());
    match &bridge.client {
        None if driver == "switchtec" => findings.problem(
            "bridge",
            format!("{name}: the switch has a driver, its bridge has none"),
            Advice::by("load it", ["modprobe ntb_hw_switchtec".to_owned()]),
        ),
        None => findings.problem(
            "bridge",
            format!("{name}: {driver} drives it, but has not made an NTB device of it"),
            Advice::by(
                "let the driver try again; if it refuses, mostly the BIOS has set the port up as half of another topology",
                [bind(address, "unbind", "pci", driver), bind(address, "bind", "pci", driver)],
            ),
        ),
        Some(Client::Named(client)) if client == "scif" => {
            findings.good("bridge", format!("{name} is used by scif"));
        }
        Some(Client::Named(client)) => findings.problem(
            "bridge",
            format!("{name} is used by {client}, and a bridge has one user"),
            Advice::by(
                format!(
                    "take it from {client}, whose connections end, and give it to scif; and keep {client} from being \
                     loaded at the next boot"
                ),
                [bind(address, "unbind", "ntb", client), bind(address, "bind", "ntb", "scif")],
            ),
        ),
        Some(Client::Nobody) if !facts.is_loaded => {
            findings.good("bridge", format!("{name} is free for scif"));
        }
        Some(Client::Nobody) => match kernel_log::refusal(facts, address) {
            Some((line, meaning)) => {
                findings.problem("bridge", format!("{name}: scif refuses it: \"{line}\""), meaning);
            }
            None => findings.problem(
                "bridge",
                format!("{name}: scif has not taken it, as happens when another client had it"),
                Advice::by(
                    "give it to scif; if that fails, run doctor again as root, which quotes the reason of scif",
                    [bind(address, "bind", "ntb", "scif")],
                ),
            ),
        },
    }
}

/// Finds a bridge with a slower connection than it can have. Without a connection there are no
/// lanes, and some bridges do not tell.
fn slow(bridge: &Bridge, findings: &mut Findings) {
    let Some(speed) = &bridge.speed else { return };
    let is_unknown = |rate: &str| !rate.starts_with(|c: char| c.is_ascii_digit());
    if is_unknown(&speed.rate) || is_unknown(&speed.best_rate) || speed.lanes == 0 {
        return;
    }
    if speed.rate == speed.best_rate && speed.lanes == speed.most_lanes {
        return;
    }
    findings.advice(
        "bridge",
        format!(
            "bridge {}: connected with {} on {} lanes, and can {} on {}",
            bridge.address, speed.rate, speed.lanes, speed.best_rate, speed.most_lanes
        ),
        "look at the cable and its seat, the other end's slot, and the BIOS's limit for the port",
    );
}

/// Finds interrupts on isolated CPUs: they disturb the program of the CPU, and wait for it.
fn interrupts(facts: &Facts, bridge: &Bridge, findings: &mut Findings) {
    let list = |numbers: &[u32], between: &str| {
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        numbers.join(between)
    };
    let isolated = &facts.cpus.isolated;
    let strays = bridge.interrupts.iter().filter(|interrupt| {
        let mut cpus = interrupt.cpus.iter();
        cpus.any(|cpu| isolated.contains(cpu))
    });
    let strays: Vec<u32> = strays.map(|interrupt| interrupt.number).collect();
    let mut others = facts.cpus.online.clone();
    others.retain(|cpu| !isolated.contains(cpu));
    if strays.is_empty() || others.is_empty() {
        return;
    }
    let others = list(&others, ",");
    findings.advice(
        "bridge",
        format!(
            "bridge {}: {} of its interrupts go to isolated CPUs (of {})",
            bridge.address,
            strays.len(),
            list(isolated, ",")
        ),
        Advice::by(
            format!("send them to others; at each boot, irqaffinity={others} on the kernel's command line does"),
            [format!(
                "for irq in {}; do echo {others} > /proc/irq/$irq/smp_affinity_list; done",
                list(&strays, " ")
            )],
        ),
    );
}

/// Finds other devices in the bridge's IOMMU group: devices of one group have one view of memory.
fn companions(bridge: &Bridge, findings: &mut Findings) {
    if bridge.companions.is_empty() {
        return;
    }
    findings.advice(
        "bridge",
        format!(
            "bridge {}: its IOMMU group has other devices, too: {}. Memory mapped for one of them is within reach of all",
            bridge.address,
            bridge.companions.join(", ")
        ),
        "put the bridge into another slot, or switch ACS on in the BIOS",
    );
}
