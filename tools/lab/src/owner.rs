// SPDX-License-Identifier: GPL-2.0
//! The background process that owns a lab between two commands.
//!
//! `lab up` starts it with the lab's [`Config`] as the first line of its standard input and
//! reads [`Start`] lines from its standard output. Until the lab is up, the end of that
//! input ends the owner: a `lab up` that is interrupted leaves nothing. From then on it
//! lives until `Down` or a signal. The lab itself serves its clients, see [`crate::server`].

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::Context;
use anyhow::Result;

use crate::config::Config;
use crate::control::Start;
use crate::interrupt;
use crate::lab::Lab;
use crate::lock::lock;
use crate::progress::Progress;
use crate::progress::Step;

/// Runs the owner; ends the process.
pub fn main() -> ! {
    let reporter = Arc::new(Reporter::default());
    match start(&reporter) {
        Ok(lab) => {
            lab.allow_down();
            reporter.up.store(true, Ordering::Release);
            reporter.say(&Start::Up);
            // The thread that serves the clients ends the process.
            loop {
                thread::park();
            }
        }
        Err(error) => {
            reporter.say(&Start::Failed(format!("{error:#}")));
            interrupt::end(1)
        }
    }
}

/// The reporter to `lab up`.
#[derive(Default)]
struct Reporter {
    up: AtomicBool,
    output: Mutex<()>,
}

impl Reporter {
    fn say(&self, message: &Start) {
        let _guard = lock(&self.output);
        if let Ok(line) = serde_json::to_string(message) {
            // If `lab up` is gone, the end of the input tells.
            let _ = writeln!(io::stdout(), "{line}");
        }
    }
}

impl Progress for Reporter {
    fn step(&self, step: Step) {
        self.say(&Start::Step(step));
    }
}

fn start(reporter: &Arc<Reporter>) -> Result<Lab> {
    interrupt::install()?;
    let mut input = BufReader::new(io::stdin());
    let mut line = String::new();
    input
        .read_line(&mut line)
        .context("cannot read the configuration of the lab")?;
    let config: Config =
        serde_json::from_str(&line).context("the first line of the input is no configuration")?;
    let watched = Arc::clone(reporter);
    thread::spawn(move || {
        let _ = input.read(&mut [0]);
        if !watched.up.load(Ordering::Acquire) {
            interrupt::end(1);
        }
    });
    Lab::start(config, &**reporter)
}
