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
    /// The number of this crowd among those that run at the same time in this node; 0 if it is alone.
    pub beside: u16,
}

/// Ports that a crowd has of each kind, at most.
const PORTS_OF_CROWD: u16 = 64;

impl Setting {
    /// The words that stand for it, for this program.
    pub fn words(&self) -> Vec<String> {
        vec![
            format!("--peer={}", self.peer),
            format!("--slow={}", self.slow),
            format!("--staged={}", self.is_staged),
            format!("--lossy={}", self.is_lossy),
            format!("--beside={}", self.beside),
        ]
    }

    /// Whether nobody else uses the module in this node.
    pub fn is_alone(&self) -> bool {
        self.beside == 0
    }

    /// The port of this crowd that a plan has this number for: 0 stands for any.
    pub fn port(&self, number: u16) -> u16 {
        match number {
            0 => 0,
            _ => number + self.beside * PORTS_OF_CROWD,
        }
    }

    /// The port of this crowd that alone it would have for endpoints of a thread. Those of other crowds lie below, which
    /// only root may bind, as the kernel gives the ones above to callers that ask for any.
    pub fn own_port(&self, number: u16) -> u16 {
        number - self.beside * PORTS_OF_CROWD
    }

    /// The name of this crowd that a plan has this number for.
    pub fn name(&self, number: u32) -> u32 {
        number + u32::from(self.beside) * u32::from(PORTS_OF_CROWD)
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
