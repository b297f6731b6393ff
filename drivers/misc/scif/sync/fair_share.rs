// SPDX-License-Identifier: GPL-2.0

//! Each user's share of a resource of which there is a fixed amount for all users.
//!
//! No memory cgroup keeps a user from taking all ids or ports. So each user may have `user_share`
//! percent of them (`sys/tunables.rs`). The real user id counts, as for RLIMIT_MEMLOCK. Processes
//! with CAP_SYS_RESOURCE and kernel threads have no limit, and what they take counts for no user.

use crate::sys::{
    current::{
        has_no_share,
        User, //
    },
    shared_table::{
        Share,
        SharedTable, //
    },
    tunables,
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// The shares of all users.
pub(crate) struct FairShares {
    /// The amount that each user has.
    users: Arc<SharedTable<User, Atomic<usize>>>,
    all: usize,
}

/// A part of the resource, which is the user's until it is dropped. Dropping it may sleep.
pub(crate) struct FairShare {
    /// The user. `None` if there is no limit.
    user: Option<Share<User, Atomic<usize>>>,
    /// Most units that the user may have.
    most: usize,
    count: Atomic<usize>,
}

impl FairShares {
    /// Creates the shares of a resource of `all` units.
    /// Context: may sleep.
    pub(crate) fn of(all: usize) -> Result<Self> {
        Ok(Self {
            users: SharedTable::new()?,
            all,
        })
    }

    /// Takes one more unit for the user of the calling process. `None` if that is too much; the
    /// caller picks the error.
    /// Context: may sleep.
    pub(crate) fn take(&self) -> Result<Option<FairShare>> {
        let share = self.of_caller()?;
        Ok(share.add(1).then_some(share))
    }

    /// Creates an empty share for the user of the calling process.
    /// Context: may sleep.
    pub(crate) fn of_caller(&self) -> Result<FairShare> {
        let user = (!has_no_share()).then(User::current);
        self.of_user(user, tunables::user_share())
    }

    /// Creates an empty share for a user that may have `percent`. Without a user there is no limit.
    pub(crate) fn of_user(&self, user: Option<User>, percent: usize) -> Result<FairShare> {
        let joined = user.map(|user| self.users.join_or_make(user, || Ok(Atomic::new(0))));
        Ok(FairShare {
            user: joined.transpose()?,
            most: self.all / 100 * percent + self.all % 100 * percent / 100,
            count: Atomic::new(0),
        })
    }
}

impl FairShare {
    /// Takes `count` more units for the same user. Returns false, and takes none, if that is too
    /// much. A user's first units are never too much.
    /// Context: any.
    pub(crate) fn add(&self, count: usize) -> bool {
        let Some(user) = &self.user else { return true };
        let before = user.fetch_add(count, Relaxed);
        if before > 0 && before.saturating_add(count) > self.most {
            user.fetch_sub(count, Relaxed);
            return false;
        }
        self.count.add(count, Relaxed);
        true
    }
}

impl Drop for FairShare {
    fn drop(&mut self) {
        if let Some(user) = &self.user {
            user.fetch_sub(self.count.load(Relaxed), Relaxed);
        }
    }
}

#[kunit_tests(scif_sync_fair_share)]
mod tests {
    use super::*;

    #[test]
    fn greedy_user_leaves_a_share_to_other_users() -> Result {
        let shares = FairShares::of(10)?;
        let [greedy, other] = [1, 2].map(User::numbered);
        let take = |user, count| -> Result<Option<FairShare>> {
            let share = shares.of_user(Some(user), 50)?;
            Ok(share.add(count).then_some(share))
        };
        let mut taken = KVec::new();
        while let Some(share) = take(greedy, 1)? {
            taken.push(share, GFP_KERNEL)?;
        }
        assert_eq!(taken.len(), 5);
        assert!(take(other, 1)?.is_some());
        // A refused amount counts for nothing, and an amount that was given back is available
        // again.
        drop(taken.pop());
        assert!(take(greedy, 2)?.is_none());
        let last = take(greedy, 1)?.ok_or(EINVAL)?;
        assert!(!last.add(1));
        drop(taken.pop());
        assert!(last.add(1));
        drop((taken, last));
        assert!(shares.users.join(greedy).is_none());
        Ok(())
    }

    #[test]
    fn first_units_of_a_user_are_never_refused() -> Result {
        let shares = FairShares::of(10)?;
        let share = || shares.of_user(Some(User::numbered(1)), 0);
        let (first, second) = (share()?, share()?);
        assert!(first.add(7) && !second.add(1) && !first.add(1));
        drop(first);
        assert!(second.add(1));
        Ok(())
    }
}
