// SPDX-License-Identifier: GPL-2.0

//! Memory that is pinned once, and of which many windows are made: through many connections, and by
//! whoever is given it.
//!
//! A window is made of a *part* of it, in whole pages. Windows of the same part with the same
//! protection share what it takes to reach it: the list of its pages; per peer, what makes the peer
//! reach it, a mapping for the bridge or a place in the arena; and the mapping for an engine, per engine.
//! Each is there as long as one of these windows is, and no longer: it must not outlive the peer, as
//! the memory does. Parts that overlap share nothing but the pages themselves, so that a peer never
//! reaches more than what was registered with it. A window's own are its place, its id, and
//! what the peer keeps of it.
//!
//! # How often memory may be registered
//!
//! Memory that is pinned once is charged once, whoever makes windows of it and however many.
//! But windows take more than pages, of what all users of a link have together: the other node keeps each
//! of them, and where its pages lie, and takes no more than so many of one peer; and what it is to reach
//! needs a place in the aperture. So there is a bound for each user, by how many pages the memory has that
//! its processes have pinned in this way:
//!
//! - for how many windows there are of it,
//! - for how many pages those have all together, as each page may be an address that the peer keeps,
//! - for how many pages its distinct parts have all together, as each needs a place of its own.
//!
//! It is the user who has pinned the memory, as for RLIMIT_MEMLOCK, whoever registers it. A process that may
//! pin without limit is not bounded here either.

use super::local::{
    EngineMappings,
    LocalMemory, //
};
use crate::{
    peer::Peer,
    sync::{
        call_lock::CallLock,
        claim::{
            Claim,
            Claimed, //
        },
    },
    sys::{
        arena::Access,
        current::{
            pins_without_limit,
            User, //
        },
        pages::Pages,
        shared_table::{
            Share,
            SharedTable, //
        },
    },
    transport::path::Export, //
};
use core::{
    ops::Deref,
    ptr, //
};
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// Memory that is pinned once, and its parts of which there are windows.
#[pin_data]
pub(crate) struct PinnedMemory {
    pages: Arc<Pages>,
    /// None if it may be registered without a bound.
    account: Option<Arc<Account>>,
    parts: Arc<SharedTable<PartKey, Part>>,
    /// Who makes a peer reach a part: two that did the same at once would need two places in its arena.
    #[pin]
    making: CallLock,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PartKey {
    from: u64,
    len: u64,
    /// What the peers may do.
    access: Access,
}

/// What windows of the same part have in common.
struct Part {
    pages: Arc<Pages>,
    exports: Arc<SharedTable<ExportKey, PeerExport>>,
    mappings: Arc<EngineMappings>,
    _claim: Option<UserClaim>,
}

/// The address of the peer, which stays what it is as long as there is the export.
type ExportKey = usize;

struct PeerExport {
    export: Export,
    // After what it reaches.
    _peer: Arc<Peer>,
}

impl PinnedMemory {
    /// Of pages that are pinned, or lent; their `account` says how often they may be registered, if that is
    /// bounded. May sleep.
    pub(crate) fn new(pages: Arc<Pages>, account: Option<Arc<Account>>) -> Result<Arc<Self>> {
        let parts = SharedTable::new()?;
        Arc::pin_init(
            pin_init!(Self {
                pages,
                account,
                parts,
                making <- CallLock::new(),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// How many bytes there are.
    pub(crate) fn size(&self) -> u64 {
        self.pages.size() as u64
    }

    /// Whether so many bytes from there on are pages of it.
    pub(crate) fn has_pages(&self, from: u64, len: u64) -> bool {
        let page = PAGE_SIZE as u64;
        let end = from.checked_add(len);
        from % page == 0 && len % page == 0 && len != 0 && end.is_some_and(|end| end <= self.size())
    }

    /// The `len` bytes from `from` on, for a window with which peers may do this. EINVAL unless they are
    /// pages of it, EACCES if they are to be written to and may not be, EAGAIN if there are too many windows
    /// or parts of it. May sleep.
    pub(crate) fn part(
        self: &Arc<Self>,
        from: u64,
        len: u64,
        access: Access,
    ) -> Result<PartOfMemory> {
        let pages = len >> PAGE_SHIFT;
        let claim = self.claim([1, pages, 0])?;
        let key = PartKey { from, len, access };
        let part = self.parts.join_or_make(key, || {
            Ok(Part {
                pages: Pages::part(&self.pages, from, len, access != Access::Read)?,
                exports: SharedTable::new()?,
                mappings: SharedTable::new()?,
                _claim: self.claim([0, 0, pages])?,
            })
        })?;
        Ok(PartOfMemory {
            memory: self.clone(),
            access,
            part,
            claim,
        })
    }

    fn claim(&self, amounts: Amounts) -> Result<Option<UserClaim>> {
        let account = self.account.as_ref();
        account.map(|account| account.claim(amounts)).transpose()
    }
}

/// A part of such memory, for one window.
pub(crate) struct PartOfMemory {
    memory: Arc<PinnedMemory>,
    access: Access,
    part: Share<PartKey, Part>,
    claim: Option<UserClaim>,
}

impl PartOfMemory {
    pub(crate) fn pages(&self) -> &Arc<Pages> {
        &self.part.pages
    }

    /// As the local side of transfers.
    pub(super) fn local(&self) -> LocalMemory {
        LocalMemory::shared(self.part.pages.clone(), self.part.mappings.clone())
    }

    /// Makes the peer reach it, if it does not: see [`Path::export`](crate::transport::path::Path::export).
    /// Interruptible, while others do so, or the last window of it goes. May sleep.
    pub(super) fn export(self, peer: &Arc<Peer>) -> Result<Exported> {
        let key = ptr::from_ref(&**peer).addr();
        let way = {
            let _making = self.memory.making.lock()?;
            match self.part.exports.join(key) {
                Some(export) => Way::Shared(export),
                None => self.make_export(peer, key)?,
            }
        };
        Ok(Exported {
            way,
            _part: Some(self.part),
            _claim: self.claim,
        })
    }

    fn make_export(&self, peer: &Arc<Peer>, key: ExportKey) -> Result<Way> {
        // The last window may have gone just now, and have a place of which there need not be two.
        self.part.exports.wait_for_gone()?;
        let export = peer.path().export(&self.part.pages, self.access)?;
        if !export.is_reached() {
            // For the next one there may be room.
            return Ok(Way::Own(export));
        }
        let shared = self.part.exports.join_or_make(key, || {
            Ok(PeerExport {
                export,
                _peer: peer.clone(),
            })
        });
        shared.map(Way::Shared)
    }
}

/// How the peer reaches the memory of a window, until this is dropped.
pub(super) struct Exported {
    way: Way,
    // After what the peer reaches of it.
    _part: Option<Share<PartKey, Part>>,
    _claim: Option<UserClaim>,
}

enum Way {
    Own(Export),
    Shared(Share<ExportKey, PeerExport>),
}

impl Exported {
    /// That of one window only.
    pub(super) fn own(export: Export) -> Self {
        Self {
            way: Way::Own(export),
            _part: None,
            _claim: None,
        }
    }
}

impl Deref for Exported {
    type Target = Export;

    fn deref(&self) -> &Export {
        match &self.way {
            Way::Own(export) => export,
            Way::Shared(shared) => &shared.export,
        }
    }
}

/// Windows of a user: an eighth of those that a peer takes of all users.
const MAX_WINDOWS: u64 = 1 << 14;

/// How often each page may be in a window: that many connections can have all of a memory.
const WINDOWS_PER_PAGE: u64 = 256;

/// How often each page may be in a part: once for each protection, and once more.
const PARTS_PER_PAGE: u64 = 4;

/// Pages in parts that a user may have however small its memory is.
const MIN_PART_PAGES: u64 = 64;

/// How many windows there are, how many pages those have, and how many pages parts have.
type Amounts = [u64; 3];

/// What a user has, and what there is of it.
pub(crate) struct Sums {
    pages: Atomic<u64>,
    claimed: Claimed<3>,
}

/// All users who have such memory.
pub(crate) type Users = SharedTable<User, Sums>;

/// The pages of one memory, which count as long as this is there.
pub(crate) struct Account {
    user: Share<User, Sums>,
    pages: u64,
}

/// The right to one more window or part. It outlives the memory's descriptor.
type UserClaim = Claim<Account, 3>;

impl AsRef<Claimed<3>> for Account {
    fn as_ref(&self) -> &Claimed<3> {
        &self.user.claimed
    }
}

impl Account {
    /// Of memory of so many pages that the calling process has pinned; none if it may pin without limit.
    /// May sleep.
    pub(crate) fn of_caller(users: &Arc<Users>, pages: u64) -> Result<Option<Arc<Self>>> {
        if pins_without_limit() {
            return Ok(None);
        }
        Self::of_user(users, User::current(), pages).map(Some)
    }

    fn of_user(users: &Arc<Users>, user: User, pages: u64) -> Result<Arc<Self>> {
        let user = users.join_or_make(user, || {
            Ok(Sums {
                pages: Atomic::new(0),
                claimed: Claimed::new(),
            })
        })?;
        user.pages.fetch_add(pages, Relaxed);
        // Takes them off again if it can't be kept.
        Ok(Arc::new(Self { user, pages }, GFP_KERNEL_ACCOUNT)?)
    }

    /// So much more: EAGAIN if its user has too much then.
    fn claim(self: &Arc<Self>, amounts: Amounts) -> Result<UserClaim> {
        let pinned = self.user.pages.load(Relaxed);
        let limits = [
            MAX_WINDOWS,
            pinned.saturating_mul(WINDOWS_PER_PAGE),
            pinned
                .saturating_mul(PARTS_PER_PAGE)
                .saturating_add(MIN_PART_PAGES),
        ];
        Claim::new(self, amounts, limits).ok_or(EAGAIN)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.user.pages.fetch_sub(self.pages, Relaxed);
    }
}

#[kunit_tests(scif_memory_account)]
mod tests {
    use super::*;

    fn refused(account: &Arc<Account>, amounts: Amounts) -> bool {
        matches!(account.claim(amounts), Err(error) if error == EAGAIN)
    }

    #[test]
    fn each_page_is_in_so_many_windows_and_parts() -> Result {
        let users = Users::new()?;
        let account = Account::of_user(&users, User::current(), 10)?;
        let mut windows = KVec::new();
        for _ in 0..WINDOWS_PER_PAGE {
            windows.push(account.claim([1, 10, 0])?, GFP_KERNEL)?;
        }
        assert!(refused(&account, [1, 1, 0]));
        // What is refused counts for nothing, and what goes makes room.
        drop(windows.pop());
        drop(account.claim([1, 10, 0])?);
        assert!(refused(&account, [1, 11, 0]));
        let most = 10 * PARTS_PER_PAGE + MIN_PART_PAGES;
        let part = account.claim([0, 0, most])?;
        assert!(refused(&account, [0, 0, 1]));
        drop(part);
        assert!(refused(&account, [0, 0, most + 1]));
        assert!(refused(&account, [0, 0, u64::MAX]));
        drop(account.claim([0, 0, most])?);
        Ok(())
    }

    #[test]
    fn there_are_no_more_windows_however_much_memory_there_is() -> Result {
        let users = Users::new()?;
        let account = Account::of_user(&users, User::current(), 1 << 20)?;
        let mut windows = KVVec::new();
        for _ in 0..MAX_WINDOWS {
            windows.push(account.claim([1, 1, 0])?, GFP_KERNEL)?;
        }
        // Nor with other memory of the same user.
        let another = Account::of_user(&users, User::current(), 1 << 20)?;
        assert!(refused(&another, [1, 1, 0]));
        drop(windows.pop());
        drop(another.claim([1, 1, 0])?);
        Ok(())
    }

    #[test]
    fn it_counts_until_the_last_claim_has_gone() -> Result {
        let users = Users::new()?;
        let account = Account::of_user(&users, User::current(), 1)?;
        let claim = account.claim([1, 1, 0])?;
        drop(account);
        let user = users.join(User::current()).ok_or(ENOENT)?;
        let pages = || user.pages.load(Relaxed);
        assert_eq!((pages(), user.claimed.amounts()), (1, [1, 1, 0]));
        drop(claim);
        assert_eq!((pages(), user.claimed.amounts()), (0, [0, 0, 0]));
        drop(user);
        assert!(users.join(User::current()).is_none());
        Ok(())
    }
}
