// SPDX-License-Identifier: GPL-2.0

//! A ledger of the pages that each process has pinned, for people.
//!
//! `pin.rs` records its charges here by address space. An account stays until all its pages are
//! given back, possibly long after its process has ended.

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

/// The account of one process.
pub(crate) struct Account {
    /// Identity of the process when it began to pin.
    pub(crate) process: Identity,
    pub(crate) pages: Atomic<usize>,
}

/// A table of accounts by the address of the address space. A share of an account keeps the `Mm`
/// from being freed, so no other `Mm` has the same address.
pub(crate) type Ledger = SharedTable<usize, Account>;

impl Account {
    /// Returns a share of the account of the calling process, whose address space is `mm`.
    /// Context: may sleep.
    pub(super) fn of_caller(ledger: &Arc<Ledger>, mm: &Mm) -> Result<Share<usize, Self>> {
        ledger.join_or_make(mm.as_raw().addr(), || {
            Ok(Self {
                process: Identity::current(),
                pages: Atomic::new(0),
            })
        })
    }
}
