// SPDX-License-Identifier: GPL-2.0
//! The machine of a measurement, and the versions of the software.

use std::fs;
use std::path::Path;
use std::process::Command;

use lab::Lab;
use serde::Serialize;

/// The machine and the versions.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub memory_mib: u64,
    pub virtualised_by: String,
    pub guest_kernel: String,
    pub qemu: String,
    /// The begin of the SHA-256 of scif.ko.
    pub module: String,
    /// The factor by which operations are slower than on the reference machine, before and after.
    pub slowness: [f64; 2],
    /// The load of the machine, before and after: other work beside it.
    pub load: [f64; 2],
}

/// Returns the present load of this machine.
pub fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.unwrap_or(0.0)
}

/// Returns how slow the lab is now; 0 if that can't be measured.
pub fn slowness(lab: &Lab) -> f64 {
    lab.measure_speed(0).map_or(0.0, |speed| speed.factor)
}

impl Machine {
    /// Collects the facts. The caller measures slowness and load before and after.
    pub fn of(lab: &Lab, module: &Path, slowness: [f64; 2], load: [f64; 2]) -> Machine {
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
        let qemu = qemu.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let said = |script: &str| lab.shell(0, script).unwrap_or_default().trim().to_owned();
        Machine {
            processor: field(&processors, "model name"),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: field(&memory, "MemTotal")
                .split(' ')
                .next()
                .and_then(|word| word.parse::<u64>().ok())
                .map_or(0, |kilobytes| kilobytes / 1024),
            virtualised_by: "QEMU, TCG (no KVM)".to_owned(),
            guest_kernel: said("uname -r"),
            qemu: qemu
                .unwrap_or_default()
                .lines()
                .next()
                .unwrap_or("")
                .to_owned(),
            module: said(&format!("sha256sum {} | cut -c 1-16", module.display())),
            slowness,
            load,
        }
    }
}

/// Returns the value of the first line "NAME : VALUE".
fn field(text: &str, name: &str) -> String {
    text.lines()
        .find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found.trim() == name).then(|| value.trim().to_owned())
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_returns_the_first_value_of_its_name() {
        let text = "processor\t: 0\nmodel name\t: A: fast one\nmodel name\t: B\n";
        assert_eq!(field(text, "model name"), "A: fast one");
        assert_eq!(field(text, "none"), "");
    }
}
