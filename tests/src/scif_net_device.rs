// SPDX-License-Identifier: GPL-2.0
//! The network device of `scif_net` as udev, ethtool and ip show and set it.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::wait_until;
use serde_json::Value;

use crate::harness::Test;
use crate::need::Need;
use crate::need::PAIR;
use crate::scif;
use crate::scif_net::address;
use crate::scif_net::carrier;
use crate::scif_net::iperf;
use crate::scif_net::iperf_between;
use crate::scif_net::joined;
use crate::scif_net::load_net;
use crate::scif_net::set_up;
use crate::scif_net::unload;

/// Returns what ethtool knows of the device of a node (tests/programs/net_facts.c).
pub fn facts(lab: &Lab, node: usize) -> Result<Value> {
    let program = scif::program("net_facts")?;
    let text = lab.shell(node, &format!("{program} scif0"))?;
    serde_json::from_str(&text).with_context(|| text)
}

/// Reads a file of the device of a node.
fn attribute(lab: &Lab, node: usize, name: &str) -> Result<String> {
    let text = lab
        .node(node)
        .read(&format!("/sys/class/net/scif0/{name}"))?;
    Ok(text.trim().to_owned())
}

/// Returns the number of queues that the kernel shows of the device of a node.
fn queues(lab: &Lab, node: usize, kind: &str) -> Result<u64> {
    let shell = format!("ls -d /sys/class/net/scif0/queues/{kind}-* | wc -l");
    Ok(lab.shell(node, &shell)?.trim().parse()?)
}

/// The device belongs to the bridge, and is told from those of other peers.
fn belongs_to_the_bridge(lab: &Lab, node: usize, peer: usize) -> Result<()> {
    let bridge = lab.shell(node, "basename $(readlink /sys/class/net/scif0/device)")?;
    let bridge = bridge.trim();
    let driver = lab.shell(
        node,
        "basename $(readlink /sys/class/net/scif0/device/driver)",
    )?;
    ensure!(
        driver.starts_with("ntb_hw_"),
        "the driver of {bridge} is {driver}"
    );
    let facts = facts(lab, node)?;
    ensure!(
        facts["driver"] == "scif_net" && facts["bus_info"] == bridge,
        "{facts:#}"
    );
    let port = attribute(lab, node, "dev_port")?;
    ensure!(port == peer.to_string(), "the port is {port}");
    let uevent = attribute(lab, node, "uevent")?;
    ensure!(uevent.contains("DEVTYPE=scif\n"), "{uevent}");
    Ok(())
}

/// The speed is that of the link, less than its lanes carry in bits, and only with a carrier.
fn has_the_speed_of_the_link(lab: &Lab, node: usize) -> Result<()> {
    let speed: i64 = attribute(lab, node, "speed")?.parse()?;
    let duplex = attribute(lab, node, "duplex")?;
    println!("      node {node}: {speed} Mb/s, {duplex} duplex");
    // No bridge of the lab has less than a lane of the first generation.
    ensure!(speed > 1000 && duplex == "full", "{speed} {duplex}");
    Ok(())
}

/// The number of queues can be set. All of them carry traffic, or only the first one.
fn queues_can_be_set(lab: &Lab) -> Result<()> {
    let before = facts(lab, 0)?;
    let most = before["max_combined"].as_u64().unwrap_or(0);
    ensure!(most > 1 && before["combined"] == most, "{before:#}");
    let program = scif::program("net_facts")?;
    for count in [1, most] {
        lab.shell(0, &format!("{program} scif0 channels {count}"))?;
        let after = facts(lab, 0)?;
        ensure!(after["combined"] == count, "{after:#}");
        for kind in ["rx", "tx"] {
            let seen = queues(lab, 0, kind)?;
            ensure!(seen == count, "{seen} {kind} queues instead of {count}");
        }
        let sent = |facts: &Value| facts["statistics"]["queue_1_tx_packets"].as_u64();
        iperf(lab, &["--bytes", "1M", "--parallel", "4"])?;
        iperf(lab, &["--bytes", "1M", "--parallel", "4", "--reverse"])?;
        let used = facts(lab, 0)?;
        if count == 1 {
            ensure!(sent(&used) == sent(&after), "{used:#}");
        }
        let cpus = attribute(lab, 0, "queues/tx-0/xps_cpus")?;
        let is_shared = u64::from_str_radix(&cpus.replace(',', ""), 16)?.count_ones() > 1;
        ensure!(
            is_shared == (count == 1),
            "queue 0 of {count} is for CPUs {cpus}"
        );
    }
    let refused = lab.shell(0, &format!("! {program} scif0 channels {}", most + 1))?;
    ensure!(refused.is_empty(), "{refused}");
    Ok(())
}

/// The rings can be set at one end, and have the smaller size of both. The size outlasts a session.
fn rings_can_be_set(lab: &Lab) -> Result<()> {
    let program = scif::program("net_facts")?;
    let size = |node: usize| -> Result<Option<u64>> {
        let facts = facts(lab, node)?;
        ensure!(facts["rx_pending"] == facts["tx_pending"], "{facts:#}");
        Ok(facts["rx_pending"].as_u64())
    };
    let has = |size_wanted: u64| {
        wait_until(
            &format!("rings of {size_wanted}"),
            lab.hang_limit(20),
            || {
                let sizes = [size(0)?, size(1)?];
                Ok((sizes == [Some(size_wanted); 2]).then_some(()))
            },
        )?;
        for node in 0..2 {
            carrier(lab, node, "scif0", true)?;
        }
        iperf(lab, &["--bytes", "1M"])?;
        iperf(lab, &["--bytes", "1M", "--reverse"])?;
        Ok(())
    };
    let usual = size(0)?.context("no size")?;
    for wrong in ["8", "4097"] {
        lab.shell(0, &format!("! {program} scif0 ring {wrong} 2>&1"))?;
    }
    // A number between two powers of two is rounded up.
    for (wanted, made) in [(33, 64), (32, 32), (usual, usual)] {
        lab.shell(0, &format!("{program} scif0 ring {wanted}"))?;
        has(made)?;
    }
    for node in 0..2 {
        lab.shell(node, &format!("{program} scif0 ring {}", 2 * usual))?;
    }
    has(2 * usual)?;
    lab.rmmod(1, "scif_net")?;
    load_net(lab, 1)?;
    set_up(lab, 1)?;
    has(usual)?;
    lab.shell(0, &format!("{program} scif0 ring {usual}"))?;
    has(usual)
}

/// An administrator may have the stack poll a while before it lets the peer ring. The queues sleep
/// afterwards, and wake up.
fn interrupts_can_be_put_off(lab: &Lab) -> Result<()> {
    let set = |polls: u32, nanoseconds: u32| {
        for node in 0..2 {
            let device = lab.node(node);
            let folder = "/sys/class/net/scif0";
            device.write(
                &format!("{folder}/napi_defer_hard_irqs"),
                &polls.to_string(),
            )?;
            device.write(
                &format!("{folder}/gro_flush_timeout"),
                &nanoseconds.to_string(),
            )?;
        }
        anyhow::Ok(())
    };
    let usual = ["napi_defer_hard_irqs", "gro_flush_timeout"].map(|name| attribute(lab, 0, name));
    let [polls, nanoseconds] = usual;
    let (polls, nanoseconds) = (polls?.parse()?, nanoseconds?.parse()?);
    for (polls, nanoseconds) in [(20, 20_000), (2, 1_000_000)] {
        set(polls, nanoseconds)?;
        iperf(lab, &["--bytes", "4M", "--parallel", "4"])?;
        iperf(lab, &["--bytes", "4M", "--parallel", "4", "--reverse"])?;
        lab.reset_counters()?;
        lab.shell(0, &format!("busybox ping -c3 -W5 {}", address(1)))?;
        let counters = lab.counters()?;
        let doorbells: u64 = counters
            .iter()
            .map(|guest| guest.sum("ntb", |counters| counters.doorbells))
            .sum();
        ensure!(doorbells >= 3, "three pings took {doorbells} doorbells");
    }
    set(polls, nanoseconds)
}

/// The statistics of the kernel, of ethtool, and of the queues agree.
fn statistics_agree(lab: &Lab, node: usize) -> Result<()> {
    let facts = facts(lab, node)?;
    let statistics = &facts["statistics"];
    let number = |name: &str| statistics[name].as_u64().unwrap_or(0);
    let queues = facts["max_combined"].as_u64().unwrap_or(0);
    for name in [
        "tx_packets",
        "tx_bytes",
        "rx_packets",
        "rx_bytes",
        "rx_pages",
        "doorbells",
    ] {
        let of_queues: u64 = (0..queues)
            .map(|queue| number(&format!("queue_{queue}_{name}")))
            .sum();
        ensure!(
            number(name) > 0 && of_queues == number(name),
            "node {node}, {name}: {of_queues}, {statistics:#}"
        );
    }
    for name in ["tx_refused", "rx_refused", "tx_dropped", "rx_dropped"] {
        ensure!(number(name) == 0, "node {node}, {name}: {statistics:#}");
    }
    ensure!(
        number("rx_pages") >= number("rx_pages_copied"),
        "{statistics:#}"
    );
    ensure!(number("rx_large") > 0, "{statistics:#}");
    Ok(())
}

/// udev, ethtool and ip show and set what they do of other devices.
fn ethtool_shows_the_device(lab: &Lab) -> Result<()> {
    joined(lab)?;
    for node in 0..2 {
        belongs_to_the_bridge(lab, node, 1 - node)?;
        has_the_speed_of_the_link(lab, node)?;
        let facts = facts(lab, node)?;
        ensure!(facts["rx_pending"].as_u64() >= Some(32), "{facts:#}");
    }
    queues_can_be_set(lab)?;
    rings_can_be_set(lab)?;
    interrupts_can_be_put_off(lab)?;
    iperf(lab, &["--bytes", "1M"])?;
    iperf(lab, &["--bytes", "1M", "--reverse"])?;
    for node in 0..2 {
        statistics_agree(lab, node)?;
    }

    let program = scif::program("net_facts")?;
    let usecs = &facts(lab, 0)?["rx_usecs"];
    lab.shell(0, &format!("{program} scif0 usecs {usecs}"))?;
    lab.shell(0, &format!("! {program} scif0 usecs 1234"))?;
    lab.rmmod(1, "scif_net")?;
    carrier(lab, 0, "scif0", false)?;
    ensure!(attribute(lab, 0, "speed")? == "-1");
    load_net(lab, 1)?;
    carrier(lab, 0, "scif0", true)?;
    has_the_speed_of_the_link(lab, 0)?;
    unload(lab)
}

/// The address of a device is the same after each load, of this machine alone, and can be set.
fn address_is_stable(lab: &Lab) -> Result<()> {
    joined(lab)?;
    let address = |node: usize| attribute(lab, node, "address");
    let before = [address(0)?, address(1)?];
    ensure!(before[0] != before[1], "{before:?}");
    for address in &before {
        // Administered locally, and of one station.
        ensure!(address.starts_with("02:"), "{address}");
    }
    for node in 0..2 {
        // The firmware tells the machine's UUID, so that udev need not choose another address.
        let kind = attribute(lab, node, "addr_assign_type")?;
        ensure!(kind == "0", "{kind}");
    }
    unload(lab)?;
    joined(lab)?;
    let after = [address(0)?, address(1)?];
    ensure!(before == after, "{before:?}, {after:?}");
    lab.shell(0, "ip link set scif0 address 02:00:00:00:12:34")?;
    ensure!(address(0)? == "02:00:00:00:12:34");
    let refused = lab.shell(0, "! ip link set scif0 address 01:00:00:00:12:34 2>&1")?;
    ensure!(!refused.is_empty());
    lab.shell(0, &format!("busybox ping -c 1 -w 20 {}", self::address(1)))?;
    unload(lab)
}

/// Promiscuous mode, groups, and other network namespaces work as with any device.
fn behaves_as_ethernet(lab: &Lab) -> Result<()> {
    joined(lab)?;
    let to = address(1);
    lab.shell(
        0,
        &format!(
            "set -e
            ip link set scif0 promisc on
            ip link set scif0 promisc off
            ip maddr add 33:33:00:00:12:34 dev scif0
            ip maddr show dev scif0 | grep -q 33:33:00:00:12:34
            ip maddr del 33:33:00:00:12:34 dev scif0
            ip neigh flush dev scif0
            ip link add link scif0 name upper type macvlan mode bridge
            ip link set upper up
            ip -d link show scif0 | grep -q 'promiscuity 0'
            ip link del upper
            busybox ping -c 1 -w 20 {to}"
        ),
    )?;
    // The device goes to another namespace, and comes back when that ends.
    lab.shell(
        0,
        &format!(
            "set -e
            ip netns add other
            ip link set scif0 netns other
            ip -n other addr add {}/24 dev scif0
            ip -n other link set scif0 up
            ip netns exec other busybox ping -c 1 -w 20 {to}
            ip -n other link set scif0 netns 1
            ip netns del other",
            address(0)
        ),
    )?;
    set_up(lab, 0)?;
    lab.shell(0, &format!("busybox ping -c 1 -w 20 {to}"))?;
    unload(lab)?;
    lab.shell(0, "modprobe -r macvlan")?;
    Ok(())
}

/// Frames with one VLAN tag and with two cross uncut, with checksums that were not computed.
fn tagged_frames_cross_uncut(lab: &Lab) -> Result<()> {
    joined(lab)?;
    for node in 0..2 {
        let host = node + 1;
        lab.shell(
            node,
            &format!(
                "set -e
                ip link add link scif0 name outer type vlan id 5
                ip link add link outer name inner type vlan id 6
                ip addr add 10.9.5.{host}/24 dev outer
                ip addr add 10.9.6.{host}/24 dev inner
                ip link set outer up
                ip link set inner up"
            ),
        )?;
    }
    for to in ["10.9.5.2", "10.9.6.2"] {
        let before = facts(lab, 1)?;
        iperf_between(lab, [0, 1], to, &["--bytes", "4M"])?;
        let after = facts(lab, 1)?;
        let more = |name: &str| {
            let of = |facts: &Value| facts["statistics"][name].as_u64().unwrap_or(0);
            of(&after) - of(&before)
        };
        // Each large frame has many packets of this MTU.
        let (large, packets) = (more("rx_large"), more("rx_packets"));
        println!("      {to}: {packets} packets, {large} large frames");
        ensure!(
            large > 50 && packets > 2500,
            "{large} large frames, {packets} packets"
        );
        ensure!(more("rx_refused") == 0, "{after:#}");
    }
    unload(lab)?;
    for node in 0..2 {
        lab.shell(node, "modprobe -r 8021q; modprobe -r stp; modprobe -r llc")?;
    }
    Ok(())
}

const fn test(name: &'static str, need: Need, run: fn(&Lab) -> Result<()>) -> Test {
    Test::new(name, need, run).seconds(120)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    test(
        "scif_net_device::ethtool_shows_the_device",
        PAIR,
        ethtool_shows_the_device,
    ),
    test(
        "scif_net_device::address_is_stable",
        PAIR,
        address_is_stable,
    ),
    test(
        "scif_net_device::behaves_as_ethernet",
        PAIR,
        behaves_as_ethernet,
    ),
    test(
        "scif_net_device::tagged_frames_cross_uncut",
        PAIR,
        tagged_frames_cross_uncut,
    ),
];
