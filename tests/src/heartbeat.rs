// SPDX-License-Identifier: GPL-2.0
//! The module parameter heartbeat_timeout_ms: the time without a heartbeat after which the nodes of
//! the labs regard a peer as lost.
//!
//! Tests that are not about lost nodes use such a long timeout that it never matters. Other tests
//! use the default timeout if the machine is about as fast as the reference machine. On a slower
//! machine a living node may be silent for that long. So the timeout is chosen by the speed that is
//! measured when the module is loaded. Tests that wait for a loss by silence ask here how long that
//! takes ([`of`]).
//!
//! # Invariants
//! - The recorded value of a node is the one with which its module was loaded last, through
//!   [`parameter`].

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use lab::Flavour;
use lab::Lab;

use crate::loaded::Loaded;
use crate::promise;

/// The module's default.
const DEFAULT: Duration = Duration::from_millis(1500);

/// Timeout of tests that are not about lost nodes (`Loaded::LongHeartbeat`), on the plain kernel.
const LONG: Duration = Duration::from_secs(60);

/// Factor of slowness up to which a machine counts as fast as the reference machine.
const STILL_FAST: f64 = 1.5;

/// Factor by which a lengthened timeout exceeds the needed one, because the machine may become
/// slower during the test.
const RESERVE: f64 = 2.0;

/// The chosen timeouts, by name of the lab and number of the node.
static CHOSEN: Mutex<BTreeMap<(String, usize), Duration>> = Mutex::new(BTreeMap::new());

/// Returns the default timeout, or a longer one for a slow kernel.
fn usual(lab: &Lab) -> Duration {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => DEFAULT,
        // These kernels are so slow that a timer can be late by seconds.
        Flavour::Debug | Flavour::Kcsan => Duration::from_secs(10),
    }
}

/// Returns the least timeout for a machine that is slower by `factor`.
fn needed(usual: Duration, factor: f64) -> Duration {
    if factor <= STILL_FAST {
        usual
    } else {
        usual.mul_f64(factor)
    }
}

/// Returns the timeout for a module that is loaded on a machine that is slower by `factor`.
fn chosen(usual: Duration, factor: f64) -> Duration {
    if factor <= STILL_FAST {
        usual
    } else {
        usual.mul_f64(factor * RESERVE)
    }
}

/// Returns the parameter for a node that loads the module now, or an empty string for the module's
/// default.
pub fn parameter(lab: &Lab, node: usize, how: Loaded) -> Result<String> {
    let heartbeat = match how {
        Loaded::LongHeartbeat => LONG * lab.slowness(),
        Loaded::AsUsual | Loaded::No => chosen(usual(lab), promise::measure(lab, node)?),
    };
    CHOSEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert((lab.config().name.clone(), node), heartbeat);
    if heartbeat == DEFAULT {
        return Ok(String::new());
    }
    Ok(format!("heartbeat_timeout_ms={}", heartbeat.as_millis()))
}

/// Returns the timeout of a node.
pub fn of(lab: &Lab, node: usize) -> Result<Duration> {
    CHOSEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&(lab.config().name.clone(), node))
        .copied()
        .with_context(|| format!("no test has chosen a heartbeat for node {node}"))
}

/// Returns whether the machine has become too slow for the timeouts of a lab's nodes.
pub fn is_too_short(lab: &Lab) -> Result<bool> {
    for node in 0..lab.nodes() {
        if of(lab, node)? < needed(usual(lab), promise::measure(lab, node)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_machine_uses_the_default_heartbeat() {
        for factor in [1.0, 1.5] {
            assert_eq!(chosen(DEFAULT, factor), DEFAULT);
            assert_eq!(needed(DEFAULT, factor), DEFAULT);
        }
    }

    #[test]
    fn slow_machine_uses_a_longer_heartbeat() {
        assert_eq!(chosen(DEFAULT, 4.0), Duration::from_secs(12));
        assert_eq!(needed(DEFAULT, 4.0), Duration::from_secs(6));
    }

    #[test]
    fn chosen_heartbeat_suffices_for_a_somewhat_slower_machine() {
        for factor in [1.0, 1.6, 3.0, 10.0] {
            assert!(chosen(DEFAULT, factor) >= needed(DEFAULT, factor));
        }
        assert!(chosen(DEFAULT, 1.6) >= needed(DEFAULT, 3.0));
        // The timeout that was chosen for an idle machine is too short for a slower one.
        assert!(chosen(DEFAULT, 1.0) < needed(DEFAULT, 1.6));
    }
}
