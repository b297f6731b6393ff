// SPDX-License-Identifier: GPL-2.0
//! SCIF_RMA_USECACHE, by a C program (tests/programs/scif_cache.c). Pages stay pinned for the next
//! transfer, and are dropped whenever the process maps other memory in their place. The nodes have
//! swap, so that there can be memory pressure.

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::wait_until;

use crate::harness::Test;
use crate::need::Need;
use crate::need::ONE;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_node_loss::USUAL_PAIR;

/// A node with neither NTB nor DMA engine, and the module not loaded.
const ALONE: Need = Need {
    dma_channels: 0,
    ..ONE
};

/// Swap on compressed memory. Dropping the value turns it off.
struct Swap<'a> {
    lab: &'a Lab,
    node: usize,
}

impl<'a> Swap<'a> {
    fn on(lab: &'a Lab, node: usize) -> Result<Swap<'a>> {
        lab.load(node, "zram")?;
        let swap = Swap { lab, node };
        lab.shell(
            node,
            "echo 64M > /sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0",
        )?;
        Ok(swap)
    }

    fn off(&self) -> Result<()> {
        self.lab
            .shell(self.node, "swapoff /dev/zram0; modprobe -r zram")?;
        Ok(())
    }
}

/// Runs each test of the program, and checks by the counters that it has used the cache.
fn check(lab: &Lab, node: usize, arguments: &[&str]) -> Result<()> {
    let mut argv = vec![scif::program("scif_cache")?];
    argv.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let before = scif::counters(lab, node)?;
    let output = lab
        .command(node, argv)?
        .timeout(lab.hang_limit(300))
        .run()?;
    let is_paged_out = output.stdout().contains("paged out: ");
    scif::check_tap(output)?;
    ensure!(
        is_paged_out || arguments[0] == "limit",
        "nothing was paged out, though there is swap"
    );
    let after = scif::counters(lab, node)?;
    ensure!(after["cache_pages"] == 0, "{after:?}");
    for name in ["cache_hits", "cache_misses", "cache_invalidations"] {
        println!("      {name}: {}", after[name] - before[name]);
        ensure!(
            after[name] > before[name] || arguments[0] == "limit",
            "{name} stands still: {after:?}"
        );
    }
    Ok(())
}

/// Runs the program against a server on the other node, by engine and by CPU.
fn two_nodes(lab: &Lab) -> Result<()> {
    let program = scif::program("scif_cache")?;
    let server = lab
        .command(1, [&program, "server", "2110"])?
        .timeout(lab.hang_limit(300))
        .spawn()?;
    server.wait_for("listening", lab.hang_limit(20))?;
    let swap = Swap::on(lab, 0)?;
    let result = check(lab, 0, &["client", "1", "2110"]);
    server.signal(9);
    server.wait()?;
    swap.off()?;
    result
}

/// Runs the program within a node.
fn loopback(lab: &Lab) -> Result<()> {
    let swap = Swap::on(lab, 0)?;
    let result = check(lab, 0, &["loopback", "2111"]);
    swap.off()?;
    result
}

/// The module keeps as many pages as its parameter says.
fn limit_bounds_cached_pages(lab: &Lab) -> Result<()> {
    for mebibytes in ["0", "1"] {
        let parameter = format!("reg_cache_limit={mebibytes}");
        lab.insmod(0, scif::module(lab)?, &parameter)?;
        check(lab, 0, &["limit", "2112", mebibytes])?;
        scif::check_idle(lab, 0)?;
        lab.rmmod(0, "scif")?;
    }
    Ok(())
}

/// Cached pages are dropped when the node that they were pinned for is lost, although the program
/// goes on.
fn node_loss_drops_pages(lab: &Lab) -> Result<()> {
    let program = scif::program("scif_cache")?;
    let server = lab
        .command(1, [&program, "server", "2113"])?
        .timeout(lab.hang_limit(300))
        .spawn()?;
    server.wait_for("listening", lab.hang_limit(20))?;
    let client = lab
        .command(0, [&program, "hold", "1", "2113"])?
        .timeout(lab.hang_limit(300))
        .spawn()?;
    client.wait_for("holding", lab.hang_limit(20))?;
    let kept = || -> Result<u64> { Ok(scif::counters(lab, 0)?["cache_pages"]) };
    ensure!(kept()? > 0, "nothing is kept");
    lab.kill(1)?;
    wait_until("nothing is kept", lab.hang_limit(30), || {
        Ok((kept()? == 0).then_some(()))
    })?;
    let text = lab.shell(
        0,
        "cat /proc/sys/vm/stat_refresh; grep nr_foll_pin /proc/vmstat",
    )?;
    let counts: Vec<&str> = text
        .split_whitespace()
        .filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    ensure!(
        counts.len() == 2 && counts[0] == counts[1],
        "pages are still pinned: {text}"
    );
    client.signal(9);
    client.wait()?;
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_cache::limit_bounds_cached_pages",
        ALONE,
        limit_bounds_cached_pages,
    ),
    Test::new("scif_cache::loopback", SCIF_PAIR, loopback)
        .seconds(300)
        .by_name(),
    Test::new("scif_cache::two_nodes", SCIF_PAIR, two_nodes).seconds(300),
    Test::new(
        "scif_cache::node_loss_drops_pages",
        USUAL_PAIR,
        node_loss_drops_pages,
    )
    .leaves_disorder()
    .loses_nodes()
    .by_name(),
];
