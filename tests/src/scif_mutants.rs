// SPDX-License-Identifier: GPL-2.0
//! The module with something taken out that keeps writes in order fails where they are reordered: else
//! either the tests would not notice, or it is of no use.
//!
//! A mutant is a patch in `tests/mutants`. Its head says in `Name: value` lines what is run with it:
//!
//! ```text
//! Seeds     the seeds to try, in that order
//! Fails     cases of the conformance suite, of which one has to fail with one of them
//! Beside    another mutant, if it is to differ from that and not from the module as it is
//! ```
//!
//! What it is compared with has to pass all of these cases with all of these seeds, in the same lab and just
//! before, so that nothing but the patch makes the difference.
//!
//! A mutant may do anything to the memory of its peer: nobody uses the lab after it.

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
use crate::scif_order::arena;
use crate::scif_order::bounce;
use crate::scif_order::flat;
use crate::scif_order::topology;

/// Where stores are held, too.
const BOUNCE: Need = bounce(1, WeakOrderEngines::Switch);

/// What the head of a patch says.
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

    /// Whether one of the cases fails with one of the seeds and the module that is loaded.
    fn fails(&self, lab: &Lab) -> Result<bool> {
        for seed in &self.seeds {
            // By itself, as others of them may take long to fail.
            for case in &self.fails {
                match failed(lab, *seed, slice::from_ref(case)) {
                    Ok(failed) if failed.is_empty() => {}
                    Ok(_) => return Ok(true),
                    Err(error) => match error.downcast_ref() {
                        // A node has died of it, or the case can't even be killed. That is as good.
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
                "with seed {seed} these fail without '{}', too: {failed:?}",
                self.name
            );
        }
        replace(lab, module)?;
        let fails = self.fails(lab)?;
        // What it has left behind is nobody's business.
        (0..lab.nodes()).try_for_each(|node| lab.kill(node))?;
        ensure!(
            fails,
            "{:?} pass with tests/mutants/{}.patch and the seeds {:?}, as if what it takes out were of no use: \
             look for other seeds and cases, or for what has taken its place",
            self.fails,
            self.name,
            self.seeds
        );
        Ok(())
    }
}

/// Those of the cases that fail with a seed and the module that is loaded.
fn failed(lab: &Lab, seed: u64, cases: &[String]) -> Result<Vec<String>> {
    lab.reseed(seed)?;
    let (topology, mut options) = topology(lab);
    // One that waits for ever does so for as long, and others have ended after a fraction of it.
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
    let flavour = lab.kernel().flavour().name();
    let root = paths::repository();
    let output = Command::new(root.join("scripts/module"))
        .args([flavour, "--mutant", name])
        .output()
        .context("cannot run scripts/module")?;
    if !output.status.success() {
        bail!(
            "'scripts/module {flavour} --mutant {name}' failed:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let file = format!("build/mutants/{name}/{flavour}/scif.ko");
    Ok(root.join(file))
}

/// Puts another module in the place of the one that is loaded.
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

/// The test that a mutant fails; it is called as its patch.
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
    mutant("scif_mutants::outbox_wish", BOUNCE, |lab| {
        Mutant::read("outbox-wish")?.check(lab)
    }),
    mutant("scif_mutants::inbox_sleep", BOUNCE, |lab| {
        Mutant::read("inbox-sleep")?.check(lab)
    }),
    mutant("scif_mutants::ring_wish", BOUNCE, |lab| {
        Mutant::read("ring-wish")?.check(lab)
    }),
];
