// SPDX-License-Identifier: GPL-2.0
//! Tests of the lab itself, on which all other tests rely.

use std::fs;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use lab::Error;
use lab::Lab;
use lab::Silent;
use lab::wait_until;
use sha2::Digest;
use sha2::Sha256;

use crate::harness::Test;
use crate::harness::config;
use crate::need::ONE;
use crate::need::PAIR;
use crate::need::STAR;
use crate::promise::Circumstances;
use crate::summary;
use crate::verdict::Promise;

/// Limit from power-on to the answer of the last agent, with two nodes booting at once.
const BOOTED: Promise = Promise {
    name: "two nodes have booted",
    seconds: 15.0,
};

/// Limit from the death of the node until the waiting caller gets an error.
const DEATH_IS_TOLD: Promise = Promise {
    name: "the caller of a command hears that its node was killed",
    seconds: 5.0,
};

/// Standard streams, status and signal of a command arrive unchanged.
fn exec_returns_unchanged(lab: &Lab) -> Result<()> {
    let output = lab
        .command(1, ["sh", "-c", "cat; echo error >&2; echo $A; pwd; exit 3"])?
        .stdin("input\n")
        .env("A", "value")
        .cwd("/src")
        .run()?;
    ensure!(output.stdout() == "input\nvalue\n/src\n", "{output}");
    ensure!(output.stderr() == "error\n", "{output}");
    ensure!(output.code() == Some(3), "{output}");
    let output = lab.exec(0, ["sh", "-c", "kill -TERM $$"])?;
    ensure!(output.outcome == lab::Outcome::Signaled(15), "{output}");
    let output = lab.exec(0, ["/no/such/program"])?;
    ensure!(
        matches!(output.outcome, lab::Outcome::Failed { errno: 2, .. }),
        "{output}"
    );
    let error = lab.exec(0, ["false"])?.success().unwrap_err();
    ensure!(
        matches!(error.downcast_ref(), Some(Error::Command { .. })),
        "{error}"
    );
    ensure!(lab.shell(0, "hostname")? == "node0\n");
    ensure!(lab.shell(1, "hostname")? == "node1\n");
    Ok(())
}

/// Streams are complete, and a stream without a reader does not delay others.
fn unread_stream_delays_no_other(lab: &Lab) -> Result<()> {
    let pattern: Vec<u8> = (0..3_000_000_u32)
        .map(|n| (n.wrapping_mul(7) >> 3) as u8)
        .collect();
    let output = lab.command(0, ["cat"])?.stdin(pattern.clone()).run()?;
    ensure!(output.stdout == pattern, "cat changed its input");
    // This command ends without reading its input.
    lab.command(0, ["true"])?.stdin(pattern).run()?.success()?;

    let stalled = lab.command(0, ["sleep", "1000"])?.stdin_piped().spawn()?;
    let ticking = lab.spawn(0, ["sh", "-c", "echo ready; while :; do echo x; done"])?;
    ticking.wait_for("ready", lab.hang_limit(20))?;
    lab.exec(0, ["true"])?.success()?;
    ensure!(ticking.is_running() && stalled.is_running());
    ticking.kill();
    let output = ticking
        .wait_timeout(lab.hang_limit(20))?
        .context("a killed command does not end")?;
    ensure!(output.outcome == lab::Outcome::Signaled(9), "{output}");
    drop(stalled);
    wait_until("a dropped command is killed", lab.hang_limit(20), || {
        Ok((lab.exec(0, ["pgrep", "-x", "sleep"])?.code() == Some(1)).then_some(()))
    })
}

/// No zombie remains of a process that has lost its parent, whatever its process group.
fn orphans_are_reaped(lab: &Lab) -> Result<()> {
    // timeout kills its process group, and so itself first.
    let script = "for i in 1 2 3; do timeout -s KILL 0.1 sleep 1000 || true; done";
    lab.shell(0, script)?;
    wait_until("all orphans are reaped", lab.hang_limit(20), || {
        let states = lab.shell(0, "ps -A -o stat,comm")?;
        let mut lines = states.lines();
        let is_left = |line: &str| line.starts_with('Z') || line.ends_with("sleep");
        Ok((!lines.any(is_left)).then_some(()))
    })
}

/// A command that takes too long is killed, and its output says so.
fn slow_command_is_killed(lab: &Lab) -> Result<()> {
    let process = lab
        .command(0, ["sh", "-c", "echo started; sleep 1000"])?
        .timeout(Duration::from_secs(2))
        .spawn()?;
    // The wait may take any time, because the limit counts from the start.
    process.wait_for("started", lab.hang_limit(20))?;
    let error = process.wait().unwrap_err();
    ensure!(
        matches!(error.downcast_ref(), Some(Error::Timeout { .. })),
        "{error}"
    );
    ensure!(error.to_string().contains("started"), "{error}");
    Ok(())
}

/// Files arrive whole, with their mode, under their name.
fn files_arrive_whole(lab: &Lab) -> Result<()> {
    let folder = lab.paths().folder().join("files");
    fs::create_dir_all(&folder)?;
    let local = folder.join("data");
    let contents: Vec<u8> = (0..5_000_000_u32)
        .map(|n| (n.wrapping_mul(n) >> 5) as u8)
        .collect();
    fs::write(&local, &contents)?;
    lab.push(&local, 1, "/root/pushed")?;
    let expected = format!("{:x}", Sha256::digest(&contents));
    let sum = lab.shell(1, "chmod 751 /root/pushed; sha256sum /root/pushed")?;
    ensure!(sum.starts_with(&expected), "{sum} is not {expected}");
    let back = folder.join("back");
    lab.pull(1, "/root/pushed", &back)?;
    ensure!(fs::read(&back)? == contents, "the pulled file is different");
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(&back)?.permissions().mode() & 0o7777;
    ensure!(mode == 0o751, "the mode became {mode:o}");
    ensure!(lab.pull(1, "/no/such/file", &back).is_err());
    ensure!(lab.push(&local, 1, "/no/such/folder/file").is_err());

    // The exchange folder is shared by all.
    fs::write(lab.paths().exchange().join("from-host"), "host")?;
    ensure!(
        lab.shell(
            0,
            "cat /exchange/from-host; echo -n node >/exchange/from-node"
        )? == "host"
    );
    ensure!(lab.shell(1, "cat /exchange/from-node")? == "node");
    ensure!(fs::read_to_string(lab.paths().exchange().join("from-node"))? == "node");
    Ok(())
}

/// A guest sees a file that was just built, even if it has seen an older version.
fn rebuilt_file_is_seen(lab: &Lab) -> Result<()> {
    let host = lab.paths().folder().join("fresh");
    let guest = host.display().to_string();
    for contents in ["one", "two and longer", "x"] {
        // Writes the file in place, and then as a new file with the old name.
        fs::write(&host, contents)?;
        ensure!(lab.exec(0, ["cat", &guest])?.success()?.stdout() == contents);
        let new = host.with_extension("new");
        fs::write(&new, format!("{contents}, renamed"))?;
        fs::rename(&new, &host)?;
        let seen = lab.exec(0, ["cat", &guest])?.success()?.stdout();
        ensure!(seen == format!("{contents}, renamed"), "saw '{seen}'");
    }
    Ok(())
}

/// The checks of the kernel log find the lines that they are for.
fn kernel_log_checks_match(lab: &Lab) -> Result<()> {
    lab.check_kernel_log(0)?;
    lab.shell(0, "echo '<4>scif: a warning of this test' >/dev/kmsg")?;
    let error = lab.check_kernel_log(0).unwrap_err();
    ensure!(
        matches!(error.downcast_ref(), Some(Error::KernelLog { .. })),
        "{error}"
    );
    lab.mark_kernel_log(0, "the next part")?;
    lab.check_kernel_log(0)?;
    // This line stays in the log, and the test expects it.
    lab.shell(0, "echo '<4>scif: an expected warning' >/dev/kmsg")?;
    lab.pins(0)?;
    Ok(())
}

/// A killed node is reported as killed, the others live, and the node can be restarted.
fn killed_node_restarts(lab: &Lab) -> Result<()> {
    let around = Circumstances::before(lab, &[0, 1])?;
    let waiting = lab.spawn(1, ["sleep", "1000"])?;
    lab.shell(1, "echo mark >/root/gone")?;
    let started = Instant::now();
    lab.kill(1)?;
    let error = waiting.wait().unwrap_err();
    let took = started.elapsed();
    ensure!(error.to_string() == "node 1 was killed", "{error}");
    DEATH_IS_TOLD.check(&around, took)?;
    let error = lab.exec(1, ["true"]).unwrap_err();
    ensure!(
        matches!(error.downcast_ref(), Some(Error::NodeLost { node: 1, .. })),
        "{error}"
    );
    lab.exec(0, ["true"])?.success()?;
    lab.restart(1)?;
    ensure!(lab.exec(1, ["test", "-e", "/root/gone"])?.code() == Some(1));
    let state = lab.emulator_state()?;
    ensure!(
        state.guests.iter().all(|guest| guest.connected),
        "{state:?}"
    );
    lab.shell(1, "test -e /sys/bus/ntb/devices/0000:00:05.0")?;
    Ok(())
}

/// A paused node does not answer, and continues where it was.
fn paused_node_continues(lab: &Lab) -> Result<()> {
    lab.pause(1)?;
    let waiting = lab.spawn(1, ["echo", "here"])?;
    ensure!(waiting.wait_timeout(Duration::from_secs(1))?.is_none());
    lab.exec(0, ["true"])?.success()?;
    lab.resume(1)?;
    ensure!(waiting.wait()?.success()?.stdout() == "here\n");
    Ok(())
}

/// A kernel that crashes is reported as a dead node, with the end of its console.
fn crash_is_reported(lab: &Lab) -> Result<()> {
    let error = lab
        .exec(0, ["sh", "-c", "echo c >/proc/sysrq-trigger; sleep 100"])
        .unwrap_err()
        .to_string();
    ensure!(error.contains("node 0 died"), "{error}");
    ensure!(error.contains("Kernel panic"), "{error}");
    ensure!(!lab.is_running(0));
    Ok(())
}

/// Two labs run at once and do not see each other.
fn two_labs_are_separate(lab: &Lab) -> Result<()> {
    let name = format!("{}-other", lab.config().name);
    let other = Lab::start(config(&name, &ONE, lab.kernel().flavour()), &Silent)?;
    fs::write(other.paths().exchange().join("there"), "")?;
    ensure!(other.exec(0, ["test", "-e", "/exchange/there"])?.code() == Some(0));
    ensure!(lab.exec(0, ["test", "-e", "/exchange/there"])?.code() == Some(1));
    let folder = other.paths().folder().to_owned();
    ensure!(Lab::start(config(&name, &ONE, lab.kernel().flavour()), &Silent).is_err());
    drop(other);
    ensure!(!folder.exists(), "{} is left", folder.display());
    lab.exec(0, ["true"])?.success()?;
    Ok(())
}

/// In a star, the centre has an NTB for each other node.
fn star_centre_has_all_bridges(lab: &Lab) -> Result<()> {
    let count =
        |node| -> Result<usize> { Ok(lab.shell(node, "ls /sys/bus/ntb/devices")?.lines().count()) };
    ensure!(count(0)? == 2);
    ensure!(count(1)? == 1);
    ensure!(count(2)? == 1);
    Ok(())
}

/// Two nodes that boot at once answer in time.
///
/// The speed can't be measured before the first boot, which may have to read everything from the
/// disk. So if the first boot took too long, another one counts.
fn boot_is_in_time(lab: &Lab) -> Result<()> {
    let seconds = || summary::boot_seconds(lab).context("a node is down");
    let around = Circumstances::before(lab, &[0, 1])?;
    let Err(first) = BOOTED.check(&around, Duration::from_secs_f64(seconds()?)) else {
        return Ok(());
    };
    println!("      {first:#}; once more");
    thread::scope(|scope| {
        let restarts = [0, 1].map(|node| scope.spawn(move || lab.restart(node)));
        restarts.map(|restart| restart.join().unwrap_or_else(|_| bail!("a panic")))
    })
    .into_iter()
    .collect::<Result<()>>()?;
    BOOTED.check(&around, Duration::from_secs_f64(seconds()?))
}

/// The kernel's own modules are where a guest searches for them.
fn guest_finds_kernel_modules(lab: &Lab) -> Result<()> {
    // Netdev and its parts are in folders of their own; FUSE and zram may be built in.
    for module in ["ntb_netdev", "zram"] {
        lab.load(0, module)?;
        lab.shell(
            0,
            &format!("test -e /sys/module/{module} && modprobe -r {module}"),
        )?;
    }
    lab.shell(
        0,
        "modprobe --dry-run fuse; test \"$(ls /lib/modules)\" = \"$(uname -r)\"",
    )?;
    Ok(())
}

/// The measurement of the speed takes longer in a busy node. Otherwise it would never find a slow
/// machine.
///
/// The test tries several times, because the machine may become faster in between.
fn busy_node_measures_slower(lab: &Lab) -> Result<()> {
    // The loops are twice as many as a node has CPUs.
    let script = "for i in 1 2 3 4; do while :; do :; done & done; echo busy; wait";
    let mut found = Vec::new();
    for _ in 0..5 {
        let quiet = lab.measure_speed(0)?;
        let load = lab.spawn(0, ["sh", "-c", script])?;
        load.wait_for("busy", lab.hang_limit(20))?;
        let busy = lab.measure_speed(0)?;
        load.kill();
        load.wait_timeout(lab.hang_limit(20))?
            .context("a killed command does not end")?;
        ensure!(quiet.factor >= 1.0 && busy.factor >= 1.0);
        if busy.loop_seconds > 1.4 * quiet.loop_seconds {
            return Ok(());
        }
        found.push((quiet, busy));
    }
    bail!("a busy node is as fast as an idle one: {found:#?}")
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("lab::boot_is_in_time", PAIR, boot_is_in_time).seconds(180),
    Test::new(
        "lab::busy_node_measures_slower",
        PAIR,
        busy_node_measures_slower,
    )
    .by_name(),
    Test::new(
        "lab::guest_finds_kernel_modules",
        PAIR,
        guest_finds_kernel_modules,
    )
    .on_stock(),
    Test::new("lab::exec_returns_unchanged", PAIR, exec_returns_unchanged),
    Test::new(
        "lab::unread_stream_delays_no_other",
        PAIR,
        unread_stream_delays_no_other,
    )
    .seconds(120),
    Test::new("lab::orphans_are_reaped", PAIR, orphans_are_reaped),
    Test::new("lab::slow_command_is_killed", PAIR, slow_command_is_killed),
    Test::new("lab::files_arrive_whole", PAIR, files_arrive_whole),
    Test::new("lab::rebuilt_file_is_seen", PAIR, rebuilt_file_is_seen),
    Test::new(
        "lab::kernel_log_checks_match",
        PAIR,
        kernel_log_checks_match,
    )
    .expects(&["an expected warning"]),
    Test::new("lab::two_labs_are_separate", PAIR, two_labs_are_separate)
        .seconds(120)
        .by_name(),
    Test::new("lab::killed_node_restarts", PAIR, killed_node_restarts)
        .seconds(120)
        .by_name(),
    Test::new("lab::paused_node_continues", PAIR, paused_node_continues),
    Test::new("lab::crash_is_reported", PAIR, crash_is_reported).leaves_disorder(),
    Test::new(
        "lab::star_centre_has_all_bridges",
        STAR,
        star_centre_has_all_bridges,
    ),
];
