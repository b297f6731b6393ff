// SPDX-License-Identifier: GPL-2.0
//! Machines that sleep, and machines whose kernel is replaced. Their peers are notified at once,
//! however long the heartbeat timeout is. No resources of the old session remain, and the links
//! come back.

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

/// A pair with the labs' heartbeat timeout of a minute or more. A peer that notices the loss sooner
/// was notified.
const LOADED_PAIR: Need = Need {
    scif: Loaded::LongHeartbeat,
    ..PAIR
};

/// Limit from the time at which a kernel starts its successor until the hanging peer reaches none
/// of its memory.
const CLOSED: Promise = Promise {
    name: "a machine that reboots closes its windows",
    seconds: 2.0,
};

const SLEEPING_PAIR: Need = Need {
    sleep: true,
    ..LOADED_PAIR
};

/// Checks that a node can sleep while processes of both nodes wait for each other and transfers are
/// in flight.
///
/// All waiting calls have to return, and none may keep the node from sleeping. The link has to come
/// back by itself with the same modules. The function runs `command` to put the node to sleep,
/// which returns when the node is awake again. It calls `wake` as soon as the peer's calls have
/// returned.
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
    // Waits first for the processes of the node that stays awake.
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
        not_logged(lab, node, "no heartbeat")?;
        not_logged(lab, node, "later ones go by another engine")?;
    }
    copy_works(lab)
}

/// Runs one of the kernel's self-tests of sleep, which touch no power. The kernel freezes
/// processes, suspends devices and so on, up to `level`.
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

/// Runs the kernel's self-tests of suspend up to the last level.
fn suspend_self_tests_pass(lab: &Lab) -> Result<()> {
    part_of_sleep(lab, 0, "freezer", "mem")?;
    part_of_sleep(lab, 1, "devices", "mem")?;
    part_of_sleep(lab, 0, "platform", "freeze")?;
    part_of_sleep(lab, 1, "core", "mem")
}

/// Tries hibernation up to frozen processes. For the image Linux resets all virtio devices, which
/// the guest's root over 9p does not survive. A debug kernel finds no room for an image in a
/// guest's memory.
fn hibernation_freezes_processes(lab: &Lab) -> Result<()> {
    part_of_sleep(lab, 0, "freezer", "disk")
}

/// Suspends nodes to RAM. The guest's devices are reset when it wakes up, the bridge and the engine
/// among them.
fn suspend_to_ram_reconnects(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        falls_asleep(lab, node, "echo mem >/sys/power/state", |_| lab.wake(node))
            .with_context(|| format!("node {node}"))?;
    }
    Ok(())
}

/// Suspends a node to idle, in which its devices keep their state.
fn suspend_to_idle_reconnects(lab: &Lab) -> Result<()> {
    lab.exec(0, ["modprobe", "-q", "button"])?;
    falls_asleep(lab, 0, "echo freeze >/sys/power/state", |sleeping| {
        // The button has no effect before the node is asleep, and the test can't see when that is.
        wait_until("the node is awake", lab.hang_limit(60), || {
            lab.press_power_button(0)?;
            sleeping.wait_timeout(Duration::from_millis(500))
        })?;
        Ok(())
    })
}

/// Lets both nodes sleep, so that neither receives the other's farewell or its first message.
fn both_nodes_sleep_and_reconnect(lab: &Lab) -> Result<()> {
    let sleeping = [0, 1].map(|node| lab.spawn(node, ["sh", "-c", "echo mem >/sys/power/state"]));
    // A node sleeps until the test wakes it, so the second node is asleep before the first one
    // wakes up.
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

/// Starts a process on node 0 that replaces the kernel when its input ends, with these words on the
/// command line.
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

/// Waits until node 1 reaches no memory of node 0 through the bridge. Returns the time since
/// `event`.
fn closed(lab: &Lab, event: Instant) -> Result<Duration> {
    wait_until("the windows are closed", lab.hang_limit(30), || {
        let loot = lab.raid(1, 0, RaidWrites::Nothing)?;
        Ok((loot.read == 0).then(|| event.elapsed()))
    })
}

/// Checks node 0 after it has started its next kernel.
///
/// Until node 0 makes an offer, the peer reaches none of its memory, though the bridge is a bus
/// master again. Then the link comes up.
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

/// A kernel starts its successor while processes of both nodes wait for each other and transfers
/// run in both directions.
///
/// The peer is notified at once, and the next kernel finds its memory untouched. The test runs on
/// the stock kernel only: kexec can't load the kernels that the project builds, as these lie at a
/// fixed address.
fn kexec_notifies_peer(lab: &Lab) -> Result<()> {
    let before = sessions(lab)?;
    let boot_id = lab.boot_id(0)?;
    let around = Circumstances::before(lab, &[1])?;
    // memtest writes each pattern to all free memory, and reads it again.
    let starting = load_next_kernel(lab, &["memtest=4"])?;
    let [_own, others] = Blocked::on_both(lab)?;
    let event = Instant::now();
    starting.close_stdin();
    let told = others.told(lab, event)?;
    TOLD.check(&around, told)?;
    not_logged(lab, 1, "no heartbeat")?;
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

/// A peer that does not answer does not delay a reboot.
fn dead_peer_delays_no_reboot(lab: &Lab) -> Result<()> {
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
    Test::new(
        "scif_power::kexec_notifies_peer",
        LOADED_PAIR,
        kexec_notifies_peer,
    )
    .seconds(240)
    .loses_nodes()
    .leaves_disorder()
    .on_stock()
    .by_name(),
    Test::new(
        "scif_power::dead_peer_delays_no_reboot",
        LOADED_PAIR,
        dead_peer_delays_no_reboot,
    )
    .seconds(120)
    .loses_nodes()
    .leaves_disorder()
    .on_stock()
    .by_name(),
    Test::new(
        "scif_power::suspend_self_tests_pass",
        SLEEPING_PAIR,
        suspend_self_tests_pass,
    )
    .seconds(240)
    .loses_nodes()
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_power::hibernation_freezes_processes",
        SLEEPING_PAIR,
        hibernation_freezes_processes,
    )
    .seconds(240)
    .loses_nodes()
    .leaves_disorder()
    .on_stock()
    .by_name(),
    Test::new(
        "scif_power::suspend_to_ram_reconnects",
        SLEEPING_PAIR,
        suspend_to_ram_reconnects,
    )
    .seconds(180)
    .loses_nodes()
    .leaves_disorder(),
    Test::new(
        "scif_power::suspend_to_idle_reconnects",
        SLEEPING_PAIR,
        suspend_to_idle_reconnects,
    )
    .seconds(120)
    .loses_nodes()
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_power::both_nodes_sleep_and_reconnect",
        SLEEPING_PAIR,
        both_nodes_sleep_and_reconnect,
    )
    .seconds(120)
    .loses_nodes()
    .leaves_disorder()
    .by_name(),
];
