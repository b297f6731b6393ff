// SPDX-License-Identifier: GPL-2.0

//! The buffers that a queue posts to the peer, and what becomes of them.
//!
//! A queue has a fixed set of buffers, each a page, which the peer reaches from the beginning to
//! the end. A buffer is *free*, *posted* to the peer, or *given* to a user, who holds a reference
//! to the page. A given buffer becomes free when only this set holds a reference. So the peer is
//! never told of a page that a user has.
//!
//! At most half of the buffers are given at a time, and never so many that the largest frame would
//! not fit into the others. The user copies what is in those. So a user who keeps pages for long
//! costs copies, and stops no other user: the peer needs no buffer that only this user can free.
//! Pages of a pool that the peer reaches as a whole are never given.
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

/// Number of pages that are allocated, and mapped for the peer, in one piece.
const PAGES_OF_CHUNK: usize = 16;

/// Number of given buffers that are checked at a time.
const CHECKED: usize = 64;

/// The buffers of a queue.
pub(super) struct Buffers {
    chunks: KVec<SharedMemory>,
    free: Fifo<u16>,
    given: Fifo<u16>,
    /// Number of given buffers, those of a frame that is being taken included.
    given_count: usize,
    /// Maximum of that number.
    most_given: usize,
    /// For each slot, the buffer that was posted there.
    posted: KVec<u16>,
}

impl Buffers {
    /// Allocates `count` buffers that the peer reaches, at most one for each slot. The caller is
    /// inside the peer.
    /// Context: may sleep.
    pub(super) fn new(path: &dyn Path, count: usize, slots: u32) -> Result<Self> {
        let count = count.min(slots as usize);
        let mut chunks = KVec::new();
        for _ in 0..count.div_ceil(PAGES_OF_CHUNK) {
            let chunk = path.share(PAGES_OF_CHUNK * PAGE_SIZE, Payer::None)?;
            chunks.push(chunk, GFP_KERNEL)?;
        }
        let may_give = chunks.iter().all(SharedMemory::has_own_pages);
        let mut free = Fifo::new(count)?;
        for number in 0..count {
            free.push(u16::try_from(number)?);
        }
        Ok(Self {
            chunks,
            free,
            given: Fifo::new(count)?,
            given_count: 0,
            most_given: match may_give {
                true => (count / 2).min(count.saturating_sub(MOST_PIECES)),
                false => 0,
            },
            posted: KVec::from_elem(0, slots as usize, GFP_KERNEL)?,
        })
    }

    /// Returns the memory of a buffer, and the offset of the buffer in it.
    fn place(&self, buffer: u16) -> Result<(&SharedMemory, usize)> {
        let buffer = usize::from(buffer);
        let chunk = self.chunks.get(buffer / PAGES_OF_CHUNK).ok_or(EINVAL)?;
        Ok((chunk, buffer % PAGES_OF_CHUNK * PAGE_SIZE))
    }

    /// Takes a free buffer, which is to be posted as number `number`. Returns its bus address.
    pub(super) fn post(&mut self, slot: usize) -> Option<u64> {
        let buffer = self.free.pop()?;
        if let Some(posted) = self.posted.get_mut(slot) {
            *posted = buffer;
        }
        let (memory, offset) = self.place(buffer).ok()?;
        Some(memory.bus_address() + offset as u64)
    }

    /// Returns the buffer that was posted in a slot.
    pub(super) fn in_slot(&self, slot: usize) -> Result<u16> {
        self.posted.get(slot).copied().ok_or(EINVAL)
    }

    /// Copies the bytes of a buffer from an offset on, as many as the target has.
    pub(super) fn copy(&self, buffer: u16, at: usize, target: CopyTarget<'_>) -> Result {
        let (memory, offset) = self.place(buffer)?;
        if at
            .checked_add(target.size())
            .is_none_or(|end| end > PAGE_SIZE)
        {
            return Err(EINVAL);
        }
        memory.copy_into(offset + at, target)
    }

    /// Returns a reference to the page of a buffer, unless it is to be copied.
    pub(super) fn give(&mut self, buffer: u16) -> Option<GivenPage> {
        if self.given_count >= self.most_given {
            return None;
        }
        let (memory, offset) = self.place(buffer).ok()?;
        let page = memory.give_page(offset)?;
        self.given_count += 1;
        Some(page)
    }

    /// Takes a buffer back that was taken out of its slot.
    pub(super) fn taken(&mut self, buffer: u16, is_given: bool) {
        match is_given {
            true => self.given.push(buffer),
            false => self.free.push(buffer),
        }
    }

    /// Frees given buffers to which no user has a reference any more.
    pub(super) fn recover(&mut self) {
        for _ in 0..self.given.len().min(CHECKED) {
            let Some(buffer) = self.given.pop() else {
                return;
            };
            let is_unused = self
                .place(buffer)
                .is_ok_and(|(memory, offset)| memory.is_page_unused(offset));
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
