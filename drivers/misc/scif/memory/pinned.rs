// SPDX-License-Identifier: GPL-2.0

//! Memory that is pinned once and shared by many windows: through many connections, and by every
//! process that is given it.
//!
//! A window is made of a *part* of the memory, in whole pages. Windows of the same part with the
//! same protection share the resources to reach it:
//!
//! - the list of its pages,
//! - per peer, the export by which the peer reaches it: a mapping for the bridge or a place in the
//!   arena,
//! - per engine, the mapping for the engine.
//!
//! Each resource exists as long as one of these windows does, and no longer: it must not outlive
//! the peer, as the memory does. Parts that overlap share only the pages themselves, so a peer
//! never reaches more than was registered with it. Each window has its own place, its id, and the
//! peer's record of it.
//!
//! # How often memory may be registered
//!
//! Memory that is pinned once is charged once, whichever process makes windows of it, and however
//! many. But windows also take resources that all users of a link share. The other node stores each
//! window and the place of its pages, and takes a limited number from one peer. Memory that the
//! peer reaches needs a place in the aperture. So each user is bounded, by the number of pages that
//! its processes have pinned in this way:

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

/// Memory that is pinned once, and the parts of it that windows use.
#[pin_data]
pub(crate) struct PinnedMemory {
    pages: Arc<Pages>,
    /// The user's account. `None` if the memory may be registered without a bound.
    account: Option<Arc<Account>>,
    parts: Arc<SharedTable<PartKey, Part>>,
    /// Held by the caller that makes a peer reach a part. Two callers at once would need two places
    /// in the arena.
    #[pin]
    making: CallLock,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PartKey {
    from: u64,
    len: u64,
    /// The accesses that the peers may make.
    access: Access,
}

/// The resources that windows of the same part share.
struct Part {
    pages: Arc<Pages>,
    exports: Arc<SharedTable<ExportKey, PeerExport>>,
    mappings: Arc<EngineMappings>,
    _claim: Option<UserClaim>,
}

/// Address of the [`Peer`]. The export keeps the peer alive, so the address stays valid.
type ExportKey = usize;

struct PeerExport {
    export: Export,
    // Dropped after the export, which needs the peer.
    _peer: Arc<Peer>,
}

impl PinnedMemory {
    /// Creates memory of pages that are pinned or lent. `account` bounds how often they may be
    /// registered.
    /// Context: may sleep.
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

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.pages.size() as u64
    }

    /// Returns whether the `len` bytes from `from` on are whole pages of the memory.
    pub(crate) fn has_pages(&self, from: u64, len: u64) -> bool {
        let page = PAGE_SIZE as u64;
        let end = from.checked_add(len);
        from % page == 0 && len % page == 0 && len != 0 && end.is_some_and(|end| end <= self.size())
    }

    /// Returns the part of `len` bytes from `from` on, for a window that gives peers `access`.
    ///
    /// # Errors
    ///
    /// - EINVAL: the bytes are not whole pages of the memory.
    /// - EACCES: the peers are to write to memory that may not be written to.
    /// - EAGAIN: there are too many windows or parts of the memory.
    ///
    /// Context: may sleep.
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

/// A part of pinned memory, for one window.
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

    /// Returns the part as the local side of transfers.
    pub(super) fn local(&self) -> LocalMemory {
        LocalMemory::shared(self.part.pages.clone(), self.part.mappings.clone())
    }

    /// Makes the peer reach the part, if it does not: see
    /// [`Path::export`](crate::transport::path::Path::export). Waits while other callers do so, or
    /// the last window of the part goes.
    /// Context: may sleep, interruptible.
    pub(super) fn export(self, peer: &Arc<Peer>) -> Result<Exported> {
        let key = ptr::from_ref(&**peer).addr();
        let export = {
            let _making = self.memory.making.lock()?;
            match self.part.exports.join(key) {
                Some(export) => ExportRef::Shared(export),
                None => self.make_export(peer, key)?,
            }
        };
        Ok(Exported {
            export,
            _part: Some(self.part),
            _claim: self.claim,
        })
    }

    fn make_export(&self, peer: &Arc<Peer>, key: ExportKey) -> Result<ExportRef> {
        // Waits for the export of a window that has just gone, so that the part never has two
        // places.
        self.part.exports.wait_for_gone()?;
        let export = peer.path().export(&self.part.pages, self.access)?;
        if !export.is_reached() {
            // Not shared, as there may be room for the next window.
            return Ok(ExportRef::Own(export));
        }
        let shared = self.part.exports.join_or_make(key, || {
            Ok(PeerExport {
                export,
                _peer: peer.clone(),
            })
        });
        shared.map(ExportRef::Shared)
    }
}

/// The peer's access to the memory of a window, until it is dropped.
pub(super) struct Exported {
    export: ExportRef,
    // Dropped after `export`, by which the peer reaches the part.
    _part: Option<Share<PartKey, Part>>,
    _claim: Option<UserClaim>,
}

/// The export of one window only, or one that windows of the same part share.
enum ExportRef {
    Own(Export),
    Shared(Share<ExportKey, PeerExport>),
}

impl Exported {
    /// Creates the access for one window only.
    pub(super) fn own(export: Export) -> Self {
        Self {
            export: ExportRef::Own(export),
            _part: None,
            _claim: None,
        }
    }
}

impl Deref for Exported {
    type Target = Export;

    fn deref(&self) -> &Export {
        match &self.export {
            ExportRef::Own(export) => export,
            ExportRef::Shared(shared) => &shared.export,
        }
    }
}

/// Most windows of a user: an eighth of the windows that a peer takes of all users.
const MAX_WINDOWS: u64 = 1 << 14;

/// Windows that each page may be in. Many connections can have windows of all of a memory.
const WINDOWS_PER_PAGE: u64 = 256;

/// Parts that each page may be in: one for each protection, and one more.
const PARTS_PER_PAGE: u64 = 4;

/// Pages in parts that a user may have, however small its memory is.
const MIN_PART_PAGES: u64 = 64;

/// Numbers of windows, of pages in these windows, and of pages in parts.
type Amounts = [u64; 3];

/// The pages that a user has pinned, and the amounts claimed of them.
pub(crate) struct Sums {
    pages: Atomic<u64>,
    claimed: Claimed<3>,
}

/// All users that have such memory.
pub(crate) type Users = SharedTable<User, Sums>;

/// The account of one memory, whose pages count for the user until it is dropped.
pub(crate) struct Account {
    user: Share<User, Sums>,
    pages: u64,
}

/// The right to one more window or part. It may outlive the memory's file descriptor.
type UserClaim = Claim<Account, 3>;

impl AsRef<Claimed<3>> for Account {
    fn as_ref(&self) -> &Claimed<3> {
        &self.user.claimed
    }
}

impl Account {
    /// Creates the account of memory of `pages` pages that the calling process has pinned. `None`
    /// if the process may pin without limit.
    /// Context: may sleep.
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
        // If the allocation fails, the drop of `Self` subtracts the pages again.
        Ok(Arc::new(Self { user, pages }, GFP_KERNEL_ACCOUNT)?)
    }

    /// Claims `amounts` for the user. EAGAIN if the user would have too much.
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

#[kunit_tests(scif_memory_pinned)]
mod tests {
    use super::*;

    fn refused(account: &Arc<Account>, amounts: Amounts) -> bool {
        matches!(account.claim(amounts), Err(error) if error == EAGAIN)
    }

    #[test]
    fn windows_and_parts_per_pinned_page_are_limited() -> Result {
        let users = Users::new()?;
        let account = Account::of_user(&users, User::current(), 10)?;
        let mut windows = KVec::new();
        for _ in 0..WINDOWS_PER_PAGE {
            windows.push(account.claim([1, 10, 0])?, GFP_KERNEL)?;
        }
        assert!(refused(&account, [1, 1, 0]));
        // A refused claim counts for nothing, and a dropped one makes room.
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
    fn windows_per_user_are_limited_for_any_memory_size() -> Result {
        let users = Users::new()?;
        let account = Account::of_user(&users, User::current(), 1 << 20)?;
        let mut windows = KVVec::new();
        for _ in 0..MAX_WINDOWS {
            windows.push(account.claim([1, 1, 0])?, GFP_KERNEL)?;
        }
        // Other memory of the same user gives it no more windows.
        let another = Account::of_user(&users, User::current(), 1 << 20)?;
        assert!(refused(&another, [1, 1, 0]));
        drop(windows.pop());
        drop(another.claim([1, 1, 0])?);
        Ok(())
    }

    #[test]
    fn account_counts_until_its_last_claim_is_dropped() -> Result {
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
