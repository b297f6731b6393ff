// SPDX-License-Identifier: GPL-2.0

//! Which process has how many pages pinned, for people.
//!
//! What `pin.rs` charges is written down here by address space, which stays known until all of it is
//! given back: that may be long after its process has ended.
//!
//! Lock: `Ledger::accounts`, a leaf.

use kernel::{
    mm::Mm,
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        SpinLock, //
    },
};

use super::current::Identity;

/// What one process has.
#[derive(Clone)]
pub(crate) struct Account {
    /// As it was when it began to pin.
    pub(crate) process: Identity,
    pub(crate) pages: usize,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Ledger {
    /// By the address of the address space.
    #[pin]
    accounts: SpinLock<RBTree<usize, Account>>,
}

/// Pages that are written down until this is dropped. Whoever has it keeps the `Mm` from being freed,
/// so that no other has its address.
pub(super) struct Entry {
    ledger: Arc<Ledger>,
    key: usize,
    pages: usize,
}

impl Ledger {
    /// Nothing is pinned yet. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                accounts <- new_spinlock!(RBTree::new(), "Ledger::accounts"),
            }),
            GFP_KERNEL,
        )
    }

    /// Writes down that the calling process, whose address space this is, pins so many pages. May
    /// sleep.
    pub(super) fn add(self: &Arc<Self>, mm: &Mm, pages: usize) -> Result<Entry> {
        let key = mm.as_raw().addr();
        let add = |accounts: &mut RBTree<usize, Account>| match accounts.get_mut(&key) {
            Some(account) => {
                account.pages += pages;
                true
            }
            None => false,
        };
        if !add(&mut self.accounts.lock()) {
            let process = Identity::current();
            let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
            let mut accounts = self.accounts.lock();
            // Another thread of it may have been faster.
            if !add(&mut accounts) {
                accounts.insert(node.into_node(key, Account { process, pages }));
            }
        }
        Ok(Entry {
            ledger: self.clone(),
            key,
            pages,
        })
    }

    /// Calls `f` with what each process has, without a lock. May sleep.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Account)) {
        let mut next = 0;
        loop {
            let found = {
                let accounts = self.accounts.lock();
                let cursor = accounts.cursor_lower_bound(&next);
                cursor.map(|cursor| (*cursor.current().0, cursor.current().1.clone()))
            };
            let Some((key, account)) = found else { break };
            f(&account);
            next = key + 1;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let empty = {
            let mut accounts = self.ledger.accounts.lock();
            let left = accounts.get_mut(&self.key).map(|account| {
                account.pages = account.pages.saturating_sub(self.pages);
                account.pages
            });
            match left {
                Some(0) => accounts.remove_node(&self.key),
                _ => None,
            }
        };
        drop(empty);
    }
}

#[kunit_tests(scif_sys_ledger)]
mod tests {
    use super::*;
    use crate::sys::tests::map_pages;

    fn pages(ledger: &Ledger) -> (usize, usize) {
        let (mut accounts, mut pages) = (0, 0);
        ledger.for_each(|account| {
            accounts += 1;
            pages += account.pages;
        });
        (accounts, pages)
    }

    #[test]
    fn an_account_is_there_as_long_as_something_is_pinned() -> Result {
        // Gives the thread of the test an address space.
        map_pages(1, false)?;
        let task = current!();
        let mm: &Mm = task.mm().ok_or(EFAULT)?;
        let ledger = Ledger::new()?;
        assert_eq!(pages(&ledger), (0, 0));
        let first = ledger.add(mm, 3)?;
        let second = ledger.add(mm, 4)?;
        assert_eq!(pages(&ledger), (1, 7));
        drop(first);
        assert_eq!(pages(&ledger), (1, 4));
        ledger.for_each(|account| assert_eq!(account.process.pid(), task.tgid()));
        drop(second);
        assert_eq!(pages(&ledger), (0, 0));
        Ok(())
    }
}
