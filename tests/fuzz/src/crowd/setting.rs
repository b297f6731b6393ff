// SPDX-License-Identifier: GPL-2.0

//! What a crowd is told of where it is.

use std::time::Duration;

/// What a crowd is told by its user.
#[derive(Clone, Copy)]
pub struct Setting {
    /// The node that connections go to.
    pub peer: u16,
    /// Whether mappings of the peer's memory are refused, and rings may be small.
    pub is_staged: bool,
    /// Whether the peer's node is lost now and then.
    pub is_lossy: bool,
    /// How many times as slow as a fast machine this one is.
    pub slow: u32,
}

impl Setting {
    /// The words that stand for it, for this program.
    pub fn words(&self) -> Vec<String> {
        vec![
            format!("--peer={}", self.peer),
            format!("--slow={}", self.slow),
            format!("--staged={}", self.is_staged),
            format!("--lossy={}", self.is_lossy),
        ]
    }

    /// After this time a signal interrupts a call that waits: most wait for what nobody does.
    pub fn patience(&self) -> Duration {
        Duration::from_micros(400) * self.slow
    }

    /// After this time a step that does not end is taken for stuck.
    pub fn stuck(&self) -> Duration {
        Duration::from_secs(30) * self.slow
    }

    /// Within this time a process that is killed has ended.
    pub fn dead(&self) -> Duration {
        Duration::from_secs(2) * self.slow
    }

    /// Within this time a call ends that `poll` says something for.
    pub fn awake(&self) -> Duration {
        Duration::from_secs(1) * self.slow
    }
}
