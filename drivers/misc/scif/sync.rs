// SPDX-License-Identifier: GPL-2.0

//! Small things that wait, or that others wait for.

pub(crate) mod call_lock;
pub(crate) mod in_flight;
pub(crate) mod work_queues;
