// SPDX-License-Identifier: GPL-2.0

//! One window: memory of this node that the peer may reach, and where it lies.
//!
//! # Its life
//!
//! *offered* (the peer has not answered, which is waited for if it has not granted the window
//! beforehand) -> *active* -> *revoked* (unregistered, or its channel closed) -> gone. A revoked window can't be found
//! any more, but keeps its pages and its place in the address space as long as somebody refers to it: `exports.rs` does
//! until the peer has released it or is lost, transfers of this end do until they have ended.

use super::{
    local::{
        Holder,
        LocalMemory, //
    },
    pinned::Exported,
    range_tree::Placed,
    windows::Place, //
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
    /// Which of its bytes are written to for a peer that does not reach them.
    pub(crate) delivered_to: Range,
    /// How many words say to the peer where its memory lies.
    pub(super) packed_extents: u32,
    // What the peer sees goes before the pages.
    export: Exported,
    pub(crate) memory: LocalMemory,
    /// The peer's answer to the offer.
    answer: SetOnce<Status>,
    /// For the message that it is revoked; none once it is.
    #[pin]
    revocation: SpinLock<Option<Reservation>>,
    // After the pages: who waits for the place waits for them.
    pub(crate) place: Place,
}

impl Placed for Window {
    fn range(&self) -> Range {
        self.place.range
    }
}

impl Holder for Window {
    fn memory(&self) -> &LocalMemory {
        &self.memory
    }
}

/// Words that say to the peer where memory lies, each for as much as can be; none for what no word can say.
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
    /// A window that nobody knows of yet, of which these bytes are `delivered_to`. The peer may not reach it: then it has no extents. EINVAL if the memory is not as large as its place. May
    /// sleep.
    pub(super) fn new(
        id: WindowId,
        place: Place,
        protection: u32,
        memory: LocalMemory,
        delivered_to: Range,
        export: Exported,
    ) -> Result<Arc<Self>> {
        if export.is_reached() && export.addresses().len() != place.range.len() {
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
                place,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Packed extents for the peer.
    pub(super) fn packed(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        packed(&self.export)
    }

    /// Whether all of its memory lies among these `len` addresses from `from` on.
    pub(super) fn lies_in(&self, from: u64, len: u64) -> bool {
        let end = from.saturating_add(len);
        let mut extents = self.export.addresses().entries().iter();
        extents.all(|Entry { extent, .. }| extent.address() >= from && extent.end() <= end)
    }

    /// How far it has got, in a word for users. Any context but interrupts.
    pub(crate) fn state(&self) -> &'static str {
        match self.answer.as_ref() {
            _ if self.revocation.lock().is_none() => "revoked",
            Some(Status::Done) => "active",
            Some(_) => "refused",
            None => "offered",
        }
    }

    /// What the peer may do, in a word for users.
    pub(crate) fn protection_name(&self) -> &'static str {
        // By the numbers of the flags.
        let names = ["--", "r-", "-w", "rw"];
        let number = self.protection & (PROTECTION_READ | PROTECTION_WRITE);
        names.get(number as usize).copied().unwrap_or("--")
    }

    /// Whether the peer gets there by itself.
    pub(crate) fn is_reached(&self) -> bool {
        self.export.is_reached()
    }

    /// It can't be found (any more). Returns the memory of the message that says so, the first time.
    pub(super) fn take_revocation(&self) -> Option<Reservation> {
        self.revocation.lock().take()
    }

    /// The peer has answered the offer, or need not. Only the first time counts; says whether it was.
    pub(super) fn set_answer(&self, status: Status) -> bool {
        self.answer.populate(status)
    }

    /// The answer, once it is there: ENOMEM if the peer has no memory to keep track of it, EAGAIN if
    /// it can't reach it, or EOPNOTSUPP for memory of a device, which the peer never will. Any context.
    pub(super) fn answer(&self) -> Option<Result> {
        Some(match self.answer.copy()? {
            Status::Done => Ok(()),
            Status::NoMemory => Err(ENOMEM),
            _ if self.memory.pages.are_of_device() => Err(EOPNOTSUPP),
            _ => Err(EAGAIN),
        })
    }
}
