// SPDX-License-Identifier: GPL-2.0

//! A thread of a crowd: makes the calls of its steps, and judges what they return.

use std::ffi::CString;
use std::io::IoSlice;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use anyhow::ensure;
use rustix::event::PollFlags;
use rustix::io::Errno as Failure;
use rustix::net::RecvAncillaryBuffer;
use rustix::net::RecvAncillaryMessage;
use rustix::net::RecvFlags;
use rustix::net::SendAncillaryBuffer;
use rustix::net::SendAncillaryMessage;
use rustix::net::SendFlags;
use scif_sys::PortId;
use scif_sys::abi;

use crate::choice::Chooser;
use crate::choice::PORTS;
use crate::choice::Ports;
use crate::crowd::board::Slot;
use crate::crowd::board::Thread;
use crate::crowd::oracle;
use crate::crowd::oracle::Allowed;
use crate::crowd::oracle::Begun;
use crate::crowd::oracle::IS_BOUND;
use crate::crowd::oracle::IS_CONNECTED;
use crate::crowd::oracle::IS_NONBLOCKING;
use crate::crowd::oracle::IS_RESET;
use crate::crowd::oracle::Kind;
use crate::crowd::oracle::LISTENS;
use crate::crowd::oracle::States;
use crate::crowd::plan::Planner;
use crate::crowd::signals;
use crate::crowd::steps::ACTORS;
use crate::crowd::steps::OR_NEXT;
use crate::crowd::steps::SLOTS;
use crate::crowd::steps::Step;
use crate::crowd::steps::THREADS;
use crate::crowd::world::SLOT_FD;
use crate::crowd::world::SOCKET_FDS;
use crate::crowd::world::World;
use crate::crowd::world::fixed;
use crate::crowd::world::put;
use crate::crowd::world::slot_fd;
use crate::kernel;
use crate::kernel::Errno;
use crate::kernel::Fd;
use crate::kernel::Outcome;
use crate::lines;
use crate::memory::PAGE;
use crate::run;

/// First port of the first thread's own endpoints. A bind to any port gets none of these ports.
const OWN_PORTS: u16 = 1024;

/// A thread of a crowd, or a forked process.
pub struct Actor<'a> {
    world: &'a World,
    /// Entry of the board in which the thread reports its progress, or `None` in a forked process.
    thread: Option<&'a Thread>,
    /// Ids of the processes that this thread has forked.
    children: Vec<i32>,
}

/// The state of a slot at the beginning of a call.
struct Found {
    /// The endpoint, and the other endpoint that the slot may have during a change.
    objects: [u32; 2],
    /// Number of changes of the slot so far, or `None` during a change.
    version: Option<u32>,
}

impl<'a> Actor<'a> {
    pub fn new(world: &'a World, thread: Option<&'a Thread>) -> Self {
        Self {
            world,
            thread,
            children: Vec::new(),
        }
    }

    fn slot(&self, slot: usize) -> &'a Slot {
        &self.world.board.table(self.world.table).slots[slot]
    }

    /// Returns the slot that a step means: the given slot, or the next one whose endpoint is known
    /// to suit the step.
    fn meant(&self, slot: usize, wanted: u32) -> usize {
        let Some(first) = slot.checked_sub(OR_NEXT) else {
            return slot % SLOTS;
        };
        let mut slots = (0..SLOTS).map(|further| (first + further) % SLOTS);
        slots
            .find(|slot| self.knows(*slot, wanted))
            .unwrap_or(first % SLOTS)
    }

    /// Returns whether a fact is known of the endpoint in a slot, and its peer is not known to be
    /// gone.
    fn knows(&self, slot: usize, wanted: u32) -> bool {
        let object = self.slot(slot % SLOTS).object.load(SeqCst);
        let facts = self.world.board.object(object);
        facts.is_some_and(|object| object.facts.load(SeqCst) & (wanted | IS_RESET) == wanted)
    }

    /// Does a step. Returns an error if the step has found a fault.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        match *step {
            Step::Own { actor, seed, calls } => self.own(actor, seed, calls),
            Step::Renew {
                slot, nonblocking, ..
            } => self.renew(slot, nonblocking),
            Step::Share { slot, into, .. } => self.share(slot, into),
            Step::Pass { slot, .. } => self.pass(slot),
            Step::Take { into, .. } => self.take(into),
            Step::Interrupt { whom, .. } => {
                self.interrupt(whom);
                Ok(())
            }
            Step::Fork { actor, seed, calls } => self.fork(actor, seed, calls, false),
            Step::Exec { actor, seed, calls } => self.fork(actor, seed, calls, true),
            Step::Kill { .. } => self.kill(),
            Step::Die { .. } => signals::die(),
            Step::Accept {
                slot, into, flags, ..
            } => self.accept(step, slot, into, flags),
            Step::Poll {
                slot, milliseconds, ..
            } => self.poll(slot, milliseconds),
            _ => self.call(step),
        }
    }

    // ----- content of slots ------------------------------------------------------------------------------------------

    /// Puts an endpoint into a slot.
    fn place(&self, fd: OwnedFd, object: u32, slot: usize) -> Result<()> {
        let entry = self.slot(slot);
        entry.lock();
        entry.will_be(self.world.board, object);
        let put = put(&fd, SLOT_FD + slot as i32);
        entry.is_there();
        entry.unlock();
        put.context("of dup2")
    }

    /// Opens an endpoint and puts it into a slot.
    pub fn renew(&self, slot: usize, nonblocking: bool) -> Result<()> {
        if let Some(slot) = slot.checked_sub(OR_NEXT) {
            let is_of_use = self.knows(slot, LISTENS) || self.knows(slot, IS_CONNECTED);
            return match is_of_use {
                true => Ok(()),
                false => self.renew(slot % SLOTS, nonblocking),
            };
        }
        let fd = scif_sys::open().context("of open")?;
        rustix::io::ioctl_fionbio(&fd, nonblocking)?;
        let facts = if nonblocking { IS_NONBLOCKING } else { 0 };
        self.place(fd, self.world.board.object_made(facts), slot)
    }

    fn share(&self, slot: usize, into: usize) -> Result<()> {
        if slot == into {
            return Ok(());
        }
        let (one, other) = (self.slot(slot.min(into)), self.slot(slot.max(into)));
        one.lock();
        other.lock();
        let entry = self.slot(into);
        entry.will_be(self.world.board, self.slot(slot).object.load(SeqCst));
        let put = put(slot_fd(slot), SLOT_FD + into as i32);
        entry.is_there();
        other.unlock();
        one.unlock();
        put.context("of dup2")
    }

    fn pass(&self, slot: usize) -> Result<()> {
        let entry = self.slot(slot);
        entry.lock();
        let number = entry.object.load(SeqCst).to_ne_bytes();
        let fds = [slot_fd(slot)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        rights.push(SendAncillaryMessage::ScmRights(&fds));
        let socket = fixed(SOCKET_FDS[0]);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&number)], &mut rights, flags);
        entry.unlock();
        match sent {
            Ok(_) | Err(Failure::AGAIN | Failure::INTR) => Ok(()),
            Err(error) => bail!("{error} of sendmsg"),
        }
    }

    fn take(&self, into: usize) -> Result<()> {
        let mut number = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let socket = fixed(SOCKET_FDS[1]);
        let got = rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut number)],
            &mut rights,
            flags,
        );
        match got {
            Ok(_) => (),
            Err(Failure::AGAIN | Failure::INTR) => return Ok(()),
            Err(error) => bail!("{error} of recvmsg"),
        }
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for fd in fds {
                    self.place(fd, u32::from_ne_bytes(number), into)?;
                }
            }
        }
        Ok(())
    }

    // ----- calls on shared endpoints ---------------------------------------------------------------------------------

    /// Returns the state of a slot, and records a call there that may change the endpoint.
    fn find(&self, entry: &Slot, kind: Option<Kind>) -> Found {
        let one = kind.map_or(0, Kind::one);
        entry.under_way.fetch_add(one, SeqCst);
        let first = entry.version();
        let number = entry.object.load(SeqCst);
        let mut found = Found {
            objects: [number, 0],
            version: entry.version().filter(|_| first == entry.version()),
        };
        if found.version.is_none() || first.is_none() {
            found.version = None;
            found.objects[1] = entry.before.load(SeqCst);
        }
        for object in found.objects {
            if let Some(object) = self.world.board.object(object) {
                object.begun.fetch_add(one, SeqCst);
            }
        }
        found
    }

    /// Makes a call on a slot. Returns its result if that is allowed.
    fn judged(
        &self,
        step: &Step,
        slot: usize,
        call: impl FnOnce(Fd<'_>) -> Outcome,
    ) -> Result<Outcome> {
        let slot = self.meant(slot, IS_CONNECTED);
        let entry = self.slot(slot);
        let kind = Kind::of(step);
        let found = self.find(entry, kind);
        let object = self.world.board.object(found.objects[0]);
        let facts = object.map_or(0, |object| object.facts.load(SeqCst));
        self.waits(step, slot, facts, found.version);
        let outcome = call(slot_fd(slot).into());
        self.waits_no_more();
        let one = kind.map_or(0, Kind::one);
        entry.under_way.fetch_sub(one, SeqCst);
        let was_it = found.version.is_some() && entry.version() == found.version;
        let object = object.filter(|_| was_it);
        let states = object.map_or(States::ALL, |object| {
            States::of(facts, Begun::of(object.begun.load(SeqCst) - one))
        });
        let allowed = oracle::allowed(step, states, &self.world.setting);
        judge(&allowed, &outcome)
            .with_context(|| format!("it may have been {states:?} with the facts {facts:#x}"))?;
        if let Some(object) = object {
            let mut proved = oracle::proved(step, &outcome);
            if oracle::says_gone(facts, &outcome) && self.shows_gone(slot, found.version)? {
                proved |= IS_RESET;
            }
            object.facts.fetch_or(proved, SeqCst);
        }
        let word = Step::WORDS.iter().position(|word| *word == step.word());
        if let Some(ended) = word.and_then(|word| self.world.board.tally.get(word)) {
            let count = if outcome.is_ok() {
                &ended.well
            } else {
                &ended.failed
            };
            count.fetch_add(1, SeqCst);
        }
        Ok(outcome)
    }

    /// Waits until `poll` shows that the peer of a slot's endpoint is gone, after a call has
    /// returned so. Returns false if the slot has changed meanwhile.
    fn shows_gone(&self, slot: usize, version: Option<u32>) -> Result<bool> {
        let limit = Instant::now() + self.world.setting.awake();
        loop {
            let events = kernel::poll(slot_fd(slot).into(), PollFlags::HUP, 1);
            if self.slot(slot).version() != version {
                return Ok(false);
            }
            if events.contains(PollFlags::HUP) {
                return Ok(true);
            }
            ensure!(
                Instant::now() < limit,
                "the peer is gone, and poll says {events:?}"
            );
        }
    }

    /// Records the events that have to end the coming call, if the call waits.
    fn waits(&self, step: &Step, slot: usize, facts: u32, version: Option<u32>) {
        let (Some(thread), Some(version)) = (self.thread, version) else {
            return;
        };
        let events = match *step {
            Step::Receive { flags: 1, .. } | Step::Send { flags: 1, .. } => PollFlags::HUP,
            Step::SendAll { flags: 1, .. } => PollFlags::HUP,
            Step::Accept { flags: 1, .. } => PollFlags::IN,
            Step::Connect { .. } | Step::ConnectName { .. } if facts & IS_NONBLOCKING == 0 => {
                PollFlags::OUT
            }
            _ => return,
        };
        thread.slot.store(slot as u32, SeqCst);
        thread.version.store(version, SeqCst);
        thread.events.store(events.bits().into(), SeqCst);
    }

    fn waits_no_more(&self) {
        if let Some(thread) = self.thread {
            thread.events.store(0, SeqCst);
        }
    }

    fn call(&self, step: &Step) -> Result<()> {
        let setting = &self.world.setting;
        let node = setting.peer;
        let arena = &self.world.arena;
        let place = |page: u64| arena.address(page * PAGE);
        let done = match *step {
            Step::Bind { slot, port, .. } => {
                self.judged(step, slot, |fd| kernel::bind(fd, setting.port(port)))?
            }
            Step::Listen { slot, backlog, .. } => self.judged(step, slot, |fd| {
                kernel::number(fd, abi::LISTEN, backlog as u64)
            })?,
            Step::Connect { slot, port, .. } => self.judged(step, slot, |fd| {
                // No endpoint can connect to port 0.
                let port = setting.port(port).max(1);
                kernel::connect(fd, PortId { node, port })
            })?,
            Step::BindName { slot, name, .. } => {
                self.judged(step, slot, |fd| kernel::bind_name(fd, setting.name(name)))?
            }
            Step::ConnectName { slot, name, .. } => self.judged(step, slot, |fd| {
                kernel::connect_name(fd, node, setting.name(name))
            })?,
            Step::Send {
                slot, len, flags, ..
            } => self.judged(step, slot, |fd| kernel::send(fd, place(0), len, flags))?,
            Step::Receive {
                slot, len, flags, ..
            } => self.judged(step, slot, |fd| kernel::receive(fd, place(12), len, flags))?,
            Step::SendAll {
                slot, len, flags, ..
            } => self.judged(step, slot, |fd| kernel::send_all(fd, place(0), len, flags))?,
            Step::Register { .. } | Step::Memory { .. } => return self.register(step),
            Step::Unregister {
                slot, at, pages, ..
            } => self.judged(step, slot, |fd| kernel::unregister(fd, at, pages * PAGE))?,
            Step::Copy { .. } | Step::CopyMemory { .. } => return self.copy(step),
            // An access to the memory of a lost node would raise SIGBUS.
            Step::Map { .. } if self.world.setting.is_lossy => return Ok(()),
            Step::Map {
                slot, at, write, ..
            } => self.judged(step, slot, |fd| {
                kernel::map(fd, at, PAGE as usize, write).map(|_| 0)
            })?,
            Step::Mark { slot, flags, .. } => self.judged(step, slot, |fd| {
                let mark = kernel::fence_mark(fd, flags)?;
                kernel::number(fd, abi::FENCE_WAIT, mark as u64)
            })?,
            Step::Signal {
                slot,
                flags,
                local,
                remote,
                ..
            } => self.judged(step, slot, |fd| {
                let argument = abi::FenceSignal {
                    local,
                    remote,
                    flags,
                    ..Default::default()
                };
                kernel::fence_signal(fd, argument)
            })?,
            Step::Nodes { slot, .. } => self.judged(step, slot, kernel::node_ids)?,
            Step::Status { slot, .. } => {
                self.judged(step, slot, |fd| kernel::node_status(fd, node))?
            }
            _ => return Ok(()),
        };
        match (*step, done) {
            (Step::Send { len, .. } | Step::Receive { len, .. }, Ok(moved)) => {
                ensure!(
                    (0..=len.into()).contains(&moved),
                    "{moved} bytes were moved, of {len}"
                );
            }
            (Step::Nodes { .. }, Ok(count)) => ensure!(count >= 1, "{count} nodes"),
            _ => (),
        }
        Ok(())
    }

    fn register(&self, step: &Step) -> Result<()> {
        let (Step::Register {
            slot,
            page,
            pages,
            at,
            protection,
            flags,
            ..
        }
        | Step::Memory {
            slot,
            page,
            pages,
            at,
            protection,
            flags,
            ..
        }) = *step
        else {
            return Ok(());
        };
        let window = abi::Register {
            address: self.world.arena.address(page * PAGE),
            length: pages * PAGE,
            offset: at,
            protection,
            flags,
            registered: 0,
        };
        let registered = match step {
            Step::Memory { .. } => self.judged(step, slot, |fd| {
                let (address, length) = (window.address, window.length);
                let memory = kernel::memory(fd, address, length, protection)?;
                kernel::register_memory(fd, memory.as_fd(), window)
            })?,
            _ => self.judged(step, slot, |fd| kernel::register(fd, window))?,
        };
        if let Ok(registered) = registered {
            ensure!(
                flags == 0 || registered == at,
                "the window is at {registered}, and not at {at}"
            );
        }
        Ok(())
    }

    fn copy(&self, step: &Step) -> Result<()> {
        let (slot, write, page, local, remote, length, flags) = match *step {
            Step::Copy {
                slot,
                write,
                local,
                remote,
                len,
                flags,
                ..
            } => (slot, write, None, local, remote, len, flags),
            Step::CopyMemory {
                slot,
                write,
                page,
                remote,
                len,
                flags,
                ..
            } => (slot, write, Some(page), 0, remote, len, flags),
            _ => return Ok(()),
        };
        let address = page.map(|page| self.world.arena.address(page * PAGE));
        self.judged(step, slot, |fd| {
            kernel::copy(fd, write, address, local, remote, length, flags)
        })
        .map(|_| ())
    }

    fn accept(&self, step: &Step, slot: usize, into: usize, flags: i32) -> Result<()> {
        let slot = self.meant(slot, LISTENS);
        let before = self.slot(slot).version();
        let mut handle = 0;
        let done = self.judged(step, slot, |fd| {
            handle = kernel::accept_request(fd, flags)?.0;
            Ok(0)
        })?;
        if done.is_err() {
            return Ok(());
        }
        let fd = scif_sys::open().context("of open")?;
        match kernel::accept_register(fd.as_fd().into(), handle) {
            Ok(_) => (),
            // The handle has become invalid with the last descriptor of the listener.
            Err(Errno(libc::EINVAL)) if before.is_none() || self.slot(slot).version() != before => {
                return Ok(());
            }
            Err(error) => bail!("{error:?} of ACCEPTREG"),
        }
        let object = self.world.board.object_made(IS_CONNECTED | IS_BOUND);
        self.place(fd, object, into)
    }

    fn poll(&self, slot: usize, milliseconds: i64) -> Result<()> {
        let slot = self.meant(slot, IS_CONNECTED);
        let found = self.find(self.slot(slot), None);
        let object = self.world.board.object(found.objects[0]);
        let facts = object.map_or(0, |object| object.facts.load(SeqCst));
        let asked = PollFlags::IN | PollFlags::OUT;
        let events = kernel::poll(slot_fd(slot).into(), asked, milliseconds).bits() as i16;
        let was_it = found.version.is_some() && self.slot(slot).version() == found.version;
        let Some(object) = object.filter(|_| was_it) else {
            return Ok(());
        };
        let states = States::of(facts, Begun::of(object.begun.load(SeqCst)));
        let (may, must) = oracle::events(states);
        // A poll that a signal has interrupted shows no events.
        ensure!(
            events & !may == 0 && (events == 0 || events & must == must),
            "the events {events:#x} of {states:?} with the facts {facts:#x}"
        );
        object
            .facts
            .fetch_or(oracle::proved_by_events(facts, events), SeqCst);
        Ok(())
    }

    // ----- own endpoints ---------------------------------------------------------------------------------------------

    fn own(&self, actor: usize, seed: u64, calls: usize) -> Result<()> {
        let _blocked = signals::block();
        let ports = Ports {
            first: self
                .world
                .setting
                .own_port(OWN_PORTS + PORTS * (actor % ACTORS) as u16),
            edges: &[0],
        };
        let mut chooser = Chooser::new(seed, ports);
        let (mut made, mut left) = (Vec::new(), calls);
        let soon = self.world.setting.stuck() / 2;
        let done = run::make(soon, None, &mut made, |model| {
            left = left.checked_sub(1)?;
            Some(chooser.call(model))
        });
        // The error lists only this thread's calls, as they do not depend on those of others.
        let tally = done.map_err(|error| anyhow!("{error:#}, after\n{}", lines::print(&made)))?;
        for ended in tally.values() {
            let own = &self.world.board.own;
            own.well.fetch_add(ended.well as u32, SeqCst);
            own.failed.fetch_add(ended.failed as u32, SeqCst);
        }
        Ok(())
    }

    // ----- processes -------------------------------------------------------------------------------------------------

    fn interrupt(&self, whom: usize) {
        let thread = self.world.board.threads.get(whom);
        if let Some(thread) = thread.filter(|_| self.thread.is_some()) {
            signals::interrupt(thread.id.load(SeqCst));
        }
    }

    /// Forks a process that makes calls and ends.
    fn fork(&mut self, actor: usize, seed: u64, calls: usize, is_exec: bool) -> Result<()> {
        // Only threads of the plan fork, and no more often than there are tables.
        if self.thread.is_none() {
            return Ok(());
        }
        let board = self.world.board;
        let Some(table) = board.table_made() else {
            return Ok(());
        };
        let arguments = is_exec.then(|| self.arguments(table, actor, seed, calls));
        let slots = || (0..SLOTS).map(|slot| self.slot(slot));
        slots().for_each(Slot::lock);
        for (from, to) in slots().zip(&board.table(table).slots) {
            to.inherit(from);
        }
        let forked = signals::fork();
        if let Ok(0) = forked {
            if let Some(arguments) = arguments {
                signals::exec(&arguments);
            }
            self.live(table, actor, seed, calls);
        }
        slots().for_each(Slot::unlock);
        self.children.push(forked.context("of fork")?);
        Ok(())
    }

    /// Returns the command that continues a process after `exec`.
    fn arguments(&self, table: usize, actor: usize, seed: u64, calls: usize) -> Vec<CString> {
        let words = [
            "scif-fuzz".to_owned(),
            "inherit".to_owned(),
            format!("--table={table}"),
            format!("--actor={actor}"),
            format!("--seed={seed}"),
            format!("--calls={calls}"),
        ];
        words
            .into_iter()
            .chain(self.world.setting.words())
            .filter_map(|word| CString::new(word).ok())
            .collect()
    }

    /// Runs the forked process to its end.
    fn live(&self, table: usize, actor: usize, seed: u64, calls: usize) -> ! {
        let world = World::new(self.world.board, table, self.world.setting);
        if let Ok(world) = world {
            child(&world, actor, seed, calls);
        }
        signals::end()
    }

    /// Kills the process that this thread forked last, and fails if it does not end soon.
    fn kill(&mut self) -> Result<()> {
        let Some(child) = self.children.pop() else {
            return Ok(());
        };
        signals::kill(child);
        reap(child, self.world.setting.dead()).context("a forked process was killed")
    }

    /// Waits for the processes that this thread has forked.
    pub fn reap_all(&mut self) -> Result<()> {
        for child in std::mem::take(&mut self.children) {
            reap(child, self.world.setting.stuck()).context("a forked process")?;
        }
        Ok(())
    }
}

/// Makes the calls of a forked process. Reports a fault on the board.
pub fn child(world: &World, actor: usize, seed: u64, calls: usize) {
    signals::tick(world.setting.patience());
    let mut child = Actor::new(world, None);
    let mut planner = Planner::new(seed);
    for index in 0..calls {
        if world.board.is_wrong() {
            return;
        }
        let step = planner.step(actor / THREADS * THREADS);
        if let Err(error) = child.step(&step) {
            let said = format!("a forked process of seed {seed}, call {index}: {step}: {error:#}");
            world.board.say(&said);
            return;
        }
    }
}

/// Waits until a process has ended.
fn reap(child: i32, limit: Duration) -> Result<()> {
    let start = Instant::now();
    while !signals::has_ended(child) {
        ensure!(
            start.elapsed() < limit,
            "it has not ended after {limit:?}:\n{}",
            signals::stacks(child)
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn judge(allowed: &Allowed, outcome: &Outcome) -> Result<()> {
    match outcome {
        Ok(_) => ensure!(
            allowed.success,
            "it succeeded, instead of {:?}",
            allowed.list()
        ),
        Err(error) => ensure!(
            allowed.has(*error),
            "{error:?}, allowed is {}{:?}",
            if allowed.success { "success or " } else { "" },
            allowed.list()
        ),
    }
    Ok(())
}
