// SPDX-License-Identifier: GPL-2.0
//! Mutants: modules from which something was removed.
//!
//! A mutant without a barrier that keeps writes in order has to fail where writes are reordered. If
//! it does not fail, either the tests miss the fault, or the barrier is of no use.
//!
//! A mutant is a patch in `tests/mutants`. `Name: value` lines in its head say how it is tested:
//!
//! ```text
//! Seeds     the seeds to try, in that order
//! Fails     cases of the conformance suite, of which one has to fail with one of the seeds
//! Beside    a mutant to compare with, in the place of the unchanged module
//! ```
//!
//! (`several-pollers` has a test of its own, with the software engine of `scif_engines`.)
//!
//! The module or mutant that it is compared with has to pass all of these cases with all of these
//! seeds, in the same lab and just before. So only the patch makes the difference.
//!
//! A `KUnit` line names the case of the module's own tests that has to fail.
//!
//! Other mutants are for crowds (`scif_fuzz.rs`), which have to find a fault. The heads of these
//! patches say so in words.
//!
//! A mutant may do anything to the memory of its peer, so no other test uses the lab afterwards.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::slice;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use lab::Error;
use lab::Lab;
use lab::WeakOrderEngines;
use lab::paths;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::scif;
use crate::scif_conformance;
use crate::scif_conformance::BARE;
use crate::scif_engines;
use crate::scif_fuzz;
use crate::scif_module::KUNIT;
use crate::scif_order::arena;
use crate::scif_order::bounce;
use crate::scif_order::flat;
use crate::scif_order::topology;

/// A lab in bounce mode that also delays stores.
const BOUNCE: Need = bounce(1, WeakOrderEngines::Switch);

/// The head of a patch.
struct Mutant {
    name: &'static str,
    seeds: Vec<u64>,
    fails: Vec<String>,
    beside: Option<String>,
}

impl Mutant {
    fn read(name: &'static str) -> Result<Self> {
        let path = paths::repository()
            .join("tests/mutants")
            .join(format!("{name}.patch"));
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read the mutant {}", path.display()))?;
        let head = text.split("\ndiff ").next().unwrap_or_default();
        let words = |name: &str| -> Vec<String> {
            let values = head.lines().filter_map(|line| line.strip_prefix(name));
            values
                .flat_map(str::split_whitespace)
                .map(str::to_owned)
                .collect()
        };
        let seeds: Result<Vec<u64>, _> = words("Seeds:").iter().map(|seed| seed.parse()).collect();
        let mutant = Self {
            name,
            seeds: seeds.with_context(|| format!("'Seeds:' in {}", path.display()))?,
            fails: words("Fails:"),
            beside: words("Beside:").into_iter().next(),
        };
        ensure!(
            !mutant.seeds.is_empty() && !mutant.fails.is_empty(),
            "the head of {} does not say which 'Seeds:' and which cases ('Fails:')",
            path.display()
        );
        Ok(mutant)
    }

    /// Returns whether one of the cases fails with one of the seeds and the loaded module.
    fn fails(&self, lab: &Lab) -> Result<bool> {
        for seed in &self.seeds {
            // Runs each case by itself, because other cases may take long to fail.
            for case in &self.fails {
                match failed(lab, *seed, slice::from_ref(case)) {
                    Ok(failed) if failed.is_empty() => {}
                    Ok(_) => return Ok(true),
                    Err(error) => match error.downcast_ref() {
                        // A node has died, or the case can't even be killed. This counts as a
                        // failure.
                        Some(Error::NodeLost { .. } | Error::Timeout { .. }) => return Ok(true),
                        _ => return Err(error),
                    },
                }
            }
        }
        Ok(false)
    }

    fn check(&self, lab: &Lab) -> Result<()> {
        let module = build(lab, self.name)?;
        if let Some(other) = &self.beside {
            replace(lab, build(lab, other)?)?;
        }
        for seed in &self.seeds {
            let failed = failed(lab, *seed, &self.fails)?;
            ensure!(
                failed.is_empty(),
                "with seed {seed} these cases fail without '{}', too: {failed:?}",
                self.name
            );
        }
        replace(lab, module)?;
        let fails = self.fails(lab)?;
        // Kills the nodes, so that nothing checks what the mutant has left behind.
        (0..lab.nodes()).try_for_each(|node| lab.kill(node))?;
        ensure!(
            fails,
            "{:?} pass with tests/mutants/{}.patch and the seeds {:?}, as if the removed step were of no use: \
             try other seeds and cases, or find the code that has replaced this step",
            self.fails,
            self.name,
            self.seeds
        );
        Ok(())
    }
}

/// Returns the cases that fail with this seed and the loaded module.
fn failed(lab: &Lab, seed: u64, cases: &[String]) -> Result<Vec<String>> {
    lab.reseed(seed)?;
    let (topology, mut options) = topology(lab);
    // A case that hangs takes this whole time. Other cases end after a fraction of it.
    let limit = lab.hang_limit(1);
    let seconds = limit.as_secs().to_string();
    options.extend(["--time-limit", &seconds]);
    options.extend(cases.iter().flat_map(|case| ["--only", case]));
    let all = limit * (cases.len() as u32 + 2);
    let output = scif_conformance::output(lab, topology, &options, all)?.stdout();
    ensure!(output.contains("\n1.."), "the suite did not end:\n{output}");
    let failed = scif_conformance::failed_cases(&output);
    Ok(failed.into_iter().map(str::to_owned).collect())
}

/// Builds a mutant for a lab's kernel.
pub fn build(lab: &Lab, name: &str) -> Result<PathBuf> {
    Ok(make(lab, "--mutant", name)?.join("scif.ko"))
}

/// Builds a mutant, and `scif_net.ko` for it. Returns both.
pub fn build_with_net(lab: &Lab, name: &str) -> Result<[PathBuf; 2]> {
    let folder = make(lab, "--mutant", name)?;
    Ok(["scif.ko", "net/scif_net.ko"].map(|file| folder.join(file)))
}

/// Builds a mutant, and returns its folder.
fn make(lab: &Lab, option: &str, name: &str) -> Result<PathBuf> {
    let flavour = lab.kernel().flavour().name();
    let root = paths::repository();
    let output = Command::new(root.join("scripts/module"))
        .args([flavour, option, name])
        .output()
        .context("cannot run scripts/module")?;
    if !output.status.success() {
        bail!(
            "'scripts/module {flavour} {option} {name}' failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(root.join(format!("build/mutants/{name}/{flavour}")))
}

/// Replaces the loaded module by another one.
pub fn replace(lab: &Lab, module: PathBuf) -> Result<()> {
    scif::unload_everywhere(lab)?;
    for node in 0..lab.nodes() {
        let parameters = scif::parameters(lab, node, Loaded::LongHeartbeat)?;
        lab.insmod(node, &module, &parameters)?;
    }
    for (a, b) in lab.config().links() {
        scif::online(lab, a, b)?;
        scif::online(lab, b, a)?;
    }
    Ok(())
}

/// Fails unless crowds find a fault in a mutant.
fn for_crowds(lab: &Lab, name: &str) -> Result<()> {
    replace(lab, build(lab, name)?)?;
    scif_fuzz::crowds_fail(lab)?;
    lab.kill(0)?;
    Ok(())
}

/// Fails unless the KUnit case fails that the head of the patch names.
fn for_kunit(lab: &Lab, name: &str) -> Result<()> {
    let path = paths::repository().join(format!("tests/mutants/{name}.patch"));
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read the mutant {}", path.display()))?;
    let case = text.lines().find_map(|line| line.strip_prefix("KUnit: "));
    let case = case.with_context(|| format!("no 'KUnit:' in {}", path.display()))?;
    let parameters = scif::parameters(lab, 0, Loaded::LongHeartbeat)?;
    lab.insmod(0, &build(lab, name)?, &parameters)?;
    let failed = lab.kunit(0, "scif")?.failed;
    ensure!(
        failed.iter().any(|failed| failed.contains(case)),
        "{case} does not fail: {failed:?}"
    );
    lab.kill(0)?;
    Ok(())
}

/// Returns the test of a mutant, which has the name of its patch.
const fn mutant(name: &'static str, need: Need, run: fn(&Lab) -> Result<()>) -> Test {
    Test::new(name, need, run).seconds(300).destroys().by_name()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    mutant("scif_mutants::engine_arrival", flat(1), |lab| {
        Mutant::read("engine-arrival")?.check(lab)
    }),
    mutant("scif_mutants::store_arrival", arena(1), |lab| {
        Mutant::read("store-arrival")?.check(lab)
    }),
    mutant("scif_mutants::slot_arrival", BOUNCE, |lab| {
        Mutant::read("slot-arrival")?.check(lab)
    }),
    mutant("scif_mutants::doorbell_load", BOUNCE, |lab| {
        Mutant::read("doorbell-load")?.check(lab)
    }),
    mutant("scif_mutants::send_slots_wakeup", BOUNCE, |lab| {
        Mutant::read("send-slots-wakeup")?.check(lab)
    }),
    mutant("scif_mutants::receive_slots_sleep", BOUNCE, |lab| {
        Mutant::read("receive-slots-sleep")?.check(lab)
    }),
    mutant("scif_mutants::ring_wakeup", BOUNCE, |lab| {
        Mutant::read("ring-wakeup")?.check(lab)
    }),
    mutant("scif_mutants::refusal_wakeup", BARE, |lab| {
        for_crowds(lab, "refusal-wakeup")
    }),
    mutant("scif_mutants::reset_error", BARE, |lab| {
        for_crowds(lab, "reset-error")
    }),
    mutant("scif_mutants::frame_given", KUNIT, |lab| {
        for_kunit(lab, "frame-given")
    }),
    mutant("scif_mutants::frame_arrived", KUNIT, |lab| {
        for_kunit(lab, "frame-arrived")
    }),
    mutant(
        "scif_mutants::several_pollers",
        scif_engines::NO_ENGINE,
        scif_engines::several_pollers,
    ),
];
