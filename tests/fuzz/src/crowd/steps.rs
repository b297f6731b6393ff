// SPDX-License-Identifier: GPL-2.0

//! The steps of a crowd: some processes of some threads, which share endpoints.
//!
//! Each process has a table of slots, which its threads share; a slot has always the same descriptor. What is in it
//! changes: by a new endpoint, by `dup2` of another slot, by `accept`, or by what comes out of a socket.

use crate::lines::lines;

/// The most threads of a process.
pub const THREADS: usize = 4;
/// The most processes, without those that are forked later.
pub const PROCESSES: usize = 4;
/// The most threads of a crowd.
pub const ACTORS: usize = PROCESSES * THREADS;
/// How many endpoints a process has in its table.
pub const SLOTS: usize = 12;
/// Added to the number of a slot: the next slot from there on whose endpoint is known to listen, if it is to accept, or
/// to be connected. A slot is renewed unless its endpoint is known to be one of both.
pub const OR_NEXT: usize = 100;

lines! {
    /// What a thread does.
    Step,
    /// Which thread: the number of its process times [`THREADS`], and its own.
    actor: usize;

    /// Makes calls on endpoints that nobody else has; a model says of each what it returns.
    Own "own" { actor: usize, seed: u64, calls: usize }
    /// Puts a new endpoint into a slot.
    Renew "renew" { actor: usize, slot: usize, nonblocking: bool }
    /// Puts the endpoint of a slot into another, too.
    Share "share" { actor: usize, slot: usize, into: usize }
    /// Puts the endpoint of a slot into the socket that all processes have.
    Pass "pass" { actor: usize, slot: usize }
    /// Puts the next endpoint of the socket into a slot.
    Take "take" { actor: usize, into: usize }
    Bind "bind" { actor: usize, slot: usize, port: u16 }
    Listen "listen" { actor: usize, slot: usize, backlog: i32 }
    Connect "connect" { actor: usize, slot: usize, port: u16 }
    /// Takes a request, and puts its connection into another slot.
    Accept "accept" { actor: usize, slot: usize, into: usize, flags: i32 }
    BindName "bind_name" { actor: usize, slot: usize, name: u32 }
    ConnectName "connect_name" { actor: usize, slot: usize, name: u32 }
    Send "send" { actor: usize, slot: usize, len: i32, flags: i32 }
    SendAll "send_all" { actor: usize, slot: usize, len: u64, flags: u32 }
    Receive "receive" { actor: usize, slot: usize, len: i32, flags: i32 }
    Poll "poll" { actor: usize, slot: usize, milliseconds: i64 }
    Register "register" { actor: usize, slot: usize, page: u64, pages: u64, at: i64, protection: i32, flags: i32 }
    /// As `register`, by way of memory that has a descriptor.
    Memory "memory" { actor: usize, slot: usize, page: u64, pages: u64, at: i64, protection: i32, flags: i32 }
    Unregister "unregister" { actor: usize, slot: usize, at: i64, pages: u64 }
    /// Between windows.
    Copy "copy" { actor: usize, slot: usize, write: bool, local: i64, remote: i64, len: u64, flags: i32 }
    /// Between memory and windows.
    CopyMemory "copy_memory" { actor: usize, slot: usize, write: bool, page: u64, remote: i64, len: u64, flags: i32 }
    Map "map" { actor: usize, slot: usize, at: i64, write: bool }
    /// Asks for a mark, and waits for it.
    Mark "mark" { actor: usize, slot: usize, flags: i32 }
    Signal "signal" { actor: usize, slot: usize, flags: i32, local: i64, remote: i64 }
    Nodes "nodes" { actor: usize, slot: usize }
    Status "status" { actor: usize, slot: usize }
    /// Sends a signal to another thread of the process, whose calls it interrupts.
    Interrupt "interrupt" { actor: usize, whom: usize }
    /// Forks a process that has all slots, too, makes calls by a seed, and ends.
    Fork "fork" { actor: usize, seed: u64, calls: usize }
    /// The same with `exec` in between.
    Exec "exec" { actor: usize, seed: u64, calls: usize }
    /// Kills the process that the thread forked last.
    Kill "kill" { actor: usize }
    /// Kills its own process.
    Die "die" { actor: usize }
}

impl Step {
    /// The process of the thread that does it.
    pub fn process(&self) -> usize {
        self.actor() / THREADS
    }
}
