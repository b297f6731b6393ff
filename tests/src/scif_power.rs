// SPDX-License-Identifier: GPL-2.0
//! Machines that sleep, and machines whose kernel is replaced: their peers are told at once, however
//! long the heartbeat is, nothing of the old session is left behind, and the links come back.

use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Process;
use lab::RaidWrites;
use lab::wait_until;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::PAIR;
use crate::promise::Circumstances;
use crate::scif;
use crate::scif::Seen;
use crate::scif_node_loss::Blocked;
use crate::scif_node_loss::TOLD;
use crate::scif_node_loss::copy_works;
use crate::scif_node_loss::not_logged;
use crate::scif_node_loss::other;
use crate::scif_node_loss::sessions;
use crate::verdict::Promise;

/// With the heartbeat of a minute or more that labs have: whoever is told sooner was told.
const LOADED_PAIR: Need = Need {
    scif: Loaded::LongHeartbeat,
    ..PAIR
};

/// From when a kernel begins to start another until the peer, which hangs, reaches nothing of it.
const CLOSED: Promise = Promise {
    name: "a machine that reboots closes its windows",
    seconds: 2.0,
};

const SLEEPING_PAIR: Need = Need {
    sleep: true,
    ..LOADED_PAIR
};

/// Checks that a node can sleep while processes of both nodes wait for each other and transfers are under
/// way: all waiters are told, none keeps the node from sleeping, and the link comes back by itself with the
/// same modules. The node goes to sleep by `command`, which returns when it is awake again; `wake` is called
/// as soon as the peer's waiters were told.
fn falls_asleep(
    lab: &Lab,
    node: usize,
    command: &str,
    wake: impl FnOnce(&Process) -> Result<()>,
) -> Result<()> {
    let before = sessions(lab)?;
    let around = Circumstances::before(lab, &[other(node)])?;
    let blocked = Blocked::on_both(lab)?;
    let event = Instant::now();
    let sleeping = lab.spawn(node, ["sh", "-ec", command])?;
    let mut told = None;
    // First those of the node that stays awake.
    let (own, others): (Vec<_>, Vec<_>) = blocked.into_iter().partition(|one| one.node == node);
    for blocked in others {
        told = Some(blocked.told(lab, event)?);
    }
    TOLD.check(&around, told.context("no process waited")?)?;
    wake(&sleeping)?;
    sleeping
        .wait_timeout(lab.hang_limit(60))?
        .context("the node did not come back from its sleep")?
        .success()?;
    for blocked in own {
        blocked.told(lab, event)?;
    }
    let now = sessions(lab).context("after sleep")?;
    ensure!(
        [0, 1]
            .iter()
            .all(|node| now[*node].generation == before[*node].generation),
        "a module was loaded anew: {before:?}, then {now:?}"
    );
    for node in 0..2 {
        not_logged(lab, node, "no sign of life")?;
        not_logged(lab, node, "transfers go by another one")?;
    }
    copy_works(lab)
}

/// Runs one of the kernel's tests of itself, which touch no power: processes are frozen, devices suspended, and so
/// on, up to `level`.
fn part_of_sleep(lab: &Lab, node: usize, level: &str, state: &str) -> Result<()> {
    let command = format!(
        "echo 1 >/sys/module/suspend/parameters/pm_test_delay
         echo {level} >/sys/power/pm_test
         echo {state} >/sys/power/state
         echo none >/sys/power/pm_test"
    );
    falls_asleep(lab, node, &command, |_| Ok(()))
        .with_context(|| format!("pm_test {level}, {state}"))
}

/// As far as the kernel goes in its tests of itself.
fn parts_of_suspend(lab: &Lab) -> Result<()> {
    part_of_sleep(lab, 0, "freezer", "mem")?;
    part_of_sleep(lab, 1, "devices", "mem")?;
    part_of_sleep(lab, 0, "platform", "freeze")?;
    part_of_sleep(lab, 1, "core", "mem")
}

/// Tries hibernation up to frozen processes. For the image Linux resets all virtio devices, and the guest's root over
/// 9p does not survive that. A debug kernel finds no room for an image in a guest's memory.
fn part_of_hibernation(lab: &Lab) -> Result<()> {
    part_of_sleep(lab, 0, "freezer", "disk")
}

/// In earnest: the guest's devices are reset when it wakes up, the bridge and the engine among them.
fn suspend_to_ram(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        falls_asleep(lab, node, "echo mem >/sys/power/state", |_| lab.wake(node))
            .with_context(|| format!("node {node}"))?;
    }
    Ok(())
}

/// Suspended to idle, a node keeps its devices in their state.
fn suspend_to_idle(lab: &Lab) -> Result<()> {
    lab.exec(0, ["modprobe", "-q", "button"])?;
    falls_asleep(lab, 0, "echo freeze >/sys/power/state", |sleeping| {
        // It does not count before the node is asleep, and from outside that can't be seen.
        wait_until("the node is awake", lab.hang_limit(60), || {
            lab.press_power_button(0)?;
            sleeping.wait_timeout(Duration::from_millis(500))
        })?;
        Ok(())
    })
}

/// Both sleep, so that neither hears the other's farewell or its first word.
fn both_sleep(lab: &Lab) -> Result<()> {
    let sleeping = [0, 1].map(|node| lab.spawn(node, ["sh", "-c", "echo mem >/sys/power/state"]));
    // A node sleeps until it is woken, so the second one is asleep before the first one wakes up.
    for node in [0, 1] {
        lab.wait_until_asleep(node)?;
    }
    for node in [0, 1] {
        lab.wake(node)?;
    }
    for process in sleeping {
        process?.wait()?.success()?;
    }
    sessions(lab)?;
    copy_works(lab)
}

/// Has node 0 replace its kernel, with these words on the command line, when the returned process has
/// read the end of its input.
fn load_next_kernel(lab: &Lab, words: &[&str]) -> Result<Process> {
    let mut argv = vec![
        scif::program("scif_kexec")?,
        lab.kernel().image().to_string_lossy().into_owned(),
        lab.initramfs().to_string_lossy().into_owned(),
    ];
    argv.extend(words.iter().map(|word| (*word).to_owned()));
    let process = lab.command(0, argv)?.stdin_piped().spawn()?;
    process.wait_for("loaded", lab.hang_limit(60))?;
    Ok(process)
}

/// Waits until node 1 reaches no memory of node 0 through the bridge; returns how long after `event`.
fn closed(lab: &Lab, event: Instant) -> Result<Duration> {
    wait_until("the windows are closed", lab.hang_limit(30), || {
        let loot = lab.raid(1, 0, RaidWrites::Nothing)?;
        Ok((loot.read == 0).then(|| event.elapsed()))
    })
}

/// Node 0 runs its next kernel: what the peer reaches of it, until it offers something, is nothing, though
/// the bridge is a master of the bus again. Then the link comes up.
fn begins_anew(lab: &Lab, boot_id: &str, before: &[Seen; 2]) -> Result<()> {
    lab.wait_for_next_kernel(0, boot_id)?;
    for module in &lab.config().modules {
        lab.load(0, module)?;
    }
    let loot = lab.raid(1, 0, RaidWrites::Everything)?;
    ensure!(
        loot.tried > 0 && loot.read == 0 && loot.written == 0,
        "the peer reaches the next kernel's memory: {loot:?}"
    );
    scif::load(lab, 0, LOADED_PAIR.scif)?;
    wait_until("node 1 sees another node 0", lab.hang_limit(20), || {
        let seen = scif::seen(lab, 1, 0)?;
        Ok(seen.filter(|seen| seen.generation != before[1].generation))
    })?;
    let now = sessions(lab)?;
    ensure!(
        now[0].generation == before[0].generation,
        "generations: {before:?}, then {now:?}"
    );
    copy_works(lab)
}

/// A kernel starts another in its place while processes of both nodes wait for each other and transfers
/// run in both directions. The peer is told at once, and the next kernel finds its memory untouched. Kernels that are
/// built here lie at a fixed place, where kexec can't put another one.
fn kexec(lab: &Lab) -> Result<()> {
    let before = sessions(lab)?;
    let boot_id = lab.boot_id(0)?;
    let around = Circumstances::before(lab, &[1])?;
    // Each pattern is written to all memory that is free, and looked at again.
    let starting = load_next_kernel(lab, &["memtest=4"])?;
    let [_own, others] = Blocked::on_both(lab)?;
    let event = Instant::now();
    starting.close_stdin();
    let told = others.told(lab, event)?;
    TOLD.check(&around, told)?;
    not_logged(lab, 1, "no sign of life")?;
    begins_anew(lab, &boot_id, &before)?;
    let log = lab.dmesg(0)?;
    ensure!(
        log.contains("early_memtest"),
        "memory was not tested:\n{}",
        lab::last_lines(&log, 20)
    );
    ensure!(
        !log.contains("bad mem addr"),
        "memory was written to:\n{log}"
    );
    Ok(())
}

/// A peer that does not answer any more does not delay a reboot.
fn reboot_with_dead_peer(lab: &Lab) -> Result<()> {
    let before = sessions(lab)?;
    let boot_id = lab.boot_id(0)?;
    let around = Circumstances::before(lab, &[0])?;
    let starting = load_next_kernel(lab, &[])?;
    lab.pause(1)?;
    let event = Instant::now();
    starting.close_stdin();
    let took = closed(lab, event)?;
    CLOSED.check(&around, took)?;
    lab.resume(1)?;
    begins_anew(lab, &boot_id, &before)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_power::kexec", LOADED_PAIR, kexec)
        .seconds(240)
        .loses_nodes()
        .leaves_disorder()
        .on_stock()
        .by_name(),
    Test::new(
        "scif_power::reboot_with_dead_peer",
        LOADED_PAIR,
        reboot_with_dead_peer,
    )
    .seconds(120)
    .loses_nodes()
    .leaves_disorder()
    .on_stock()
    .by_name(),
    Test::new(
        "scif_power::parts_of_suspend",
        SLEEPING_PAIR,
        parts_of_suspend,
    )
    .seconds(240)
    .loses_nodes()
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_power::part_of_hibernation",
        SLEEPING_PAIR,
        part_of_hibernation,
    )
    .seconds(240)
    .loses_nodes()
    .leaves_disorder()
    .on_stock()
    .by_name(),
    Test::new("scif_power::suspend_to_ram", SLEEPING_PAIR, suspend_to_ram)
        .seconds(180)
        .loses_nodes()
        .leaves_disorder(),
    Test::new(
        "scif_power::suspend_to_idle",
        SLEEPING_PAIR,
        suspend_to_idle,
    )
    .seconds(120)
    .loses_nodes()
    .leaves_disorder()
    .by_name(),
    Test::new("scif_power::both_sleep", SLEEPING_PAIR, both_sleep)
        .seconds(120)
        .loses_nodes()
        .leaves_disorder()
        .by_name(),
];
