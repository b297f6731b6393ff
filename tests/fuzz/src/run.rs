// SPDX-License-Identifier: GPL-2.0

//! A run: makes each call, and compares its result and its effects with the model.
//!
//! The endpoints are on one node, or on two if an agent runs on the other node (`agent.rs`). With
//! an agent, all connections lead from one node to the other.
//!
//! No call waits. Some answers of the driver come a little later, such as the result of a connect
//! or the news of a close. Then the run waits for the event that announces the answer, and fails if
//! the event does not come within [`SOON`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use rustix::event::PollFlags;
use scif_sys::PortId;
use scif_sys::abi;

use crate::agent::Agent;
use crate::calls::Call;
use crate::calls::SLOTS;
use crate::kernel;
use crate::kernel::Errno;
use crate::kernel::Fd;
use crate::kernel::Outcome;
use crate::memory::Arena;
use crate::memory::PAGE;
use crate::memory::PAGES;
use crate::memory::SIZE;
use crate::model::Connection;
use crate::model::End;
use crate::model::Errors;
use crate::model::Model;
use crate::model::Page;
use crate::model::READ;
use crate::model::State;
use crate::model::WRITE;
use crate::model::errors;

/// Time within which an expected event has to occur.
pub const SOON: Duration = Duration::from_secs(20);

/// Size of the largest message that an empty ring always takes as a whole.
const SMALL: usize = 1024;

/// Number of calls after which the run compares the whole arena.
const WHOLE: usize = 64;

/// An endpoint of a run.
enum Endpoint {
    Here(OwnedFd),
    There(Rc<Agent>, usize),
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if let Self::There(agent, slot) = self {
            agent.close(*slot);
        }
    }
}

/// The other node of a run.
#[derive(Clone)]
pub struct Other {
    pub agent: Rc<Agent>,
    /// Whether the peer's memory may be reached by staging only, and rings may be small.
    pub is_staged: bool,
}

/// The endpoints of a run, and the model of them.
struct Run {
    fds: [Option<Endpoint>; SLOTS],
    arena: Arena,
    model: Model,
    other: Option<Other>,
    /// The ids of the nodes, in the order of their arenas.
    ids: Vec<u16>,
    soon: Duration,
    made: usize,
    /// The word of the present call.
    word: &'static str,
    tally: RefCell<Tally>,
}

/// Number of calls that succeeded and failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ended {
    pub well: u64,
    pub failed: u64,
}

/// Results of the calls of each word.
pub type Tally = BTreeMap<&'static str, Ended>;

/// Makes the calls that `next` chooses, lists them in `made`, and returns how they ended. The error
/// names the call.
pub fn make(
    soon: Duration,
    other: Option<Other>,
    made: &mut Vec<Call>,
    mut next: impl FnMut(&Model) -> Option<Call>,
) -> Result<Tally> {
    let mut run = Run::new(soon, other)?;
    while let Some(call) = next(&run.model) {
        made.push(call);
        let index = made.len() - 1;
        run.make(&call)
            .with_context(|| format!("call {index}, {call}"))?;
    }
    let tally = run.tally.take();
    run.finish().context("at the end")?;
    Ok(tally)
}

impl Run {
    /// Makes a run without endpoints, with another node if `other` names one. Expected events have
    /// to occur within `soon`.
    fn new(soon: Duration, other: Option<Other>) -> Result<Self> {
        let endpoint =
            scif_sys::open().context("/dev/scif can't be opened: is the module loaded?")?;
        let own = scif_sys::node_ids(&endpoint)?.own;
        let mut ids = vec![own];
        let arena = match &other {
            Some(other) => {
                other.agent.begin()?;
                ids.push(other.agent.node);
                Arena::at_fixed_place()?
            }
            None => Arena::new()?,
        };
        Ok(Self {
            fds: Default::default(),
            arena,
            model: Model::new(ids.len()),
            other,
            ids,
            soon,
            made: 0,
            word: "",
            tally: RefCell::default(),
        })
    }

    /// Returns the number that a call returned, or `None` if the call failed as it had to. Any
    /// other outcome is an error.
    fn judge(&self, allowed: &Errors, outcome: Outcome) -> Result<Option<i64>> {
        let mut tally = self.tally.borrow_mut();
        let ended = tally.entry(self.word).or_default();
        match outcome {
            Ok(value) => {
                ensure!(allowed.is_empty(), "it succeeded, instead of {allowed:?}");
                ended.well += 1;
                Ok(Some(value))
            }
            Err(error) => {
                ensure!(
                    allowed.contains(&error),
                    "{error:?}, allowed is {allowed:?}"
                );
                ended.failed += 1;
                Ok(None)
            }
        }
    }

    fn fd(&self, slot: usize) -> Option<Fd<'_>> {
        Some(match self.fds.get(slot)?.as_ref()? {
            Endpoint::Here(fd) => Fd::Here(fd.as_fd()),
            Endpoint::There(agent, slot) => Fd::There(&**agent, *slot),
        })
    }

    /// Returns whether effects of the other side of a connection may appear a little later.
    fn is_far(&self) -> bool {
        self.other.is_some()
    }

    fn is_staged(&self) -> bool {
        self.other.as_ref().is_some_and(|other| other.is_staged)
    }

    /// Reads from the arenas. The range has to lie in one of them.
    fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        match (&self.other, at.checked_sub(SIZE)) {
            (Some(other), Some(at)) => other.agent.read(at, bytes),
            _ => {
                self.arena.read(at, bytes);
                Ok(())
            }
        }
    }

    /// Waits for an event of an endpoint, and fails if it does not occur in time.
    fn expect_event(&self, slot: usize, events: PollFlags) -> Result<()> {
        let fd = self.fd(slot).context("no endpoint")?;
        let found = kernel::poll(fd, events, self.soon.as_millis() as i64);
        ensure!(
            found.intersects(events),
            "slot {slot} has the events {found:?}, and of {events:?} none came"
        );
        Ok(())
    }

    /// Waits until an endpoint shows the news that the model predicts for it.
    fn hear(&self, slot: usize) -> Result<()> {
        match self.model.news(slot) {
            events if events.is_empty() => Ok(()),
            events => self.expect_event(slot, events),
        }
    }

    /// Makes a call, and repeats it while it fails with `error`. Such a failure is temporary.
    fn again<T>(&self, error: i32, call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        let limit = Instant::now() + self.soon;
        loop {
            match call() {
                Err(Errno(number)) if number == error && Instant::now() < limit => (),
                outcome => return outcome,
            }
        }
    }

    /// Makes a call and compares. Returns false if the call does not apply, as the model can't
    /// predict its effect.
    fn make(&mut self, call: &Call) -> Result<bool> {
        self.word = call.word();
        let applies = self.perform(call)?;
        self.made += 1;
        if self.made % WHOLE == 0 {
            self.compare_all()?;
        }
        Ok(applies)
    }

    /// Fails unless the arenas have the content that the model predicts.
    fn compare_all(&mut self) -> Result<()> {
        (0..self.ids.len()).try_for_each(|node| self.compare(node * SIZE..(node + 1) * SIZE))
    }

    /// Fails unless this part of an arena has the content that the model predicts.
    fn compare(&mut self, range: Range<usize>) -> Result<()> {
        let wanted = &self.model.memory[range.clone()];
        if let (Some(other), Some(at)) = (&self.other, range.start.checked_sub(SIZE)) {
            if other.agent.has(at, wanted)? {
                return Ok(());
            }
        }
        let mut there = vec![0; range.len()];
        self.read(range.start, &mut there)?;
        if there == wanted {
            return Ok(());
        }
        if let Some(at) = there.iter().zip(wanted).position(|(a, b)| a != b) {
            bail!(
                "memory at {:#x} is {:#x}, and should be {:#x}",
                range.start + at,
                there[at],
                wanted[at]
            );
        }
        Ok(())
    }

    /// Copies the content of the arena into the model.
    fn adopt(&mut self, range: Range<usize>) -> Result<()> {
        let mut there = vec![0; range.len()];
        self.read(range.start, &mut there)?;
        self.model.memory[range].copy_from_slice(&there);
        Ok(())
    }

    fn perform(&mut self, call: &Call) -> Result<bool> {
        if !matches!(call, Call::Open { .. }) && self.fd(call.slot()).is_none() {
            return Ok(false);
        }
        let makes_connections = matches!(
            call,
            Call::Open { .. }
                | Call::Close { .. }
                | Call::Bind { .. }
                | Call::Listen { .. }
                | Call::Connect { .. }
                | Call::Accept { .. }
                | Call::Poll { .. }
                | Call::Unknown { .. }
        );
        // No document says what a connector may do before it has collected its result.
        let is_unsettled = matches!(
            self.model.states[call.slot()],
            State::Accepted(..) | State::Asking(_) | State::Refused(_)
        );
        if is_unsettled && !makes_connections {
            return Ok(false);
        }
        match *call {
            Call::Open { slot } => self.open(slot),
            Call::Close { slot } => self.close(slot),
            Call::Bind { slot, port } => self.bind(slot, port),
            Call::Listen { slot, backlog } => self.listen(slot, backlog),
            Call::Connect { slot, port } => self.connect(slot, port),
            Call::Accept { slot, into, flags } => self.accept(slot, into, flags),
            Call::Send { slot, len, flags } => self.send(slot, len, flags),
            Call::SendAll { slot, len } => self.send_all(slot, len),
            Call::Receive { slot, len, flags } => self.receive(slot, len, flags),
            Call::Poll { slot } => self.poll(slot),
            Call::Register { .. } => self.register(call),
            Call::Unregister { slot, offset, len } => self.unregister(slot, offset, len),
            Call::Copy { .. } | Call::CopyMemory { .. } => self.copy(call),
            Call::Map {
                slot,
                offset,
                pages,
                write,
            } => self.map(slot, offset, pages, write),
            Call::Mark { slot, flags } => self.mark(slot, flags),
            Call::Wait { slot, mark } => self.wait(slot, mark),
            Call::Signal { .. } => self.signal(call),
            Call::Unknown { slot, number } => self.unknown(slot, number),
        }
    }

    // ----- connections -----------------------------------------------------------------------------------------------

    fn open(&mut self, slot: usize) -> Result<bool> {
        if self.fds[slot].is_some() {
            return Ok(false);
        }
        let other = self.other.as_ref().filter(|_| self.model.node(slot) == 1);
        if let Some(other) = other {
            self.judge(&Errors::new(), other.agent.open(slot))?;
            self.fds[slot] = Some(Endpoint::There(other.agent.clone(), slot));
        } else {
            let opened = scif_sys::open();
            let outcome = opened.as_ref().map(|_| 0);
            self.judge(
                &Errors::new(),
                outcome.map_err(|error| Errno(error.raw_os_error())),
            )?;
            let fd = opened?;
            rustix::io::ioctl_fionbio(&fd, true)?;
            self.fds[slot] = Some(Endpoint::Here(fd));
        }
        self.model.states[slot] = State::Unbound;
        Ok(true)
    }

    fn close(&mut self, slot: usize) -> Result<bool> {
        // The run can't see when the kernel withdraws the request.
        if let State::Asking(_) = self.model.states[slot] {
            return Ok(false);
        }
        self.fds[slot] = None;
        match std::mem::take(&mut self.model.states[slot]) {
            State::Listening(_, queue) => {
                for connector in queue {
                    self.refuse(connector);
                    self.hear(connector)?;
                }
            }
            State::Connected(_, end) | State::Accepted(_, end) => {
                self.model.side(end).is_open = false;
                self.model.side(end).windows.clear();
                if let Some(other) = self.slot_of((end.0, 1 - end.1)) {
                    self.hear(other)?;
                }
            }
            _ => (),
        }
        Ok(true)
    }

    fn slot_of(&self, end: End) -> Option<usize> {
        (0..SLOTS)
            .find(|slot| matches!(self.model.states[*slot], State::Connected(_, own) if own == end))
    }

    fn refuse(&mut self, connector: usize) {
        if let State::Asking(port) = self.model.states[connector] {
            self.model.states[connector] = State::Refused(port);
        }
    }

    fn bind(&mut self, slot: usize, port: u16) -> Result<bool> {
        let node = self.model.node(slot);
        let allowed = match self.model.states[slot] {
            State::Unbound if port != 0 && self.model.is_taken(node, port) => {
                errors(&[libc::EINVAL])
            }
            State::Unbound => Errors::new(),
            State::Bound(_) => errors(&[libc::EINVAL]),
            State::Asking(_) | State::Refused(_) | State::Accepted(..) => {
                errors(&[libc::EINVAL, libc::EISCONN, libc::EINPROGRESS])
            }
            _ => errors(&[libc::EISCONN]),
        };
        let fd = self.fd(slot).context("no endpoint")?;
        if let Some(bound) = self.judge(&allowed, kernel::bind(fd, port))? {
            let bound = bound as u16;
            ensure!(
                port == 0 || bound == port,
                "bind gave port {bound}, not {port}"
            );
            ensure!(
                port != 0 || bound >= 1088,
                "bind of port 0 gave port {bound}, below 1088"
            );
            ensure!(!self.model.is_taken(node, bound), "port {bound} is taken");
            self.model.states[slot] = State::Bound(bound);
        }
        Ok(true)
    }

    fn listen(&mut self, slot: usize, backlog: i32) -> Result<bool> {
        let mut allowed = Errors::new();
        let mut port = 0;
        match self.model.states[slot] {
            // No second listener can get a port that accepted endpoints share.
            State::Bound(bound) => port = bound,
            State::Unbound => allowed.extend(errors(&[libc::EINVAL])),
            State::Asking(_) | State::Refused(_) | State::Accepted(..) => {
                allowed.extend(errors(&[libc::EINVAL, libc::EISCONN, libc::EINPROGRESS]));
            }
            _ => allowed.extend(errors(&[libc::EISCONN])),
        }
        if backlog <= 0 {
            allowed.insert(Errno(libc::EINVAL));
        }
        let fd = self.fd(slot).context("no endpoint")?;
        let outcome = kernel::number(fd, abi::LISTEN, backlog as u64);
        if self.judge(&allowed, outcome)?.is_some() {
            self.model.states[slot] = State::Listening(port, VecDeque::new());
        }
        Ok(true)
    }

    fn connect(&mut self, slot: usize, port: u16) -> Result<bool> {
        match self.model.states[slot].clone() {
            State::Unbound | State::Bound(_) => self.ask(slot, port),
            State::Asking(_) => {
                self.connect_fails(slot, port, &[libc::EINPROGRESS])?;
                Ok(true)
            }
            State::Refused(own) => {
                self.connect_fails(slot, port, &[libc::ECONNREFUSED])?;
                self.model.states[slot] = State::Bound(own);
                Ok(true)
            }
            State::Accepted(own, end) => {
                let got = self.judge(&Errors::new(), self.try_connect(slot, port)?)?;
                ensure!(
                    got == Some(own.into()),
                    "the own port is {got:?}, not {own}"
                );
                self.model.states[slot] = State::Connected(own, end);
                self.hear(slot)?;
                Ok(true)
            }
            State::Listening(..) => {
                self.connect_fails(slot, port, &[libc::EOPNOTSUPP, libc::EINVAL])?;
                Ok(true)
            }
            State::Connected(..) => {
                self.connect_fails(slot, port, &[libc::EISCONN, libc::EINVAL])?;
                Ok(true)
            }
            State::None => Ok(false),
        }
    }

    fn try_connect(&self, slot: usize, port: u16) -> Result<Outcome> {
        let fd = self.fd(slot).context("no endpoint")?;
        let node = self.ids[self.model.target(slot)];
        Ok(kernel::connect(fd, PortId { node, port }))
    }

    fn connect_fails(&self, slot: usize, port: u16, allowed: &[i32]) -> Result<()> {
        self.judge(&errors(allowed), self.try_connect(slot, port)?)?;
        Ok(())
    }

    fn ask(&mut self, slot: usize, port: u16) -> Result<bool> {
        if port == 0 {
            self.connect_fails(slot, port, &[libc::EINVAL])?;
            return Ok(true);
        }
        let listener = self.model.listener(self.model.target(slot), port);
        if let Some(listener) = listener {
            // The run sees the order of two requests only if one of them is accepted before the
            // other is made.
            match &self.model.states[listener] {
                State::Listening(_, queue) if queue.is_empty() => (),
                _ => return Ok(false),
            }
        }
        let bound = match self.model.states[slot] {
            State::Bound(own) => Some(own),
            _ => None,
        };
        self.connect_fails(slot, port, &[libc::EINPROGRESS])?;
        // If the connect itself bound the endpoint, the run learns the port with the result.
        self.model.states[slot] = State::Asking(bound.unwrap_or(0));
        match listener {
            Some(listener) => {
                self.expect_event(listener, PollFlags::IN)?;
                if let State::Listening(_, queue) = &mut self.model.states[listener] {
                    queue.push_back(slot);
                }
            }
            None => {
                self.expect_event(slot, PollFlags::OUT)?;
                // Collects the result now, so that the model knows the port.
                self.connect_fails(slot, port, &[libc::ECONNREFUSED])?;
                let fd = self.fd(slot).context("no endpoint")?;
                let again = kernel::bind(fd, 0);
                ensure!(
                    again == Err(Errno(libc::EINVAL)),
                    "a bind after a refusal gave {again:?}, and the endpoint should be bound"
                );
                match bound {
                    Some(own) => self.model.states[slot] = State::Bound(own),
                    // No call returns the port. The run goes on with a new endpoint.
                    None => {
                        self.fds[slot] = None;
                        self.model.states[slot] = State::None;
                    }
                }
            }
        }
        Ok(true)
    }

    fn accept(&mut self, slot: usize, into: usize, flags: i32) -> Result<bool> {
        let is_there = self.model.node(into) == self.model.node(slot);
        if into == slot || !is_there || self.model.states[into] != State::Unbound {
            return Ok(false);
        }
        let mut allowed = Errors::new();
        let mut request = None;
        match &self.model.states[slot] {
            State::Listening(port, queue) => match queue.front() {
                Some(connector) => request = Some((*port, *connector)),
                None => allowed.extend(errors(&[libc::EAGAIN])),
            },
            _ => allowed.extend(errors(&[libc::EINVAL])),
        }
        if flags & !1 != 0 {
            allowed.insert(Errno(libc::EINVAL));
        }
        if flags & 1 != 0 && request.is_none() {
            return Ok(false);
        }
        let fd = self.fd(slot).context("no endpoint")?;
        let accepted = kernel::accept_request(fd, flags);
        self.judge(&allowed, accepted.map(|_| 0))?;
        let (Some((port, connector)), Ok((handle, source))) = (request, accepted) else {
            return Ok(true);
        };
        if let State::Listening(_, queue) = &mut self.model.states[slot] {
            queue.pop_front();
        }
        let fd = self.fd(into).context("no endpoint")?;
        self.judge(&Errors::new(), kernel::accept_register(fd, handle))
            .context("of ACCEPTREG")?;
        let twice = kernel::accept_register(fd, handle);
        ensure!(twice.is_err(), "a handle was good twice");
        let mut connection = Connection::default();
        for side in &mut connection.sides {
            side.is_open = true;
        }
        let index = self.model.connections.len();
        self.model.connections.push(connection);
        if let State::Asking(own) = self.model.states[connector] {
            ensure!(own == 0 || own == source, "port {source} asks, not {own}");
            self.model.states[connector] = State::Accepted(source, (index, 0));
        }
        self.model.states[into] = State::Connected(port, (index, 1));
        self.hear(connector)?;
        Ok(true)
    }

    fn poll(&mut self, slot: usize) -> Result<bool> {
        let limit = Instant::now() + self.soon;
        loop {
            let fd = self.fd(slot).context("no endpoint")?;
            let found = kernel::poll(fd, PollFlags::IN | PollFlags::OUT, 0);
            if self.is_right(slot, found) {
                return Ok(true);
            }
            let state = &self.model.states[slot];
            let may_come = self.is_far() && Instant::now() < limit;
            ensure!(may_come, "the events {found:?} in the state {state:?}");
        }
    }

    /// Returns whether the events of an endpoint are those that the model predicts.
    fn is_right(&mut self, slot: usize, found: PollFlags) -> bool {
        let has = |flag| found.contains(flag);
        match self.model.states[slot].clone() {
            State::Unbound | State::Bound(_) => found == PollFlags::ERR,
            State::Listening(_, queue) => {
                has(PollFlags::IN) != queue.is_empty() && !has(PollFlags::OUT)
            }
            State::Asking(_) => !has(PollFlags::OUT),
            State::Refused(_) | State::Accepted(..) => has(PollFlags::OUT),
            State::Connected(_, end) => {
                let is_open = self.model.other(end).is_open;
                let has_data = !self.model.side(end).unread.is_empty();
                has(PollFlags::IN) == has_data && has(PollFlags::HUP) != is_open
            }
            State::None => true,
        }
    }

    // ----- messages --------------------------------------------------------------------------------------------------

    fn of_message(len: i32, flags: i32) -> Option<Errors> {
        let mut allowed = Errors::new();
        if len < 0 {
            allowed.insert(Errno(libc::EINVAL));
        }
        if flags & !1 != 0 {
            allowed.insert(Errno(libc::EINVAL));
        }
        if flags & 1 != 0 {
            return None;
        }
        Some(allowed)
    }

    fn send(&mut self, slot: usize, len: i32, flags: i32) -> Result<bool> {
        let Some(mut allowed) = Self::of_message(len, flags) else {
            return Ok(false);
        };
        if len != 0 {
            allowed.extend(self.model.of_connected(slot));
        }
        let at = self.made * 8 % (SIZE / 2);
        let fd = self.fd(slot).context("no endpoint")?;
        let outcome = kernel::send(fd, self.arena.address(at as u64), len, flags);
        let Some(sent) = self.judge(&allowed, outcome)? else {
            return Ok(true);
        };
        let (sent, len) = (sent as usize, len as usize);
        ensure!(sent <= len, "{sent} bytes were sent, of {len}");
        if let Some(end) = self.model.end(slot) {
            self.sent(end, self.model.base(slot) + at, sent, len)?;
        }
        Ok(true)
    }

    fn sent(&mut self, end: End, at: usize, sent: usize, len: usize) -> Result<()> {
        let is_staged = self.is_staged();
        let bytes = self.model.memory[at..at + sent].to_vec();
        let unread = &mut self.model.other(end).unread;
        let fits = unread.is_empty() && len <= SMALL && !is_staged;
        ensure!(
            !fits || sent == len,
            "{sent} of {len} bytes were sent to an empty ring"
        );
        unread.extend(bytes);
        Ok(())
    }

    fn send_all(&mut self, slot: usize, len: u64) -> Result<bool> {
        let Some(mut allowed) = Self::of_message(0, 0) else {
            return Ok(false);
        };
        if len == 0 || len > 16 * SMALL as u64 {
            return Ok(false);
        }
        allowed.extend(self.model.of_connected(slot));
        let at = self.made * 8 % (SIZE / 2);
        let fd = self.fd(slot).context("no endpoint")?;
        let outcome = kernel::send_all(fd, self.arena.address(at as u64), len, 0);
        let len = len as usize;
        match (self.model.end(slot), allowed.is_empty(), outcome) {
            // The ring is small if the aperture is small.
            (_, true, Err(Errno(libc::EAGAIN | libc::EMSGSIZE))) if self.is_staged() => (),
            (Some(end), true, Err(Errno(libc::EAGAIN))) => {
                let unread = &self.model.other(end).unread;
                ensure!(!unread.is_empty() || len > SMALL, "EAGAIN of an empty ring");
            }
            (end, _, outcome) => {
                let done = self.judge(&allowed, outcome)?;
                if let (Some(end), Some(_)) = (end, done) {
                    self.sent(end, self.model.base(slot) + at, len, len)?;
                }
            }
        }
        Ok(true)
    }

    fn receive(&mut self, slot: usize, len: i32, flags: i32) -> Result<bool> {
        let Some(mut allowed) = Self::of_message(len, flags) else {
            return Ok(false);
        };
        let available = match self.model.end(slot) {
            Some(end) => self.model.side(end).unread.len(),
            None => 0,
        };
        // Messages that have arrived can be received after the peer has closed.
        if len < 0 || len > 0 && available == 0 {
            allowed.extend(self.model.of_connected(slot));
        }
        if available > 0 && len > 0 && self.is_far() {
            self.expect_event(slot, PollFlags::IN)?;
        }
        let at = SIZE / 2;
        let fd = self.fd(slot).context("no endpoint")?;
        let len = len.min(SIZE as i32 / 2);
        let outcome = kernel::receive(fd, self.arena.address(at as u64), len, flags);
        let Some(received) = self.judge(&allowed, outcome)? else {
            return Ok(true);
        };
        let (received, len) = (received as usize, len as usize);
        let wanted = available.min(len);
        ensure!(
            received == wanted,
            "{received} bytes were received, not {wanted}"
        );
        if let Some(end) = self.model.end(slot) {
            let bytes: Vec<u8> = self.model.side(end).unread.drain(..received).collect();
            let at = self.model.base(slot) + at;
            self.model.memory[at..at + received].copy_from_slice(&bytes);
            self.compare(at..at + received).context("received bytes")?;
        }
        Ok(true)
    }

    // ----- windows ---------------------------------------------------------------------------------------------------

    fn register(&mut self, call: &Call) -> Result<bool> {
        let Call::Register {
            slot,
            at,
            len,
            offset,
            protection,
            flags,
        } = *call
        else {
            return Ok(false);
        };
        let mut allowed = self.model.of_connected(slot);
        let fixed = flags & 0x10 != 0;
        let is_whole = |number: u64| number % PAGE == 0;
        if protection & !3 != 0 || protection == 0 || flags & !0x10 != 0 {
            allowed.insert(Errno(libc::EINVAL));
        }
        if !is_whole(at) || !is_whole(len) || len == 0 || len > i64::MAX as u64 {
            allowed.insert(Errno(libc::EINVAL));
        }
        if offset < 0 || fixed && !is_whole(offset as u64) {
            allowed.insert(Errno(libc::EINVAL));
        }
        if len > 1 << 40 {
            allowed.extend(errors(&[
                libc::EINVAL,
                libc::ENOMEM,
                libc::EFAULT,
                libc::EAGAIN,
            ]));
        }
        if offset.checked_add_unsigned(len).is_none() {
            allowed.extend(errors(&[libc::EINVAL, libc::EADDRINUSE, libc::ENOMEM]));
        }
        if !Model::is_memory(at, len) {
            allowed.insert(Errno(libc::EFAULT));
        }
        let first = offset / PAGE as i64;
        let count = (len / PAGE).min(1 << 20) as i64;
        if let (Some(end), true, true) = (self.model.end(slot), fixed, offset >= 0) {
            let windows = &self.model.side(end).windows;
            if windows
                .range(first..first.saturating_add(count))
                .next()
                .is_some()
            {
                allowed.insert(Errno(libc::EADDRINUSE));
            }
        }
        let fd = self.fd(slot).context("no endpoint")?;
        let argument = abi::Register {
            address: self.arena.address(at),
            length: len,
            offset,
            protection,
            flags,
            registered: 0,
        };
        // An unregistered window keeps its offsets until its last user has released it. A user on
        // the other node may do so a little later.
        let outcome = match self.is_far() && allowed.is_empty() {
            true => self.again(libc::EADDRINUSE, || kernel::register(fd, argument)),
            false => kernel::register(fd, argument),
        };
        let (Some(got), Some(end)) = (self.judge(&allowed, outcome)?, self.model.end(slot)) else {
            return Ok(true);
        };
        ensure!(
            !fixed || got == offset,
            "the window is at {got}, not at {offset}"
        );
        ensure!(is_whole(got as u64), "the window is at {got}");
        let window = self.model.next_window;
        self.model.next_window += 1;
        let base = self.model.base(slot) as u64 / PAGE;
        let windows = &mut self.model.side(end).windows;
        for index in 0..count {
            let page = Page {
                page: base + at / PAGE + index as u64,
                protection,
                window,
            };
            let replaced = windows.insert(got / PAGE as i64 + index, page);
            ensure!(replaced.is_none(), "the window at {got} overlaps another");
        }
        Ok(true)
    }

    fn unregister(&mut self, slot: usize, offset: i64, len: u64) -> Result<bool> {
        let mut allowed = self.model.of_connected(slot);
        if offset < 0 || len == 0 || len > i64::MAX as u64 {
            allowed.insert(Errno(libc::EINVAL));
        }
        let end_of_range = offset.checked_add_unsigned(len);
        if end_of_range.is_none() {
            allowed.extend(errors(&[libc::EINVAL, libc::ENXIO]));
        }
        let mut inside = Vec::new();
        if let (Some(end), Some(limit), true) =
            (self.model.end(slot), end_of_range, allowed.is_empty())
        {
            let is_inside = |at: i64| at * PAGE as i64 >= offset && (at + 1) * PAGE as i64 <= limit;
            let is_touched =
                |at: i64| (at + 1) * PAGE as i64 > offset && at * (PAGE as i64) < limit;
            let windows = &self.model.side(end).windows;
            let touched = |window| {
                let mut pages = windows.iter().filter(|(_, page)| page.window == window);
                pages.any(|(at, _)| is_touched(*at))
            };
            let cut = |(at, page): (&i64, &Page)| !is_inside(*at) && touched(page.window);
            inside = windows
                .keys()
                .copied()
                .filter(|at| is_inside(*at))
                .collect();
            if windows.iter().any(cut) {
                allowed.insert(Errno(libc::EINVAL));
            } else if inside.is_empty() {
                allowed.insert(Errno(libc::ENXIO));
            }
        }
        let fd = self.fd(slot).context("no endpoint")?;
        let outcome = kernel::unregister(fd, offset, len);
        if let (Some(_), Some(end)) = (self.judge(&allowed, outcome)?, self.model.end(slot)) {
            for at in inside {
                self.model.side(end).windows.remove(&at);
            }
        }
        Ok(true)
    }

    fn copy(&mut self, call: &Call) -> Result<bool> {
        let (slot, write, at, local, remote, len, flags) = match *call {
            Call::Copy {
                slot,
                write,
                local,
                remote,
                len,
                flags,
            } => (slot, write, None, local, remote, len, flags),
            Call::CopyMemory {
                slot,
                write,
                at,
                remote,
                len,
                flags,
            } => (slot, write, Some(at), 0, remote, len, flags),
            _ => return Ok(false),
        };
        let mut allowed = self.model.of_connected(slot);
        if flags & !0xf != 0 || len == 0 {
            allowed.insert(Errno(libc::EINVAL));
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        if let (Some(end), true) = (self.model.end(slot), allowed.is_empty()) {
            let (need_local, need_remote) = if write { (READ, WRITE) } else { (WRITE, READ) };
            let (found, stretches) = self
                .model
                .cover((end.0, 1 - end.1), remote, len, need_remote);
            allowed.extend(found);
            theirs = stretches;
            match at {
                None => {
                    let (found, stretches) = self.model.cover(end, local, len, need_local);
                    allowed.extend(found);
                    ours = stretches;
                }
                Some(at) if Model::is_memory(at, len) => {
                    let base = self.model.base(slot);
                    ours.push(base + at as usize..base + (at + len) as usize);
                }
                Some(_) => allowed.extend(errors(&[libc::EFAULT])),
            }
            if len > 1 << 40 {
                allowed.extend(errors(&[
                    libc::EINVAL,
                    libc::ENOMEM,
                    libc::EFAULT,
                    libc::ENXIO,
                ]));
            }
        }
        let address = at.map(|at| self.arena.address(at));
        let fd = self.fd(slot).context("no endpoint")?;
        let outcome = kernel::copy(fd, write, address, local, remote, len, flags);
        if self.judge(&allowed, outcome)?.is_none() {
            return self.rest_of_failed(&theirs, &ours, write);
        }
        if flags & 4 == 0 {
            let mark = self
                .judge(&Errors::new(), kernel::fence_mark(fd, 1))
                .context("of FENCE_MARK")?;
            let mark = mark.unwrap_or(0);
            let waited = kernel::number(fd, abi::FENCE_WAIT, mark as u64);
            self.judge(&Errors::new(), waited)
                .context("of FENCE_WAIT")?;
        }
        let (from, to) = if write {
            (ours, theirs)
        } else {
            (theirs, ours)
        };
        if !self.model.copied(&from, &to) {
            for range in &to {
                self.adopt(range.clone())?;
            }
        }
        for range in to {
            self.compare(range).context("the copied bytes")?;
        }
        Ok(true)
    }

    /// Handles a failed copy, which may have written a part of its range.
    fn rest_of_failed(
        &mut self,
        theirs: &[Range<usize>],
        ours: &[Range<usize>],
        write: bool,
    ) -> Result<bool> {
        for range in if write { theirs } else { ours } {
            self.adopt(range.clone())?;
        }
        Ok(true)
    }

    fn map(&mut self, slot: usize, offset: i64, pages: usize, write: bool) -> Result<bool> {
        if offset < 0 || offset % PAGE as i64 != 0 || offset > 1 << 40 {
            return Ok(false);
        }
        let mut allowed = self.model.of_connected(slot);
        if pages == 0 {
            allowed.insert(Errno(libc::EINVAL));
        }
        let needs = if write { READ | WRITE } else { READ };
        let len = pages as u64 * PAGE;
        let mut stretches = Vec::new();
        if let (Some((connection, side)), true) = (self.model.end(slot), allowed.is_empty()) {
            let (found, covered) = self.model.cover((connection, 1 - side), offset, len, needs);
            if !found.is_empty() {
                allowed.extend(errors(&[libc::ENXIO, libc::EACCES, libc::EINVAL]));
            }
            stretches = covered;
        }
        let fd = self.fd(slot).context("no endpoint")?;
        let map = || kernel::map(fd, offset, len as usize, write);
        // The call itself waits for the peer's news of windows, but not for long.
        let mapped = match allowed.is_empty() {
            true => self.again(libc::ENXIO, map),
            false => map(),
        };
        if let (true, Err(Errno(libc::EACCES | libc::EOPNOTSUPP))) = (self.is_staged(), &mapped) {
            return Ok(true);
        }
        let outcome = mapped.as_ref().map(|_| 0).map_err(|error| *error);
        self.judge(&allowed, outcome)?;
        let Ok(seen) = mapped else {
            return Ok(true);
        };
        let wanted: Vec<u8> = stretches
            .into_iter()
            .flat_map(|range| self.model.memory[range].iter().copied())
            .collect();
        ensure!(
            seen == wanted,
            "a mapping shows other bytes than its windows"
        );
        Ok(true)
    }

    // ----- fences ----------------------------------------------------------------------------------------------------

    fn mark(&mut self, slot: usize, flags: i32) -> Result<bool> {
        let mut allowed = self.model.of_connected(slot);
        if flags != 1 && flags != 2 {
            allowed.insert(Errno(libc::EINVAL));
        }
        let fd = self.fd(slot).context("no endpoint")?;
        if let Some(mark) = self.judge(&allowed, kernel::fence_mark(fd, flags))? {
            let waited = kernel::number(fd, abi::FENCE_WAIT, mark as u64);
            self.judge(&Errors::new(), waited)
                .context("of FENCE_WAIT")?;
        }
        Ok(true)
    }

    fn wait(&mut self, slot: usize, mark: i32) -> Result<bool> {
        let mut allowed = self.model.of_connected(slot);
        let fd = self.fd(slot).context("no endpoint")?;
        let outcome = kernel::number(fd, abi::FENCE_WAIT, mark as u64);
        // By chance, some of these numbers are marks.
        if allowed.is_empty() && outcome.is_err() {
            allowed.insert(Errno(libc::EINVAL));
        }
        self.judge(&allowed, outcome)?;
        Ok(true)
    }

    fn signal(&mut self, call: &Call) -> Result<bool> {
        let Call::Signal {
            slot,
            flags,
            local,
            remote,
            value,
        } = *call
        else {
            return Ok(false);
        };
        let mut allowed = self.model.of_connected(slot);
        if flags & !0x33 != 0 || !matches!(flags & 3, 1 | 2) || flags & 0x30 == 0 {
            allowed.insert(Errno(libc::EINVAL));
        }
        let mut words = Vec::new();
        if let (Some((connection, side)), true) = (self.model.end(slot), allowed.is_empty()) {
            let targets = [(0x10, local, side), (0x20, remote, 1 - side)];
            for (_, offset, side) in targets.into_iter().filter(|(flag, ..)| flags & flag != 0) {
                if offset % 4 != 0 || offset.rem_euclid(PAGE as i64) > PAGE as i64 - 8 {
                    allowed.insert(Errno(libc::EINVAL));
                }
                let (found, stretches) = self.model.cover((connection, side), offset, 8, WRITE);
                allowed.extend(found);
                words.extend(stretches);
            }
        }
        // The order of the two stores is undefined, so overlapping words can't be predicted.
        if let [first, second] = &*words {
            if first.start < second.end && second.start < first.end {
                return Ok(false);
            }
        }
        let argument = abi::FenceSignal {
            local,
            local_value: value,
            remote,
            remote_value: value,
            flags,
        };
        let fd = self.fd(slot).context("no endpoint")?;
        if self
            .judge(&allowed, kernel::fence_signal(fd, argument))?
            .is_none()
        {
            return Ok(true);
        }
        for word in words {
            self.model.memory[word.clone()].copy_from_slice(&value.to_le_bytes());
            // Only the store in the peer's memory comes a little later.
            let limit = Instant::now() + self.soon;
            while self.compare(word.clone()).is_err() && Instant::now() < limit {
                std::thread::yield_now();
            }
            self.compare(word).context("the word of a signal")?;
        }
        Ok(true)
    }

    fn unknown(&mut self, slot: usize, number: u32) -> Result<bool> {
        if [abi::LISTEN, abi::FENCE_WAIT].contains(&number) {
            return Ok(false);
        }
        let fd = self.fd(slot).context("no endpoint")?;
        let outcome = kernel::number(fd, number, self.arena.address(PAGES * PAGE));
        self.judge(
            &errors(&[libc::ENOTTY, libc::EFAULT, libc::EINVAL]),
            outcome,
        )?;
        Ok(true)
    }

    /// Closes all endpoints, and fails unless the memory has the content that the model predicts.
    fn finish(mut self) -> Result<()> {
        self.compare_all()?;
        for slot in 0..SLOTS {
            self.fds[slot] = None;
        }
        Ok(())
    }
}
