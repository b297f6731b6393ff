// SPDX-License-Identifier: GPL-2.0

//! Fence signals: a value that appears in a window when the transfers before it have ended.
//!
//! A process can spin on the word with no system call. A signal is an ordinary store of 8 bytes
//! that waits behind a mark, in our window (`SIGNAL_LOCAL`), in the peer's (`SIGNAL_REMOTE`) or in
//! both; with `INIT_PEER` it is the peer that carries it out, behind its own transfers. The windows
//! are taken into use when the signal is queued, so unregistering them does not end it.
//!
//! A signal whose transfers have failed is not given: it would say that data is there that is not.
//! The fence that the caller waits for says so instead.

use crate::{
    connection::Connection,
    local_memory::LocalPiece,
    logic::{
        address_space::Range,
        marks::Origin,
        wire::{
            Message,
            Status, //
        },
    },
    remote_window::RemotePiece,
    window::PROTECTION_WRITE,
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// Bytes of a signal's value.
const SIZE: u64 = 8;

/// A value and where in a window it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) offset: i64,
    pub(crate) value: u64,
}

impl Target {
    /// The range of the value. EINVAL unless it is aligned to 4 bytes and inside one page, ENXIO if
    /// there can be no window.
    fn range(&self) -> Result<Range> {
        let in_page = self.offset.rem_euclid(PAGE_SIZE as i64);
        if self.offset % 4 != 0 || in_page > PAGE_SIZE as i64 - SIZE as i64 {
            return Err(EINVAL);
        }
        Range::new(self.offset, SIZE).map_err(|_| ENXIO)
    }
}

/// A signal that waits behind transfers of this end.
pub(crate) struct Signal {
    local: Option<(LocalPiece, u64)>,
    remote: Option<(RemotePiece, u64)>,
}

impl Connection {
    /// Has values stored, in our window and in the peer's, when all transfers that `origin` has
    /// started so far have ended. ENXIO where there is no window, EACCES where it can't be written.
    pub(crate) fn fence_signal(
        self: &Arc<Self>,
        origin: Origin,
        local: Option<Target>,
        remote: Option<Target>,
    ) -> Result {
        self.check_established()?;
        // While windows are in use the session, and with it the mappings, stays.
        let _session = self.session.enter().ok_or(ENODEV)?;
        // Looked up here for the peer, too, so that the caller hears of mistakes.
        let signal = self.make_signal(local, remote)?;
        match origin {
            Origin::Own => self.defer_signal(signal),
            Origin::Peer => {
                let target = self.peer()?.id;
                self.ask_for_signal(|token| Message::Signal {
                    target,
                    token,
                    senders: local.map(|target| (target.offset as u64, target.value)),
                    receivers: remote.map(|target| (target.offset as u64, target.value)),
                })
            }
        }
    }

    fn make_signal(
        self: &Arc<Self>,
        local: Option<Target>,
        remote: Option<Target>,
    ) -> Result<Signal> {
        let local = match local {
            Some(target) => {
                let mut pieces = self
                    .windows
                    .cover(self, target.range()?, PROTECTION_WRITE)?;
                Some((pieces.pop().ok_or(ENXIO)?, target.value))
            }
            None => None,
        };
        let remote = match remote {
            Some(target) => {
                let mut pieces = self
                    .remote_windows
                    .cover(target.range()?, PROTECTION_WRITE)?;
                Some((pieces.pop().ok_or(ENXIO)?, target.value))
            }
            None => None,
        };
        Ok(Signal { local, remote })
    }

    /// The peer wants a signal behind our transfers. Called by the control work.
    pub(crate) fn signal_requested(
        self: &Arc<Self>,
        token: u32,
        senders: Option<(u64, u64)>,
        receivers: Option<(u64, u64)>,
    ) {
        let target = |(offset, value)| Target {
            offset: offset as i64,
            value,
        };
        let queued = self
            .make_signal(receivers.map(target), senders.map(target))
            .and_then(|signal| self.defer_signal(signal));
        let status = match queued {
            Ok(()) => Status::Done,
            Err(error) if error == ENOMEM => Status::NoMemory,
            // A window that was unregistered meanwhile.
            Err(_) => Status::Unknown,
        };
        self.say_fence_done(token, status);
    }

    /// Stores the values of a signal. May sleep. The caller is inside the session.
    pub(crate) fn give_signal(&self, signal: &Signal) {
        if let Some((piece, value)) = &signal.local {
            // The window allows it, and the value lies in one page of it.
            let _ = piece
                .memory()
                .pages
                .store_u64(piece.offset as usize, *value);
        }
        if let Some((piece, value)) = &signal.remote {
            // A peer that has closed has its memory back.
            let Ok(_writing) = self.begin_writing() else {
                return;
            };
            if let Some((address, _)) = piece.window.extents.at(piece.offset) {
                let transport = &self.session.transport;
                // The signal must not overtake what it stands for.
                transport.flush();
                let _ = match address % SIZE {
                    0 => transport.write_u64(address, *value),
                    // Four bytes off: in two stores, the lower half last.
                    _ => transport
                        .write_u32(address + 4, (*value >> 32) as u32)
                        .and_then(|()| transport.write_u32(address, *value as u32)),
                };
                transport.flush();
            }
        }
    }
}
