// SPDX-License-Identifier: GPL-2.0

//! Endpoints: what a file of `/dev/scif` is, and the SCIF calls on it.
//!
//! The states, as in the interface's documentation:
//!
//! ```text
//! Unbound -> Bound -> Listening
//!              |  ^
//!              v  | refused, given up
//!           Connecting -> Connected (which its connection knows to be so, or over)
//! ```
//!
//! A fresh endpoint may also take over a connection that another one has accepted (`ACCEPTREG`);
//! its wait queue stays the same all its life, because pollers hold on to it.
//!
//! Front doors (ioctl now, kernel clients later) call these functions and add nothing of their own.
//! Unless it says otherwise, a call may sleep, and one that waits is interruptible.
//!
//! Lock: `state` is held for moments only, never while waiting.

use crate::{
    connection::{
        Connection,
        Phase, //
    },
    listener::Listener,
    logic::{
        marks::Origin,
        wire::Refusal, //
    },
    node::{
        BoundPort,
        Fabric, //
    },
    rma::{
        Direction,
        LocalSide,
        TransferOptions, //
    },
    signal::Target,
    sys::{
        chardev::poll_events,
        current::{
            capable,
            descriptor_table,
            Capability,
            Process, //
        },
        user_mapping::Wanted,
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
};
use kernel::{
    mm::virt::VmaNew,
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    uaccess::UserPtr,
};

/// Ports below this take a privilege (`SCIF_ADMIN_PORT_END`).
const ADMIN_PORT_END: u16 = 1024;

/// Connections that one endpoint has accepted and nobody has taken over yet.
const MAX_ACCEPTED: usize = 1024;

/// A node and a port on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortId {
    pub(crate) node: u16,
    pub(crate) port: u16,
}

enum State {
    Unbound,
    Bound(Arc<BoundPort>),
    Listening(Arc<Listener>),
    /// Asked for; the connection knows of the answer.
    Connecting(Arc<Connection>),
    Connected(Arc<Connection>),
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Endpoint {
    pub(crate) fabric: Arc<Fabric>,
    waiters: Arc<WaitQueue>,
    #[pin]
    state: Mutex<State>,
    /// Counts closed descriptors, for who waits in accept.
    flushes: Atomic<u64>,
    /// Whose table of descriptors the last one was in.
    flushed_by: Atomic<usize>,
}

/// What `connect` on a non-blocking endpoint comes to.
enum Progress {
    Waiting,
    Ended(Result),
}

fn refusal_error(reason: Refusal) -> Error {
    match reason {
        Refusal::NoMemory => ENOMEM,
        _ => ECONNREFUSED,
    }
}

impl Endpoint {
    pub(crate) fn new(fabric: Arc<Fabric>) -> Result<Arc<Self>> {
        let waiters = Arc::pin_init(new_wait_queue!("scif::Endpoint::waiters"), GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                fabric,
                waiters,
                state <- new_mutex!(State::Unbound, "Endpoint::state"),
                flushes: Atomic::new(0),
                flushed_by: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes a port: `number`, or for 0 one that is free. Returns it.
    pub(crate) fn bind(&self, number: u16) -> Result<u16> {
        if number != 0 && number < ADMIN_PORT_END && !capable(Capability::NetBindService) {
            return Err(EACCES);
        }
        let mut state = self.state.lock();
        match &*state {
            State::Unbound => (),
            State::Bound(_) => return Err(EINVAL),
            State::Listening(_) | State::Connecting(_) | State::Connected(_) => {
                return Err(EISCONN)
            }
        }
        let port = self.fabric.bind(number)?;
        let number = port.number;
        *state = State::Bound(port);
        Ok(number)
    }

    /// Starts to listen on the bound port.
    pub(crate) fn listen(&self, backlog: i32) -> Result {
        let mut state = self.state.lock();
        let port = match &*state {
            State::Unbound => return Err(EINVAL),
            State::Bound(port) => port.clone(),
            State::Listening(_) | State::Connecting(_) | State::Connected(_) => {
                return Err(EISCONN)
            }
        };
        if backlog <= 0 {
            return Err(EINVAL);
        }
        let listener = Listener::new(port, backlog as usize, self.waiters.clone())?;
        self.fabric.add_listener(&listener)?;
        *state = State::Listening(listener);
        Ok(())
    }

    /// Connects to a port. Returns the own port.
    ///
    /// With `nonblocking` the first call starts, with EINPROGRESS, and later ones collect the
    /// result. A refused endpoint stays bound and can try again.
    pub(crate) fn connect(&self, peer: PortId, nonblocking: bool) -> Result<PortId> {
        let connection = match self.begin_connect(peer)? {
            (connection, true) if nonblocking => {
                // The answer may be there already, but the first call always says "in progress":
                // that is what callers of a non-blocking connect are written for.
                drop(connection);
                return Err(EINPROGRESS);
            }
            (connection, _) => connection,
        };
        loop {
            match self.conclude(&connection) {
                Progress::Ended(Ok(())) => break,
                Progress::Ended(Err(error)) => return Err(error),
                Progress::Waiting if nonblocking => return Err(EINPROGRESS),
                Progress::Waiting => (),
            }
            let waited = self
                .waiters
                .wait(|| (connection.phase() != Phase::Requested).then_some(()));
            if let Err(error) = waited {
                self.give_up(&connection);
                // Not restarted: the request is withdrawn. The caller can try again.
                return Err(if error == ERESTARTSYS { EINTR } else { error });
            }
        }
        Ok(PortId {
            node: self.fabric.own_id(),
            port: connection.port.number,
        })
    }

    /// Asks for the connection, or finds the one that was asked for. Says whether it is new.
    fn begin_connect(&self, peer: PortId) -> Result<(Arc<Connection>, bool)> {
        // A process that asks faster than the peer answers waits here.
        if let Ok(session) = self.fabric.session_with(peer.node) {
            session.wait_for_bulk_room();
        }
        let mut state = self.state.lock();
        let port = match &*state {
            State::Listening(_) => return Err(EOPNOTSUPP),
            State::Connected(_) => return Err(EISCONN),
            State::Connecting(connection) => return Ok((connection.clone(), false)),
            State::Unbound => None,
            State::Bound(port) => Some(port.clone()),
        };
        if peer.port == 0 {
            return Err(EINVAL);
        }
        let session = self.fabric.session_with(peer.node)?;
        let port = match port {
            Some(port) => port,
            None => {
                let port = self.fabric.bind(0)?;
                *state = State::Bound(port.clone());
                port
            }
        };
        let connection = Connection::request(&session, port, peer.port, self.waiters.clone())?;
        *state = State::Connecting(connection.clone());
        Ok((connection, true))
    }

    /// Draws the conclusion from what has become of a request.
    fn conclude(&self, connection: &Arc<Connection>) -> Progress {
        let mut state = self.state.lock();
        match &*state {
            State::Connecting(current) if Arc::ptr_eq(current, connection) => (),
            // Another thread was faster.
            State::Connected(current) if Arc::ptr_eq(current, connection) => {
                return Progress::Ended(Err(EISCONN))
            }
            _ => return Progress::Ended(Err(ECONNREFUSED)),
        }
        let result = match connection.phase() {
            Phase::Requested => return Progress::Waiting,
            // A peer that accepted and closed was there: what it sent can be received.
            Phase::Established | Phase::PeerClosed => {
                *state = State::Connected(connection.clone());
                return Progress::Ended(Ok(()));
            }
            Phase::Refused(reason) => Err(refusal_error(reason)),
            Phase::Lost | Phase::Closed => Err(ENODEV),
        };
        let old = core::mem::replace(&mut *state, State::Bound(connection.port.clone()));
        drop(state);
        connection.close();
        drop(old);
        Progress::Ended(result)
    }

    /// Withdraws a request.
    fn give_up(&self, connection: &Arc<Connection>) {
        let mut state = self.state.lock();
        match &*state {
            State::Connecting(current) if Arc::ptr_eq(current, connection) => (),
            _ => return,
        }
        let old = core::mem::replace(&mut *state, State::Bound(connection.port.clone()));
        drop(state);
        connection.close();
        drop(old);
    }

    /// Takes the oldest request and makes a connection of it. EAGAIN if there is none and
    /// `block` is not set; EINTR if the listener is closed meanwhile.
    pub(crate) fn accept(&self, block: bool) -> Result<Accepted> {
        let listener = match &*self.state.lock() {
            State::Listening(listener) => listener.clone(),
            _ => return Err(EINVAL),
        };
        let table = descriptor_table();
        let flushes = self.flushes.load(Relaxed);
        // Another thread of the caller has closed a descriptor of the listener.
        let is_flushed =
            || self.flushes.load(Acquire) != flushes && self.flushed_by.load(Relaxed) == table;
        loop {
            let Some(request) = listener.pop() else {
                if listener.is_closed() || is_flushed() {
                    return Err(EINTR);
                }
                if !block {
                    return Err(EAGAIN);
                }
                self.waiters
                    .wait(|| {
                        let go_on = listener.is_ready() || listener.is_closed() || is_flushed();
                        go_on.then_some(())
                    })
                    .map_err(|_| EINTR)?;
                continue;
            };
            match Connection::accept(&request, listener.port.clone()) {
                Ok(connection) => {
                    return Ok(Accepted {
                        peer: PortId {
                            node: request.session.node(),
                            port: request.source_port,
                        },
                        connection: Some(connection),
                    })
                }
                // Its node was lost: on to the next one.
                Err(error) if error == ENODEV => continue,
                Err(error) => return Err(error),
            }
        }
    }

    /// A descriptor of the endpoint in `table` was closed, while others or running calls may keep
    /// the endpoint: whoever of the same process waits in accept returns.
    pub(crate) fn flush(&self, table: usize) {
        self.flushed_by.store(table, Relaxed);
        self.flushes.fetch_add(1, Release);
        self.waiters.wake_all();
    }

    /// Makes an accepted connection this endpoint's. EINVAL unless the endpoint is fresh; then the
    /// connection is given back.
    pub(crate) fn take_over(&self, mut accepted: Accepted) -> Result<(), (Error, Accepted)> {
        let mut state = self.state.lock();
        if !matches!(&*state, State::Unbound) {
            return Err((EINVAL, accepted));
        }
        if let Some(connection) = accepted.connection.take() {
            connection.attach(self.waiters.clone());
            *state = State::Connected(connection);
        }
        drop(state);
        self.waiters.wake_all();
        Ok(())
    }

    /// Whether nothing was done with the endpoint yet.
    pub(crate) fn is_fresh(&self) -> bool {
        matches!(&*self.state.lock(), State::Unbound)
    }

    /// The connection: ENOTCONN if there is none.
    fn connection(&self) -> Result<Arc<Connection>> {
        match &*self.state.lock() {
            State::Connected(connection) => Ok(connection.clone()),
            _ => Err(ENOTCONN),
        }
    }

    pub(crate) fn send(&self, from: UserPtr, len: usize, block: bool) -> Result<usize> {
        self.connection()?.send(from, len, block)
    }

    pub(crate) fn receive(&self, to: UserPtr, len: usize, block: bool) -> Result<usize> {
        self.connection()?.receive(to, len, block)
    }

    /// What is ready: the bits of `poll`. Does not wait. The caller has put itself into the queue.
    pub(crate) fn poll_state(&self) -> u32 {
        use poll_events::*;

        let connection = match &*self.state.lock() {
            State::Unbound | State::Bound(_) => return ERR,
            State::Listening(listener) => {
                return match listener.is_ready() {
                    true => IN | RDNORM,
                    false => 0,
                }
            }
            State::Connecting(connection) => {
                return match connection.phase() {
                    Phase::Requested => 0,
                    // The result can be collected.
                    Phase::Established | Phase::PeerClosed => OUT | WRNORM,
                    Phase::Refused(_) | Phase::Lost | Phase::Closed => OUT | WRNORM | ERR | HUP,
                };
            }
            State::Connected(connection) => connection.clone(),
        };
        let mut events = 0;
        if connection.poll_receive() {
            events |= IN | RDNORM;
        }
        match connection.phase() {
            Phase::Established => {
                if connection.poll_send() {
                    events |= OUT | WRNORM;
                }
            }
            _ => events |= HUP,
        }
        events
    }

    /// The queue that is woken when [`Self::poll_state`] changes.
    pub(crate) fn waiters(&self) -> &WaitQueue {
        &self.waiters
    }

    /// Registers memory of the caller. Returns the offset of the window.
    pub(crate) fn register(
        &self,
        address: usize,
        len: u64,
        offset: i64,
        protection: u32,
        fixed: bool,
    ) -> Result<i64> {
        let page = PAGE_SIZE as u64;
        let misaligned = address as u64 % page != 0 || len % page != 0;
        if misaligned || len == 0 || offset < 0 || (fixed && offset as u64 % page != 0) {
            return Err(EINVAL);
        }
        self.connection()?
            .register(address, len, offset, protection, fixed)
    }

    pub(crate) fn unregister(&self, offset: i64, len: u64) -> Result {
        if offset < 0 || len == 0 {
            return Err(EINVAL);
        }
        self.connection()?.unregister(offset, len)
    }

    /// Copies between our memory and a window of the peer.
    pub(crate) fn transfer(
        &self,
        direction: Direction,
        local: LocalSide,
        remote: i64,
        len: u64,
        options: TransferOptions,
    ) -> Result {
        if len == 0 {
            return Err(EINVAL);
        }
        self.connection()?
            .transfer(direction, local, remote, len, options)
    }

    /// Maps windows of the peer into an area of the caller that is being set up.
    pub(crate) fn map(&self, vma: &VmaNew) -> Result {
        self.connection()?.map(&Wanted::of(vma), vma)
    }

    pub(crate) fn fence_mark(&self, origin: Origin) -> Result<i32> {
        self.connection()?.fence_mark(origin)
    }

    pub(crate) fn fence_signal(
        &self,
        origin: Origin,
        local: Option<Target>,
        remote: Option<Target>,
    ) -> Result {
        self.connection()?.fence_signal(origin, local, remote)
    }

    pub(crate) fn fence_wait(&self, mark: i32) -> Result {
        self.connection()?.fence_wait(mark)
    }

    /// Closes the endpoint: whoever waits in a call on it returns. May sleep.
    pub(crate) fn close(&self) {
        let old = core::mem::replace(&mut *self.state.lock(), State::Unbound);
        match &old {
            State::Unbound | State::Bound(_) => (),
            State::Listening(listener) => {
                self.fabric.remove_listener(listener);
                listener.close();
            }
            State::Connecting(connection) | State::Connected(connection) => connection.close(),
        }
        self.waiters.wake_all();
    }
}

/// A connection that was accepted and has no endpoint yet; closed if it never gets one.
pub(crate) struct Accepted {
    pub(crate) peer: PortId,
    /// Taken out by who takes it over.
    connection: Option<Arc<Connection>>,
}

impl Drop for Accepted {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.close();
        }
    }
}

/// Accepted connections that wait to be taken over, by handle.
///
/// A handle is an opaque number that is hard to guess, good once, and only for the process that
/// accepted.
pub(crate) struct Pending {
    entries: KVec<PendingEntry>,
}

struct PendingEntry {
    handle: u64,
    process: Process,
    /// The endpoint that accepted: its close ends what was not taken over.
    listener: usize,
    accepted: Accepted,
}

impl Pending {
    pub(crate) const fn new() -> Self {
        Self {
            entries: KVec::new(),
        }
    }

    /// ENOMEM if there is no room for another connection that `listener` accepts. Asked before it
    /// is accepted, so that nobody connects for nothing.
    pub(crate) fn make_room(&mut self, listener: &Endpoint) -> Result {
        let listener = core::ptr::from_ref(listener) as usize;
        let accepted_before = self
            .entries
            .iter()
            .filter(|entry| entry.listener == listener)
            .count();
        if accepted_before >= MAX_ACCEPTED {
            return Err(ENOMEM);
        }
        Ok(self.entries.reserve(1, GFP_KERNEL)?)
    }

    /// Keeps a connection for the calling process.
    pub(crate) fn add(
        &mut self,
        handle: u64,
        listener: &Endpoint,
        accepted: Accepted,
    ) -> Result<(), (Error, Accepted)> {
        if let Err(error) = self.make_room(listener) {
            return Err((error, accepted));
        }
        let listener = core::ptr::from_ref(listener) as usize;
        let Some(process) = Process::current() else {
            return Err((EINVAL, accepted));
        };
        let entry = PendingEntry {
            handle,
            process,
            listener,
            accepted,
        };
        let _ = self.entries.push_within_capacity(entry);
        Ok(())
    }

    /// Takes out what the calling process has accepted under this handle.
    pub(crate) fn take(&mut self, handle: u64) -> Option<Accepted> {
        let position = self
            .entries
            .iter()
            .position(|entry| entry.handle == handle && entry.process.is_current())?;
        Some(self.entries.remove(position).ok()?.accepted)
    }

    /// Takes out one that `listener` has accepted.
    pub(crate) fn take_of(&mut self, listener: &Endpoint) -> Option<Accepted> {
        let listener = core::ptr::from_ref(listener) as usize;
        let position = self
            .entries
            .iter()
            .position(|entry| entry.listener == listener)?;
        Some(self.entries.remove(position).ok()?.accepted)
    }
}
