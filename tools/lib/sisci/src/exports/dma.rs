// SPDX-License-Identifier: LGPL-2.1

//! DMA queues.

use super::ErrorPlace;
use super::ask;
use super::call;
use super::callback;
use super::exported;
use super::required;
use crate::callback::Status;
use crate::callback::StatusFunction;
use crate::deadline::Deadline;
use crate::device;
use crate::dma::Entry;
use crate::dma::Local;
use crate::dma::MOST_ENTRIES;
use crate::dma::QUEUES;
use crate::dma::Queue;
use crate::dma::Wanted;
use crate::error::Error;
use crate::error::Result;
use crate::flags;
use crate::handles::Handle;
use crate::local_segment;
use crate::nodes;
use crate::remote_segment;
use std::ffi::c_void;
use std::sync::Arc;

/// Returns the queue for a transfer, and the callback for its completion.
///
/// # Safety
///
/// The program keeps the contract of [`callback()`].
unsafe fn to_start(
    queue: Handle,
    function: Option<StatusFunction>,
    argument: *mut c_void,
    flags: u32,
) -> Result<(Arc<Queue>, Option<Status>)> {
    let allowed = flags::USE_CALLBACK
        | flags::DMA_READ
        | flags::DMA_WAIT
        | flags::DMA_USER_MEM
        | flags::DMA_HINTS;
    flags::check(flags, allowed)?;
    let queue = QUEUES.get(queue)?;
    // SAFETY: By the contract of this function.
    let callback = unsafe { callback(function, argument, flags)? };
    Ok((queue, callback))
}

exported! {
    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCICreateDMAQueue(
        sd: Handle,
        queue: *mut Handle,
        adapter: u32,
        most: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, flags::DMA_HINTS)?;
                let queue = required(queue)?;
                let _device = device::using(sd)?;
                nodes::check_adapter(adapter)?;
                queue.write(Queue::create(sd, most as usize)?);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIRemoveDMAQueue(
        queue: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                Queue::remove(queue)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `error` is null or can be written to; memory and vector exist; the callback takes its
    /// argument from any thread.
    fn SCIStartDmaTransfer | SCIStartDMATransfer(
        queue: Handle,
        local: Handle,
        remote: Handle,
        local_offset: usize,
        size: usize,
        remote_offset: usize,
        function: Option<StatusFunction>,
        argument: *mut c_void,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                let (queue, callback) = to_start(queue, function, argument, flags)?;
                let local = Local::Segment(local_segment::get(local)?);
                let entries = &[Entry {
                    size,
                    local_offset,
                    remote_offset,
                    flags: 0,
                }];
                queue.start(Wanted {
                    local,
                    remote: remote_segment::get(remote)?,
                    entries,
                    flags,
                    callback,
                })
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `error` is null or can be written to; memory and vector exist; the callback takes its
    /// argument from any thread.
    fn SCIStartDmaTransferVec | SCIStartDMATransferVec(
        queue: Handle,
        local: Handle,
        remote: Handle,
        count: usize,
        vector: *mut Entry,
        function: Option<StatusFunction>,
        argument: *mut c_void,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                let (queue, callback) = to_start(queue, function, argument, flags)?;
                let local = Local::Segment(local_segment::get(local)?);
                let vector = required(vector)?;
                if count > MOST_ENTRIES {
                    return Err(Error::MAX_ENTRIES);
                }
                let entries = core::slice::from_raw_parts(vector.cast_const(), count);
                queue.start(Wanted {
                    local,
                    remote: remote_segment::get(remote)?,
                    entries,
                    flags,
                    callback,
                })
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `error` is null or can be written to; memory and vector exist; the callback takes its
    /// argument from any thread.
    fn SCIStartDmaTransferMem(
        queue: Handle,
        memory: *mut c_void,
        remote: Handle,
        size: usize,
        remote_offset: usize,
        function: Option<StatusFunction>,
        argument: *mut c_void,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                let (queue, callback) = to_start(queue, function, argument, flags)?;
                let local = Local::Memory(required(memory)?);
                let entries = &[Entry {
                    size,
                    local_offset: 0,
                    remote_offset,
                    flags: 0,
                }];
                queue.start(Wanted {
                    local,
                    remote: remote_segment::get(remote)?,
                    entries,
                    flags,
                    callback,
                })
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// None.
    fn SCIDMAQueueState(
        queue: Handle,
    ) -> u32 {
        ask(5, || Ok(QUEUES.get(queue)?.state() as u32))
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIWaitForDMAQueue(
        queue: Handle,
        timeout: u32,
        flags: u32,
        error: ErrorPlace,
    ) -> u32 {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, 5, || {
                flags::check(flags, 0)?;
                Ok(QUEUES.get(queue)?.wait(Deadline::after(timeout))? as u32)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIAbortDMAQueue(
        queue: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                QUEUES.get(queue)?.abort()
            })
        }
    }
}
