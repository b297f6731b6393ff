// SPDX-License-Identifier: GPL-2.0

//! The send and receive calls of an endpoint, with their counts and trace events. `stream.rs` moves the bytes.
//!
//! # Messages that are sent whole or not at all
//!
//! They go through the same ring as the bytes of other calls, in turn with these. There is room for all
//! of one before the first byte is stored, and the counter moves once, behind the last byte: so whatever
//! goes wrong before, or a signal, costs nothing, and who receives finds all of it at once.
//!
//! # Waiting for more than half a ring
//!
//! Who receives much sleeps until half a ring is there (`stream.rs`). Who waits here for more than half a
//! ring may need what is there to be taken out, though it is less. So it rings: who receives then finds
//! that it is waited for (`Stream::is_waited_for`), and takes what there is. So does who does not wait
//! here but tries again.
//!
//! A message that is larger than the ring needs a larger ring first: the peer is asked for it, and says
//! whether it has the memory.

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

/// A call that has moved nothing is no message.
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
    /// What events are told of a call that has left `fill` bytes in a ring.
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

/// Bytes of the largest message, whatever ring the peer has: it is copied in one go, during which the end
/// of the relation to the peer has to wait.
const MOST: usize = 1 << 20;

impl Stream {
    /// Sends all bytes of a caller, or none. EAGAIN if there is no room for all, unless it is to `block`;
    /// EMSGSIZE if there never can be. Interruptible. `waiters` is the queue of those who wait or poll.
    pub(super) fn send_all(&self, from: &Buffer, block: bool, waiters: &WaitQueue) -> Result {
        self.check_open()?;
        let _sending = self.sending.lock_for(block)?.ok_or(EAGAIN)?;
        let result = self
            .room_for_all(from.len(), block, waiters)
            .and_then(|()| self.push(from, 0, from.len(), true).map(|_| ()));
        // As who sends bytes: what was wished for here may be more than those want who poll. Not so
        // after EAGAIN, for that wish is theirs.
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
            // There may be too little in the peer's ring for who receives there to take it out.
            let is_much = wanted > size / 2;
            // Who polls hears of it when there is room for all, and who tries again has to be waited for as well.
            if is_much || (!block && waiters.has_waiters()) {
                self.wish_for_room(wanted)?;
                if self.room()? >= wanted {
                    continue;
                }
                if is_much {
                    // Who sleeps there takes out what there is.
                    self.ring()?;
                }
            }
            if !block {
                return Err(EAGAIN);
            }
            self.wait_for_room(wanted)?;
        }
    }

    /// Waits until the ring is as large as this, or will not be: the peer's answer wakes who waits.
    fn wait_for_growth(&self, wanted: u32) -> Result {
        let remote = self.remote()?;
        self.channel.waiters()?.wait(|| {
            let is_awaited = remote.size() < wanted && wanted <= remote.largest();
            (!is_awaited || self.check_open().is_err()).then_some(())
        })
    }
}
