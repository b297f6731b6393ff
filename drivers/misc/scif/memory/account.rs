// SPDX-License-Identifier: GPL-2.0

//! How often a user's memory may be registered.
//!
//! Memory that is pinned once (`pinned.rs`) is charged once, whoever makes windows of it and however many.
//! But windows take more than pages, of what all users of a link have together: the other node keeps each
//! of them, and where its pages lie, and takes no more than so many of one peer; and what it is to reach
//! needs a place in the aperture. So there is a bound for each user, by how many pages the memory has that
//! its processes have pinned in this way:
//!
//! - for how many windows there are of it,
//! - for how many pages those have all together, as each page may be an address that the peer keeps,
//! - for how many pages its distinct parts have all together, as each needs a place of its own.
//!
//! It is the user who has pinned the memory, as for RLIMIT_MEMLOCK, whoever registers it. Who may pin
//! without limit is not bounded here either.

use crate::{
    sync::shared::{
        Share,
        SharedTable, //
    },
    sys::current::{
        capable,
        Capability,
        User, //
    },
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

/// Windows of a user: an eighth of those that a peer takes of all users.
const MAX_WINDOWS: u64 = 1 << 14;

/// How often each page may be in a window: that many connections can have all of a memory.
const WINDOWS_PER_PAGE: u64 = 256;

/// How often each page may be in a part: once for each protection, and once more.
const PARTS_PER_PAGE: u64 = 4;

/// Pages in parts that a user may have however small its memory is.
const MIN_PART_PAGES: u64 = 64;

/// What a user has, and what there is of it.
pub(crate) struct Sums {
    pages: Atomic<u64>,
    windows: Atomic<u64>,
    window_pages: Atomic<u64>,
    part_pages: Atomic<u64>,
}

impl Sums {
    const fn new() -> Self {
        Self {
            pages: Atomic::new(0),
            windows: Atomic::new(0),
            window_pages: Atomic::new(0),
            part_pages: Atomic::new(0),
        }
    }
}

/// All users who have such memory.
pub(crate) type Users = SharedTable<User, Sums>;

/// The pages of one memory, which count as long as this is there.
pub(crate) struct Account {
    user: Share<User, Sums>,
    pages: u64,
}

/// For what there is a bound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Window,
    Part,
}

/// The right to one more window or part of so many pages; given back when dropped.
pub(super) struct Claim {
    // It outlives the memory's descriptor.
    account: Arc<Account>,
    kind: Kind,
    pages: u64,
}

impl Account {
    /// Of memory of so many pages that the calling process has pinned; none if it may pin without limit.
    /// May sleep.
    pub(crate) fn of_caller(users: &Arc<Users>, pages: u64) -> Result<Option<Arc<Self>>> {
        match capable(Capability::IpcLock) {
            true => Ok(None),
            false => Self::of_user(users, User::current(), pages).map(Some),
        }
    }

    fn of_user(users: &Arc<Users>, user: User, pages: u64) -> Result<Arc<Self>> {
        let user = users.join_or_make(user, || Ok(Sums::new()))?;
        user.pages.fetch_add(pages, Relaxed);
        // Takes them off again if it can't be kept.
        Ok(Arc::new(Self { user, pages }, GFP_KERNEL_ACCOUNT)?)
    }

    /// One more window or part of so many pages: EAGAIN if its user has too many.
    pub(super) fn claim(self: &Arc<Self>, kind: Kind, pages: u64) -> Result<Claim> {
        let user = &*self.user;
        let pinned = user.pages.load(Relaxed);
        let fits = match kind {
            Kind::Window => {
                let windows = user.windows.fetch_add(1, Relaxed);
                let before = user.window_pages.fetch_add(pages, Relaxed);
                let limit = pinned.saturating_mul(WINDOWS_PER_PAGE);
                windows < MAX_WINDOWS && before.saturating_add(pages) <= limit
            }
            Kind::Part => {
                let before = user.part_pages.fetch_add(pages, Relaxed);
                let limit = pinned
                    .saturating_mul(PARTS_PER_PAGE)
                    .saturating_add(MIN_PART_PAGES);
                before.saturating_add(pages) <= limit
            }
        };
        // Gives it back if it is refused.
        let claim = Claim {
            account: self.clone(),
            kind,
            pages,
        };
        match fits {
            true => Ok(claim),
            false => Err(EAGAIN),
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.user.pages.fetch_sub(self.pages, Relaxed);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let user = &*self.account.user;
        match self.kind {
            Kind::Window => {
                user.windows.fetch_sub(1, Relaxed);
                user.window_pages.fetch_sub(self.pages, Relaxed);
            }
            Kind::Part => {
                user.part_pages.fetch_sub(self.pages, Relaxed);
            }
        }
    }
}

#[kunit_tests(scif_memory_account)]
mod tests {
    use super::*;

    fn refused(account: &Arc<Account>, kind: Kind, pages: u64) -> bool {
        matches!(account.claim(kind, pages), Err(error) if error == EAGAIN)
    }

    #[test]
    fn each_page_is_in_so_many_windows_and_parts() -> Result {
        let users = Users::new()?;
        let account = Account::of_user(&users, User::current(), 10)?;
        let mut windows = KVec::new();
        for _ in 0..WINDOWS_PER_PAGE {
            windows.push(account.claim(Kind::Window, 10)?, GFP_KERNEL)?;
        }
        assert!(refused(&account, Kind::Window, 1));
        // What is refused counts for nothing, and what goes makes room.
        drop(windows.pop());
        drop(account.claim(Kind::Window, 10)?);
        assert!(refused(&account, Kind::Window, 11));
        let most = 10 * PARTS_PER_PAGE + MIN_PART_PAGES;
        let part = account.claim(Kind::Part, most)?;
        assert!(refused(&account, Kind::Part, 1));
        drop(part);
        assert!(refused(&account, Kind::Part, most + 1));
        assert!(refused(&account, Kind::Part, u64::MAX));
        drop(account.claim(Kind::Part, most)?);
        Ok(())
    }

    #[test]
    fn there_are_no_more_windows_however_much_memory_there_is() -> Result {
        let users = Users::new()?;
        let account = Account::of_user(&users, User::current(), 1 << 20)?;
        let mut windows = KVVec::new();
        for _ in 0..MAX_WINDOWS {
            windows.push(account.claim(Kind::Window, 1)?, GFP_KERNEL)?;
        }
        // Nor with other memory of the same user.
        let another = Account::of_user(&users, User::current(), 1 << 20)?;
        assert!(refused(&another, Kind::Window, 1));
        drop(windows.pop());
        drop(another.claim(Kind::Window, 1)?);
        Ok(())
    }

    #[test]
    fn it_counts_until_the_last_claim_has_gone() -> Result {
        let users = Users::new()?;
        let account = Account::of_user(&users, User::current(), 1)?;
        let claim = account.claim(Kind::Window, 1)?;
        drop(account);
        let user = users.join(User::current()).ok_or(ENOENT)?;
        assert_eq!(
            (user.pages.load(Relaxed), user.windows.load(Relaxed)),
            (1, 1)
        );
        drop(claim);
        assert_eq!(
            (user.pages.load(Relaxed), user.windows.load(Relaxed)),
            (0, 0)
        );
        drop(user);
        assert!(users.join(User::current()).is_none());
        Ok(())
    }
}
