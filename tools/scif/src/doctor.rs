// SPDX-License-Identifier: GPL-2.0

//! What is good, and what is not, of SCIF on this machine.
//!
//! [`look`] collects facts, from files only; [`judge`] says what they mean, without looking at anything. So
//! every judgement is tested with facts that somebody made up.

pub mod facts;
pub mod judge;
pub mod look;
pub mod modules;

use serde::Serialize;

/// How a finding is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// As it should be.
    Good,
    /// It works, and could be better, or should be known.
    Advice,
    /// It keeps something from working.
    Problem,
}

/// Something that was found out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about, in a word: `module`, `bridge`, ...
    pub about: &'static str,
    /// How it is meant.
    pub grade: Grade,
    /// What was found.
    pub text: String,
    /// What to do, if there is anything to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The commands that do it, for root, one after the other. Findings are in the order in which theirs work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}
