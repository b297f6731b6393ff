// SPDX-License-Identifier: GPL-2.0

//! The send and receive calls of an endpoint, with their counts and trace events. `stream.rs` moves
//! the bytes.
//!
//! # Messages that are sent whole or not at all
//!
//! Such messages go through the same ring as the bytes of other calls, in turn with them. The
//! sender waits until the ring has room for all of a message before it stores the first byte. It
//! moves the counter once, behind the last byte. So a failure or a signal before that leaves
//! nothing in the ring, and the receiver finds the whole message at once.
//!
//! # Waiting for more than half a ring
//!
//! A receiver of much data sleeps until half a ring is there (`stream.rs`). A sender that waits
//! here for room for more than half a ring may need the receiver to take out less than that. So the
//! sender rings the doorbell: the receiver finds that the sender waits (`Stream::is_waited_for`),
//! and takes out what is there. A sender that does not wait, but tries again, rings as well.
//!
//! A message that is larger than the ring needs a larger ring first. The sender asks the peer for
//! one, and the peer answers whether it has the memory.

use super::{
    connection::Connection,
    stream::{
        look_for_signals,
        Stream, //
    },
    Endpoint, //
};
use crate::{
    sync::flow::Flow,
    sys::{
        buffer::Buffer,
        trace,
        wait::WaitQueue, //
    }, //
};
use kernel::prelude::*;

/// Counts a call that has moved something as a message.
fn count(flow: &Flow, result: Result<usize>) {
    if let Ok(bytes @ 1..) = result {
        flow.add(bytes as u64);
    }
}

impl Endpoint {
    /// Sends bytes of the caller; see [`Stream::send`].
    pub(crate) fn send(&self, from: &Buffer, block: bool) -> Result<usize> {
        let this = self.connection()?;
        let result = this.stream.send(from, block, &self.waiters);
        count(&this.sent, result);
        trace::send(|| this.traced_call(from, block, this.stream.unread_there(), result));
        result
    }

    /// Sends all bytes of the caller, or none; see [`Stream::send_all`].
    pub(crate) fn send_all(&self, from: &Buffer, block: bool) -> Result {
        let this = self.connection()?;
        let sent = this.stream.send_all(from, block, &self.waiters);
        let result = sent.map(|()| from.len());
        count(&this.sent, result);
        trace::send(|| this.traced_call(from, block, this.stream.unread_there(), result));
        sent
    }

    /// Receives bytes into memory of the caller; see [`Stream::receive`].
    pub(crate) fn receive(&self, to: &Buffer, block: bool) -> Result<usize> {
        let this = self.connection()?;
        let result = this.stream.receive(to, block, &self.waiters);
        count(&this.received, result);
        trace::receive(|| this.traced_call(to, block, this.stream.unread_here(), result));
        result
    }
}

impl Connection {
    /// Returns the data of a trace event about a call that has left `fill` bytes in a ring.
    fn traced_call(
        &self,
        memory: &Buffer,
        blocks: bool,
        fill: u32,
        result: Result<usize>,
    ) -> trace::Message {
        trace::Message {
            node: self.channel.node(),
            channel: self.channel.id.0,
            wanted: memory.len() as u64,
            moved: result.unwrap_or(0) as u64,
            fill,
            blocks,
            result: trace::errno(&result),
        }
    }
}

/// Bytes of the largest message, whatever the size of the peer's ring. The message is copied in one
/// go, and the end of the relation to the peer has to wait for that copy.
const MOST: usize = 1 << 20;

impl Stream {
    /// Sends all bytes of a caller, or none. `waiters` is the queue of the waiters and pollers.
    ///
    /// # Errors
    ///
    /// - EAGAIN: there is no room for all bytes, and the call is not to `block`.
    /// - EMSGSIZE: there never can be room for all bytes.
    ///
    /// Context: may sleep, interruptible.
    pub(super) fn send_all(&self, from: &Buffer, block: bool, waiters: &WaitQueue) -> Result {
        self.check_open()?;
        let _sending = self.sending.lock_for(block)?.ok_or(EAGAIN)?;
        let result = self
            .room_for_all(from.len(), block, waiters)
            .and_then(|()| self.push(from, 0, from.len(), true).map(|_| ()));
        // As in [`Self::send`]: this call's wake-up request may ask for more than the pollers want.
        // After EAGAIN the request was made for the pollers, so it stays.
        let has_failed = matches!(result, Err(error) if error != EAGAIN);
        if has_failed && waiters.has_waiters() && self.watch_for_room() {
            self.channel.wake();
        }
        result
    }

    /// Returns once there is room for `len` bytes.
    fn room_for_all(&self, len: usize, block: bool, waiters: &WaitQueue) -> Result {
        loop {
            self.check_open()?;
            if len > MOST || len > self.remote()?.largest() as usize {
                return Err(EMSGSIZE);
            }
            if self.room_for(len)? as usize >= len {
                return Ok(());
            }
            let _ = self.ask_for_room(len);
            if block {
                look_for_signals()?;
            }
            let wanted = u32::try_from(len)?;
            let size = self.remote_size()?;
            if wanted > size {
                if !block {
                    return Err(EAGAIN);
                }
                self.wait_for_growth(wanted)?;
                continue;
            }
            // The ring may hold too little for the receiver there to wake up and take it out.
            let is_much = wanted > size / 2;
            // Pollers are woken when there is room for all. A sender that tries again also needs
            // the receiver to know that it waits.
            if is_much || (!block && waiters.has_waiters()) {
                self.request_wakeup_for_room(wanted)?;
                if self.room()? >= wanted {
                    continue;
                }
                if is_much {
                    // The receiver that sleeps there takes out the bytes that are there.
                    self.ring()?;
                }
            }
            if !block {
                return Err(EAGAIN);
            }
            self.wait_for_room(wanted)?;
        }
    }

    /// Waits until the ring has this size, or will not get it. The peer's answer wakes the waiter.
    fn wait_for_growth(&self, wanted: u32) -> Result {
        let remote = self.remote()?;
        self.channel.waiters()?.wait(|| {
            let is_awaited = remote.size() < wanted && wanted <= remote.largest();
            (!is_awaited || self.check_open().is_err()).then_some(())
        })
    }
}
