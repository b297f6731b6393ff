// SPDX-License-Identifier: GPL-2.0

//! `intr_bench`: an interrupt there and one back, both sides asleep until it comes.

use plots::results::NO_SIZE;
use scif::command::bench::work::Times;
use scif::command::bench::work::Work;

use super::control::Kind;
use super::pingpong::Answers;
use super::report;
use super::server::PATIENCE;
use super::test::Bench;
use super::test::Test;
use crate::api::RemoteInterrupt;
use crate::error::Error;
use crate::error::Result;

type WorkResult = scif::error::Result<()>;

/// The test of interrupts.
pub struct Interrupts {
    answers: Answers,
    server: RemoteInterrupt,
}

struct Step<'a>(&'a mut Interrupts);

impl Work for Step<'_> {
    fn begin(&mut self, count: u64) -> WorkResult {
        self.0.answers.request(Kind::Interrupts, 8, count)?;
        Ok(())
    }

    fn step(&mut self, times: &mut Times) -> WorkResult {
        let of = &*self.0;
        let come = times.part(0, || {
            of.server.trigger()?;
            of.answers.interrupt.wait(PATIENCE.as_millis() as u32)
        })?;
        match come {
            true => Ok(()),
            false => Err(Error::Refused(
                "the server does not answer triggers: is sisci-bench running there?".into(),
            )
            .into()),
        }
    }

    fn end(&mut self, _times: &mut Times) -> WorkResult {
        Ok(())
    }
}

impl Interrupts {
    /// Connects to the server's interrupt.
    pub fn new(bench: &Bench) -> Result<Self> {
        Ok(Self {
            answers: Answers::new(bench)?,
            server: RemoteInterrupt::connect(&bench.sisci, bench.node, bench.id)?,
        })
    }
}

impl Test for Interrupts {
    fn round(&mut self, bench: &mut Bench) -> Result<()> {
        let none = NO_SIZE as usize;
        bench.half_trip(report::INTERRUPTS, report::SISCI, none, Step(self))?;
        bench.reference(|bench, reference| {
            let work = reference.messages(8, false);
            bench.half_trip(report::INTERRUPTS, report::MESSAGES, none, work)
        })
    }
}
