// SPDX-License-Identifier: GPL-2.0
//! Work on all nodes of a lab in parallel.

use std::thread;

use anyhow::Result;
use anyhow::anyhow;
use lab::Lab;

/// Runs an action for all nodes in parallel.
pub fn for_each_node<T: Send>(
    lab: &Lab,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..lab.nodes())
            .map(|node| scope.spawn(move || work(node)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
            .collect()
    })
}
