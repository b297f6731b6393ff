// SPDX-License-Identifier: GPL-2.0

//! Memory that takes part in one-sided access: windows on both sides, and what a call names.
//!
//! - `local.rs`: memory of this node, of a process or of the kernel, ready for transfers
//! - `pinned.rs`: such memory that many windows share, and how often
//! - `window.rs`, `windows.rs`: what one end of a channel has registered
//! - `remote_window.rs`, `remote_windows.rs`: what the other end has
//! - `exports.rs`: all windows that one peer may be using
//! - `range_tree.rs`: trees of ranges, and the few that hold what a transfer names
//!
//! Windows belong to a channel (`peer/channel.rs`); connections and endpoints are not known here.

pub(crate) mod exports;
pub(crate) mod local;
pub(crate) mod pinned;
pub(crate) mod range_tree;
pub(crate) mod remote_window;
pub(crate) mod remote_windows;
pub(crate) mod window;
pub(crate) mod windows;
