// SPDX-License-Identifier: LGPL-2.1

//! Memory of which the kernel stops stores until this process lets them go on:
//! `linux/userfaultfd.h`.
//!
//! Stores by the kernel, as `read(2)` makes them, are stopped too if the process has the right to
//! that. If it has not, such calls fail with EFAULT.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd as _;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd as _;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::io::read;
use rustix::io::retry_on_intr;
use rustix::ioctl::Opcode;
use rustix::ioctl::Updater;
use rustix::ioctl::ioctl;
use rustix::mm::UserfaultfdFlags;
use rustix::mm::userfaultfd;

use crate::descriptors::Descriptor;

/// The mode that needs no right: only stores of the program are stopped.
const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);

/// `UFFDIO_API`
pub const API: Opcode = 0xc018_aa3f;
/// `UFFDIO_REGISTER`
pub const REGISTER: Opcode = 0xc020_aa00;
/// `UFFDIO_WAKE`
pub const WAKE: Opcode = 0x8010_aa02;
/// `UFFDIO_WRITEPROTECT`
pub const WRITEPROTECT: Opcode = 0xc018_aa06;
/// `USERFAULTFD_IOC_NEW`
pub const NEW: Opcode = 0xaa00;

/// `UFFD_FEATURE_...`
const PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const THREAD_ID: u64 = 1 << 8;
const EXACT_ADDRESS: u64 = 1 << 11;
const WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const FEATURES: u64 = PAGEFAULT_FLAG_WP | THREAD_ID | EXACT_ADDRESS | WP_HUGETLBFS_SHMEM;

const REGISTER_MODE_WP: u64 = 1 << 1;
const WRITEPROTECT_MODE_WP: u64 = 1 << 0;
const EVENT_PAGEFAULT: u8 = 0x12;

#[repr(C)]
#[derive(Clone, Copy)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Register {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct WriteProtect {
    range: Range,
    mode: u64,
}

/// Size of `struct uffd_msg`, and the place of the fields of a fault.
const MESSAGE: usize = 32;
const ADDRESS: core::ops::Range<usize> = 16..24;
const THREAD: core::ops::Range<usize> = 24..28;

/// A store at which a thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The first byte that the thread can't store.
    pub address: usize,
    /// The thread id of the kernel.
    pub thread: u32,
}

/// An area of memory that is write-protected.
pub struct WriteProtection {
    fd: Descriptor,
    /// The protected area.
    start: usize,
    len: usize,
}

fn open() -> Result<OwnedFd, Errno> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: A new descriptor has no effect by itself.
    let from_call = |flags| unsafe { userfaultfd(flags) };
    let from_device = || {
        let device = rustix::fs::open(c"/dev/userfaultfd", OFlags::CLOEXEC, Mode::empty())?;
        // SAFETY: The argument of this number is not a pointer.
        match unsafe { libc::ioctl(device.as_raw_fd(), NEW as _, flags.bits()) } {
            // SAFETY: The descriptor is new.
            fd @ 0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(Errno::NOTTY),
        }
    };
    from_call(flags)
        .or_else(|_| from_device())
        .or_else(|_: Errno| from_call(flags | USER_MODE_ONLY))
}

impl WriteProtection {
    /// Watches an area of shared memory and protects all of it.
    pub fn new(start: usize, len: usize) -> Result<Self, Errno> {
        let this = Self {
            fd: open()?.into(),
            start,
            len,
        };
        let mut api = Api {
            api: 0xaa,
            features: FEATURES,
            ioctls: 0,
        };
        this.call::<API, _>(&mut api)?;
        let mut register = Register {
            range: this.range(0, len),
            mode: REGISTER_MODE_WP,
            ioctls: 0,
        };
        this.call::<REGISTER, _>(&mut register)?;
        this.protect(0, len)?;
        Ok(this)
    }

    /// Makes a call whose argument is a structure, again after a signal.
    fn call<const NUMBER: Opcode, T>(&self, argument: &mut T) -> Result<(), Errno> {
        // SAFETY: The structure is the one of this call number.
        retry_on_intr(|| unsafe { ioctl(&self.fd, Updater::<NUMBER, T>::new(argument)) })
    }

    fn range(&self, offset: usize, len: usize) -> Range {
        Range {
            start: (self.start + offset) as u64,
            len: len as u64,
        }
    }

    fn set(&self, offset: usize, len: usize, mode: u64) -> Result<(), Errno> {
        let mut argument = WriteProtect {
            range: self.range(offset, len),
            mode,
        };
        loop {
            match self.call::<WRITEPROTECT, _>(&mut argument) {
                // The area is being changed.
                Err(Errno::AGAIN) => (),
                result => return result,
            }
        }
    }

    /// Stops stores to these pages. After the return the caller sees all stores made before.
    pub fn protect(&self, offset: usize, len: usize) -> Result<(), Errno> {
        self.set(offset, len, WRITEPROTECT_MODE_WP)
    }

    /// Lets stores to these pages go on.
    pub fn release(&self, offset: usize, len: usize) -> Result<(), Errno> {
        self.set(offset, len, 0)
    }

    /// Makes all waiting threads try again, since the area is unmapped.
    pub fn wake_all(&self) {
        let mut range = self.range(0, self.len);
        // The only possible error is an invalid range.
        let _ = self.call::<WAKE, _>(&mut range);
    }

    /// Returns the next thread that waits, if there is one. Each fault is returned once.
    pub fn fault(&self) -> Option<Fault> {
        let mut message = [0; MESSAGE];
        while retry_on_intr(|| read(&self.fd, &mut message)) == Ok(MESSAGE) {
            if message[0] == EVENT_PAGEFAULT {
                let (mut address, mut thread) = ([0; 8], [0; 4]);
                address.copy_from_slice(&message[ADDRESS]);
                thread.copy_from_slice(&message[THREAD]);
                return Some(Fault {
                    address: u64::from_ne_bytes(address) as usize,
                    thread: u32::from_ne_bytes(thread),
                });
            }
        }
        None
    }
}

impl AsFd for WriteProtection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
