// SPDX-License-Identifier: GPL-2.0
//! Reports of a lab while it starts.

use std::time::Duration;

use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use serde::Deserialize;
use serde::Serialize;

/// A step of the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The step that begins now.
    Now(String),
    /// A step that is done.
    Done(String),
}

/// A receiver of the reports.
pub trait Progress: Sync {
    /// Receives a step.
    fn step(&self, step: Step);
}

/// Ignores all steps.
pub struct Silent;

impl Progress for Silent {
    fn step(&self, _step: Step) {}
}

/// Shows the steps: one moving line on a terminal, plain lines elsewhere.
pub struct Terminal {
    bar: Option<ProgressBar>,
}

impl Terminal {
    /// Creates a progress report that shows the steps on the standard error.
    pub fn new() -> Terminal {
        use std::io::IsTerminal;
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Terminal { bar }
    }
}

impl Default for Terminal {
    fn default() -> Terminal {
        Terminal::new()
    }
}

impl Progress for Terminal {
    fn step(&self, step: Step) {
        match (step, &self.bar) {
            (Step::Now(text), Some(bar)) => bar.set_message(text),
            (Step::Now(_), None) => {}
            (Step::Done(text), Some(bar)) => bar.println(text),
            (Step::Done(text), None) => eprintln!("{text}"),
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
