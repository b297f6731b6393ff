// SPDX-License-Identifier: GPL-2.0
//! The kernel's own NTB clients, which tests load for a while and drive by debugfs.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Node;
use lab::Personality;

/// A module that is loaded in all nodes. Dropping the value unloads it.
pub struct Loaded<'a> {
    lab: &'a Lab,
    name: &'static str,
}

impl<'a> Loaded<'a> {
    /// Loads a module in all nodes.
    pub fn new(lab: &'a Lab, name: &'static str, parameters: &str) -> Result<Loaded<'a>> {
        let loaded = Loaded { lab, name };
        for node in 0..lab.nodes() {
            lab.load_with(node, name, parameters)?;
        }
        Ok(loaded)
    }

    /// Unloads the module, which must succeed.
    pub fn unload(self) -> Result<()> {
        for node in 0..self.lab.nodes() {
            self.lab.rmmod(node, self.name)?;
        }
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Loaded<'_> {
    fn drop(&mut self) {
        for node in 0..self.lab.nodes() {
            let _ = self.lab.rmmod(node, self.name);
        }
    }
}

/// A node's debugfs folder of ntb_tool for its NTB number `index`.
pub struct Tool<'a> {
    /// The node.
    pub node: Node<'a>,
    /// The path of the folder.
    pub folder: String,
    /// Whether the driver says that this end does not switch the link.
    refuses_link: bool,
}

impl<'a> Tool<'a> {
    /// Returns the folder of a node's NTB.
    pub fn new(lab: &'a Lab, node: usize, index: usize) -> Tool<'a> {
        Tool {
            node: lab.node(node),
            folder: format!("/sys/kernel/debug/ntb_tool/{}", ntb_device(index)),
            refuses_link: lab.config().personality == Personality::Amd && node > 0,
        }
    }

    /// Returns the content of a file.
    pub fn read(&self, file: &str) -> Result<String> {
        let text = self.node.read(&format!("{}/{file}", self.folder))?;
        Ok(text.trim_end().to_owned())
    }

    /// Writes a file.
    pub fn write(&self, file: &str, contents: &str) -> Result<()> {
        self.node
            .write(&format!("{}/{file}", self.folder), contents)
    }

    /// Requests the link up, `Y`, or down, `N`. AMD's driver switches events by this request, and
    /// reports on its secondary side that it does not switch the link.
    pub fn set_link(&self, state: &str) -> Result<()> {
        let written = self.write("link", state);
        if self.refuses_link {
            ensure!(written.is_err(), "the driver takes it");
            return Ok(());
        }
        written
    }

    /// Runs a script in the folder, which must succeed. Returns its output.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.node.shell(&format!("cd {}; {script}", self.folder))
    }

    /// Returns the number that a file contains.
    pub fn number(&self, file: &str) -> Result<u64> {
        let text = self.read(file)?;
        match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        }
        .with_context(|| format!("{file} contains '{text}'"))
    }

    /// Returns the value of a line such as "Window Size     0x1000".
    pub fn field(&self, file: &str, name: &str) -> Result<u64> {
        let text = self.read(file)?;
        text.lines()
            .find_map(|line| {
                let digits = line.strip_prefix(name)?.trim().strip_prefix("0x")?;
                u64::from_str_radix(digits, 16).ok()
            })
            .with_context(|| format!("{file} has no '{name}':\n{text}"))
    }
}

/// Returns the name of a node's NTB number `index`.
pub fn ntb_device(index: usize) -> String {
    format!("0000:00:{:02x}.0", lab::ntb_slot(index))
}

/// Returns how often each vector of a node's bridge has interrupted, by the name of its handler.
pub fn interrupts(lab: &Lab, node: usize, handler: &str) -> Result<Vec<u64>> {
    let text = lab.node(node).read("/proc/interrupts")?;
    let of_line = |line: &str| {
        line.split_whitespace()
            .skip(1)
            .map_while(|word| word.parse::<u64>().ok())
            .sum()
    };
    let found: Vec<u64> = text
        .lines()
        .filter(|line| line.contains(handler))
        .map(of_line)
        .collect();
    ensure!(!found.is_empty(), "the driver has no interrupt '{handler}'");
    Ok(found)
}

/// Brings the links of all NTBs up and waits for them.
pub fn enable_links(tools: &[&Tool<'_>]) -> Result<()> {
    for tool in tools {
        tool.set_link("Y")?;
    }
    for tool in tools {
        // The write blocks until the link is up.
        tool.write("peer0/link_event", "Y")?;
    }
    Ok(())
}

/// Checks that both ends know their `ports`, and that the link follows both clients' requests and
/// the cable. The link is up afterwards.
pub fn check_link(lab: &Lab, [a, b]: [&Tool<'_>; 2], ports: [u64; 2]) -> Result<()> {
    ensure!(a.number("port")? == ports[0] && a.number("peer0/port")? == ports[1]);
    ensure!(b.number("port")? == ports[1] && b.number("peer0/port")? == ports[0]);
    enable_links(&[a, b])?;
    let is_up = || -> Result<bool> { Ok(lab.emulator_state()?.links[0].up) };
    ensure!(is_up()?);
    b.write("link", "N")?;
    a.write("peer0/link_event", "N")?;
    ensure!(!is_up()?);
    b.write("link", "Y")?;
    a.write("peer0/link_event", "Y")?;
    lab.set_link(0, 1, false)?;
    a.write("peer0/link_event", "N")?;
    b.write("peer0/link_event", "N")?;
    lab.set_link(0, 1, true)?;
    a.write("peer0/link_event", "Y")?;
    b.write("peer0/link_event", "Y")
}
