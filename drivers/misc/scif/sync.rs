// SPDX-License-Identifier: GPL-2.0

//! Small primitives for threads: locks and waits, counts, shares of a resource, and results.

pub(crate) mod awake;
pub(crate) mod call_lock;
pub(crate) mod claim;
pub(crate) mod fair_share;
pub(crate) mod flow;
pub(crate) mod in_flight;
pub(crate) mod list;
pub(crate) mod log_budget;
pub(crate) mod outcome;
pub(crate) mod patience;
pub(crate) mod shared;
pub(crate) mod work_queues;
