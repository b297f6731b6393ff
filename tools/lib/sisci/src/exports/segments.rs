// SPDX-License-Identifier: LGPL-2.1

//! Segments, local and remote.

use super::ErrorPlace;
use super::ask;
use super::call;
use super::callback;
use super::exported;
use super::put;
use super::required;
use crate::callback::LocalSegmentFunction;
use crate::callback::RemoteSegmentFunction;
use crate::deadline::Deadline;
use crate::dma;
use crate::error::Error;
use crate::error::Result;
use crate::flags;
use crate::handles::Handle;
use crate::local_segment;
use crate::local_segment::LocalSegment;
use crate::memory::Memory;
use crate::nodes;
use crate::remote_segment;
use crate::remote_segment::RemoteSegment;
use std::ffi::c_void;

/// Returns NOT_SUPPORTED for memory of a GPU: the GPU's driver gives it as a dma-buf, which the
/// SCIF driver does not take.
fn check_host_memory(flags: u32) -> Result<()> {
    match flags & flags::CUDA_BUFFER {
        0 => Ok(()),
        _ => Err(Error::NOT_SUPPORTED),
    }
}

exported! {
    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to; the callback takes its argument from any thread.
    fn SCICreateSegment(
        sd: Handle,
        segment: *mut Handle,
        id: u32,
        size: usize,
        function: Option<LocalSegmentFunction>,
        argument: *mut c_void,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                let allowed = flags::USE_CALLBACK
                    | flags::EMPTY
                    | flags::PRIVATE
                    | flags::DMA_SOURCE_ONLY
                    | flags::ALLOW_UNICAST
                    | flags::BROADCAST
                    | flags::AUTO_ID
                    | flags::LOCK_USER_MEM
                    | flags::PHYSICAL
                    | flags::CUDA_BUFFER
                    | flags::DMA_GLOBAL;
                flags::check(flags, allowed)?;
                check_host_memory(flags)?;
                let segment = required(segment)?;
                let callback = callback(function, argument, flags)?;
                let wanted = local_segment::Wanted {
                    id,
                    size,
                    flags,
                    callback,
                };
                segment.write(LocalSegment::create(sd, wanted)?);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIPrepareSegment(
        segment: Handle,
        adapter: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                let allowed = flags::DMA_SOURCE_ONLY | flags::BROADCAST | flags::DMA_GLOBAL;
                flags::check(flags, allowed)?;
                let segment = local_segment::get(segment)?;
                nodes::check_adapter(adapter)?;
                segment.prepare()
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCISetSegmentAvailable(
        segment: Handle,
        adapter: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, flags::BROADCAST)?;
                let segment = local_segment::get(segment)?;
                nodes::check_adapter(adapter)?;
                segment.set_available()
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCISetSegmentUnavailable(
        segment: Handle,
        adapter: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, flags::NOTIFY | flags::FORCE_DISCONNECT)?;
                let segment = local_segment::get(segment)?;
                nodes::check_adapter(adapter)?;
                segment.set_unavailable(flags)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIRemoveSegment(
        segment: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, flags::FORCE_REMOVE)?;
                dma::settle();
                LocalSegment::remove(segment, flags)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIWaitForLocalSegmentEvent(
        segment: Handle,
        node: *mut u32,
        adapter: *mut u32,
        timeout: u32,
        flags: u32,
        error: ErrorPlace,
    ) -> u32 {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, 0, || {
                flags::check(flags, 0)?;
                let segment = local_segment::get(segment)?;
                if segment.has_callback() {
                    return Err(Error::ILLEGAL_OPERATION);
                }
                let event = segment.importers.events.next(Deadline::after(timeout));
                let (reason, from) = event?;
                put(node, from);
                put(adapter, 0);
                Ok(reason.number())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// None.
    fn SCIGetLocalSegmentId(
        segment: Handle,
    ) -> u32 {
        ask(0, || Ok(local_segment::get(segment)?.id()))
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// None.
    fn SCIGetLocalSegmentSize(
        segment: Handle,
    ) -> usize {
        ask(0, || Ok(local_segment::get(segment)?.memory.size()))
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIShareSegment(
        segment: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                local_segment::get(segment)?.share()
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to; the callback takes its argument from any thread.
    fn SCIAttachLocalSegment(
        sd: Handle,
        segment: *mut Handle,
        id: u32,
        size: *mut usize,
        function: Option<LocalSegmentFunction>,
        argument: *mut c_void,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, flags::USE_CALLBACK)?;
                let segment = required(segment)?;
                let callback = callback(function, argument, flags)?;
                let wanted = local_segment::Wanted {
                    id,
                    size: 0,
                    flags,
                    callback,
                };
                let (handle, bytes) = LocalSegment::attach(sd, wanted)?;
                segment.write(handle);
                put(size, bytes);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// The memory exists as long as the segment; `error` is null or can be written to.
    fn SCIRegisterSegmentMemory(
        address: *mut c_void,
        size: usize,
        segment: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                let allowed = flags::LOCK_USER_MEM | flags::PHYSICAL | flags::CUDA_BUFFER;
                flags::check(flags, allowed)?;
                check_host_memory(flags)?;
                local_segment::register_memory(segment, address, size)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIAttachPhysicalMemory(
        io_address: u64,
        _address: *mut c_void,
        _bus: u32,
        size: usize,
        segment: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, flags::PHYSICAL | flags::CUDA_BUFFER)?;
                let segment = local_segment::get(segment)?;
                check_host_memory(flags)?;
                segment.give_memory(size, Memory::of_device(io_address, size)?)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to; the callback takes its argument from any thread.
    fn SCIConnectSegment(
        sd: Handle,
        segment: *mut Handle,
        node: u32,
        id: u32,
        adapter: u32,
        function: Option<RemoteSegmentFunction>,
        argument: *mut c_void,
        timeout: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                let allowed = flags::USE_CALLBACK | flags::ASYNCHRONOUS_CONNECT | flags::BROADCAST;
                flags::check(flags, allowed)?;
                let segment = required(segment)?;
                nodes::check_adapter(adapter)?;
                let callback = callback(function, argument, flags)?;
                let wanted = remote_segment::Wanted {
                    node_id: node,
                    number: id,
                    flags,
                    timeout,
                    callback,
                };
                segment.write(RemoteSegment::connect(sd, wanted)?);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIDisconnectSegment(
        segment: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                dma::settle();
                RemoteSegment::disconnect(segment)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// None.
    fn SCIGetRemoteSegmentSize(
        segment: Handle,
    ) -> usize {
        ask(0, || Ok(remote_segment::get(segment)?.size() as usize))
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// None.
    fn SCIGetRemoteSegmentId(
        segment: Handle,
    ) -> u32 {
        ask(0, || Ok(remote_segment::get(segment)?.number()))
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// None.
    fn SCIGetRemoteSegmentNodeId(
        segment: Handle,
    ) -> u32 {
        ask(0, || Ok(remote_segment::get(segment)?.node_id()))
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIWaitForRemoteSegmentEvent(
        segment: Handle,
        status: *mut u32,
        timeout: u32,
        flags: u32,
        error: ErrorPlace,
    ) -> u32 {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, 0, || {
                flags::check(flags, 0)?;
                let segment = remote_segment::get(segment)?;
                if segment.has_callback() {
                    return Err(Error::ILLEGAL_OPERATION);
                }
                let (reason, how) = segment.events.next(Deadline::after(timeout))?;
                put(status, how);
                Ok(reason.number())
            })
        }
    }
}
