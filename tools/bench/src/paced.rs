// SPDX-License-Identifier: GPL-2.0
//! Measurements that only make sense where engines and links take time as hardware does: in labs of
//! their own, with the link model.
//!
//! Without the model, emulated engines are as fast as the CPUs. So four engines on two CPUs would
//! not be faster than one, and a read across the link would cost the same as a write.

use anyhow::Result;
use lab::Config;
use lab::Flavour;
use lab::Lab;
use lab::LinkModel;
use lab::Silent;
use plots::results::Results;

use crate::figures::*;
use crate::plan::Plan;
use crate::plan::SIZE_LARGE;
use crate::run;
use crate::setup;

/// Bytes per second that an engine copies, before it is slowed down: four engines are far below the
/// limit of the machine.
const ENGINE_RATE: u64 = 1_000_000_000;

/// Largest number of rounds here: the module is loaded anew each time.
const ROUNDS: usize = 3;

/// Number of measurements of each direction in a round.
const DIRECTION_TURNS: usize = 4;

/// Seconds for each measurement with slow channels: a single channel needs most of a second for the
/// copies that are in flight at first.
const SLOW_SECONDS: f64 = 2.0;

/// Number of channels that are compared with one.
const CHANNELS: usize = 4;

/// Measures all parts. Returns the failures.
pub fn run(kernel: Flavour, plan: &Plan, results: &mut Results) -> Vec<String> {
    let rounds = plan.rounds.min(ROUNDS);
    let mut failures = Vec::new();
    if let Err(error) = channels(kernel, rounds, results) {
        failures.push(format!("several DMA channels: {error:#}"));
    }
    if let Err(error) = directions(kernel, plan.seconds, rounds, results) {
        failures.push(format!("reads and writes with the link model: {error:#}"));
    }
    failures
}

/// Works with the module loaded with this parameter and all of its bridges.
fn with_module(lab: &Lab, parameter: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let parameters = format!("allow_flat=1 {parameter}");
    setup::with_module(lab, &parameters, |_| Ok(()), work)
}

/// Measures writes on four connections, with one channel and with four channels, each at the speed
/// of an engine.
fn channels(kernel: Flavour, rounds: usize, results: &mut Results) -> Result<()> {
    let config = Config {
        dma_channels: CHANNELS,
        engine_rate: Some(ENGINE_RATE),
        ..setup::small_config("channels", kernel)
    };
    let lab = Lab::start(config, &Silent)?;
    let connections = CHANNELS.to_string();
    let arguments = ["write-bw", "1", "--dma", "--connections", &connections];
    for _ in 0..rounds {
        for count in [1, CHANNELS] {
            let mut enter = |rate| results.add(ENGINES, SCIF_DMA_HUGE, count as u64, rate);
            with_module(&lab, &format!("dma_channels={count}"), || {
                run::copies(&lab, &arguments, SLOW_SECONDS, &mut enter)
            })?;
        }
    }
    Ok(())
}

/// Measures reads and writes over a link where a read waits for its answer.
fn directions(kernel: Flavour, seconds: f64, rounds: usize, results: &mut Results) -> Result<()> {
    let config = Config {
        dma_channels: 1,
        link_model: Some(LinkModel::Gen3x8),
        ..setup::small_config("model", kernel)
    };
    let lab = Lab::start(config, &Silent)?;
    with_module(&lab, "", || {
        // More often than elsewhere: the engine is a thread of the emulator, which may have to wait
        // for a CPU.
        for round in 0..DIRECTION_TURNS * rounds {
            let mut directions = [("write-bw", MODEL_WRITE), ("read-bw", MODEL_READ)];
            directions.rotate_left(round % 2);
            for (benchmark, line) in directions {
                let enter = |rate| results.add(MODEL, line, SIZE_LARGE, rate);
                run::copies(&lab, &[benchmark, "1", "--dma"], seconds, enter)?;
            }
        }
        Ok(())
    })
}
