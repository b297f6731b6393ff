// SPDX-License-Identifier: GPL-2.0

//! `sisci-bench`: measures the speed of SISCI, by tests whose names SISCI's users know.
//!
//! The code of `scif bench` measures the steps. There are several rounds of all tests in turn, of
//! which the medians count: so a slow moment of the machine affects all tests, or none. With
//! `--reference` the calls of SCIF below each figure are measured in between.

mod arguments;
mod broadcast;
mod control;
mod dma;
mod interrupts;
mod pingpong;
mod reference;
mod report;
mod sequence;
mod server;
mod stores;
mod test;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::Subcommand;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use plots::results::Results;

use crate::api::Sisci;
use crate::error::EXIT_STATUS_HELP;
use crate::error::Result;
use crate::error::finish;
use arguments::Client;
use reference::Reference;
use test::Bench;
use test::Test;

const EXAMPLES: &str = "\
Examples:
  sisci-bench server                    on node 8: answer all commands below
  sisci-bench all 8                     all tests, about a minute
  sisci-bench scibench2 8 --sizes 8,4K  stores by the CPU
  sisci-bench all 8 --reference --plots /tmp/plots
                                        all tests, the calls of SCIF below them, and charts;
                                        node 8 must also run `scif serve --bench`";

/// Measure segments, DMA and interrupts
///
/// One node runs the server, another node runs a test. The test prints medians of several rounds.
#[derive(Debug, Parser)]
#[command(name = "sisci-bench", version, after_help = format!("{EXAMPLES}\n\n{EXIT_STATUS_HELP}"))]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer the tests of other nodes, until interrupted
    Server(server::Arguments),
    /// Stores by the CPU: throughput and latency by size
    #[command(name = "scibench2")]
    Scibench2(Client),
    /// Ping-pong through shared memory, by size
    #[command(name = "scipp")]
    Scipp(Client),
    /// DMA: throughput by size, push and pull
    #[command(name = "dma_bench")]
    Dma(Client),
    /// Interrupts: half a round trip
    #[command(name = "intr_bench")]
    Interrupts(Client),
    /// Broadcast segments: throughput by size
    #[command(name = "reflective_bench")]
    Broadcast(Client),
    /// The cost of SCICheckSequence()
    #[command(name = "sequence")]
    Sequence(Client),
    /// All tests
    #[command(name = "all")]
    All(Client),
}

impl Command {
    fn client(&self) -> Option<&Client> {
        match self {
            Self::Server(_) => None,
            Self::Scibench2(client)
            | Self::Scipp(client)
            | Self::Dma(client)
            | Self::Interrupts(client)
            | Self::Broadcast(client)
            | Self::Sequence(client)
            | Self::All(client) => Some(client),
        }
    }

    fn tests(&self, bench: &Bench) -> Result<Vec<(&'static str, Box<dyn Test>)>> {
        let all = matches!(self, Self::All(_));
        let mut tests: Vec<(&'static str, Box<dyn Test>)> = Vec::new();
        if all || matches!(self, Self::Scibench2(_)) {
            tests.push(("scibench2", Box::new(stores::Stores::new(bench)?)));
        }
        if all || matches!(self, Self::Scipp(_)) {
            tests.push(("scipp", Box::new(pingpong::PingPong::new(bench)?)));
        }
        if all || matches!(self, Self::Dma(_)) {
            tests.push(("dma_bench", Box::new(dma::Dma::new(bench)?)));
        }
        if all || matches!(self, Self::Interrupts(_)) {
            tests.push(("intr_bench", Box::new(interrupts::Interrupts::new(bench)?)));
        }
        if all || matches!(self, Self::Broadcast(_)) {
            tests.push((
                "reflective_bench",
                Box::new(broadcast::Broadcast::new(bench)?),
            ));
        }
        if all || matches!(self, Self::Sequence(_)) {
            tests.push(("sequence", Box::new(sequence::Checks::new(bench)?)));
        }
        Ok(tests)
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let json = command.client().is_some_and(|client| client.json);
    let result = match (&command, command.client()) {
        (Command::Server(arguments), _) => server::run(arguments),
        (_, Some(client)) => run(&command, client),
        (_, None) => Ok(()),
    };
    finish("sisci-bench", json, result)
}

fn run(command: &Command, client: &Client) -> Result<()> {
    let mut bench = Bench {
        sisci: Sisci::open()?,
        node: client.node,
        id: client.id,
        sizes: client.sizes.clone(),
        time: Duration::from_secs_f64(client.seconds),
        reference: None,
        results: Results::default(),
    };
    if client.reference {
        let largest = client.sizes.iter().copied().max().unwrap_or(8);
        bench.reference = Some(Reference::connect(client.node, client.port, largest)?);
    }
    let mut tests = command.tests(&bench)?;
    let bar = ProgressBar::new(u64::from(client.rounds) * tests.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent:>3}% {msg}, {eta} left") {
        bar.set_style(style);
    }
    for _ in 0..client.rounds {
        for (name, test) in &mut tests {
            bar.set_message(*name);
            test.round(&mut bench)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    report::show(client, &bench.results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_consistent() {
        Arguments::command().debug_assert();
    }
}
