// SPDX-License-Identifier: GPL-2.0
//! Parameters of the module that are other ones for a while.

use anyhow::Result;
use lab::Lab;

/// A parameter and a value of it.
pub type Setting = (&'static str, &'static str);

/// Every copy by the engine that can be.
pub const BY_ENGINE: Setting = ("dma_threshold", "0");

/// Whoever waits for messages sleeps at once.
pub const ASLEEP: Setting = ("busy_poll_us", "0");

/// Does some work with a parameter set in both nodes, and sets it back, also after an error.
pub fn with<R>(lab: &Lab, (name, value): Setting, work: impl FnOnce() -> Result<R>) -> Result<R> {
    let file = format!("/sys/module/scif/parameters/{name}");
    let before = [lab.node(0).read(&file)?, lab.node(1).read(&file)?];
    let set = |values: [&str; 2]| -> Result<()> {
        for (node, value) in values.into_iter().enumerate() {
            lab.node(node).write(&file, value)?;
        }
        Ok(())
    };
    let result = set([value; 2]).and_then(|()| work());
    set([before[0].trim(), before[1].trim()])?;
    result
}
