// SPDX-License-Identifier: GPL-2.0

//! Remote windows mapped into processes: loads and stores with no system call.
//!
//! A mapping shows a range of the peer's registered address space, which may span windows that are
//! contiguous, through the aperture. It holds the windows that it shows: they live until the last
//! part of it is unmapped, also when they are unregistered, or either end of the connection is
//! closed meanwhile. It holds neither the endpoint nor the connection.
//!
//! # When the node is lost
//!
//! Page frames get into a mapping by faults only, and a fault keeps the session from ending while it
//! puts them there. Once everybody is kept out, [`Mappings::revoke_all`] takes the frames out of all
//! mappings; from then on an access finds the peer lost, and gives SIGBUS to its process and nothing
//! else.
//!
//! Who has asked for that gets ones instead: each fault that finds the peer lost maps a page of them. For
//! mappings that can only be read that is one for all, which nobody writes to. One that can be written
//! to has a page of its own for this, allocated when it is made, so that no fault is out of memory: what is written
//! after the loss goes there, is seen in all pages of this mapping and nowhere else, and is gone with it.
//! Taking it back sooner would need a timer that takes the page away again and again, from a process that
//! can see by the status of the node what it reads; that is not worth it.
//! These pages need not be taken away when frames of the peer are, but are, as one can't tell; the next
//! fault puts them back.
//!
//! A page of all ones, which processes see in place of memory that is lost: what a load from a device
//! returns that is not there.
//!
//! Pages of the peer as this node's devices, and its processor, may reach them.
//!
//! For who has a device of its own that is to read or write a peer's memory: a network card, a disk.
//! The pages belong to one window, which lives until this is dropped, also when it is unregistered,
//! or either end of the channel is closed meanwhile.
//!
//! A peer that is lost takes its pages away: from then on the addresses lead nowhere, or, if it comes
//! back, to memory of it that is not meant. Nobody can be kept from using an address, so whoever has
//! this has to hear of the loss (`kernel_api/peer_bus.rs`) and stop.

use crate::{
    arguments::{
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
    logic::{
        address_space::Range,
        plan::Walk, //
    },
    memory::{
        remote_window::RemotePiece,
        remote_windows::RemoteWindows, //
    },
    peer::{
        channel::Channel,
        Peer, //
    },
    sync::shared::get_or_make,
    sys::{
        kernel_calls::PageList,
        reached::{
            bus_address,
            IoMapping, //
        },
        shared_memory::{
            Payer,
            SharedMemory,
            User, //
        },
        user_mapping::{
            Fault,
            Frame,
            MappedFile,
            MappedPages,
            MappedSpace,
            Wanted, //
        }, //
    }, //
};
use kernel::{
    mm::virt::VmaNew,
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
        Arc,
        SetOnce, //
    }, //
};

/// All mappings of one peer's memory.
pub(crate) struct Mappings {
    /// In which all are, once there was one.
    space: SetOnce<MappedSpace>,
    count: Atomic<usize>,
    /// It was said that some windows can't be mapped.
    said_unreachable: Atomic<bool>,
}

impl Mappings {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let mappings = Self {
            space: SetOnce::new(),
            count: Atomic::new(0),
            said_unreachable: Atomic::new(false),
        };
        Ok(Arc::new(mappings, GFP_KERNEL)?)
    }

    /// Takes the peer's memory out of all mappings, for good. The caller has seen to it that no
    /// fault puts it back. May sleep.
    pub(crate) fn revoke_all(&self) {
        if let Some(space) = self.space.as_ref() {
            space.revoke();
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }
}

/// See the head of this file.
struct Mapping {
    /// In the order of their offsets, without gaps.
    windows: KVVec<RemotePiece>,
    peer: Arc<Peer>,
    /// Keeps the space in which it is.
    all: Arc<Mappings>,
    /// What there is to see once the peer is lost.
    ones: Option<Arc<Ones>>,
}

impl Mapping {
    /// The frame of a page of the peer's registered address space, which is mapped.
    fn frame(&self, page: u64) -> Result<Frame<'_>> {
        let offset = page << PAGE_SHIFT;
        let is_before = |piece: &RemotePiece| piece.window.range.end() <= offset;
        let index = self.windows.partition_point(is_before);
        let window = &self.windows.get(index).ok_or(EFAULT)?.window;
        let within = offset.checked_sub(window.range.start()).ok_or(EFAULT)?;
        let (address, _) = window.extents.at(within).ok_or(EFAULT)?;
        Frame::of_peer(&self.peer.path().reach(address, PAGE_SIZE as u64)?)
    }

    /// Shows the peer's memory.
    fn show<'m>(&'m self, fault: &Fault<'m>) -> Result {
        let _inside = self.peer.enter().ok_or(ENODEV)?;
        fault.map(fault.page(), &self.frame(fault.page())?)?;
        // The others are a bonus.
        for page in fault.around() {
            let _ = self.frame(page).and_then(|frame| fault.map(page, &frame));
        }
        Ok(())
    }

    /// Shows ones.
    fn show_ones<'m>(&self, fault: &Fault<'m>, ones: &'m Ones) -> Result {
        let frame = ones.frame()?;
        fault.map(fault.page(), &frame)?;
        // A bonus, as above; also because each fault counts as an access that has failed.
        for page in fault.around() {
            let _ = fault.map(page, &frame);
        }
        Ok(())
    }
}

impl MappedPages for Mapping {
    fn fault<'m>(&'m self, fault: &Fault<'m>) -> Result {
        let Err(error) = self.show(fault) else {
            return Ok(());
        };
        // Out of memory, which is tried again, is no failure of the peer's.
        if error == ENOMEM || !self.peer.is_over() {
            return Err(error);
        }
        self.peer.status.access_failed();
        match &self.ones {
            Some(ones) => self.show_ones(fault, ones),
            None => Err(error),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.all.count.fetch_sub(1, Relaxed);
    }
}

/// Maps the windows of the channel's other end that hold the wanted range into an area of the
/// caller; `all` are the mappings of that peer. Once that is lost, an access is a SIGBUS, or shows `ones`. May sleep.
///
/// ENXIO for a gap, EOPNOTSUPP for what this node does not reach by itself, EACCES for more than the windows allow, EINVAL for a private mapping.
pub(crate) fn map(
    channel: &Channel,
    windows: &RemoteWindows,
    all: &Arc<Mappings>,
    ones: Option<Arc<Ones>>,
    wanted: &Wanted,
    vma: &VmaNew,
) -> Result {
    if !wanted.shared {
        return Err(EINVAL);
    }
    if wanted.execute {
        return Err(EACCES);
    }
    channel.check_established()?;
    let offset = i64::try_from(wanted.offset).map_err(|_| ENXIO)?;
    let range = Range::new(offset, wanted.len).map_err(|_| ENXIO)?;
    let mut protection = 0;
    if wanted.read {
        protection |= PROTECTION_READ;
    }
    if wanted.write {
        protection |= PROTECTION_WRITE;
    }
    let _inside = channel.enter().ok_or(ENODEV)?;
    let covered = windows.cover_for_long(range, protection);
    // If the connection has ended meanwhile, which takes windows away, that is said.
    let windows = covered.map_err(|error| channel.end_or(error))?;
    if windows.iter().any(|piece| !piece.window.is_reached()) {
        if !all.said_unreachable.xchg(true, Relaxed) && channel.may_log() {
            pr_notice!(
                "windows of node {} can't be mapped that this node does not reach by itself; scif_readfrom() and scif_writeto() do for them, the transfers are staged\n",
                channel.node()
            );
        }
        return Err(EOPNOTSUPP);
    }
    let write_combined = is_write_combined(channel, &windows)?;
    // One that can be written to has a page of its own.
    let ones = match ones {
        Some(_) if wanted.write => Some(Ones::new(Payer::Caller)?),
        ones => ones,
    };
    all.count.fetch_add(1, Relaxed);
    let mapping = Mapping {
        windows,
        peer: channel.peer().clone(),
        all: all.clone(),
        ones,
    };
    let file = MappedFile::new(c"[scif]", Arc::new(mapping, GFP_KERNEL_ACCOUNT)?)?;
    // If something fails from here on, the file takes the mapping with it.
    file.join(|mapping| get_or_make(&mapping.all.space, || Ok(file.space())))?;
    file.attach(vma, write_combined)
}

/// How the peer's memory is to be mapped, which is the same for all of it.
fn is_write_combined(channel: &Channel, windows: &[RemotePiece]) -> Result<bool> {
    let first = windows.first().ok_or(ENXIO)?;
    let (address, _) = first.window.extents.at(first.offset).ok_or(ENXIO)?;
    let reached = channel.path().reach(address, PAGE_SIZE as u64)?;
    Ok(reached.is_write_combined())
}

/// See the head of this file. It stays where it is as long as this exists.
pub(crate) struct Ones(SharedMemory);

impl Ones {
    /// A page, which this one pays for. May sleep.
    pub(crate) fn new(payer: Payer<'_>) -> Result<Arc<Self>> {
        let page = SharedMemory::new(PAGE_SIZE, &User::Physical, payer)?;
        for offset in (0..PAGE_SIZE).step_by(size_of::<u64>()) {
            page.write_u64(offset, u64::MAX)?;
        }
        Ok(Arc::new(Self(page), GFP_KERNEL_ACCOUNT)?)
    }

    fn frame(&self) -> Result<Frame<'_>> {
        Frame::of_memory(&self.0)
    }
}

#[kunit_tests(scif_rma_ones)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_of_ones() -> Result {
        let ones = Ones::new(Payer::Nobody)?;
        for offset in (0..PAGE_SIZE).step_by(size_of::<u64>()) {
            assert_eq!(ones.0.read_u64(offset)?, u64::MAX);
        }
        Ok(())
    }
}

/// The one piece that a range of the peer's windows is, and that this node reaches by itself: ENXIO if there
/// is none, EOPNOTSUPP if it does not. The caller is inside the peer.
fn reached_piece(channel: &Channel, windows: &RemoteWindows, range: Range) -> Result<RemotePiece> {
    let covered = windows.cover_for_long(range, 0);
    // If the connection has ended meanwhile, which takes windows away, that is said.
    let mut pieces = covered.map_err(|error| channel.end_or(error))?;
    let piece = pieces.pop().ok_or(ENXIO)?;
    if !pieces.is_empty() {
        return Err(ENXIO);
    }
    if !piece.window.is_reached() {
        return Err(EOPNOTSUPP);
    }
    Ok(piece)
}

/// Where another device of this node finds the first byte of a range of the peer's windows, and how many bytes
/// of it lie there in one piece: in one extent. Errors as those of [`RemotePages::new`]. May sleep.
pub(crate) fn address_for_devices(
    channel: &Channel,
    windows: &RemoteWindows,
    range: Range,
) -> Result<(u64, u64)> {
    channel.check_established()?;
    let _inside = channel.enter().ok_or(ENODEV)?;
    let piece = reached_piece(channel, windows, range)?;
    // The pages around it, which are all of the window.
    let before = piece.offset % PAGE_SIZE as u64;
    let pages = (before + piece.len).next_multiple_of(PAGE_SIZE as u64);
    let mut walk = piece.window.extents.walk(piece.offset - before);
    let (address, len) = walk.next(pages).ok_or(ENXIO)?;
    let start = channel.path().reach(address, len)?.page_frame()? << PAGE_SHIFT;
    let contiguous = (len - before).min(piece.len);
    Ok((bus_address(start).wrapping_add(before), contiguous))
}

/// See the head of this file.
pub(crate) struct RemotePages {
    /// The physical address of each page, as this node's processor sees it, where the kernel has each of them mapped, as
    /// device memory, and what the window allows.
    pub(crate) list: PageList,
    // Goes after the list.
    _mappings: KVec<IoMapping>,
    /// Keeps the window.
    _piece: RemotePiece,
}

impl RemotePages {
    /// The pages of a range that lies in one window: ENXIO if there is none,
    /// EOPNOTSUPP if this node does not reach it by itself, EACCES if it is for transfers only. May sleep.
    pub(crate) fn new(channel: &Channel, windows: &RemoteWindows, range: Range) -> Result<Self> {
        channel.check_established()?;
        let _inside = channel.enter().ok_or(ENODEV)?;
        let piece = reached_piece(channel, windows, range)?;
        let count = (piece.len >> PAGE_SHIFT) as usize;
        let mut physical = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let mut mapped = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let mut mappings = KVec::new();
        let mut done = 0;
        while done < piece.len {
            let found = piece.window.extents.at(piece.offset + done);
            let (address, contiguous) = found.ok_or(ENXIO)?;
            let mut len = contiguous.min(piece.len - done);
            let reached = loop {
                match channel.path().reach(address, len) {
                    // It may cross a seam of the aperture.
                    Err(_) if len > PAGE_SIZE as u64 => {
                        len = (len / 2).next_multiple_of(PAGE_SIZE as u64);
                    }
                    reached => break reached?,
                }
            };
            done += len;
            let (frame, mut at) = (reached.page_frame()?, reached.kernel_address()?);
            // The peer may be lost, and its memory not be mapped otherwise any more, before whoever has the pages hears of
            // that.
            if let Some(mapping) = reached.to_keep()? {
                at = mapping.kernel_address();
                mappings.push(mapping, GFP_KERNEL_ACCOUNT)?;
            }
            for page in 0..len >> PAGE_SHIFT {
                let _ = physical.push_within_capacity((frame + page) << PAGE_SHIFT);
                let pointer = core::ptr::with_exposed_provenance_mut(at);
                let _ = mapped.push_within_capacity(pointer);
                at += PAGE_SIZE;
            }
        }
        let protection = piece.window.protection & (PROTECTION_READ | PROTECTION_WRITE);
        Ok(Self {
            list: PageList::new(physical, mapped, protection)?,
            _mappings: mappings,
            _piece: piece,
        })
    }
}
