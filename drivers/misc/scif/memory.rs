// SPDX-License-Identifier: GPL-2.0

//! Memory that takes part in one-sided access: windows on both sides, and memory that a call names.
//!
//! - `local.rs`: memory of this node, of a process or of the kernel, ready for transfers
//! - `pinned.rs`: such memory that many windows share, and the bounds on that
//! - `window.rs`, `windows.rs`: windows that one end of a channel has registered
//! - `remote_window.rs`, `remote_windows.rs`: windows of the other end
//! - `exports.rs`: all windows that one peer may be using
//! - `range_tree.rs`: trees of ranges, and the short list of entries that a transfer lies in
//!
//! Windows belong to a channel (`peer/channel.rs`). Connections and endpoints are not known here.

pub(crate) mod exports;
pub(crate) mod local;
pub(crate) mod pinned;
pub(crate) mod range_tree;
pub(crate) mod remote_window;
pub(crate) mod remote_windows;
pub(crate) mod window;
pub(crate) mod windows;
