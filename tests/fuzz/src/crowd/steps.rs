// SPDX-License-Identifier: GPL-2.0

//! The steps of a crowd. A crowd consists of processes with some threads each, which share
//! endpoints.
//!
//! Each process has a table of slots, which its threads share. A slot always has the same
//! descriptor. The endpoint behind the descriptor changes: by a new endpoint, by `dup2` of another
//! slot, by `accept`, or by an endpoint received from a socket.

use crate::lines::lines;

/// Largest number of threads of a process.
pub const THREADS: usize = 4;
/// Largest number of processes, without those that are forked later.
pub const PROCESSES: usize = 4;
/// Largest number of threads of a crowd.
pub const ACTORS: usize = PROCESSES * THREADS;
/// Number of endpoints in the table of a process.
pub const SLOTS: usize = 12;
/// Offset that makes a step search for a slot: the next slot from there on whose endpoint suits the
/// step.
///
/// For an accept the endpoint has to be known to listen, for other calls to be connected. A slot is
/// renewed unless its endpoint is known to be one of both.
pub const OR_NEXT: usize = 100;

lines! {
    /// A step of a thread.
    Step,
    /// The thread: the number of its process times [`THREADS`], plus its own number.
    actor: usize;

    /// Makes calls on endpoints of this thread alone. A model predicts their results.
    Own "own" { actor: usize, seed: u64, calls: usize }
    /// Puts a new endpoint into a slot.
    Renew "renew" { actor: usize, slot: usize, nonblocking: bool }
    /// Puts the endpoint of a slot into another slot, too.
    Share "share" { actor: usize, slot: usize, into: usize }
    /// Sends the endpoint of a slot into the socket that all processes share.
    Pass "pass" { actor: usize, slot: usize }
    /// Receives the next endpoint of the socket into a slot.
    Take "take" { actor: usize, into: usize }
    Bind "bind" { actor: usize, slot: usize, port: u16 }
    Listen "listen" { actor: usize, slot: usize, backlog: i32 }
    Connect "connect" { actor: usize, slot: usize, port: u16 }
    /// Accepts a request, and puts the new endpoint into another slot.
    Accept "accept" { actor: usize, slot: usize, into: usize, flags: i32 }
    BindName "bind_name" { actor: usize, slot: usize, name: u32 }
    ConnectName "connect_name" { actor: usize, slot: usize, name: u32 }
    Send "send" { actor: usize, slot: usize, len: i32, flags: i32 }
    SendAll "send_all" { actor: usize, slot: usize, len: u64, flags: u32 }
    Receive "receive" { actor: usize, slot: usize, len: i32, flags: i32 }
    Poll "poll" { actor: usize, slot: usize, milliseconds: i64 }
    Register "register" { actor: usize, slot: usize, page: u64, pages: u64, at: i64, protection: i32, flags: i32 }
    /// Registers a window of memory that has a descriptor.
    Memory "memory" { actor: usize, slot: usize, page: u64, pages: u64, at: i64, protection: i32, flags: i32 }
    Unregister "unregister" { actor: usize, slot: usize, at: i64, pages: u64 }
    /// Copies between windows.
    Copy "copy" { actor: usize, slot: usize, write: bool, local: i64, remote: i64, len: u64, flags: i32 }
    /// Copies between memory and windows.
    CopyMemory "copy_memory" { actor: usize, slot: usize, write: bool, page: u64, remote: i64, len: u64, flags: i32 }
    Map "map" { actor: usize, slot: usize, at: i64, write: bool }
    /// Requests a mark, and waits for it.
    Mark "mark" { actor: usize, slot: usize, flags: i32 }
    Signal "signal" { actor: usize, slot: usize, flags: i32, local: i64, remote: i64 }
    Nodes "nodes" { actor: usize, slot: usize }
    Status "status" { actor: usize, slot: usize }
    /// Sends a signal to another thread of the process, which interrupts its call.
    Interrupt "interrupt" { actor: usize, whom: usize }
    /// Forks a process that inherits all slots, makes calls by a seed, and ends.
    Fork "fork" { actor: usize, seed: u64, calls: usize }
    /// Forks such a process, which calls `exec` first.
    Exec "exec" { actor: usize, seed: u64, calls: usize }
    /// Kills the process that the thread forked last.
    Kill "kill" { actor: usize }
    /// Kills the thread's own process.
    Die "die" { actor: usize }
}

impl Step {
    /// The process of the thread that does it.
    pub fn process(&self) -> usize {
        self.actor() / THREADS
    }
}
