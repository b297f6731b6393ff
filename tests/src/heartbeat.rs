// SPDX-License-Identifier: GPL-2.0
//! How long the nodes of the labs wait for a sign of life before a peer is lost: the
//! module's parameter heartbeat_timeout_ms.
//!
//! Tests that are not about lost nodes have so long a one that it never matters. The others
//! have what users have, as long as the machine is about as fast as the reference machine:
//! on a slower one a node that lives may well be silent for so long, so the heartbeat is
//! chosen by the speed that is measured when the module is loaded, and whoever waits for a
//! loss by silence asks here how long that takes ([`of`]).
//!
//! # Invariants
//! - What is remembered of a node is what its module was loaded with last, through
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

/// Of tests that are not about lost nodes (`Loaded::LongHeartbeat`), on the plain kernel.
const LONG: Duration = Duration::from_secs(60);

/// Up to this factor a machine is as good as the reference machine.
const STILL_FAST: f64 = 1.5;

/// A heartbeat that is made longer is made longer by so much more than it has to be: the
/// machine may become slower while it is in use.
const RESERVE: f64 = 2.0;

/// By name of the lab and number of the node.
static CHOSEN: Mutex<BTreeMap<(String, usize), Duration>> = Mutex::new(BTreeMap::new());

/// What users have, or what comes closest on the kernel of the lab.
fn usual(lab: &Lab) -> Duration {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => DEFAULT,
        // So slow that a timer can be late by seconds.
        Flavour::Debug | Flavour::Kcsan => Duration::from_secs(10),
    }
}

/// What it takes at a factor, no more.
fn needed(usual: Duration, factor: f64) -> Duration {
    if factor <= STILL_FAST {
        usual
    } else {
        usual.mul_f64(factor)
    }
}

/// What a module gets that is loaded at a factor.
fn chosen(usual: Duration, factor: f64) -> Duration {
    if factor <= STILL_FAST {
        usual
    } else {
        usual.mul_f64(factor * RESERVE)
    }
}

/// The parameter for a node that loads the module now; empty for the module's default.
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

/// How long a node waits for a sign of life.
pub fn of(lab: &Lab, node: usize) -> Result<Duration> {
    CHOSEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&(lab.config().name.clone(), node))
        .copied()
        .with_context(|| format!("nobody has chosen a heartbeat for node {node}"))
}

/// Whether the machine has become too slow for the heartbeat that the nodes of a lab have.
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
    fn a_fast_machine_has_what_users_have() {
        for factor in [1.0, 1.5] {
            assert_eq!(chosen(DEFAULT, factor), DEFAULT);
            assert_eq!(needed(DEFAULT, factor), DEFAULT);
        }
    }

    #[test]
    fn a_slow_machine_has_a_longer_one() {
        assert_eq!(chosen(DEFAULT, 4.0), Duration::from_secs(12));
        assert_eq!(needed(DEFAULT, 4.0), Duration::from_secs(6));
    }

    #[test]
    fn what_is_chosen_is_long_enough_for_a_while() {
        for factor in [1.0, 1.6, 3.0, 10.0] {
            assert!(chosen(DEFAULT, factor) >= needed(DEFAULT, factor));
        }
        assert!(chosen(DEFAULT, 1.6) >= needed(DEFAULT, 3.0));
        // What was chosen when the machine was idle is not.
        assert!(chosen(DEFAULT, 1.0) < needed(DEFAULT, 1.6));
    }
}
