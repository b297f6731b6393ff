// SPDX-License-Identifier: GPL-2.0
//! The lab in which network devices are measured: the devices, their drivers and the servers.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Config;
use lab::Flavour;
use lab::Lab;
use lab::Process;
use lab::Windows;
use lab::paths;
use lab::wait_until;
use serde_json::Value;

use crate::setup;

/// The port of `ip_pair`, and that of the tool's server.
pub const PAIR_PORT: &str = "2051";
const TOOL_PORT: u16 = 2050;

/// Bytes of the header of a packet that writes across the link: Documentation/link-model.rst.
pub const WRITE_HEADER: u64 = 24;

/// Where the kernel's drivers find contiguous memory first, and the size of each of their windows.
const CONTIGUOUS: u64 = 256 << 20;
const WINDOW: u64 = 2 << 20;

/// The largest MTU of `ntb_netdev`.
const LARGEST_OF_NTB: u64 = 65510;

/// A network device over a link.
#[derive(Clone, Copy)]
pub struct Device {
    /// The line under which its values are entered.
    pub line: &'static str,
    /// The link of its bridge, which is also its network: 10.9.LINK.0.
    pub link: usize,
    /// Its name in both nodes.
    name: &'static str,
    largest: u64,
    /// The bytes from which on ntb_transport copies by engine.
    copy_bytes: &'static str,
}

pub const SCIF_NET: Device = Device {
    line: "scif_net",
    link: 0,
    name: "scif0",
    largest: 65521,
    copy_bytes: "",
};

/// The device for which CPUs copy.
pub const NTB_NETDEV: Device = Device {
    line: "ntb_netdev",
    link: 1,
    name: "ntb0",
    largest: LARGEST_OF_NTB,
    copy_bytes: "1000000",
};

/// The same device, for which engines copy, with the default of the driver.
pub const NTB_NETDEV_ENGINE: Device = Device {
    line: "ntb_netdev, engine",
    copy_bytes: "1024",
    ..NTB_NETDEV
};

/// All devices.
pub const DEVICES: [Device; 3] = [SCIF_NET, NTB_NETDEV, NTB_NETDEV_ENGINE];

impl Device {
    /// Returns the address of the device of a node.
    pub fn address(self, node: usize) -> String {
        format!("10.9.{}.{}", self.link, node + 1)
    }

    /// Returns the address and port of the tool's server.
    pub fn server(self) -> String {
        format!("{}:{TOOL_PORT}", self.address(1))
    }

    /// Returns a counter of the device of a node.
    pub fn count(self, lab: &Lab, node: usize, counter: &str) -> Result<f64> {
        let file = format!("/sys/class/net/{}/statistics/{counter}", self.name);
        let text = lab.node(node).read(&file)?;
        text.trim()
            .parse()
            .with_context(|| format!("{file}: {text}"))
    }

    /// Prepares the drivers for a measurement of the device.
    pub fn choose(self, lab: &Lab) -> Result<()> {
        if self.copy_bytes.is_empty() {
            return Ok(());
        }
        let file = "/sys/module/ntb_transport/parameters/copy_bytes";
        (0..2).try_for_each(|node| lab.node(node).write(file, self.copy_bytes))
    }

    /// Sets the MTU of both ends, or the largest one that the device has.
    pub fn set_mtu(self, lab: &Lab, mtu: u64) -> Result<()> {
        let mtu = mtu.min(self.largest);
        let file = format!("/sys/class/net/{}/mtu", self.name);
        let mut is_new = false;
        for node in 0..2 {
            if lab.node(node).read(&file)?.trim() != mtu.to_string() {
                lab.shell(node, &format!("ip link set {} mtu {mtu}", self.name))?;
                is_new = true;
            }
        }
        // ntb_netdev takes its queues down for it.
        if is_new {
            wait_for_ping(lab, &self.address(1))?;
        }
        Ok(())
    }

    /// Gives a device of this name its address, in both nodes.
    fn set_up(self, lab: &Lab) -> Result<()> {
        for node in 0..2 {
            let device = format!("[ ! -e /sys/class/net/{} ] || echo there", self.name);
            wait_until(
                &format!("{} of node {node}", self.name),
                lab.hang_limit(20),
                || Ok((!lab.shell(node, &device)?.is_empty()).then_some(())),
            )?;
            let (name, address) = (self.name, self.address(node));
            lab.shell(
                node,
                &format!(
                    "echo 1 >/proc/sys/net/ipv6/conf/{name}/disable_ipv6
                     ip link set lo up
                     ip addr add {address}/24 dev {name} && ip link set {name} up"
                ),
            )?;
        }
        wait_for_ping(lab, &self.address(1))
    }
}

/// Returns the configuration of the lab with all devices.
pub fn config(kernel: Flavour) -> Config {
    Config {
        memory: 1024,
        // ntb_transport takes an engine to send and one to receive.
        dma_channels: 3,
        more_links: vec![Windows::Fixed {
            base: CONTIGUOUS,
            size: WINDOW,
        }],
        append: vec![format!("cma=64M@{}M", CONTIGUOUS >> 20)],
        ..setup::small_config("net", kernel)
    }
}

/// Loads all drivers, and gives all devices their addresses.
pub fn load(lab: &Lab) -> Result<()> {
    setup::stop_autoprobe(lab)?;
    // The cable is out meanwhile, as in `setup`.
    lab.set_link(0, 1, false)?;
    for node in 0..2 {
        lab.load_with(node, "ntb_transport", "use_dma=1")?;
        setup::bind_link(lab, node, "ntb_transport", NTB_NETDEV.link)?;
    }
    lab.set_link(0, 1, true)?;
    for node in 0..2 {
        lab.load(node, "ntb_netdev")?;
        let name = "ls /sys/class/net | grep -v '^lo$' | head -n 1";
        lab.shell(
            node,
            &format!("ip link set $({name}) name {}", NTB_NETDEV.name),
        )?;
    }
    NTB_NETDEV.set_up(lab)?;
    load_scif(lab, "dma_channels=1")?;
    for node in 0..2 {
        setup::bind_link(lab, node, "scif", SCIF_NET.link)?;
    }
    setup::wait_for_nodes(lab)?;
    SCIF_NET.set_up(lab)
}

/// Loads only `scif_net`, with parameters of the module that has the rings.
pub fn load_alone(lab: &Lab, parameters: &str) -> Result<()> {
    load_scif(lab, parameters)?;
    setup::wait_for_nodes(lab)?;
    SCIF_NET.set_up(lab)
}

fn load_scif(lab: &Lab, parameters: &str) -> Result<()> {
    let parameters = format!("heartbeat_timeout_ms=60000 allow_flat=1 {parameters}");
    for node in 0..2 {
        lab.insmod(node, lab.built("scif.ko")?, &parameters)?;
        lab.insmod(node, lab.built("net/scif_net.ko")?, "")?;
    }
    Ok(())
}

/// Returns the address at which the tool's server serves all devices.
pub fn server_address() -> String {
    format!("0.0.0.0:{TOOL_PORT}")
}

/// Returns the path of `ip_pair`, as guests see it.
fn program() -> Result<String> {
    let path = paths::repository().join("tests/programs/ip_pair");
    ensure!(path.exists(), "{} has not been built", path.display());
    Ok(path.display().to_string())
}

/// Starts `ip_pair` on node 1.
pub fn serve(lab: &Lab) -> Result<Process> {
    let process = lab
        .command(1, [&*program()?, "serve", PAIR_PORT])?
        .timeout(lab.hang_limit(3600))
        .spawn()?;
    process.wait_for("serving", lab.hang_limit(30))?;
    Ok(process)
}

/// Runs `ip_pair` on node 0. Returns its line.
pub fn ask(lab: &Lab, arguments: &[&str]) -> Result<Value> {
    let program = program()?;
    let said = lab
        .command(0, [&[&*program], arguments].concat())?
        .timeout(lab.hang_limit(60))
        .run()?
        .success()?
        .stdout();
    serde_json::from_str(&said).with_context(|| format!("ip_pair {arguments:?} said: {said}"))
}

/// Waits until a node reaches another address.
fn wait_for_ping(lab: &Lab, address: &str) -> Result<()> {
    let ping = format!("ping=$(command -v ping || echo busybox ping); $ping -c 1 -W 1 {address}");
    wait_until(&format!("a ping to {address}"), lab.hang_limit(30), || {
        Ok((lab.exec(0, ["sh", "-c", &ping])?.code() == Some(0)).then_some(()))
    })
}
