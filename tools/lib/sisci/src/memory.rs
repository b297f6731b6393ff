// SPDX-License-Identifier: LGPL-2.1

//! The memory of a local segment.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::fs::SealFlags;
use rustix::io::Errno;

use crate::descriptors::Descriptor;
use crate::endpoint::PinnedMemory;
use crate::error::Error;
use crate::error::Result;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::mapping::shared_memory;

/// Returns the size of a page. Memory is pinned, registered and mapped in pages, of 4 KiB on x86
/// and up to 64 KiB on arm64.
pub fn page() -> usize {
    rustix::param::page_size()
}

/// Size of a huge page. Memory in huge pages has few extents, which an engine copies at once.
const HUGE: usize = 2 << 20;

/// Size from which a segment gets huge pages, if there are any: at most half is wasted.
const WORTH_HUGE: usize = HUGE / 2;

/// Programs see sizes in multiples of this.
const GRAIN: usize = 8;

/// Returns the size that a program is told.
pub fn rounded(size: usize) -> Result<usize> {
    size.checked_next_multiple_of(GRAIN).ok_or(Error::NOSPC)
}

/// Returns the size in whole pages.
pub fn in_pages(size: usize) -> Result<usize> {
    size.checked_next_multiple_of(page()).ok_or(Error::NOSPC)
}

/// The memory of a local segment.
pub enum Memory {
    /// Memory of the library, which other processes may share; mapped here to be pinned.
    Shared { file: Descriptor, all: Mapping },
    /// Memory of the program.
    Program { address: usize, len: usize },
    /// Memory of a device, by its address.
    Device { address: u64, len: usize },
}

impl Memory {
    /// Allocates zeroed memory.
    pub fn new(size: usize) -> Result<Self> {
        let len = in_pages(size)?;
        if len < WORTH_HUGE {
            let file = shared_memory(len as u64).map_err(no_space)?;
            return Self::of_file(file, len);
        }
        let whole = len.checked_next_multiple_of(HUGE).ok_or(Error::NOSPC)?;
        let file = shared_memory(whole as u64).map_err(no_space)?;
        // The kernel makes huge pages of a mapping where a huge page would fit.
        let room = Mapping::reserved(whole.checked_add(HUGE).ok_or(Error::NOSPC)?)?;
        let begin = (room.address() as usize).next_multiple_of(HUGE) as *mut c_void;
        let mapped = Mapping::new(file.as_fd(), 0, whole, true, Place::Over(begin));
        let mapped = mapped.map_err(no_space)?;
        mapped.make_huge();
        // Pages stay huge or small, wherever they are mapped.
        mapped.forget();
        drop(room);
        Self::of_file(file, len)
    }

    fn of_file(file: OwnedFd, len: usize) -> Result<Self> {
        let all = Mapping::new(file.as_fd(), 0, len, true, Place::Any).map_err(no_space)?;
        Ok(Self::Shared {
            file: file.into(),
            all,
        })
    }

    /// Makes memory of a descriptor that another process of this node has handed over. ACCESS:
    /// [`shared_memory`] has not made it, or its size can change.
    pub fn of_process(file: OwnedFd, size: usize) -> Result<Self> {
        let len = in_pages(size)?;
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| Error::ACCESS)?;
        let there = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        let access = rustix::fs::fcntl_getfl(&file)? & OFlags::ACCMODE;
        let is_whole = len > 0 && there >= len as u64;
        if !seals.contains(SealFlags::SHRINK) || !is_whole || access != OFlags::RDWR {
            return Err(Error::ACCESS);
        }
        Self::of_file(file, len)
    }

    /// Makes a segment's memory of memory of the program.
    pub fn of_program(address: *mut c_void, size: usize) -> Result<Self> {
        let address = address as usize;
        if address == 0 || address % page() != 0 {
            return Err(Error::ILLEGAL_ADDRESS);
        }
        if size == 0 || size % page() != 0 {
            return Err(Error::SIZE_ALIGNMENT);
        }
        Ok(Self::Program { address, len: size })
    }

    /// Makes a segment's memory of memory of a device.
    pub fn of_device(address: u64, size: usize) -> Result<Self> {
        if address == 0 || address % page() as u64 != 0 {
            return Err(Error::ILLEGAL_ADDRESS);
        }
        if size == 0 || size % page() != 0 {
            return Err(Error::SIZE_ALIGNMENT);
        }
        Ok(Self::Device { address, len: size })
    }

    /// Returns the size in bytes, in whole pages.
    pub fn len(&self) -> usize {
        match self {
            Self::Shared { all, .. } => all.len(),
            Self::Program { len, .. } | Self::Device { len, .. } => *len,
        }
    }

    /// Pins the memory.
    pub fn pin(&self) -> Result<PinnedMemory> {
        let len = self.len() as u64;
        let pinned = match self {
            Self::Shared { all, .. } => PinnedMemory::new(all.address() as u64, len, false),
            Self::Program { address, .. } => PinnedMemory::new(*address as u64, len, false),
            Self::Device { address, .. } => PinnedMemory::new(*address, len, true),
        };
        pinned.map_err(|error| match error {
            Errno::FAULT | Errno::INVAL => Error::ILLEGAL_ADDRESS,
            error => error.into(),
        })
    }

    /// Maps a part of the memory. The second result is the mapping to drop later.
    pub fn map(
        &self,
        offset: usize,
        size: usize,
        writable: bool,
        place: Place,
    ) -> Result<(*mut c_void, Option<Mapping>)> {
        match self {
            Self::Shared { file, .. } => {
                let mapping = Mapping::new(file.as_fd(), offset as u64, size, writable, place);
                let mapping = mapping.map_err(map_error)?;
                Ok((mapping.address(), Some(mapping)))
            }
            Self::Program { address, .. } => match place {
                Place::Any => Ok((address.wrapping_add(offset) as *mut c_void, None)),
                _ => Err(Error::ILLEGAL_ADDRESS),
            },
            Self::Device { .. } => Err(Error::NOT_SUPPORTED),
        }
    }

    /// Returns the address of the memory in this process, if all of it is mapped.
    pub fn address(&self) -> Option<u64> {
        match self {
            Self::Shared { all, .. } => Some(all.address() as u64),
            Self::Program { address, .. } => Some(*address as u64),
            Self::Device { .. } => None,
        }
    }

    /// Returns the descriptor with which another process of this node can share the memory.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Shared { file, .. } => Some(file.as_fd()),
            _ => None,
        }
    }
}

fn no_space(error: Errno) -> Error {
    match error {
        Errno::INVAL | Errno::FBIG | Errno::OVERFLOW => Error::NOSPC,
        error => error.into(),
    }
}

/// Translates the error of a map.
pub fn map_error(error: Errno) -> Error {
    match error {
        Errno::EXIST | Errno::INVAL => Error::ILLEGAL_ADDRESS,
        Errno::OPNOTSUPP => Error::NOT_SUPPORTED,
        error => error.into(),
    }
}
