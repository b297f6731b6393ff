// SPDX-License-Identifier: GPL-2.0
//! Waiting for conditions that no event announces.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use anyhow::bail;

/// Polls `condition` until it returns a value. Fails with `goal` after `limit`.
pub fn wait_until<T>(
    goal: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("{goal}: not within {:.1} s", limit.as_secs_f64());
        }
        thread::sleep(Duration::from_millis(10));
    }
}
