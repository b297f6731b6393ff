// SPDX-License-Identifier: GPL-2.0

//! Sending and receiving, as those hear of it who watch: the bytes go through `stream.rs`.

use super::connection::Connection;
use crate::{
    sync::flow::Flow,
    sys::{
        buffer::Buffer,
        trace,
        wait::WaitQueue, //
    },
};
use kernel::prelude::*;

/// A call that has moved nothing is no message.
fn count(flow: &Flow, result: Result<usize>) {
    match result {
        Ok(0) | Err(_) => (),
        Ok(bytes) => flow.add(bytes as u64),
    }
}

impl Connection {
    /// See [`Stream::send`](super::stream::Stream::send).
    pub(super) fn send(&self, from: &Buffer, block: bool, waiters: &WaitQueue) -> Result<usize> {
        let result = self.stream.send(from, block, waiters);
        count(&self.sent, result);
        trace::send(|| self.traced_call(from, block, self.stream.unread_there(), result));
        result
    }

    /// See [`Stream::send_all`](super::stream::Stream::send_all).
    pub(super) fn send_all(&self, from: &Buffer, block: bool, waiters: &WaitQueue) -> Result {
        let sent = self.stream.send_all(from, block, waiters);
        let result = sent.map(|()| from.len());
        count(&self.sent, result);
        trace::send(|| self.traced_call(from, block, self.stream.unread_there(), result));
        sent
    }

    /// See [`Stream::receive`](super::stream::Stream::receive).
    pub(super) fn receive(&self, to: &Buffer, block: bool, waiters: &WaitQueue) -> Result<usize> {
        let result = self.stream.receive(to, block, waiters);
        count(&self.received, result);
        trace::receive(|| self.traced_call(to, block, self.stream.unread_here(), result));
        result
    }

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
