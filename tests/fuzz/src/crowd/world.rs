// SPDX-License-Identifier: GPL-2.0

//! What all threads of a process have: the board, the table of slots, the socket, memory.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd as _;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd as _;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;

use anyhow::Result;

use crate::crowd::board::Board;
use crate::crowd::setting::Setting;
use crate::memory::Arena;

/// Descriptors that are the same in all processes of a crowd: the board, the two ends of the socket, the slots.
pub const BOARD_FD: RawFd = 90;
pub const SOCKET_FDS: [RawFd; 2] = [91, 92];
pub const SLOT_FD: RawFd = 100;

/// What the threads of a process share.
pub struct World {
    pub board: &'static Board,
    /// The number of the process's table.
    pub table: usize,
    pub arena: Arena,
    pub setting: Setting,
}

impl World {
    pub fn new(board: &'static Board, table: usize, setting: Setting) -> Result<Self> {
        Ok(Self {
            board,
            table,
            arena: Arena::new()?,
            setting,
        })
    }
}

/// A descriptor that stays open as long as the process has it.
pub fn fixed(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: Those of the board, the socket and the slots are opened before any thread runs, and replaced but never
    // closed before the process ends.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// The descriptor of a slot.
pub fn slot_fd(slot: usize) -> BorrowedFd<'static> {
    fixed(SLOT_FD + slot as RawFd)
}

/// Puts what a descriptor is of in the place of another, which `exec` leaves open.
pub fn put(fd: impl AsFd, place: RawFd) -> Result<()> {
    // SAFETY: The number is none that an `OwnedFd` has: only those above are given.
    let put = unsafe { libc::dup2(fd.as_fd().as_raw_fd(), place) };
    if put < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}

/// Closes one of those.
pub fn close(place: RawFd) {
    // SAFETY: As above; nobody uses it any more.
    drop(unsafe { OwnedFd::from_raw_fd(place) });
}
