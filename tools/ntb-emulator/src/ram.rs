// SPDX-License-Identifier: GPL-2.0
//! The RAM of one guest: a file that QEMU, the peers' windows and this process share.
//!
//! The file is mapped once as a whole for the life of the process, and keeps its size. So whatever
//! happens to a guest, its RAM stays valid memory here. All accesses are checked against that size.
//! The guests change the contents at any time, so no Rust reference to them is ever formed.
//! Naturally aligned accesses of up to 8 bytes are single and ordered, longer ones are plain
//! copies.
//!
//! [`crate::guest_memory`] decides which part of the RAM a device may access.

use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::NonNull;
use std::ptr::copy;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Release;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use rustix::fs::FallocateFlags;
use rustix::fs::MemfdFlags;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

/// The RAM of a guest.
pub struct Ram {
    file: File,
    base: NonNull<u8>,
    size: u64,
    identity: (u64, u64),
}

// SAFETY: the mapping lives until the drop, and the memory is accessed through raw pointers and
// atomics only.
unsafe impl Send for Ram {}
// SAFETY: as for `Send`; concurrent access is what shared memory is for.
unsafe impl Sync for Ram {}

/// The error of an access beyond the end of the RAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfRange;

impl Ram {
    /// Opens the file, or creates it filled with zeros. An existing file keeps its contents, and
    /// must have the right size.
    pub fn open(path: &Path, size: u64) -> Result<Self> {
        let name = path.display();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("cannot open the RAM file {name}"))?;
        let length = file
            .metadata()
            .with_context(|| format!("cannot examine the RAM file {name}"))?
            .len();
        ensure!(
            length == 0 || length == size,
            "the RAM file {name} has {length} bytes and should have {size}; remove it, or correct ram_size"
        );
        file.set_len(size)
            .with_context(|| format!("cannot give the RAM file {name} its {size} bytes"))?;
        reserve(&file, size).with_context(|| {
            format!("cannot reserve {size} bytes for the RAM file {name}; make room there")
        })?;
        Self::map(file, size).with_context(|| format!("cannot map the RAM file {name}"))
    }

    /// Creates RAM without a file name, for tests.
    pub fn anonymous(size: u64) -> Result<Self> {
        let fd = rustix::fs::memfd_create("ram", MemfdFlags::CLOEXEC)
            .context("cannot create anonymous RAM")?;
        let file = File::from(fd);
        file.set_len(size)
            .context("cannot give anonymous RAM its size")?;
        Self::map(file, size)
    }

    /// Returns another descriptor of the RAM, such as QEMU sends with a range of memory.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    fn map(file: File, size: u64) -> Result<Self> {
        let length = usize::try_from(size).context("RAM larger than the address space")?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).context("RAM mapped at address zero")?;
        let metadata = file.metadata()?;
        Ok(Self {
            identity: (metadata.dev(), metadata.ino()),
            file,
            base,
            size,
        })
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether a descriptor refers to this RAM.
    pub fn is_same(&self, file: &File) -> io::Result<bool> {
        let metadata = file.metadata()?;
        Ok((metadata.dev(), metadata.ino()) == self.identity)
    }

    /// Reads `data.len()` bytes at `offset`.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), OutOfRange> {
        let at = self.at(offset, data.len() as u64)?;
        match data.len() {
            1 | 2 | 4 | 8 if offset % data.len() as u64 == 0 => {
                // SAFETY: inside the mapping and aligned.
                let value = unsafe { load(at, data.len()) };
                data.copy_from_slice(&value.to_le_bytes()[..data.len()]);
            }
            // SAFETY: `at` is valid for that many bytes; `data` is ours alone.
            _ => unsafe { copy(at, data.as_mut_ptr(), data.len()) },
        }
        Ok(())
    }

    /// Writes `data` at `offset`.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), OutOfRange> {
        let at = self.at(offset, data.len() as u64)?;
        match data.len() {
            1 | 2 | 4 | 8 if offset % data.len() as u64 == 0 => {
                let mut value = [0; 8];
                value[..data.len()].copy_from_slice(data);
                // SAFETY: inside the mapping and aligned.
                unsafe { store(at, data.len(), u64::from_le_bytes(value)) };
            }
            // SAFETY: `at` is valid for that many bytes; `data` is ours alone.
            _ => unsafe { copy(data.as_ptr(), at, data.len()) },
        }
        Ok(())
    }

    /// Copies between, or within, the RAM of guests.
    pub fn copy(
        from: &Self,
        source: u64,
        to: &Self,
        destination: u64,
        length: u64,
    ) -> Result<(), OutOfRange> {
        let source_at = from.at(source, length)?;
        let destination_at = to.at(destination, length)?;
        match length {
            1 | 2 | 4 | 8 if source % length == 0 && destination % length == 0 => {
                // SAFETY: both inside their mappings and aligned.
                unsafe {
                    let value = load(source_at, length as usize);
                    store(destination_at, length as usize, value);
                }
            }
            // SAFETY: both are valid for that many bytes; they may overlap.
            _ => unsafe { copy(source_at, destination_at, length as usize) },
        }
        Ok(())
    }

    /// Returns the address of a range, if the range is inside.
    fn at(&self, offset: u64, length: u64) -> Result<*mut u8, OutOfRange> {
        match offset.checked_add(length) {
            // SAFETY: not beyond the end of the mapping.
            Some(end) if end <= self.size => Ok(unsafe { self.base.as_ptr().add(offset as usize) }),
            _ => Err(OutOfRange),
        }
    }
}

impl AsFd for Ram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this size; no pointer into it leaves this file.
        let result = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.size as usize) };
        if let Err(error) = result {
            log::warn!("cannot unmap RAM: {error}");
        }
    }
}

/// Reserves the space: on a full disk a later write to the mapping would kill the writer.
fn reserve(file: &File, size: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
        // Some file systems can't reserve space, and the risk stays.
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        result => Ok(result?),
    }
}

/// # Safety
/// `at` has to be valid for reads of `width` bytes (1, 2, 4 or 8) and aligned to that.
unsafe fn load(at: *mut u8, width: usize) -> u64 {
    // SAFETY: see above; the guests access it atomically or not at all as far as this
    // program is concerned.
    unsafe {
        match width {
            1 => AtomicU8::from_ptr(at).load(Acquire).into(),
            2 => AtomicU16::from_ptr(at.cast()).load(Acquire).into(),
            4 => AtomicU32::from_ptr(at.cast()).load(Acquire).into(),
            _ => AtomicU64::from_ptr(at.cast()).load(Acquire),
        }
    }
}

/// # Safety
/// `at` has to be valid for writes of `width` bytes (1, 2, 4 or 8) and aligned to that.
unsafe fn store(at: *mut u8, width: usize, value: u64) {
    // SAFETY: see `load`.
    unsafe {
        match width {
            1 => AtomicU8::from_ptr(at).store(value as u8, Release),
            2 => AtomicU16::from_ptr(at.cast()).store(value as u16, Release),
            4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Release),
            _ => AtomicU64::from_ptr(at.cast()).store(value, Release),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ram_file_is_reused_and_its_size_checked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ram");
        let ram = Ram::open(&path, 0x4000).unwrap();
        ram.write(0x3ff8, b"contents").unwrap();
        drop(ram);
        let ram = Ram::open(&path, 0x4000).unwrap();
        let mut data = [0; 8];
        ram.read(0x3ff8, &mut data).unwrap();
        assert_eq!(&data, b"contents");
        assert!(ram.is_same(&File::open(&path).unwrap()).unwrap());
        let error = format!("{:#}", Ram::open(&path, 0x8000).err().unwrap());
        assert!(error.contains("should have 32768"), "{error}");
        let nowhere = folder.path().join("no/ram");
        assert!(Ram::open(&nowhere, 0x4000).is_err());
    }

    #[test]
    fn overlapping_copy_within_one_ram_is_correct() {
        let ram = Ram::anonymous(0x1000).unwrap();
        ram.write(0, b"abcdefghijkl").unwrap();
        Ram::copy(&ram, 0, &ram, 3, 12).unwrap();
        let mut data = [0; 15];
        ram.read(0, &mut data).unwrap();
        assert_eq!(&data, b"abcabcdefghijkl");
    }

    proptest! {
        #[test]
        fn access_beyond_the_end_of_ram_fails(
            offset in any::<u64>(),
            other in 0u64..0x3000,
            length in 0u64..0x3000,
        ) {
            let ram = Ram::anonymous(0x2000).unwrap();
            let fits = |at: u64| at.checked_add(length).is_some_and(|end| end <= 0x2000);
            let mut data = vec![0; length as usize];
            for at in [offset, offset % 0x3000, other] {
                prop_assert_eq!(ram.read(at, &mut data).is_ok(), fits(at));
                prop_assert_eq!(ram.write(at, &data).is_ok(), fits(at));
                let copied = Ram::copy(&ram, at, &ram, other, length).is_ok();
                prop_assert_eq!(copied, fits(at) && fits(other));
            }
        }

        #[test]
        fn copy_between_rams_keeps_the_bytes(
            offset in 0u64..64,
            to in 0u64..64,
            contents in prop::collection::vec(any::<u8>(), 0..256),
        ) {
            let one = Ram::anonymous(0x1000).unwrap();
            let two = Ram::anonymous(0x1000).unwrap();
            one.write(offset, &contents).unwrap();
            Ram::copy(&one, offset, &two, to, contents.len() as u64).unwrap();
            let mut data = vec![0; contents.len()];
            two.read(to, &mut data).unwrap();
            prop_assert_eq!(data, contents);
        }
    }
}
