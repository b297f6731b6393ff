// SPDX-License-Identifier: GPL-2.0
//! The cost of the aperture's modes: the same measurements in each mode, in turns.
//!
//! A mode belongs to a link, and the module has one mode for all its links. So the module is loaded
//! anew for each turn, and gets one of the nodes' bridges, of which there is one for each aperture.
//! The arena mode needs an IOMMU, and so windows that trap. It is compared with the flat mode over
//! such windows, by engine.

use anyhow::Context;
use anyhow::Result;
use lab::Config;
use lab::Flavour;
use lab::Iommu;
use lab::Lab;
use lab::Silent;
use lab::Windows;
use plots::results::Results;

use crate::figures::*;
use crate::parameters;
use crate::parameters::BY_ENGINE;
use crate::plan::Plan;
use crate::plan::SIZE_LARGE;
use crate::plan::SIZE_PAGE;
use crate::run;
use crate::setup;

/// Largest number of turns of each measurement.
const TURNS: usize = 5;

/// Number of measurements of a rate in each turn: now and then everything is several times as fast
/// or as slow for a fraction of a second.
const RUNS: usize = 4;

/// The address where the kernel finds contiguous memory, to which small windows lead.
const CONTIGUOUS: u64 = 256 << 20;

/// The size of the arena's windows, and of one that covers all memory of a node.
const ARENA_WINDOW: u64 = 64 << 20;
const ALL_MEMORY: u64 = 1 << 30;

/// A way of loading the module.
#[derive(Clone, Copy)]
struct Way {
    /// The line under which its values are entered.
    line: &'static str,
    parameters: &'static str,
    /// The link whose bridge the module gets.
    link: usize,
}

const FLAT: Way = Way {
    line: FLAT_MODE,
    parameters: "aperture=flat allow_flat=1",
    link: 0,
};

const BOUNCE_MEBIBYTE: Way = Way {
    line: BOUNCE_MEBIBYTE_MODE,
    parameters: "aperture=bounce memory_windows=1",
    link: 1,
};

const BOUNCE_SMALLEST: Way = Way {
    line: BOUNCE_SMALLEST_MODE,
    link: 2,
    ..BOUNCE_MEBIBYTE
};

const ARENA: Way = Way {
    line: ARENA_MODE,
    parameters: "aperture=arena",
    link: 0,
};

/// Measures all modes. Returns the failures.
pub fn run(kernel: Flavour, plan: &Plan, results: &mut Results) -> Vec<String> {
    let turns = plan.turns.min(TURNS);
    let mut failures = Vec::new();
    if let Err(error) = bounce(kernel, plan.seconds, turns, results) {
        failures.push(format!("bounce beside flat: {error:#}"));
    }
    if let Err(error) = arena(kernel, plan.seconds, turns, results) {
        failures.push(format!("arena beside flat: {error:#}"));
    }
    failures
}

/// Works with the module loaded in this way, like [`setup::with_module`].
fn with_way(lab: &Lab, way: Way, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let bind = |node| setup::bind_link(lab, node, "scif", way.link);
    setup::with_module(lab, way.parameters, bind, work)
}

/// Returns the elements in this order, or in reverse order every second turn.
fn in_turn<T, const N: usize>(turn: usize, mut all: [T; N]) -> [T; N] {
    if turn % 2 == 1 {
        all.reverse();
    }
    all
}

fn start(config: Config) -> Result<Lab> {
    let lab = Lab::start(config, &Silent)?;
    setup::stop_autoprobe(&lab)?;
    Ok(lab)
}

/// Enters rates of writes of 1 MiB, in bytes per second.
fn write(lab: &Lab, by: &str, seconds: f64, mut enter: impl FnMut(f64)) -> Result<()> {
    for _ in 0..RUNS {
        run::copies(lab, &["write-bw", "1", by], seconds, &mut enter)?;
    }
    Ok(())
}

/// Enters rates of writes by the engines on both sides.
fn write_by_engine(lab: &Lab, seconds: f64, enter: impl FnMut(f64)) -> Result<()> {
    parameters::with(lab, BY_ENGINE, || write(lab, "--dma", seconds, enter))
}

/// Returns how fast a program copies from one place of its memory to another, in bytes per second.
fn local_copy(lab: &Lab, seconds: f64) -> Result<f64> {
    let (seconds, size) = (seconds.to_string(), SIZE_LARGE.to_string());
    let copies = run::reference(lab, &["memory", &seconds, &size])?;
    let copy_ns = copies.first().and_then(|copy| copy["copy_ns"].as_f64());
    Ok(SIZE_LARGE as f64 / copy_ns.context("nothing was copied")? * 1e9)
}

/// Returns the time to register and unregister a page, in microseconds.
fn window(lab: &Lab) -> Result<f64> {
    let size = SIZE_PAGE.to_string();
    let report = run::bench(
        lab,
        &["register", "1", "--iterations", "100", "--sizes", &size],
    )?;
    let row = &report["results"][0];
    let part = |name| run::latency(row, name, "p50_us");
    let both = part("register").zip(part("unregister"));
    let (register, unregister) = both.context("no window was measured")?;
    Ok(register + unregister)
}

fn bounce(kernel: Flavour, seconds: f64, turns: usize, results: &mut Results) -> Result<()> {
    let fixed = |size| Windows::Fixed {
        base: CONTIGUOUS,
        size,
    };
    let lab = start(Config {
        more_links: vec![fixed(1 << 20), fixed(64 << 10)],
        append: vec![format!("cma=64M@{}M", CONTIGUOUS >> 20)],
        ..setup::small_config("bounce", kernel)
    })?;
    for turn in 0..turns {
        for _ in 0..RUNS {
            let copied = local_copy(&lab, seconds)?;
            results.add(MODES_CPU, LOCAL_COPY, SIZE_LARGE, copied);
        }
        for way in in_turn(turn, [FLAT, BOUNCE_MEBIBYTE, BOUNCE_SMALLEST]) {
            let mut enter = |figure, rate| results.add(figure, way.line, SIZE_LARGE, rate);
            with_way(&lab, way, || {
                write(&lab, "--cpu", seconds, |rate| enter(MODES_CPU, rate))?;
                write(&lab, "--auto", seconds, |rate| enter(MODES_AUTO, rate))?;
                write_by_engine(&lab, seconds, |rate| enter(MODES_DMA, rate))
            })?;
        }
    }
    Ok(())
}

/// Compares arena with flat. Each has a lab of its own, which is idle while the other is measured.
fn arena(kernel: Flavour, seconds: f64, turns: usize, results: &mut Results) -> Result<()> {
    let trapped = |size| Windows::Trapped { size };
    let behind_iommu = start(Config {
        iommu: Iommu::Bridges,
        windows: trapped(ARENA_WINDOW),
        ..setup::small_config("arena", kernel)
    })?;
    let without = start(Config {
        windows: trapped(ALL_MEMORY),
        ..setup::small_config("trapped", kernel)
    })?;
    for turn in 0..turns {
        for (lab, way) in in_turn(turn, [(&without, FLAT), (&behind_iommu, ARENA)]) {
            with_way(lab, way, || {
                let enter = |rate| results.add(MODES_ARENA, way.line, SIZE_LARGE, rate);
                write_by_engine(lab, seconds, enter)?;
                results.add(MODES_WINDOW, way.line, SIZE_PAGE, window(lab)?);
                Ok(())
            })?;
        }
    }
    Ok(())
}
