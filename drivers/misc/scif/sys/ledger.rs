// SPDX-License-Identifier: GPL-2.0

//! Which process has how many pages pinned, for people.
//!
//! What `pin.rs` charges is written down here by address space, which stays known until all of it is
//! given back: that may be long after its process has ended.

use super::{
    current::Identity,
    shared_table::{
        Share,
        SharedTable, //
    },
};
use kernel::{
    mm::Mm,
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    },
};

/// What one process has.
pub(crate) struct Account {
    /// As it was when it began to pin.
    pub(crate) process: Identity,
    pub(crate) pages: Atomic<usize>,
}

/// The accounts, by the address of the address space: whoever has a share of one keeps the `Mm` from being freed, so
/// that no other has its address.
pub(crate) type Ledger = SharedTable<usize, Account>;

impl Account {
    /// That of the calling process, whose address space this is. May sleep.
    pub(super) fn of_caller(ledger: &Arc<Ledger>, mm: &Mm) -> Result<Share<usize, Self>> {
        ledger.join_or_make(mm.as_raw().addr(), || {
            Ok(Self {
                process: Identity::current(),
                pages: Atomic::new(0),
            })
        })
    }
}
