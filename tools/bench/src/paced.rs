// SPDX-License-Identifier: GPL-2.0
//! What is of interest only where engines and links take time as hardware does: in labs of their own,
//! with the link model.
//!
//! As the emulated engines are otherwise as fast as the processors are, four of them on two processors
//! would not be faster than one, and reading across the link would cost what writing does.

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

/// What an engine copies in a second, before it is slowed down: four are far below what the machine
/// can do.
const ENGINE_RATE: u64 = 1_000_000_000;

/// How often everything is measured here, at most: the module is loaded anew each time.
const ROUNDS: usize = 3;

/// How often each direction is measured in a round.
const DIRECTION_TURNS: usize = 4;

/// Seconds for each measurement with channels that are slow: what is in flight at first takes one alone most of
/// a second.
const SLOW_SECONDS: f64 = 2.0;

/// How many channels are compared with one.
const CHANNELS: usize = 4;

/// Measures what it can, and says what it could not.
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

/// As [`setup::with_module`], with all of its bridges.
fn with_module(lab: &Lab, parameter: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let parameters = format!("allow_flat=1 {parameter}");
    setup::with_module(lab, &parameters, |_| Ok(()), work)
}

/// Writes on four connections, with one channel and with four, each as fast as an engine is.
fn channels(kernel: Flavour, rounds: usize, results: &mut Results) -> Result<()> {
    let config = Config {
        dma_channels: CHANNELS,
        engine_rate: Some(ENGINE_RATE),
        ..setup::small_config("channels", kernel)
    };
    let lab = Lab::start(config, &Silent)?;
    let connections = CHANNELS.to_string();
    let what = ["write-bw", "1", "--dma", "--connections", &connections];
    for _ in 0..rounds {
        for count in [1, CHANNELS] {
            let mut enter = |rate| results.add(ENGINES, SCIF_DMA_HUGE, count as u64, rate);
            with_module(&lab, &format!("dma_channels={count}"), || {
                run::copies(&lab, &what, SLOW_SECONDS, &mut enter)
            })?;
        }
    }
    Ok(())
}

/// Reads and writes over a link where a read waits for its answer.
fn directions(kernel: Flavour, seconds: f64, rounds: usize, results: &mut Results) -> Result<()> {
    let config = Config {
        dma_channels: 1,
        link_model: Some(LinkModel::Gen3x8),
        ..setup::small_config("model", kernel)
    };
    let lab = Lab::start(config, &Silent)?;
    with_module(&lab, "", || {
        // More often than others: the engine is a thread of the emulator's, which gets a processor or not.
        for round in 0..DIRECTION_TURNS * rounds {
            let mut directions = [("write-bw", MODEL_WRITE), ("read-bw", MODEL_READ)];
            directions.rotate_left(round % 2);
            for (what, line) in directions {
                let enter = |rate| results.add(MODEL, line, SIZE_LARGE, rate);
                run::copies(&lab, &[what, "1", "--dma"], seconds, enter)?;
            }
        }
        Ok(())
    })
}
