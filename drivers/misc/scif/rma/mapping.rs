// SPDX-License-Identifier: GPL-2.0

//! Remote windows mapped into processes, for loads and stores without a system call, and pages of
//! the peer for another driver's device.
//!
//! A mapping shows a range of the peer's registered address space through the aperture. The range
//! may span several adjacent windows. The mapping holds these windows until its last part is
//! unmapped. That holds even if the windows are unregistered, or either end of the connection is
//! closed meanwhile. The mapping holds neither the endpoint nor the connection.
//!
//! # Loss of the node
//!
//! Page frames get into a mapping only by faults, and a fault keeps the session from ending while
//! it maps them. Once no fault can enter the peer any more, [`Mappings::revoke_all`] takes the
//! frames out of all mappings. From then on an access finds the peer lost, and gives SIGBUS to its
//! process and nothing else.
//!
//! A process can ask for ones instead: each fault that finds the peer lost then maps a page full of
//! ones ([`AllOnesPage`]). A load from a device that is not there returns the same.
//!
//! All read-only mappings share one such page, to which nothing writes. A writable mapping has a
//! page of its own, allocated when the mapping is made, so that no fault runs out of memory. Data
//! that is written after the loss goes to that page. The data is seen in all pages of this mapping
//! and nowhere else, and is gone with the mapping.
//!
//! Taking the page back sooner is not worthwhile. It would need a timer that takes the page away
//! again and again. Yet the process can see by the status of the node what it reads. When frames of
//! the peer are taken away, the pages of ones are as well, because the two can't be told apart. The
//! next fault puts pages of ones back.
//!
//! # Pages for devices
//!
//! [`RemotePages`] gives a driver the pages of a window, as this node's devices and CPU can reach
//! them. The driver's device, such as a network card or a disk, can then read or write the peer's
//! memory. The pages belong to one window. The window lives until the pages are dropped, even if it
//! is unregistered, or either end of the channel is closed meanwhile.
//!
//! A peer that is lost takes its pages away. From then on the addresses lead nowhere or, if the
//! peer comes back, to other memory of the peer. A device can't be kept from using an address. So
//! the driver must hear of the loss (`kernel_api/peer_bus.rs`) and stop.

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
            MemoryUser,
            Payer,
            SharedMemory, //
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
    /// Address space that all mappings share, once there was a mapping.
    space: SetOnce<MappedSpace>,
    count: Atomic<usize>,
    /// Whether a log line has said that some windows can't be mapped.
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

    /// Takes the peer's memory out of all mappings, for good. The caller has ensured that no fault
    /// puts it back.
    /// Context: may sleep.
    pub(crate) fn revoke_all(&self) {
        if let Some(space) = self.space.as_ref() {
            space.revoke();
        }
    }

    /// Returns the number of mappings.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }
}

/// A range of the peer's registered address space that is mapped into processes.
struct Mapping {
    /// Windows that the mapping shows, in the order of their offsets, without gaps.
    windows: KVVec<RemotePiece>,
    peer: Arc<Peer>,
    /// The mappings of the peer, which keep the shared address space.
    all: Arc<Mappings>,
    /// The page to show once the peer is lost, if the process has asked for ones.
    ones: Option<Arc<AllOnesPage>>,
}

impl Mapping {
    /// Returns the frame of a page of the peer's registered address space that this mapping shows.
    fn frame(&self, page: u64) -> Result<Frame<'_>> {
        let offset = page << PAGE_SHIFT;
        let is_before = |piece: &RemotePiece| piece.window.range.end() <= offset;
        let index = self.windows.partition_point(is_before);
        let window = &self.windows.get(index).ok_or(EFAULT)?.window;
        let within = offset.checked_sub(window.range.start()).ok_or(EFAULT)?;
        let (address, _) = window.extents.at(within).ok_or(EFAULT)?;
        Frame::of_peer(&self.peer.path().reach(address, PAGE_SIZE as u64)?)
    }

    /// Maps the peer's frames at a fault.
    fn show<'m>(&'m self, fault: &Fault<'m>) -> Result {
        let _inside = self.peer.enter().ok_or(ENODEV)?;
        fault.map(fault.page(), &self.frame(fault.page())?)?;
        // Maps the pages around the faulting page as well, to save faults. Errors there do not
        // matter.
        for page in fault.around() {
            let _ = self.frame(page).and_then(|frame| fault.map(page, &frame));
        }
        Ok(())
    }

    /// Maps the page of ones at a fault.
    fn show_ones<'m>(&self, fault: &Fault<'m>, ones: &'m AllOnesPage) -> Result {
        let frame = ones.frame()?;
        fault.map(fault.page(), &frame)?;
        // Saves faults as in `show`. Each fault would also count as an access that has failed.
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
        // A fault that is out of memory is tried again, so it is no failure of the peer.
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
/// caller. `all` are the mappings of that peer. Once the peer is lost, an access gives SIGBUS, or
/// shows `ones`.
///
/// # Errors
///
/// - ENXIO: the range has a gap.
/// - EOPNOTSUPP: this node does not reach the memory itself.
/// - EACCES: the wanted access is more than the windows allow.
/// - EINVAL: the mapping is private.
///
/// Context: may sleep.
pub(crate) fn map(
    channel: &Channel,
    windows: &RemoteWindows,
    all: &Arc<Mappings>,
    ones: Option<Arc<AllOnesPage>>,
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
    // If the connection has ended meanwhile, which takes windows away, reports that instead.
    let windows = covered.map_err(|error| channel.end_or(error))?;
    if windows.iter().any(|piece| !piece.window.is_reached()) {
        if !all.said_unreachable.xchg(true, Relaxed) && channel.may_log() {
            pr_notice!(
                "a window of node {} can't be mapped, as this node does not reach it: scif_readfrom() and scif_writeto() copy through slots instead\n",
                channel.node()
            );
        }
        return Err(EOPNOTSUPP);
    }
    let write_combined = is_write_combined(channel, &windows)?;
    // A writable mapping has a page of its own.
    let ones = match ones {
        Some(_) if wanted.write => Some(AllOnesPage::new(Payer::Caller)?),
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
    // If a step fails from here on, the file drops the mapping.
    file.join(|mapping| get_or_make(&mapping.all.space, || Ok(file.space())))?;
    file.attach(vma, write_combined)
}

/// Returns whether the peer's memory is to be mapped write-combined, which is the same for all of
/// it.
fn is_write_combined(channel: &Channel, windows: &[RemotePiece]) -> Result<bool> {
    let first = windows.first().ok_or(ENXIO)?;
    let (address, _) = first.window.extents.at(first.offset).ok_or(ENXIO)?;
    let reached = channel.path().reach(address, PAGE_SIZE as u64)?;
    Ok(reached.is_write_combined())
}

/// A page full of ones, which processes see in place of lost memory. It does not move while this
/// exists.
pub(crate) struct AllOnesPage(SharedMemory);

impl AllOnesPage {
    /// Allocates a page, which is charged to `payer`.
    /// Context: may sleep.
    pub(crate) fn new(payer: Payer<'_>) -> Result<Arc<Self>> {
        let page = SharedMemory::new(PAGE_SIZE, &MemoryUser::Physical, payer)?;
        for offset in (0..PAGE_SIZE).step_by(size_of::<u64>()) {
            page.write_u64(offset, u64::MAX)?;
        }
        Ok(Arc::new(Self(page), GFP_KERNEL_ACCOUNT)?)
    }

    fn frame(&self) -> Result<Frame<'_>> {
        Frame::of_memory(&self.0)
    }
}

#[kunit_tests(scif_rma_mapping)]
mod tests {
    use super::*;

    #[test]
    fn ones_page_contains_only_one_bits() -> Result {
        let ones = AllOnesPage::new(Payer::None)?;
        for offset in (0..PAGE_SIZE).step_by(size_of::<u64>()) {
            assert_eq!(ones.0.read_u64(offset)?, u64::MAX);
        }
        Ok(())
    }
}

/// Returns the only piece of a range of the peer's windows. The caller is inside the peer.
///
/// # Errors
///
/// - ENXIO: the range does not lie in one window.
/// - EOPNOTSUPP: this node does not reach the window itself.
fn reached_piece(channel: &Channel, windows: &RemoteWindows, range: Range) -> Result<RemotePiece> {
    let covered = windows.cover_for_long(range, 0);
    // If the connection has ended meanwhile, which takes windows away, reports that instead.
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

/// Returns where another device of this node finds a range of the peer's windows. The result is the
/// address of the first byte, and the number of bytes in the same extent. Errors are as those of
/// [`RemotePages::new`].
/// Context: may sleep.
pub(crate) fn address_for_devices(
    channel: &Channel,
    windows: &RemoteWindows,
    range: Range,
) -> Result<(u64, u64)> {
    channel.check_established()?;
    let _inside = channel.enter().ok_or(ENODEV)?;
    let piece = reached_piece(channel, windows, range)?;
    // Takes the whole pages around the range, all of which belong to the window.
    let before = piece.offset % PAGE_SIZE as u64;
    let pages = (before + piece.len).next_multiple_of(PAGE_SIZE as u64);
    let mut walk = piece.window.extents.walk(piece.offset - before);
    let (address, len) = walk.next(pages).ok_or(ENXIO)?;
    let start = channel.path().reach(address, len)?.page_frame()? << PAGE_SHIFT;
    let contiguous = (len - before).min(piece.len);
    Ok((bus_address(start).wrapping_add(before), contiguous))
}

/// Pages of a peer's window for another driver's device.
pub(crate) struct RemotePages {
    /// Pages with the access that the window allows. Each has its physical address, as this node's
    /// CPU sees it, and its mapping in the kernel as device memory.
    pub(crate) list: PageList,
    // Dropped after the list.
    _mappings: KVec<IoMapping>,
    /// Keeps the window.
    _piece: RemotePiece,
}

impl RemotePages {
    /// Returns the pages of a range that lies in one window.
    ///
    /// # Errors
    ///
    /// - ENXIO: the range does not lie in one window.
    /// - EOPNOTSUPP: this node does not reach the window itself.
    /// - EACCES: the window is for transfers only.
    ///
    /// Context: may sleep.
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
                    // The range may cross a seam of the aperture.
                    Err(_) if len > PAGE_SIZE as u64 => {
                        len = (len / 2).next_multiple_of(PAGE_SIZE as u64);
                    }
                    reached => break reached?,
                }
            };
            done += len;
            let (frame, mut at) = (reached.page_frame()?, reached.kernel_address()?);
            // Keeps a mapping of its own. The peer may be lost, and its memory be unmapped, before
            // the driver hears of that.
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
