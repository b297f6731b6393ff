// SPDX-License-Identifier: GPL-2.0
//! Each allocation fails once that scif makes while its network driver is loaded, while the rings are
//! joined, and while their size changes.
//!
//! The driver is refused, or has no device or no carrier, and the log tells why. Loaded anew, it
//! works, and nothing is left of the failure. The kernel finds the module's code in the stack, and
//! with it what the network stack allocates for the module.

use std::ops::ControlFlow;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::wait_until;

use crate::harness::Test;
use crate::need::PAIR;
use crate::scif;
use crate::scif_injection;
use crate::scif_net;

/// Numbers of allocations that fail, one in each run. The many that follow are of pages for buffers.
const NUMBERS: &[u32] = &[60, 100, 200, 400, 800];

/// Number of first allocations that fail, one in each run.
const FIRST: u32 = 48;

/// Number that the kernel counts down from with each failure.
const TIMES: u32 = 1000;

/// Has the allocation of this number fail in each kernel thread of node 0, and in the shell itself.
/// With 0, none fails any more.
fn arm(number: u32) -> String {
    format!(
        "for stat in /proc/[0-9]*/stat; do
            read -r line <$stat 2>/dev/null || continue
            rest=${{line##*) }}
            set -- $rest
            [ \"$2\" != 2 ] || echo {number} >${{stat%stat}}fail-nth 2>/dev/null || true
        done
        echo {number} >/proc/self/fail-nth"
    )
}

/// Returns the number of allocations that have failed.
fn failures(lab: &Lab) -> Result<u32> {
    let mut failures = 0;
    for kind in ["failslab", "fail_page_alloc"] {
        let file = format!("/sys/kernel/debug/{kind}/times");
        let left = lab.node(0).read(&file)?;
        let left: u32 = left
            .trim()
            .parse()
            .with_context(|| format!("{file}: '{left}'"))?;
        failures += TIMES - left;
    }
    Ok(failures)
}

/// Loads the driver and uses it while an allocation fails, and then without that. Breaks if there
/// were no more allocations.
fn fail_one(lab: &Lab, number: u32) -> Result<ControlFlow<()>> {
    for kind in ["failslab", "fail_page_alloc"] {
        let file = format!("/sys/kernel/debug/{kind}/times");
        lab.node(0).write(&file, &TIMES.to_string())?;
    }
    let (module, program) = (scif::net_module(lab)?, scif::program("net_facts")?);
    let module = module.display();
    let loaded = lab.exec(
        0,
        [
            "sh",
            "-c",
            &format!("{}; exec insmod {module}", arm(number)),
        ],
    )?;
    let is_loaded = loaded.success().is_ok();
    let mut has_carrier = false;
    if is_loaded {
        let up = "[ ! -e /sys/class/net/scif0 ] || ip link set scif0 up";
        lab.exec(0, ["sh", "-c", up])?;
        wait_until("a carrier or a failure", lab.hang_limit(20), || {
            let carrier = lab.node(0).read_if_there("/sys/class/net/scif0/carrier")?;
            has_carrier = carrier.is_some_and(|carrier| carrier.trim() == "1");
            Ok((has_carrier || failures(lab)? > 0).then_some(()))
        })?;
        if has_carrier {
            let resize = format!("{}; exec {program} scif0 ring 64", arm(number));
            lab.exec(0, ["sh", "-c", &resize])?;
        }
    }
    lab.shell(0, &arm(0))?;
    let failures = failures(lab)?;
    println!("      {number}: loaded: {is_loaded}, carrier: {has_carrier}, {failures} failures");
    if is_loaded {
        lab.rmmod(0, "scif_net")?;
    }

    scif_net::load_net(lab, 0)?;
    scif_net::set_up(lab, 0)?;
    scif_net::carrier(lab, 1, "scif0", true)?;
    let to = scif_net::address(1);
    lab.shell(0, &format!("busybox ping -c1 -W5 {to}"))?;
    lab.rmmod(0, "scif_net")?;
    scif::check_idle(lab, 0)?;
    Ok(match failures {
        0 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
}

fn loading_fails(lab: &Lab) -> Result<()> {
    scif_net::joined(lab)?;
    lab.rmmod(0, "scif_net")?;
    scif_injection::choose(lab, 0, scif_injection::MODULE)?;
    let mut failed = 0;
    for number in (1..=FIRST).chain(NUMBERS.iter().copied()) {
        let done = fail_one(lab, number).with_context(|| format!("allocation {number} fails"))?;
        if done.is_break() {
            break;
        }
        failed = number;
    }
    println!("      the last allocation that has failed: {failed}");
    ensure!(failed > 0, "no allocation has failed");
    lab.rmmod(0, "scif")?;
    let report = lab.kmemleak(0)?;
    ensure!(report.is_empty(), "node 0 has leaked:\n{report}");
    lab.rmmod(1, "scif_net")?;
    lab.rmmod(1, "scif")
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_net_injection::loading_fails", PAIR, loading_fails)
        .seconds(900)
        .on_debug()
        .leaves_disorder()
        // Each failure may log this.
        .expects(&["scif: ", "scif_net: "])
        .by_name(),
];
