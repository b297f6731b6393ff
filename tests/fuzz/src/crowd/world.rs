// SPDX-License-Identifier: GPL-2.0

//! The world of a process: the board, the table of slots, the socket and the memory, which all its
//! threads share.

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

/// Numbers of the descriptors that are the same in all processes of a crowd: the board, the two
/// sockets, the slots.
pub const BOARD_FD: RawFd = 90;
pub const SOCKET_FDS: [RawFd; 2] = [91, 92];
pub const SLOT_FD: RawFd = 100;

/// The state that the threads of a process share.
pub struct World {
    pub board: &'static Board,
    /// Number of the process's table.
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

/// Returns a descriptor that stays open as long as the process runs.
pub fn fixed(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: The descriptors of the board, the sockets and the slots are opened before any thread
    // runs. They are replaced, but never closed before the process ends.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Returns the descriptor of a slot.
pub fn slot_fd(slot: usize) -> BorrowedFd<'static> {
    fixed(SLOT_FD + slot as RawFd)
}

/// Duplicates a descriptor to the number `place`, which stays open across `exec`.
pub fn put(fd: impl AsFd, place: RawFd) -> Result<()> {
    // SAFETY: No `OwnedFd` has the number, as callers pass only the fixed numbers of this file.
    let put = unsafe { libc::dup2(fd.as_fd().as_raw_fd(), place) };
    if put < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}

/// Closes a fixed descriptor.
pub fn close(place: RawFd) {
    // SAFETY: No `OwnedFd` has the number, and nothing uses the descriptor any more.
    drop(unsafe { OwnedFd::from_raw_fd(place) });
}
