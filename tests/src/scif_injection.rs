// SPDX-License-Identifier: GPL-2.0
//! Each allocation and each user copy of the module fails once (tests/programs/scif_inject.c).
//!
//! The call returns an error and leaves nothing behind. The failures occur in the caller, in kernel
//! threads on its node, or on its peer. Only functions called by the module's code fail; the kernel
//! finds this code in the stack.
//!
//! Each call to the drivers of bridge and engine fails once, too. So does each call that maps
//! memory or registers the module (tests/modules/scif_failing.c).

use std::fs;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::kernel_log;
use lab::wait_until;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::PAIR;
use crate::scif;
use crate::scif::DEBUGFS;
use crate::scif::Server;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_kernel;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Port of the server.
const PORT: &str = "2411";

/// Lets functions called by some code of a node's kernel fail when a program requests it. `code` is
/// an awk program that prints the addresses of the code's symbols.
pub fn choose(lab: &Lab, node: usize, code: &str) -> Result<()> {
    let script = format!(
        r#"cd /sys/kernel/debug
        range=$(awk '{code}' /proc/kallsyms | sort)
        start=$(echo "$range" | head -n 1)
        end=$(echo "$range" | tail -n 1)
        # What the kernel's check of the DMA API keeps is its own: it gives up without memory.
        check=$(echo $(awk 'found {{ print $1; exit }} / add_dma_entry$/ {{ print $1; found = 1 }}' /proc/kallsyms))
        for kind in failslab fail_page_alloc fail_usercopy; do
            echo 0 >$kind/probability
            echo -1 >$kind/times
            echo 0 >$kind/verbose
            echo 32 >$kind/stacktrace-depth
            echo 0x$start >$kind/require-start
            echo 0x$end >$kind/require-end
            echo 0x${{check%% *}} >$kind/reject-start
            echo 0x${{check##* }} >$kind/reject-end
        done
        echo N >failslab/ignore-gfp-wait
        echo N >fail_page_alloc/ignore-gfp-wait
        echo N >fail_page_alloc/ignore-gfp-highmem
        echo 0 >fail_page_alloc/min-order"#
    );
    lab.shell(node, &script)?;
    Ok(())
}

/// An awk program that selects the code of the module.
pub const MODULE: &str = r#"$4 == "[scif]" && tolower($2) == "t" { print $1 }"#;

/// Runs all scenarios with failures on one side.
fn inject(lab: &Lab, side: &str, peer: usize) -> Result<()> {
    for node in 0..lab.nodes() {
        choose(lab, node, MODULE)?;
    }
    let server = scif::start_server(lab, peer, "scif_inject", &["serve", PORT], 600)?;
    let name = peer.to_string();
    scif::run_tap(lab, 0, "scif_inject", &[side, &name, PORT], 600)?;
    server.kill();
    server.wait()?;
    for node in 0..lab.nodes() {
        scif::check_idle(lab, node)?;
        let report = lab.kmemleak(node)?;
        ensure!(report.is_empty(), "node {node} has leaked:\n{report}");
    }
    Ok(())
}

/// Functions that the module calls when it is loaded and a session begins, and their results when
/// they fail.
const BEGINNING: &[(&str, &str)] = &[
    // Functions of the bridge.
    ("__ntb_register_client", "-12"),
    ("ntb_set_ctx", "-22"),
    ("ntb_default_port_number", "-22"),
    ("ntb_default_peer_port_count", "-22"),
    ("ntb_default_peer_port_number", "-22"),
    ("intel_ntb4_link_enable", "-5"),
    ("intel_ntb_link_is_up", "0"),
    ("intel_ntb_mw_count", "-22"),
    ("intel_ntb4_mw_get_align", "-22"),
    ("intel_ntb4_mw_set_trans", "-5"),
    ("intel_ntb_peer_mw_get_addr", "-22"),
    ("intel_ntb_spad_count", "-22"),
    ("intel_ntb_spad_read", "-1"),
    ("intel_ntb_peer_spad_write", "-5"),
    ("intel_ntb_db_valid_mask", "0"),
    ("intel_ntb3_db_clear", "-5"),
    ("intel_ntb_db_set_mask", "-5"),
    ("intel_ntb_db_clear_mask", "-5"),
    ("intel_ntb3_peer_db_set", "-5"),
    // Functions of the engine, and mappings.
    ("__dma_request_channel", "0"),
    ("dma_map_phys", "-1"),
    ("dma_iova_try_alloc", "0"),
    ("dma_iova_link", "-12"),
    ("dma_iova_sync", "-12"),
    ("ioremap_wc", "0"),
    // Functions that register the module.
    ("alloc_workqueue_noprof", "0"),
    ("shrinker_alloc", "0"),
    ("bus_register", "-12"),
    ("bus_register_notifier", "-12"),
    ("device_add", "-12"),
    ("class_create", "-12"),
    ("__register_chrdev", "-16"),
    ("device_create", "-12"),
    ("register_module_notifier", "-12"),
    ("register_pm_notifier", "-12"),
    ("register_reboot_notifier", "-12"),
    ("debugfs_create_file_full", "-12"),
];

/// Functions that the module calls while data moves, and their results when they fail.
const MOVING: &[(&str, &str)] = &[
    ("intel_ntb_link_is_up", "0"),
    ("intel_ntb_spad_read", "-1"),
    ("intel_ntb_db_vector_mask", "0"),
    ("intel_ntb3_db_read", "0"),
    ("intel_ntb3_db_clear", "-5"),
    ("intel_ntb3_peer_db_set", "-5"),
    // plx_dma holds a lock from this call to the submit, so the submit can't fail.
    ("plx_dma_prep_memcpy", "0"),
    ("dma_map_phys", "-1"),
    ("dma_iova_link", "-12"),
    ("dma_iova_sync", "-12"),
    ("ioremap_wc", "0"),
    ("pin_user_pages_fast", "-14"),
    ("mmu_interval_notifier_insert", "-12"),
];

/// Number of calls of each function that fail, one in each run. Later calls are like earlier ones.
const MOST_CALLS: u32 = 4;

/// The bridge of node 0.
const BRIDGE: &str = "0000:00:05.0";

/// A call that fails.
#[derive(Clone, Copy)]
struct Failing {
    symbol: &'static str,
    value: &'static str,
    /// The number of the call that fails, among the calls of the function.
    nth: u32,
}

impl Failing {
    /// Lets the call fail from now on.
    fn begin(self, lab: &Lab) -> Result<()> {
        let Failing { symbol, value, nth } = self;
        let parameters = format!("symbol={symbol} nth={nth} value={value}");
        scif_kernel::load(lab, 0, "tests", "scif_failing", &parameters)
    }

    /// Returns whether the call has failed.
    fn has_failed(self, lab: &Lab) -> Result<bool> {
        let calls = lab.shell(0, "cat /sys/module/scif_failing/parameters/calls")?;
        let calls: u32 = calls.trim().parse().context("the number of calls")?;
        Ok(calls >= self.nth)
    }

    /// Ends the failures. Returns whether the call has failed.
    fn end(self, lab: &Lab) -> Result<bool> {
        let has_failed = self.has_failed(lab)?;
        lab.rmmod(0, "scif_failing")?;
        Ok(has_failed)
    }
}

/// Returns whether a node sees another online.
fn sees(lab: &Lab, node: usize, peer: usize) -> Result<bool> {
    // The module works without a file of debugfs that could not be made. The bus has the nodes,
    // too, but not if one of its devices could not be made.
    let script = format!(
        "if [ -e {DEBUGFS}/nodes ]; then grep -c '^{peer} online ' {DEBUGFS}/nodes
        else grep -cx online /sys/bus/scif_peer/devices/node{peer}/state; fi || true"
    );
    Ok(lab.shell(node, &script)?.trim() == "1")
}

/// Returns whether both nodes of a pair see each other.
fn are_online(lab: &Lab) -> Result<bool> {
    Ok(sees(lab, 0, 1)? && sees(lab, 1, 0)?)
}

/// Returns the module's warnings and errors in node 0's log since the test began.
fn warnings(lab: &Lab) -> Result<Vec<String>> {
    let log = lab.dmesg(0)?;
    let lines = kernel_log::since_mark(&log).lines();
    let warnings = lines.filter(|line| line.contains("scif") && !line.starts_with("<6>"));
    Ok(warnings.map(str::to_owned).collect())
}

/// Makes the nodes see each other again. Returns the means that this took.
fn recover(scene: &Scene) -> Result<&'static str> {
    let lab = scene.lab;
    // A session that could not begin is retried after a second, then after two.
    let soon = lab.hang_limit(1);
    let online = || wait_until("a session", soon, || Ok(are_online(lab)?.then_some(())));
    let mut took = "nothing";
    if online().is_err() {
        took = "the next link";
        lab.set_link(0, 1, false)?;
        lab.set_link(0, 1, true)?;
    }
    if online().is_err() {
        took = "the driver bound anew";
        let driver = "/sys/bus/pci/drivers/ntb_hw_intel";
        for action in ["unbind", "bind"] {
            lab.shell(0, &format!("echo {BRIDGE} >{driver}/{action}"))?;
        }
    }
    online()?;
    Ok(took)
}

/// Loads the module while a call fails. Returns the means of recovery if the call has failed.
fn begin_with(scene: &Scene, failing: Failing) -> Result<Option<&'static str>> {
    let lab = scene.lab;
    failing.begin(lab)?;
    let loaded = scif::load(lab, 0, Loaded::LongHeartbeat);
    if loaded.is_ok() {
        wait_until(
            "a session, or a call that fails",
            lab.hang_limit(20),
            || Ok((failing.has_failed(lab)? || are_online(lab)?).then_some(())),
        )?;
    }
    let has_failed = failing.end(lab)?;
    let took = match loaded {
        Ok(()) => {
            let took = recover(scene)?;
            if has_failed {
                scene.copy()?;
            }
            scif::check_idle(lab, 0)?;
            lab.rmmod(0, "scif")?;
            took
        }
        Err(_) if has_failed => {
            lab.shell(
                0,
                "! [ -e /sys/module/scif ] && ! [ -e /dev/scif ] && ! [ -e /sys/bus/scif_peer ]",
            )
            .context("it was not loaded, and is there")?;
            "loading it anew"
        }
        Err(error) => return Err(error),
    };
    Ok(has_failed.then_some(took))
}

/// Moves data while a call fails. Returns the means of recovery if the call has failed.
fn move_with(scene: &Scene, failing: Failing) -> Result<Option<&'static str>> {
    let lab = scene.lab;
    failing.begin(lab)?;
    let copied = scene.copy();
    let has_failed = failing.end(lab)?;
    if !has_failed {
        copied?;
    }
    let took = recover(scene)?;
    scene.copy()?;
    scif::check_idle(lab, 0)?;
    Ok(has_failed.then_some(took))
}

/// Does some work with the first call of each function failing, then with the second, until the
/// work makes fewer calls.
///
/// The module has to log each failure, unless it went on without help. Returns a list of faults.
fn fail_each(
    lab: &Lab,
    functions: &'static [(&str, &str)],
    work: impl Fn(Failing) -> Result<Option<&'static str>>,
    tidy: impl Fn() -> Result<()>,
) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for &(symbol, value) in functions {
        let mut failed = 0;
        for nth in 1..=MOST_CALLS {
            let before = warnings(lab)?.len();
            let result = work(Failing { symbol, value, nth });
            let said = warnings(lab)?.split_off(before);
            println!("      {symbol} {nth}: {result:?}");
            for line in &said {
                println!("          {line}");
            }
            match result {
                Ok(None) => break,
                Ok(Some(took)) => {
                    failed = nth;
                    if took.starts_with("the ") && said.is_empty() {
                        wrong.push(format!(
                            "call {nth} of {symbol} fails, and the log does not say so"
                        ));
                    }
                }
                Err(error) => {
                    wrong.push(format!(
                        "call {nth} of {symbol} fails: {error:#}\n{}",
                        said.join("\n")
                    ));
                    tidy()?;
                    break;
                }
            }
        }
        println!("      {symbol}: {failed} calls have failed");
    }
    Ok(wrong)
}

/// Unloads the modules that node 0 may still have loaded after a fault.
fn unload(lab: &Lab) -> Result<()> {
    for module in ["scif_failing", "scif"] {
        let unload = format!("! [ -e /sys/module/{module} ] || rmmod {module}");
        lab.shell(0, &unload)?;
    }
    Ok(())
}

/// A pair whose node 1 has the module and a server for the data.
struct Scene<'a> {
    lab: &'a Lab,
    server: Server<'a>,
    sum: String,
}

impl<'a> Scene<'a> {
    fn new(lab: &'a Lab) -> Result<Self> {
        let sum = scif::make_file(lab, "injection", 1 << 20)?;
        scif::load(lab, 1, Loaded::LongHeartbeat)?;
        let server = Server::start(lab, 1)?;
        Ok(Self { lab, server, sum })
    }

    /// Copies a file from node 0.
    fn copy(&self) -> Result<()> {
        let there = self.server.folder.join("copy");
        let _ = fs::remove_file(&there);
        let argv = [&*scif::tool()?, "cp", "-q", "/exchange/injection", "1:copy"];
        let copied = self.lab.command(0, argv)?.timeout(self.lab.hang_limit(6));
        copied.run()?.success()?;
        ensure!(scif::hash_of(&there)? == self.sum, "the copy differs");
        Ok(())
    }

    /// Loads the module on node 0, and waits for the session.
    fn load(&self) -> Result<()> {
        scif::load(self.lab, 0, Loaded::LongHeartbeat)?;
        scif::online(self.lab, 0, 1)?;
        scif::online(self.lab, 1, 0).map(drop)
    }

    /// Ends the test, and fails if resources remain or there was a fault.
    fn end(self, wrong: &[String]) -> Result<()> {
        let Self { lab, server, .. } = self;
        server.stop()?;
        scif::check_idle(lab, 1)?;
        unload(lab)?;
        lab.rmmod(1, "scif")?;
        if lab.kernel().flavour() == Flavour::Debug {
            for node in 0..2 {
                let report = lab.kmemleak(node)?;
                ensure!(report.is_empty(), "node {node} has leaked:\n{report}");
            }
        }
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}

/// If a function fails once while the module is loaded, the module is loaded and a session begins
/// nevertheless. Data moves at once or later.
fn failing_load_begins_session(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    let begin = |failing| begin_with(&scene, failing);
    let wrong = fail_each(lab, BEGINNING, begin, || unload(lab))?;
    scene.end(&wrong)
}

/// If a function fails once while data moves, the session goes on or begins anew, and data moves.
fn failing_transfer_recovers(lab: &Lab) -> Result<()> {
    let scene = Scene::new(lab)?;
    scene.load()?;
    let go_on = |failing| move_with(&scene, failing);
    let begin_anew = || {
        unload(lab)?;
        scene.load()
    };
    let wrong = fail_each(lab, MOVING, go_on, begin_anew)?;
    scene.end(&wrong)
}

fn loopback_caller_fails(lab: &Lab) -> Result<()> {
    inject(lab, "caller", 0)
}

fn caller_fails(lab: &Lab) -> Result<()> {
    inject(lab, "caller", 1)
}

fn workers_fail(lab: &Lab) -> Result<()> {
    inject(lab, "workers", 1)
}

fn peer_fails(lab: &Lab) -> Result<()> {
    inject(lab, "peers", 1)
}

const fn test(name: &'static str, need: Need, run: fn(&Lab) -> Result<()>) -> Test {
    Test::new(name, need, run)
        .seconds(600)
        .on_debug()
        // Each failure may log this.
        .expects(&["for lack of memory"])
}

const fn failing(name: &'static str, need: Need, run: fn(&Lab) -> Result<()>) -> Test {
    Test::new(name, need, run)
        .seconds(900)
        .leaves_disorder()
        // Each failure may log this.
        .expects(&["scif: ", "scif 0000:"])
        .by_name()
}

/// The pair for arena mode, without the module.
const ARENA: Need = Need {
    scif: Loaded::No,
    ..ARENA_PAIR
};

/// The tests of this file.
pub const TESTS: &[Test] = &[
    test(
        "scif_injection::loopback_caller_fails",
        SCIF_PAIR,
        loopback_caller_fails,
    )
    .by_name(),
    test("scif_injection::caller_fails", SCIF_PAIR, caller_fails),
    test("scif_injection::workers_fail", SCIF_PAIR, workers_fail).by_name(),
    test("scif_injection::peer_fails", SCIF_PAIR, peer_fails).by_name(),
    test(
        "scif_injection::caller_fails_arena",
        ARENA_PAIR,
        caller_fails,
    )
    .by_name(),
    test(
        "scif_injection::caller_fails_bounce",
        scif_bounce::USUAL,
        caller_fails,
    )
    .by_name(),
    failing(
        "scif_injection::failing_load_begins_session",
        PAIR,
        failing_load_begins_session,
    ),
    failing(
        "scif_injection::failing_transfer_recovers",
        PAIR,
        failing_transfer_recovers,
    ),
    failing(
        "scif_injection::failing_load_begins_session_arena",
        ARENA,
        failing_load_begins_session,
    ),
    failing(
        "scif_injection::failing_transfer_recovers_arena",
        ARENA,
        failing_transfer_recovers,
    ),
];
