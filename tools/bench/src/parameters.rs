// SPDX-License-Identifier: GPL-2.0
//! Parameters of the module that are changed for a while.

use anyhow::Result;
use lab::Lab;

/// A parameter and its value.
pub type Setting = (&'static str, &'static str);

/// The engine makes every copy that it can make.
pub const BY_ENGINE: Setting = ("dma_threshold", "0");

/// Waits for messages sleep at once.
pub const ASLEEP: Setting = ("busy_poll_us", "0");

/// Works with a parameter set in both nodes. Sets it back afterwards, also after an error.
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
