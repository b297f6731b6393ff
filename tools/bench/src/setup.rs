// SPDX-License-Identifier: GPL-2.0
//! The lab of a benchmark: two nodes with a link for SCIF, and one more link for each reference
//! driver, so that all are loaded at once and can take turns.
//!
//! By default the bus of the bridges would give every bridge to the first driver that comes. So
//! that is switched off, and each driver is bound to its own bridge. Memory that is written from
//! outside is reserved. The windows lead to the memory that the kernel's drivers allocate for them.

use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Config;
use lab::Flavour;
use lab::Lab;
use lab::Process;
use lab::Windows;
use lab::ntb_slot;
use lab::paths;
use lab::wait_until;

/// The port of `scif serve`, on SCIF and on TCP.
const PORT: u16 = 2050;

/// The address of node 1.
pub const TCP_PEER: &str = "10.0.0.2";

/// The begin and the size of the memory of every node that no kernel uses.
pub const RESERVED: u64 = 640 << 20;
pub const RESERVED_SIZE: u64 = 64 << 20;

/// The address where the kernel's drivers find contiguous memory first, and the size of each of
/// their windows.
const CONTIGUOUS: u64 = 256 << 20;
const WINDOW: u64 = 2 << 20;

/// The bridges by their users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bridge {
    Scif,
    Transport,
    Perf,
    Doorbell,
}

impl Bridge {
    /// Returns the name of its PCI device.
    pub fn device(self) -> String {
        device(self as usize)
    }

    fn driver(self) -> &'static str {
        match self {
            Bridge::Scif => "scif",
            Bridge::Transport => "ntb_transport",
            Bridge::Perf => "ntb_perf",
            Bridge::Doorbell => "raw_doorbell",
        }
    }
}

/// Returns the name of the PCI device of a bridge, by the number of its link.
pub fn device(link: usize) -> String {
    format!("0000:00:{:02x}.0", ntb_slot(link))
}

/// Returns the configuration of a lab without references, for separate measurements.
pub fn small_config(name: &str, kernel: Flavour) -> Config {
    let name = format!("bench-{name}-{}", std::process::id());
    Config {
        memory: 512,
        ..Config::new(&name, 2, kernel)
    }
}

/// Returns the configuration of the lab.
pub fn config(name: &str, kernel: Flavour) -> Config {
    let window = |number: u64| Windows::Fixed {
        base: CONTIGUOUS + number * 2 * WINDOW,
        size: WINDOW,
    };
    Config {
        // This is enough for a window of 1 GiB.
        memory: 2048,
        // One engine is for SCIF, one for raw_dma, one for ntb_perf.
        dma_channels: 3,
        more_links: (0..3).map(window).collect(),
        append: vec![
            format!("cma=64M@{}M", CONTIGUOUS >> 20),
            format!("memmap={}M${}M", RESERVED_SIZE >> 20, RESERVED >> 20),
            // This lets a program map the aperture that the driver has mapped as well.
            "iomem=relaxed".to_owned(),
        ],
        ..Config::new(name, 2, kernel)
    }
}

/// Returns the path of the module under test, as guests see it.
pub fn module(lab: &Lab) -> Result<PathBuf> {
    lab.built_from("scif.ko", &["drivers", "include"])
}

/// Returns the path of the tool, as guests see it.
pub fn tool() -> Result<String> {
    Ok(paths::sibling("scif", None)?.display().to_string())
}

/// Returns the path of the program that measures references, as guests see it.
pub fn reference() -> Result<String> {
    let path = paths::repository().join("tests/programs/raw_reference");
    ensure!(path.exists(), "{} has not been built", path.display());
    Ok(path.display().to_string())
}

fn bind(lab: &Lab, node: usize, bridge: Bridge) -> Result<()> {
    bind_link(lab, node, bridge.driver(), bridge as usize)
}

/// Gives a driver the bridge of a link.
pub fn bind_link(lab: &Lab, node: usize, driver: &str, link: usize) -> Result<()> {
    let file = format!("/sys/bus/ntb/drivers/{driver}/bind");
    let device = device(link);
    lab.node(node)
        .write(&file, &device)
        .with_context(|| format!("{driver} does not take {device}"))
}

/// Returns the address of the aperture of SCIF's bridge in node 0.
fn aperture(lab: &Lab) -> Result<u64> {
    let file = format!("/sys/bus/pci/devices/{}/resource", Bridge::Scif.device());
    let text = lab.node(0).read(&file)?;
    let start = text
        .lines()
        .nth(4)
        .and_then(|line| line.split(' ').next()?.strip_prefix("0x"))
        .with_context(|| format!("no BAR 4 in {text}"))?;
    Ok(u64::from_str_radix(start, 16)?)
}

/// Sets up TCP/IP over ntb_transport and ntb_netdev.
fn network(lab: &Lab) -> Result<()> {
    // The cable is out until both drivers are loaded: a driver clears its scratchpads in a work
    // item, and values that the peer has written meanwhile are lost.
    lab.set_link(0, 1, false)?;
    for node in 0..2 {
        lab.load(node, "ntb_transport")?;
        bind(lab, node, Bridge::Transport)?;
    }
    lab.set_link(0, 1, true)?;
    for node in 0..2 {
        lab.load(node, "ntb_netdev")?;
    }
    for node in 0..2 {
        let setup = format!(
            "d=$(ls /sys/class/net | grep -v '^lo$' | head -n 1); test -n \"$d\"
             ip link set lo up; ip addr add 10.0.0.{}/24 dev $d; ip link set $d up",
            node + 1
        );
        lab.shell(node, &setup)?;
    }
    let ping = format!("ping=$(command -v ping || echo busybox ping); $ping -c 1 -W 1 {TCP_PEER}");
    wait_until("a ping over ntb_netdev", lab.hang_limit(20), || {
        Ok((lab.exec(0, ["sh", "-c", &ping])?.code() == Some(0)).then_some(()))
    })
}

/// Loads the module under test, with parameters that other programs may read.
fn scif(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        lab.insmod(
            node,
            module(lab)?,
            "heartbeat_timeout_ms=60000 dma_channels=1 allow_flat=1",
        )?;
        bind(lab, node, Bridge::Scif)?;
    }
    wait_for_nodes(lab)
}

/// Waits until both nodes see each other.
pub fn wait_for_nodes(lab: &Lab) -> Result<()> {
    for (node, peer) in [(0, 1), (1, 0)] {
        let online = format!("grep -q '^{peer} online' /sys/kernel/debug/scif/nodes");
        wait_until("the nodes see each other", lab.hang_limit(20), || {
            Ok((lab.exec(node, ["sh", "-c", &online])?.code() == Some(0)).then_some(()))
        })?;
    }
    Ok(())
}

/// Keeps the bus from giving bridges to the first driver that comes.
pub fn stop_autoprobe(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        lab.node(node)
            .write("/sys/bus/ntb/drivers_autoprobe", "0")?;
    }
    Ok(())
}

/// Loads all modules.
pub fn load(lab: &Lab) -> Result<()> {
    stop_autoprobe(lab)?;
    network(lab)?;
    for node in 0..2 {
        lab.load(node, "ntb_perf")?;
        bind(lab, node, Bridge::Perf)?;
        lab.insmod(node, lab.built("tests/reference/raw_doorbell.ko")?, "")?;
        bind(lab, node, Bridge::Doorbell)?;
    }
    scif(lab)?;
    let where_to = format!(
        "address={:#x} length={RESERVED_SIZE:#x}",
        aperture(lab)? + RESERVED
    );
    lab.insmod(0, lab.built("tests/reference/raw_dma.ko")?, &where_to)?;
    lab.insmod(0, lab.built("tests/reference/raw_pin.ko")?, "")
}

/// Loads the module in both nodes with these parameters, and lets `bind` bind its bridges. Works
/// beside a server, and unloads the module.
pub fn with_module(
    lab: &Lab,
    parameters: &str,
    bind: impl Fn(usize) -> Result<()>,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    for node in 0..2 {
        let parameters = format!("heartbeat_timeout_ms=60000 {parameters}");
        lab.insmod(node, module(lab)?, &parameters)?;
        bind(node)?;
    }
    wait_for_nodes(lab)?;
    let server = serve(lab, None)?;
    let result = work();
    server.signal(2);
    server.wait()?;
    for node in 0..2 {
        lab.rmmod(node, "scif")?;
    }
    result
}

/// Starts the server on node 1, also for TCP if it gets an address.
pub fn serve(lab: &Lab, tcp: Option<&str>) -> Result<Process> {
    let folder = lab.paths().exchange().join("served");
    std::fs::create_dir_all(&folder)?;
    let mut script = format!(
        "ulimit -n 100000; exec {} serve --root /exchange/served --port {PORT} --bench",
        tool()?
    );
    if let Some(address) = tcp {
        script.push_str(" --tcp ");
        script.push_str(address);
    }
    let process = lab
        .command(1, ["sh", "-c", &script])?
        .timeout(lab.hang_limit(3600))
        .spawn()?;
    process.wait_for("serving", lab.hang_limit(30))?;
    Ok(process)
}

/// Returns the address for TCP clients.
pub fn tcp_address() -> String {
    format!("{TCP_PEER}:{PORT}")
}
