// SPDX-License-Identifier: GPL-2.0

//! Copies that belong together, and the end of the last of them.
//!
//! Nothing is allocated for it: the count lies in what is told of the end, and the engine holds a
//! pointer to that.

use core::{
    ops::Deref,
    ptr::NonNull, //
};

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc, //
    },
};

use crate::sys::bindings as own;

/// What is told about the end of copies that belong together.
pub(crate) trait Completion: Send + Sync + Sized + 'static {
    /// How many of them have not ended.
    fn copies(&self) -> &CopyCount;

    /// One copy has ended, with this result. Called once for every submitted copy.
    ///
    /// `EIO`: the engine could not read or write; `ECANCELED`: it was stopped before.
    ///
    /// Called in a soft interrupt, by some drivers with the lock of their ring held: it must not
    /// sleep and must not submit to any channel of that driver.
    fn copy_ended(&self, result: Result);

    /// All copies have ended, and no more will be submitted. Called once, in the same context, or
    /// where the [`Batch`] is dropped. If `self` is the last reference, the destructor runs here as
    /// well, so hand it to a work queue where that matters: those who called `copy_ended` before
    /// hold no reference any more.
    fn all_ended(self: Arc<Self>);
}

/// The part of a count that stands for the [`Batch`] itself.
const OPEN: u32 = 1 << 31;

/// Counts the copies of a [`Batch`], and the batch itself.
pub(crate) struct CopyCount {
    count: Atomic<u32>,
    /// Names the channel that has the copies, or 0.
    channel: Atomic<usize>,
}

impl CopyCount {
    pub(crate) const fn new() -> Self {
        Self {
            count: Atomic::new(0),
            channel: Atomic::new(0),
        }
    }

    /// Whether copies may be submitted to this channel: all of a batch go to the same.
    pub(super) fn claim(&self, channel: usize) -> bool {
        self.belongs_to(channel) || self.channel.cmpxchg(0, channel, Relaxed).is_ok()
    }

    pub(super) fn belongs_to(&self, channel: usize) -> bool {
        self.channel.load(Relaxed) == channel
    }

    /// Counts a copy that is about to be submitted with a batch.
    pub(super) fn add_one(&self) {
        self.count.add(1, Relaxed);
    }

    /// Undoes that. The batch itself is counted, so this is not the end.
    pub(super) fn take_one_back(&self) {
        self.count.fetch_sub(1, Relaxed);
    }
}

/// Copies that belong together: submit them with it, then drop it.
///
/// # Invariants
///
/// `target` is from `Arc::into_raw`. That reference belongs to who takes the count to zero; the
/// batch and each copy under way are counted.
pub(crate) struct Batch<T: Completion> {
    target: NonNull<T>,
}

// SAFETY: It is a reference to a `T`, which is `Send` and `Sync`.
unsafe impl<T: Completion> Send for Batch<T> {}
// SAFETY: As above.
unsafe impl<T: Completion> Sync for Batch<T> {}

impl<T: Completion> Batch<T> {
    /// Begins a batch. `target` must not have been in one before.
    pub(crate) fn new(target: Arc<T>) -> Self {
        target.copies().count.store(OPEN, Relaxed);
        // INVARIANT: The batch has just been counted.
        let raw = Arc::into_raw(target).cast_mut();
        // SAFETY: `into_raw` returns no null pointer.
        let target = unsafe { NonNull::new_unchecked(raw) };
        Self { target }
    }

    /// Ends `part` of what was counted: 1 for a copy, `OPEN` for the batch.
    ///
    /// # Safety
    ///
    /// `target` is that of a batch, and the caller's part has been counted and was not ended before.
    unsafe fn part_ended(target: *const T, part: u32) {
        // SAFETY: The reference of the batch lives as long as somebody is counted.
        let before = unsafe { &*target }.copies().count.fetch_sub(part, Full);
        if before == part {
            // SAFETY: By the invariant the reference is ours now. Nobody else uses `target`.
            unsafe { Arc::from_raw(target) }.all_ended();
        }
    }

    /// What the engine gets with a copy, for [`Self::ended`].
    pub(super) fn target(&self) -> *mut c_void {
        self.target.as_ptr().cast()
    }

    /// The engine tells the end of a copy.
    ///
    /// # Safety
    ///
    /// `target` is that of a batch, with which a copy was submitted that has not ended; `result` is
    /// null or valid during this call.
    pub(super) unsafe extern "C" fn ended(
        target: *mut c_void,
        result: *const own::dmaengine_result,
    ) {
        let target = target.cast::<T>().cast_const();
        // SAFETY: By the contract of this function.
        let result = unsafe { result.as_ref() };
        let code = result.map_or(own::dmaengine_tx_result_DMA_TRANS_NOERROR, |r| r.result);
        // SAFETY: The copy is counted until `part_ended`.
        unsafe { &*target }.copy_ended(match code {
            own::dmaengine_tx_result_DMA_TRANS_NOERROR => Ok(()),
            own::dmaengine_tx_result_DMA_TRANS_ABORTED => Err(ECANCELED),
            _ => Err(EIO),
        });
        // SAFETY: The copy was counted when it was submitted, and this is its end.
        unsafe { Self::part_ended(target, 1) };
    }

    /// Ends all copies of a batch, with `EIO`.
    ///
    /// # Safety
    ///
    /// The engine that has them calls [`Self::ended`] no more.
    pub(super) unsafe fn abandon(target: &Arc<T>) {
        let count = &target.copies().count;
        let mut left = count.load(Acquire);
        while left & !OPEN != 0 {
            // Before its end counts: after it there may be nobody who would hear of it.
            target.copy_ended(Err(EIO));
            match count.cmpxchg(left, left - 1, Full) {
                Ok(1) => {
                    // SAFETY: This has taken the count to zero, so the reference of the batch is
                    // ours.
                    unsafe { Arc::from_raw(Arc::as_ptr(target)) }.all_ended();
                    return;
                }
                Ok(_) => left -= 1,
                // The batch was dropped, or somebody else abandons them, too.
                Err(now) => left = now,
            }
        }
    }
}

impl<T: Completion> Deref for Batch<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: The batch is counted, so the reference lives.
        unsafe { self.target.as_ref() }
    }
}

impl<T: Completion> Drop for Batch<T> {
    fn drop(&mut self) {
        // SAFETY: The batch is counted, and this is its end.
        unsafe { Self::part_ended(self.target.as_ptr(), OPEN) };
    }
}
