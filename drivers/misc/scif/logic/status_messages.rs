// SPDX-License-Identifier: GPL-2.0

//! The messages by which nodes tell each other which life of theirs this is.

use super::envelope::{
    define_messages,
    ServiceId, //
};

define_messages! {
    /// What the status service of one node tells that of another.
    pub(crate) enum StatusMessage of ServiceId::STATUS;

    /// The sender's boot id, once, before anything else: 128 bits that are never all zero.
    1 BootId { low: u64, high: u64 } if low != 0 || high != 0;
}
