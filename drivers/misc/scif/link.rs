// SPDX-License-Identifier: GPL-2.0

//! Finding the peers: a link makes sessions, one after another, with the node at its other end.

pub(crate) mod loopback;
pub(crate) mod ntb;
