// SPDX-License-Identifier: GPL-2.0

//! The calls on a connected endpoint: windows, transfers and fences, and the events for `poll`. The
//! calls for messages are in `messages.rs`.
//!
//! Each call checks its arguments, finds the connection and calls the part of it that does the
//! work. ENOTCONN: there is no connection.

use super::{
    connection::Connection,
    Endpoint,
    State, //
};
use crate::{
    arguments::{
        Direction,
        LocalSide,
        SignalTargets,
        TransferOptions,
        WindowOptions, //
    },
    logic::{
        address_space::Range,
        marks::Origin, //
    },
    peer::channel::State as ChannelState,
    rma::mapping::{
        self,
        RemotePages, //
    },
    sys::{
        buffer::Buffer,
        chardev::poll_events,
        current::may_access_devices,
        user_mapping::Wanted, //
    }, //
};
use kernel::{
    mm::virt::VmaNew,
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::Relaxed, //
};

impl Endpoint {
    /// Returns the connection. ENOTCONN: there is none.
    pub(super) fn connection(&self) -> Result<&Connection> {
        let connection = self.state.connection.as_ref();
        connection.map(|connection| &**connection).ok_or(ENOTCONN)
    }

    /// Returns the events that are ready, as bits of `poll`, without waiting for them. The caller
    /// has put itself into the wait queue.
    pub(crate) fn poll_state(&self) -> u32 {
        use poll_events::*;

        let connection = match &*self.state.lock() {
            State::Unbound | State::Bound(_) => return ERR,
            State::Closed => return ERR | HUP,
            State::Listening(listener, _) => {
                return if listener.queued() > 0 {
                    IN | RDNORM
                } else {
                    0
                }
            }
            State::Connecting(connection, _) => {
                return match connection.channel.state() {
                    ChannelState::Requested => 0,
                    // The result of connect can be collected.
                    ChannelState::Established | ChannelState::PeerClosed => OUT | WRNORM,
                    ChannelState::Refused | ChannelState::Lost | ChannelState::Closed => {
                        OUT | WRNORM | ERR | HUP
                    }
                };
            }
            State::Connected(connection, _) => connection.clone(),
        };
        let mut events = 0;
        if connection.stream.poll_receive() {
            events |= IN | RDNORM;
        }
        match connection.channel.state() {
            ChannelState::Established => {
                if connection.stream.poll_send() {
                    events |= OUT | WRNORM;
                }
            }
            _ => events |= HUP,
        }
        events
    }

    /// Registers memory of the caller, whole pages. Returns the offset of the window; see
    /// [`Windows::register`](crate::memory::windows::Windows::register).
    pub(crate) fn register(
        &self,
        memory: &Buffer,
        offset: i64,
        options: WindowOptions,
    ) -> Result<i64> {
        if !memory.is_whole_pages() {
            return Err(EINVAL);
        }
        Self::check_place(offset, options)?;
        self.connection()?.windows.register(memory, offset, options)
    }

    /// Checks that a window can begin at this offset. EINVAL: no window can.
    pub(super) fn check_place(offset: i64, options: WindowOptions) -> Result {
        if offset < 0 || (options.fixed && offset as u64 % PAGE_SIZE as u64 != 0) {
            return Err(EINVAL);
        }
        Ok(())
    }

    /// Unregisters all windows of a range; see
    /// [`Windows::unregister`](crate::memory::windows::Windows::unregister).
    pub(crate) fn unregister(&self, offset: i64, len: u64) -> Result {
        let range = Range::new(offset, len).map_err(|_| EINVAL)?;
        self.connection()?.windows.unregister(range)
    }

    /// Copies between local memory and windows of the peer; see
    /// [`Transfers::copy`](crate::rma::transfers::Transfers::copy).
    pub(crate) fn transfer(
        &self,
        direction: Direction,
        local: &LocalSide,
        remote: i64,
        len: u64,
        options: TransferOptions,
    ) -> Result {
        if len == 0 {
            return Err(EINVAL);
        }
        self.connection()?
            .transfers
            .copy(direction, local, remote, len, options)
    }

    /// Maps windows of the peer into an area of the caller that is being set up.
    pub(crate) fn map(&self, vma: &VmaNew) -> Result {
        let connection = self.connection()?;
        let ones = if self.ones_after_loss.load(Relaxed) {
            Some(self.scif.ones()?)
        } else {
            None
        };
        mapping::map(
            &connection.channel,
            &connection.remote_windows,
            &connection.mappings,
            ones,
            &Wanted::of(vma),
            vma,
        )
    }

    /// Returns pages of the peer that lie in one window, for access by a device of this node; see
    /// [`RemotePages`].
    pub(crate) fn remote_pages(&self, offset: i64, len: u64) -> Result<RemotePages> {
        let misaligned = offset as u64 % PAGE_SIZE as u64 != 0 || len % PAGE_SIZE as u64 != 0;
        if misaligned || offset < 0 || len == 0 {
            return Err(EINVAL);
        }
        let connection = self.connection()?;
        let range = Range::new(offset, len).map_err(|_| ENXIO)?;
        RemotePages::new(&connection.channel, &connection.remote_windows, range)
    }

    /// Returns the address at which another device of this node reaches memory of the peer, and the
    /// length of the memory in one piece there. EPERM: the caller may not access devices. See
    /// [`mapping::address_for_devices`].
    pub(crate) fn remote_address(&self, offset: i64, len: u64) -> Result<(u64, u64)> {
        let range = Range::new(offset, len).map_err(|_| EINVAL)?;
        if !may_access_devices() {
            return Err(EPERM);
        }
        let connection = self.connection()?;
        mapping::address_for_devices(&connection.channel, &connection.remote_windows, range)
    }

    /// Returns a mark for all transfers that one side has started so far.
    pub(crate) fn fence_mark(&self, origin: Origin) -> Result<i32> {
        self.connection()?.transfers.mark(origin)
    }

    /// Stores values once all transfers that one side has started so far are complete.
    pub(crate) fn fence_signal(&self, origin: Origin, targets: SignalTargets) -> Result {
        self.connection()?.transfers.signal(origin, targets)
    }

    /// Waits until the transfers that a mark stands for are complete.
    pub(crate) fn fence_wait(&self, mark: i32) -> Result {
        self.connection()?.transfers.wait_for_mark(mark)
    }
}
