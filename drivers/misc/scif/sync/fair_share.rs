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

/// One of the things, which is a user's until this is dropped. That may sleep.
pub(crate) struct FairShare(Option<Share<User, Atomic<usize>>>);

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
        if has_no_share() {
            return Ok(Some(FairShare(None)));
        }
        self.take_for(User::current(), tunables::user_share())
    }

    fn take_for(&self, user: User, percent: usize) -> Result<Option<FairShare>> {
        let most = self.all / 100 * percent + self.all % 100 * percent / 100;
        let user = self.users.join_or_make(user, || Ok(Atomic::new(0)))?;
        let before = user.fetch_add(1, Relaxed);
        // Gives it back if it is too much.
        let taken = FairShare(Some(user));
        Ok((before < most.max(1)).then_some(taken))
    }
}

impl Drop for FairShare {
    fn drop(&mut self) {
        if let Some(user) = &self.0 {
            user.fetch_sub(1, Relaxed);
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
        let mut taken = KVec::new();
        while let Some(share) = shares.take_for(greedy, 50)? {
            taken.push(share, GFP_KERNEL)?;
        }
        assert_eq!(taken.len(), 5);
        assert!(shares.take_for(other, 50)?.is_some());
        // What was refused counts for nothing, and what is given back can be had again.
        drop(taken.pop());
        assert!(shares.take_for(greedy, 50)?.is_some());
        drop(taken);
        assert!(shares.users.join(greedy).is_none());
        Ok(())
    }

    #[test]
    fn everybody_may_have_one() -> Result {
        let shares = FairShares::of(10)?;
        let user = User::numbered(1);
        let first = shares.take_for(user, 0)?;
        assert!(first.is_some() && shares.take_for(user, 0)?.is_none());
        Ok(())
    }
}
