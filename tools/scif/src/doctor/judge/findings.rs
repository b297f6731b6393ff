// SPDX-License-Identifier: GPL-2.0

//! A list of findings, and their advice.

use crate::doctor::Finding;
use crate::doctor::Grade;
use crate::doctor::facts::Facts;

/// An advice.
pub(super) struct Advice {
    /// The advice in words.
    pub text: String,
    /// The commands for root, in order.
    pub commands: Vec<String>,
}

impl Advice {
    /// Makes an advice that these commands carry out.
    pub fn by(text: impl Into<String>, commands: impl IntoIterator<Item = String>) -> Self {
        Self {
            text: text.into(),
            commands: commands.into_iter().collect(),
        }
    }
}

impl<T: Into<String>> From<T> for Advice {
    fn from(text: T) -> Self {
        Self::by(text, [])
    }
}

/// Collects findings.
#[derive(Default)]
pub(super) struct Findings(pub Vec<Finding>);

impl Findings {
    fn add(&mut self, about: &'static str, grade: Grade, text: String, advice: Option<Advice>) {
        let (advice, commands) = advice.map(|advice| (advice.text, advice.commands)).unzip();
        self.0.push(Finding {
            about,
            grade,
            text,
            advice,
            commands: commands.unwrap_or_default(),
        });
    }

    /// Adds a fact that is as it should be.
    pub fn good(&mut self, about: &'static str, text: impl Into<String>) {
        self.add(about, Grade::Good, text.into(), None);
    }

    /// Adds a fact that works and could be better.
    pub fn advice(
        &mut self,
        about: &'static str,
        text: impl Into<String>,
        advice: impl Into<Advice>,
    ) {
        self.add(about, Grade::Advice, text.into(), Some(advice.into()));
    }

    /// Adds a fact that keeps SCIF from working.
    pub fn problem(
        &mut self,
        about: &'static str,
        text: impl Into<String>,
        advice: impl Into<Advice>,
    ) {
        self.add(about, Grade::Problem, text.into(), Some(advice.into()));
    }
}

/// Returns the advice that makes the device file, if its number is known.
pub(super) fn device_file(facts: &Facts, text: &str) -> Advice {
    let number = facts.device.number.as_deref();
    let made = number.and_then(|number| {
        let (major, minor) = number.split_once(':')?;
        Some([
            "rm -f /dev/scif".to_owned(),
            format!("mknod -m 660 /dev/scif c {major} {minor}"),
        ])
    });
    Advice::by(text, made.into_iter().flatten())
}
