// SPDX-License-Identifier: GPL-2.0

//! One window: memory of this node that the peer may reach, and its range.
//!
//! # Life of a window
//!
//! *offered*: the peer has not answered the offer. The owner waits for the answer if the peer has
//! not granted the window beforehand.
//!
//! *active*: the window can be found.
//!
//! *revoked*: the window was unregistered, or its channel closed. It can't be found any more, but
//! keeps its pages and its range of the address space as long as there are references. `exports.rs`
//! has one until the peer has released the window or is lost. Transfers of this end have one until
//! they are complete.
//!
//! *gone*: the last reference was dropped.

use super::{
    local::{
        Holder,
        LocalMemory, //
    },
    pinned::Exported,
    range_tree::HasRange,
    windows::RegisteredRange, //
};
use crate::{
    arguments::{
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
    logic::{
        address_space::Range,
        extents::{
            self,
            Entry, //
        },
        messages::{
            Status,
            WindowId, //
        },
        window_set::{
            cut,
            Seams, //
        },
    },
    peer::control::Reservation,
    transport::path::Export, //
};
use kernel::{
    new_spinlock,
    page::PAGE_SHIFT,
    prelude::*,
    sync::{
        Arc,
        SetOnce,
        SpinLock, //
    },
};

/// A window of this node.
#[pin_data]
pub(crate) struct Window {
    pub(crate) id: WindowId,
    pub(crate) protection: u32,
    /// Bytes of the window that this node writes to for a peer that does not reach them.
    pub(crate) delivered_to: Range,
    /// Number of words that tell the peer where the memory lies.
    pub(super) packed_extents: u32,
    // Dropped before the pages, as the peer reaches them through the export.
    export: Exported,
    pub(crate) memory: LocalMemory,
    /// The peer's answer to the offer.
    answer: SetOnce<Status>,
    /// Memory for the message that revokes the window. `None` once the window is revoked.
    #[pin]
    revocation: SpinLock<Option<Reservation>>,
    // Dropped after the pages, so that a waiter for the range waits for the pages, too.
    pub(crate) registered: RegisteredRange,
}

impl HasRange for Window {
    fn range(&self) -> Range {
        self.registered.range
    }
}

impl Holder for Window {
    fn memory(&self) -> &LocalMemory {
        &self.memory
    }
}

/// Returns the words that tell the peer where memory lies, each for as much as it can describe.
/// `None` for memory that no word can describe.
fn packed(export: &Export) -> impl Iterator<Item = Option<u64>> + '_ {
    let page_shift = PAGE_SHIFT as u32;
    let longest = extents::max_packed_len(page_shift);
    let seams = longest.and_then(Seams::every).unwrap_or(Seams::NONE);
    let entries = export.addresses().entries().iter();
    entries
        .flat_map(move |entry| cut(entry.extent, seams))
        .map(move |extent| extents::pack(extent, page_shift))
}

impl Window {
    /// Creates a window that is offered to no peer yet, of which these bytes are `delivered_to`. A
    /// window that the peer does not reach has no extents. EINVAL if the memory is not as large as
    /// its range.
    /// Context: may sleep.
    pub(super) fn new(
        id: WindowId,
        registered: RegisteredRange,
        protection: u32,
        memory: LocalMemory,
        delivered_to: Range,
        export: Exported,
    ) -> Result<Arc<Self>> {
        if export.is_reached() && export.addresses().len() != registered.range.len() {
            return Err(EINVAL);
        }
        let packed_extents = u32::try_from(packed(&export).count())?;
        let revocation = Reservation::new(GFP_KERNEL_ACCOUNT)?;
        Arc::pin_init(
            pin_init!(Self {
                id,
                protection,
                delivered_to,
                packed_extents,
                export,
                memory,
                answer: SetOnce::new(),
                revocation <- new_spinlock!(Some(revocation), "Window::revocation"),
                registered,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Returns the packed extents for the peer.
    pub(super) fn packed(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        packed(&self.export)
    }

    /// Returns whether all of the memory lies among the `len` addresses from `from` on.
    pub(super) fn lies_in(&self, from: u64, len: u64) -> bool {
        let end = from.saturating_add(len);
        let mut extents = self.export.addresses().entries().iter();
        extents.all(|Entry { extent, .. }| extent.address() >= from && extent.end() <= end)
    }

    /// Returns the state of the window, in a word for users.
    /// Context: any but interrupts.
    pub(crate) fn state(&self) -> &'static str {
        match self.answer.as_ref() {
            _ if self.revocation.lock().is_none() => "revoked",
            Some(Status::Done) => "active",
            Some(_) => "refused",
            None => "offered",
        }
    }

    /// Returns the peer's rights, in a word for users.
    pub(crate) fn protection_name(&self) -> &'static str {
        // Indexed by the values of the flags.
        let names = ["--", "r-", "-w", "rw"];
        let number = self.protection & (PROTECTION_READ | PROTECTION_WRITE);
        names.get(number as usize).copied().unwrap_or("--")
    }

    /// Returns whether the peer reaches the window by itself.
    pub(crate) fn is_reached(&self) -> bool {
        self.export.is_reached()
    }

    /// Takes the memory of the message that revokes the window, which can't be found any more, or
    /// never could. Returns it the first time only; from then on the window is revoked.
    pub(super) fn take_revocation(&self) -> Option<Reservation> {
        self.revocation.lock().take()
    }

    /// Sets the answer to the offer, which the peer has given or need not give. Only the first call
    /// counts. Returns whether this was the first.
    pub(super) fn set_answer(&self, status: Status) -> bool {
        self.answer.populate(status)
    }

    /// Returns the answer, once there is one.
    ///
    /// # Errors
    ///
    /// - ENOMEM: the peer has no memory to keep track of the window.
    /// - EAGAIN: the peer can't reach the window.
    /// - EOPNOTSUPP: the window is memory of a device, which the peer never reaches.
    ///
    /// Context: any.
    pub(super) fn answer(&self) -> Option<Result> {
        Some(match self.answer.copy()? {
            Status::Done => Ok(()),
            Status::NoMemory => Err(ENOMEM),
            _ if self.memory.pages.are_of_device() => Err(EOPNOTSUPP),
            _ => Err(EAGAIN),
        })
    }
}
