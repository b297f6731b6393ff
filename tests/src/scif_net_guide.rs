// SPDX-License-Identifier: GPL-2.0
//! The chapter "IP over the link" of the user guide: its scripts and files as they stand there, and
//! the network devices that the tool shows.
//!
//! Comments in the guide name the blocks that the tests take. The scripts run in the nodes of a
//! star, and the nodes around its center then reach each other.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::wait_until;
use serde_json::Value;

use crate::harness::Test;
use crate::need::PAIR;
use crate::need::STAR;
use crate::scif;
use crate::scif_net;

const GUIDE: &str = include_str!("../../Documentation/user-guide.rst");

/// Returns a block of the guide by its name, without the indent.
fn block(name: &str) -> Result<String> {
    let mark = format!(".. test: {name}");
    let mut lines = GUIDE.lines().skip_while(|line| line.trim() != mark);
    lines
        .next()
        .with_context(|| format!("the guide has no block {name}"))?;
    let head = lines.next().unwrap_or_default();
    ensure!(
        head.trim_start().starts_with(".. code-block::"),
        "no block behind the comment {mark}"
    );
    let outside = head.len() - head.trim_start().len();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = lines
        .take_while(|line| line.is_empty() || indent(line) > outside)
        .collect();
    let inside = lines.iter().filter(|line| !line.is_empty());
    let least = inside.map(|line| indent(line)).min().unwrap_or(0);
    let text: Vec<&str> = lines
        .iter()
        .map(|line| line.get(least..).unwrap_or_default())
        .collect();
    Ok(text.join("\n").trim().to_owned() + "\n")
}

/// Writes a file in a node.
fn write(lab: &Lab, node: usize, path: &str, text: &str) -> Result<()> {
    let (folder, _) = path.rsplit_once('/').context("no folder")?;
    lab.shell(
        node,
        &format!("mkdir -p {folder}; cat >{path} <<'END'\n{text}END"),
    )?;
    Ok(())
}

/// Loads the modules in a star, and runs a script of the guide in each node.
fn run_in_star(lab: &Lab, script: &str) -> Result<()> {
    let script = block(script)?;
    for node in 0..3 {
        scif_net::load(lab, node)?;
    }
    for node in 0..3 {
        let devices = if node == 0 { 2 } else { 1 };
        wait_until("the devices", lab.hang_limit(20), || {
            let count = "cat /sys/class/net/*/uevent | grep -c DEVTYPE=scif || true";
            let seen = lab.shell(node, count)?;
            Ok((seen.trim() == devices.to_string()).then_some(()))
        })?;
        write(lab, node, "/tmp/star.sh", &script)?;
        let done = lab.exec(node, ["sh", "/tmp/star.sh", &node.to_string()])?;
        done.success()?;
    }
    Ok(())
}

/// Checks that nodes 1 and 2 reach each other by these addresses, over `hops` hosts.
fn leaves_talk(lab: &Lab, addresses: [&str; 2], hops: u32) -> Result<()> {
    for (node, to) in [(1, addresses[1]), (2, addresses[0])] {
        // A packet dies after so many hosts.
        let ping = |life: u32| {
            lab.exec(
                node,
                ["busybox", "ping", "-c1", "-W2", "-t", &life.to_string(), to],
            )
        };
        wait_until(&format!("{to} answers"), lab.hang_limit(20), || {
            Ok(ping(hops)?.success().ok().map(|_| ()))
        })?;
        ensure!(
            hops == 1 || ping(hops - 1)?.success().is_err(),
            "{to} is nearer than {hops} hops"
        );
    }
    for direction in [&[][..], &["--reverse"]] {
        let arguments = [&["--bytes", "8M"], direction].concat();
        let report = scif_net::iperf_between(lab, [1, 2], addresses[1], &arguments)?;
        let received = report["end"]["sum_received"]["bytes"].as_u64();
        ensure!(received >= Some(7 << 20), "{report:#}");
    }
    Ok(())
}

/// Unloads the modules, and takes back what the scripts have set.
fn clean_up(lab: &Lab) -> Result<()> {
    lab.shell(
        0,
        "echo 0 >/proc/sys/net/ipv4/ip_forward
        [ ! -e /sys/class/net/scif-bridge ] || ip link delete scif-bridge",
    )?;
    // The kernel drops the last use of a module some time after its last user has gone.
    wait_until("the bridge's modules are gone", lab.hang_limit(20), || {
        let left = "for name in bridge stp llc; do
            [ ! -e /sys/module/$name ] || rmmod $name 2>/dev/null || echo $name
        done";
        Ok(lab.shell(0, left)?.is_empty().then_some(()))
    })?;
    scif_net::unload(lab)
}

/// The center routes between the links.
fn routed_star(lab: &Lab) -> Result<()> {
    run_in_star(lab, "star-routed")?;
    leaves_talk(lab, ["10.9.1.2", "10.9.2.2"], 2)?;
    clean_up(lab)
}

/// The center bridges the links: all nodes are in one net.
fn bridged_star(lab: &Lab) -> Result<()> {
    run_in_star(lab, "star-bridged")?;
    leaves_talk(lab, ["10.9.0.2", "10.9.0.3"], 1)?;
    // The center has an address in the net, too.
    lab.exec(1, ["busybox", "ping", "-c1", "-W5", "10.9.0.1"])?
        .success()?;
    clean_up(lab)
}

/// Waits until a node has a network device of this name.
fn has_device(lab: &Lab, node: usize, name: &str) -> Result<()> {
    let list = "ls /sys/class/net";
    wait_until(&format!("device {name}"), lab.hang_limit(30), || {
        let seen = lab.shell(node, list)?;
        Ok(seen.lines().any(|each| each == name).then_some(()))
    })
}

/// udev names devices by the rule and by the file of the guide, and otherwise by bridge and node.
fn udev_names_devices(lab: &Lab) -> Result<()> {
    const RULE: &str = "/etc/udev/rules.d/70-scif-net.rules";
    const LINK: &str = "/etc/systemd/network/10-scif-node1.link";
    write(lab, 0, RULE, &block("names-rule")?)?;
    lab.shell(
        0,
        &format!("udevadm verify {RULE} && /usr/lib/systemd/systemd-udevd --daemon"),
    )?;
    for node in 0..2 {
        scif_net::load(lab, node)?;
    }
    has_device(lab, 0, "scif-node1")?;
    lab.rmmod(0, "scif_net")?;

    let file = block("names-link")?;
    ensure!(file.contains("0000:05:00.0"), "{file}");
    let file = file.replace("0000:05:00.0", "0000:00:05.0");
    let file = file.replace("scif-node1", "by-place");
    lab.shell(0, &format!("rm {RULE}"))?;
    write(lab, 0, LINK, &file)?;
    lab.shell(0, "udevadm control --reload")?;
    scif_net::load_net(lab, 0)?;
    has_device(lab, 0, "by-place")?;
    lab.rmmod(0, "scif_net")?;

    lab.shell(0, &format!("rm {LINK}; udevadm control --reload"))?;
    scif_net::load_net(lab, 0)?;
    // The kernel's file for all devices prefers the number of the slot, if the firmware has one.
    let names = "enp0s5d1 ens5d1";
    let list =
        format!("cd /sys/class/net; for name in {names}; do [ ! -e $name ] || echo $name; done");
    wait_until("a name by bridge and node", lab.hang_limit(30), || {
        Ok((!lab.shell(0, &list)?.is_empty()).then_some(()))
    })?;
    lab.exec(0, ["udevadm", "control", "--exit"])?.success()?;
    scif_net::unload(lab)
}

/// Returns the output of the tool in node 0.
fn tool(lab: &Lab, arguments: &[&str]) -> Result<String> {
    Ok(scif::run_tool(lab, 0, arguments)?.success()?.stdout())
}

/// Waits until the tool prints these words.
fn says(lab: &Lab, arguments: &[&str], words: &str) -> Result<()> {
    let what = format!("scif {} says '{words}'", arguments.join(" "));
    wait_until(&what, lab.hang_limit(20), || {
        Ok(tool(lab, arguments)?.contains(words).then_some(()))
    })
}

/// `scif nodes`, `doctor` and `status` follow the devices from one step of the guide to the next.
fn tool_shows_devices(lab: &Lab) -> Result<()> {
    scif_net::load(lab, 1)?;
    lab.rmmod(1, "scif_net")?;
    scif_net::load(lab, 0)?;
    lab.rmmod(0, "scif_net")?;
    scif::online(lab, 0, 1)?;
    // A mere note: the exit status is that of success.
    says(lab, &["doctor"], "note  network  scif_net is not loaded")?;
    let nodes = tool(lab, &["nodes"])?;
    ensure!(
        nodes
            .lines()
            .all(|line| line.ends_with("NETWORK") || line.ends_with(" -")),
        "{nodes}"
    );
    ensure!(!tool(lab, &["status", "--metrics"])?.contains("scif_net_"));

    scif_net::load_net(lab, 0)?;
    says(lab, &["nodes"], "scif0 down mtu 1500")?;
    says(lab, &["doctor"], "scif0 (node 1) is down")?;
    lab.shell(0, "ip link set scif0 up mtu 9000")?;
    says(lab, &["nodes"], "scif0 no-carrier mtu 9000")?;
    says(lab, &["doctor"], "load scif_net on node 1")?;
    scif_net::load_net(lab, 1)?;
    says(lab, &["nodes"], "scif0 up mtu 9000")?;
    says(lab, &["doctor"], "has no address of yours")?;
    lab.shell(0, "ip address add 10.9.0.1/24 dev scif0")?;
    says(
        lab,
        &["doctor"],
        "ok    network  scif0 reaches node 1, MTU 9000, with 10.9.0.1/24",
    )?;

    let nodes: Value = serde_json::from_str(&tool(lab, &["nodes", "--json"])?)?;
    let network = &nodes[1]["network"];
    ensure!(
        network["node"] == 1
            && network["bridge"] == "0000:00:05.0"
            && network["carrier"] == true
            && network["addresses"][0] == "10.9.0.1/24",
        "{nodes:#}"
    );
    let label = "{node=\"1\",device=\"scif0\"}";
    for line in [
        format!("scif_net_carrier{label} 1"),
        format!("scif_net_mtu_bytes{label} 9000"),
        format!("scif_net_received_errors_total{label} 0"),
    ] {
        says(lab, &["status", "--metrics"], &line)?;
    }
    scif_net::unload(lab)
}

const fn test(test: Test) -> Test {
    test.seconds(120)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    test(Test::new("scif_net_guide::routed_star", STAR, routed_star)),
    test(Test::new(
        "scif_net_guide::bridged_star",
        STAR,
        bridged_star,
    )),
    test(Test::new(
        "scif_net_guide::tool_shows_devices",
        PAIR,
        tool_shows_devices,
    )),
    // Other tests must not run with udevd's names.
    test(Test::new(
        "scif_net_guide::udev_names_devices",
        PAIR,
        udev_names_devices,
    ))
    .destroys(),
];
