// SPDX-License-Identifier: GPL-2.0

//! The setting of a crowd.

use std::time::Duration;

/// The parameters that the user of the program gives a crowd.
#[derive(Clone, Copy)]
pub struct Setting {
    /// The node that connections lead to.
    pub peer: u16,
    /// Whether mappings of the peer's memory are refused, and rings may be small.
    pub is_staged: bool,
    /// Whether the peer's node is lost now and then.
    pub is_lossy: bool,
    /// Factor by which this machine is slower than a fast one.
    pub slow: u32,
    /// The number of this crowd among those that run at the same time on this node, or 0 if the
    /// crowd is alone.
    pub beside: u16,
}

/// Largest number of ports of each kind that a crowd uses.
const PORTS_OF_CROWD: u16 = 64;

impl Setting {
    /// Returns the arguments of this program for this setting.
    pub fn words(&self) -> Vec<String> {
        vec![
            format!("--peer={}", self.peer),
            format!("--slow={}", self.slow),
            format!("--staged={}", self.is_staged),
            format!("--lossy={}", self.is_lossy),
            format!("--beside={}", self.beside),
        ]
    }

    /// Returns whether no other program uses the module on this node.
    pub fn is_alone(&self) -> bool {
        self.beside == 0
    }

    /// Returns the port of this crowd that a plan calls by this number. Number 0 stands for any
    /// port.
    pub fn port(&self, number: u16) -> u16 {
        match number {
            0 => 0,
            _ => number + self.beside * PORTS_OF_CROWD,
        }
    }

    /// Returns the port for own endpoints of a thread, from the port that a crowd alone would use.
    ///
    /// The ports of other crowds lie below, where only root may bind. The kernel gives the ports
    /// above to binds of any port.
    pub fn own_port(&self, number: u16) -> u16 {
        number - self.beside * PORTS_OF_CROWD
    }

    /// Returns the name of this crowd that a plan calls by this number.
    pub fn name(&self, number: u32) -> u32 {
        number + u32::from(self.beside) * u32::from(PORTS_OF_CROWD)
    }

    /// Returns the time after which a signal interrupts a call that waits. Most such calls would
    /// wait for ever.
    pub fn patience(&self) -> Duration {
        Duration::from_micros(400) * self.slow
    }

    /// Returns the time after which a step that does not end counts as stuck.
    pub fn stuck(&self) -> Duration {
        Duration::from_secs(30) * self.slow
    }

    /// Returns the time within which a killed process has to end.
    pub fn dead(&self) -> Duration {
        Duration::from_secs(2) * self.slow
    }

    /// Returns the time within which a call has to end once `poll` shows its event.
    pub fn awake(&self) -> Duration {
        Duration::from_secs(1) * self.slow
    }
}
