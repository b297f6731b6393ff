// SPDX-License-Identifier: GPL-2.0

//! Segments, maps, sequences and DMA.

use std::ffi::c_void;
use std::ptr::null;
use std::ptr::null_mut;
use std::sync::Arc;

use super::ADAPTER;
use super::DmaQueue;
use super::Handle;
use super::LocalSegment;
use super::RemoteSegment;
use super::Sisci;
use crate::error::Error;
use crate::error::Result;
use crate::ffi;

impl LocalSegment {
    /// Makes a segment and prepares it. Unless the segment is private, it also becomes available.
    pub fn new(sisci: &Arc<Sisci>, id: u32, size: usize, flags: u32) -> Result<Arc<Self>> {
        let mut handle = null_mut();
        let failure = format!("cannot make segment 0x{id:x} of {size} bytes");
        sisci.call(&failure, |functions, error| {
            let device = sisci.device.0;
            // SAFETY: The places can be written to; there is no callback.
            unsafe {
                (functions.SCICreateSegment)(
                    device,
                    &mut handle,
                    id,
                    size,
                    null(),
                    null_mut(),
                    flags,
                    error,
                )
            }
        })?;
        let segment = Self {
            sisci: sisci.clone(),
            handle: Handle(handle),
        };
        let broadcast = flags & ffi::BROADCAST;
        sisci.call(&failure, |functions, error| {
            // SAFETY: The place can be written to.
            unsafe { (functions.SCIPrepareSegment)(handle, ADAPTER, broadcast, error) }
        })?;
        if flags & ffi::PRIVATE == 0 {
            sisci.call(&failure, |functions, error| {
                // SAFETY: The error can be written to.
                unsafe { (functions.SCISetSegmentAvailable)(handle, ADAPTER, 0, error) }
            })?;
        }
        Ok(Arc::new(segment))
    }

    /// Maps the first `size` bytes.
    pub fn map(self: &Arc<Self>, size: usize) -> Result<Map> {
        let mut handle = null_mut();
        let mapped = self
            .sisci
            .call("cannot map a segment", |functions, error| {
                let segment = self.handle.0;
                // SAFETY: The places can be written to; the library chooses the address.
                unsafe {
                    (functions.SCIMapLocalSegment)(
                        segment,
                        &mut handle,
                        0,
                        size,
                        null_mut(),
                        0,
                        error,
                    )
                }
            })?;
        Ok(Map::new(
            &self.sisci,
            Owner::Local(self.clone()),
            handle,
            mapped,
            size,
        ))
    }
}

impl RemoteSegment {
    /// Connects to a segment.
    pub fn connect(sisci: &Arc<Sisci>, node: u32, id: u32, flags: u32) -> Result<Arc<Self>> {
        let mut handle = null_mut();
        let failure = format!("cannot connect to segment 0x{id:x} of node {node}");
        sisci.call(failure, |functions, error| {
            let device = sisci.device.0;
            // SAFETY: The places can be written to; there is no callback.
            unsafe {
                (functions.SCIConnectSegment)(
                    device,
                    &mut handle,
                    node,
                    id,
                    ADAPTER,
                    null(),
                    null_mut(),
                    ffi::INFINITE,
                    flags,
                    error,
                )
            }
        })?;
        Ok(Arc::new(Self {
            sisci: sisci.clone(),
            handle: Handle(handle),
        }))
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        // SAFETY: The function takes any handle.
        unsafe { (self.sisci.functions.SCIGetRemoteSegmentSize)(self.handle.0) }
    }

    /// Maps the first `size` bytes.
    pub fn map(self: &Arc<Self>, size: usize) -> Result<Map> {
        let mut handle = null_mut();
        let failure = "cannot map the other side's segment";
        let mapped = self.sisci.call(failure, |functions, error| {
            let segment = self.handle.0;
            // SAFETY: The places can be written to; the library chooses the address.
            unsafe {
                (functions.SCIMapRemoteSegment)(segment, &mut handle, 0, size, null_mut(), 0, error)
            }
        })?;
        Ok(Map::new(
            &self.sisci,
            Owner::Remote(self.clone()),
            handle,
            mapped,
            size,
        ))
    }
}

/// The segment of a map, kept as long as the map.
enum Owner {
    Local(#[allow(dead_code)] Arc<LocalSegment>),
    Remote(#[allow(dead_code)] Arc<RemoteSegment>),
}

/// A map of a segment in this process.
///
/// # Invariants
///
/// `size` bytes at `address` are mapped until the map is dropped.
pub struct Map {
    sisci: Arc<Sisci>,
    handle: Handle,
    address: Handle,
    size: usize,
    _owner: Owner,
}

impl Map {
    fn new(
        sisci: &Arc<Sisci>,
        owner: Owner,
        handle: ffi::Handle,
        address: *mut c_void,
        size: usize,
    ) -> Self {
        Self {
            sisci: sisci.clone(),
            handle: Handle(handle),
            address: Handle(address),
            size,
            _owner: owner,
        }
    }

    fn check(&self, offset: usize, len: usize) -> Result<*mut u8> {
        match offset.checked_add(len) {
            // SAFETY: The offset is inside the mapping.
            Some(end) if end <= self.size => Ok(unsafe { self.address.0.cast::<u8>().add(offset) }),
            _ => Err(Error::Refused(format!(
                "{len} bytes at {offset} are not in the map"
            ))),
        }
    }

    /// Stores bytes.
    pub fn store(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.check(offset, bytes.len())?;
        // SAFETY: `check` has found the range inside the map, to which no reference exists.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Stores a number by a single store.
    pub fn store_word(&self, offset: usize, value: u64) -> Result<()> {
        let to = self.check(offset, 8)?.cast::<u64>();
        // SAFETY: `check` has found the range inside the map. Offsets of words are aligned, or the
        // CPU can store unaligned words.
        unsafe { to.write_volatile(value) };
        Ok(())
    }

    /// Loads a number.
    pub fn load_word(&self, offset: usize) -> Result<u64> {
        let from = self.check(offset, 8)?.cast::<u64>();
        // SAFETY: As for the store.
        let value = unsafe { from.read_volatile() };
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        Ok(value)
    }

    /// `SCIMemCpy()`
    pub fn copy(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.sisci
            .call("cannot copy to the map", |functions, error| {
                let from = bytes.as_ptr().cast_mut().cast();
                // SAFETY: The buffer has that many bytes, and the library only reads them. The
                // library checks the range itself.
                unsafe {
                    (functions.SCIMemCpy)(
                        null_mut(),
                        from,
                        self.handle.0,
                        offset,
                        bytes.len(),
                        0,
                        error,
                    )
                }
            })
    }

    /// Makes a sequence of the map.
    pub fn sequence(self: &Arc<Self>) -> Result<Sequence> {
        let mut handle = null_mut();
        self.sisci
            .call("cannot make a sequence", |functions, error| {
                // SAFETY: The places can be written to.
                unsafe { (functions.SCICreateMapSequence)(self.handle.0, &mut handle, 0, error) }
            })?;
        Ok(Sequence {
            map: self.clone(),
            handle: Handle(handle),
        })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: This object owns the map, and no code refers to it any more.
        unsafe { (self.sisci.functions.SCIUnmapSegment)(self.handle.0, 0, null_mut()) };
    }
}

/// A sequence, which tells whether stores have arrived.
pub struct Sequence {
    map: Arc<Map>,
    handle: Handle,
}

impl Sequence {
    /// Returns whether all is well: `SCICheckSequence()`.
    #[inline]
    pub fn check(&self, flags: u32) -> bool {
        let mut error = ffi::OK;
        let check = self.map.sisci.functions.SCICheckSequence;
        // SAFETY: The place can be written to.
        let status = unsafe { check(self.handle.0, flags, &mut error) };
        status == 0 && error == ffi::OK
    }

    /// `SCIFlush()`
    pub fn flush(&self) {
        // SAFETY: The function takes any handle.
        unsafe { (self.map.sisci.functions.SCIFlush)(self.handle.0, 0) };
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        let remove = self.map.sisci.functions.SCIRemoveSequence;
        // SAFETY: This object owns the sequence, and removes it once.
        unsafe { remove(self.handle.0, 0, null_mut()) };
    }
}

impl DmaQueue {
    /// Makes a queue for one transfer at a time.
    pub fn new(sisci: &Arc<Sisci>) -> Result<Self> {
        let mut handle = null_mut();
        sisci.call("cannot make a DMA queue", |functions, error| {
            // SAFETY: The places can be written to.
            unsafe {
                (functions.SCICreateDMAQueue)(sisci.device.0, &mut handle, ADAPTER, 1, 0, error)
            }
        })?;
        Ok(Self {
            sisci: sisci.clone(),
            handle: Handle(handle),
        })
    }

    /// Copies from the begin of one segment to the begin of the other, and waits for completion.
    pub fn copy(
        &self,
        local: &LocalSegment,
        remote: &RemoteSegment,
        size: usize,
        flags: u32,
    ) -> Result<()> {
        let failure = format!("cannot copy {size} bytes by DMA");
        self.sisci.call(&failure, |functions, error| {
            // SAFETY: The library checks handles and ranges itself; there is no callback.
            unsafe {
                (functions.SCIStartDmaTransfer)(
                    self.handle.0,
                    local.handle.0,
                    remote.handle.0,
                    0,
                    size,
                    0,
                    null(),
                    null_mut(),
                    flags,
                    error,
                )
            }
        })?;
        let state = self.sisci.call(&failure, |functions, error| {
            // SAFETY: The place can be written to.
            unsafe { (functions.SCIWaitForDMAQueue)(self.handle.0, ffi::INFINITE, 0, error) }
        })?;
        match state {
            ffi::DMA_DONE => Ok(()),
            _ => Err(Error::Sisci {
                failure,
                code: ffi::TRANSFER_FAILED,
                text: self.sisci.words(ffi::TRANSFER_FAILED),
            }),
        }
    }
}
