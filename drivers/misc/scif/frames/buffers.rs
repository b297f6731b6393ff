// SPDX-License-Identifier: GPL-2.0

//! The buffers that a queue posts to the peer, and what becomes of them.
//!
//! A queue has a set of buffers, each a page, which the peer reaches from the beginning to the end. A
//! buffer is *free*, *posted* to the peer, or *given* to a user, who holds a reference to the page. A
//! given buffer becomes free when only this set holds a reference. So the peer is never told of a page
//! that a user has.
//!
//! Some buffers are never given: half as many as the ring has slots, and enough for the largest frame.
//! The user copies what is in those. So a user who keeps pages for long costs copies, and stops no
//! other user: the peer needs no buffer that only this user can free. Pages of a pool that the peer
//! reaches as a whole are never given.
//!
//! If half of those that may be given are, the set is *short*, and may double, up to [`MOST`] buffers. So
//! there are pages while the item of `growth.rs` waits for a CPU: the faster the peer sends, the more
//! come meanwhile.
//!
//! The page pool of the network stack does not serve here: it may return a page to the kernel
//! without telling its user, but a page that the peer reaches must be taken from the peer first.

use super::{
    fifo::Fifo,
    receiving::MOST_PIECES, //
};
use crate::{
    sys::shared_memory::{
        CopyTarget,
        GivenPage,
        Payer,
        SharedMemory, //
    },
    transport::path::Path, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// Number of buffers that the set may have, or twice the slots of a larger ring.
///
/// These are 16 MiB for a queue: half of what a socket of TCP may hold by the defaults of the kernel.
pub(super) const MOST: usize = 4096;

/// Number of given buffers that are checked at a time, at least and outside the polls.
const CHECKED: usize = 32;

/// The buffers of a queue.
pub(super) struct Buffers {
    /// The pages, by the numbers of the buffers.
    pages: KVVec<Option<KBox<SharedMemory>>>,
    /// Numbers without a page.
    vacant: KVVec<u16>,
    free: Fifo<u16>,
    given: Fifo<u16>,
    /// Number of given buffers, those of a frame that is being taken included.
    given_count: usize,
    /// Maximum of that number since the last call of [`Self::surplus`].
    peak: usize,
    /// Number of pages.
    count: usize,
    /// Number of buffers that are never given. `None` if no buffer is.
    reserve: Option<usize>,
    /// Whether half of the buffers that may be given were since the last call of [`Self::shortage`].
    is_short: bool,
    /// Whether there was no memory for more since the last call of [`Self::surplus`] that returned
    /// `None`.
    is_refused: bool,
    /// For each slot, the buffer that was posted there.
    posted: KVec<u16>,
}

impl Buffers {
    /// Allocates a buffer that the peer reaches for each slot. There may be at most `most` later. The
    /// caller is inside the peer.
    /// Context: may sleep.
    pub(super) fn new(path: &dyn Path, slots: u32, most: usize) -> Result<Self> {
        let share =
            || KBox::new(path.share(PAGE_SIZE, Payer::None)?, GFP_KERNEL).map_err(Error::from);
        let first = share()?;
        let slots = slots as usize;
        let may_give = first.has_own_pages();
        let most = match may_give {
            true => most.clamp(slots, MOST.max(2 * slots)),
            false => slots,
        };
        let mut this = Self {
            pages: KVVec::with_capacity(most, GFP_KERNEL)?,
            vacant: KVVec::with_capacity(most, GFP_KERNEL)?,
            free: Fifo::new(most)?,
            given: Fifo::new(most)?,
            given_count: 0,
            peak: 0,
            count: 0,
            reserve: may_give.then(|| MOST_PIECES.max(slots / 2)),
            is_short: false,
            is_refused: false,
            posted: KVec::from_elem(0, slots, GFP_KERNEL)?,
        };
        for number in (0..most).rev() {
            this.pages.push(None, GFP_KERNEL)?;
            this.vacant.push(u16::try_from(number)?, GFP_KERNEL)?;
        }
        this.add(first)?;
        while this.count < slots {
            this.add(share()?)?;
        }
        Ok(this)
    }

    /// Adds a buffer. Returns the page if there may be no more.
    pub(super) fn add(&mut self, page: KBox<SharedMemory>) -> Result<(), NoRoom> {
        let Some(number) = self.vacant.pop() else {
            return Err(NoRoom(page));
        };
        if let Some(place) = self.pages.get_mut(usize::from(number)) {
            *place = Some(page);
            self.count += 1;
            self.free.push(number);
        }
        Ok(())
    }

    /// Returns the number of buffers to add.
    pub(super) fn shortage(&mut self) -> usize {
        // A frame may have come since the call before, when there were no more buffers yet.
        let is_short = core::mem::take(&mut self.is_short) && 2 * self.peak >= self.most_given();
        match is_short {
            true => self.vacant.len().min(self.count),
            false => 0,
        }
    }

    /// Returns how many buffers may be given.
    fn most_given(&self) -> usize {
        self.reserve
            .map_or(0, |reserve| self.count.saturating_sub(reserve))
    }

    /// Returns whether a call of [`Self::shortage`] would return a number.
    pub(super) fn is_short(&self) -> bool {
        self.is_short && !self.is_refused && !self.vacant.is_empty()
    }

    /// Notes that there was no memory for more buffers.
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Returns whether [`Self::surplus`] has to be called later: there are more buffers than at first,
    /// or there was no memory for more.
    pub(super) fn is_unsettled(&self) -> bool {
        self.is_refused || self.count > self.posted.len()
    }

    /// Removes a page that the set has not needed since the last call that returned `None`.
    pub(super) fn surplus(&mut self) -> Option<KBox<SharedMemory>> {
        // Twice as many as were given, and a whole ring beside them: the set would be short with less.
        if self.count > self.posted.len() + 2 * self.peak {
            if let Some(number) = self.free.pop() {
                let page = self.pages.get_mut(usize::from(number))?.take()?;
                // There is room: the number was there before.
                let _ = self.vacant.push_within_capacity(number);
                self.count -= 1;
                return Some(page);
            }
        }
        self.peak = self.given_count;
        self.is_refused = false;
        None
    }

    /// Returns the page of a buffer.
    fn page(&self, buffer: u16) -> Result<&SharedMemory> {
        let page = self.pages.get(usize::from(buffer));
        page.and_then(|page| page.as_deref()).ok_or(EINVAL)
    }

    /// Takes a free buffer, which is to be posted as number `number`. Returns its bus address.
    pub(super) fn post(&mut self, slot: usize) -> Option<u64> {
        let buffer = self.free.pop()?;
        if let Some(posted) = self.posted.get_mut(slot) {
            *posted = buffer;
        }
        Some(self.page(buffer).ok()?.bus_address())
    }

    /// Returns the buffer that was posted in a slot.
    pub(super) fn in_slot(&self, slot: usize) -> Result<u16> {
        self.posted.get(slot).copied().ok_or(EINVAL)
    }

    /// Copies the bytes of a buffer from an offset on, as many as the target has.
    pub(super) fn copy(&self, buffer: u16, at: usize, target: CopyTarget<'_>) -> Result {
        self.page(buffer)?.copy_into(at, target)
    }

    /// Returns a reference to the page of a buffer, unless it is to be copied.
    pub(super) fn give(&mut self, buffer: u16) -> Option<GivenPage> {
        self.reserve?;
        let most = self.most_given();
        self.is_short |= 2 * self.given_count >= most;
        if self.given_count >= most {
            return None;
        }
        let page = self.page(buffer).ok()?.give_page(0)?;
        self.given_count += 1;
        self.peak = self.peak.max(self.given_count);
        Some(page)
    }

    /// Takes a buffer back that was taken out of its slot.
    pub(super) fn taken(&mut self, buffer: u16, is_given: bool) {
        match is_given {
            true => self.given.push(buffer),
            false => self.free.push(buffer),
        }
    }

    /// Returns the number of calls of [`Self::recover`] that check all given buffers.
    pub(super) fn checks(&self) -> usize {
        self.given.len().div_ceil(CHECKED)
    }

    /// Frees given buffers to which no user has a reference any more. Checks some of them, and twice as
    /// many as `missing`, the number of slots without a buffer: more than polls give at a time.
    pub(super) fn recover(&mut self, missing: usize) {
        for _ in 0..self.given.len().min(CHECKED.max(2 * missing)) {
            let Some(buffer) = self.given.pop() else {
                return;
            };
            let page = self.page(buffer);
            let is_unused = page.is_ok_and(|page| page.is_page_unused(0));
            match is_unused {
                true => {
                    self.free.push(buffer);
                    self.given_count -= 1;
                }
                false => self.given.push(buffer),
            }
        }
    }
}

/// A page that found no room in a set, which has as many as it may have.
pub(super) struct NoRoom(#[expect(dead_code)] KBox<SharedMemory>);

impl From<NoRoom> for Error {
    fn from(_: NoRoom) -> Self {
        ENOSPC
    }
}
