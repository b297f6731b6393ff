// SPDX-License-Identifier: GPL-2.0

//! What one user may have of something of which there is so much for all users.
//!
//! No memory cgroup keeps a user from taking all ids or ports, so each user may have `user_share` percent of them
//! (`sys/tunables.rs`). It is the real user id that counts, as for RLIMIT_MEMLOCK. A process with CAP_SYS_RESOURCE has no
//! limit, and what it takes counts for nobody; so do threads of the kernel.

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
    /// How much each has.
    users: Arc<SharedTable<User, Atomic<usize>>>,
    all: usize,
}

/// Some of the things, which are a user's until this is dropped. That may sleep.
pub(crate) struct FairShare {
    /// None if there is no limit.
    user: Option<Share<User, Atomic<usize>>>,
    /// How many the user may have.
    most: usize,
    count: Atomic<usize>,
}

impl FairShares {
    /// Of so many things. May sleep.
    pub(crate) fn of(all: usize) -> Result<Self> {
        Ok(Self {
            users: SharedTable::new()?,
            all,
        })
    }

    /// Takes one more for the user of the calling process; none if that is too much, which the caller has an error for.
    /// May sleep.
    pub(crate) fn take(&self) -> Result<Option<FairShare>> {
        let share = self.of_caller()?;
        Ok(share.add(1).then_some(share))
    }

    /// Begins with none, for the user of the calling process. May sleep.
    pub(crate) fn of_caller(&self) -> Result<FairShare> {
        let user = (!has_no_share()).then(User::current);
        self.of_user(user, tunables::user_share())
    }

    /// As [`Self::of_caller`], for a user who may have so many percent; nobody's has no limit.
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
    /// Takes so many more for the same user. Returns false, and takes none, if that is too much: what is the user's first is
    /// not. Any context.
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
    fn what_one_user_takes_is_not_all() -> Result {
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
        // What was refused counts for nothing, and what is given back can be had again.
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
    fn everybody_may_have_one() -> Result {
        let shares = FairShares::of(10)?;
        let share = || shares.of_user(Some(User::numbered(1)), 0);
        let (first, second) = (share()?, share()?);
        assert!(first.add(7) && !second.add(1) && !first.add(1));
        drop(first);
        assert!(second.add(1));
        Ok(())
    }
}
