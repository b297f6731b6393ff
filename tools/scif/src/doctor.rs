// SPDX-License-Identifier: GPL-2.0

//! The findings about SCIF on this machine, good and bad.
//!
//! [`look`] collects facts, from files only. [`judge`] derives findings from the facts, without
//! reading anything. So every judgement is tested with made-up facts.

pub mod facts;
pub mod judge;
pub mod look;
pub mod modules;

use serde::Serialize;

/// The grade of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// The state is as it should be.
    Good,
    /// SCIF works. The user could improve the state, or should know of it.
    Advice,
    /// SCIF does not work, or not in full.
    Problem,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The subject in a word: `module`, `bridge`, ...
    pub about: &'static str,
    /// The grade.
    pub grade: Grade,
    /// The fact that was found.
    pub text: String,
    /// The advice, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// The commands for root that carry out the advice, in order. Findings are in the order in
    /// which their commands work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}
