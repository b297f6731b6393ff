// SPDX-License-Identifier: LGPL-2.1

//! Remote interrupts, which a program triggers.
//!
//! A program that triggers after a link was down need not care: if the node is in the same life,
//! the connection is made again.
//!
//! Lock: `targets`, held while a trigger is sent, so that triggers of several threads keep their
//! order.

use std::sync::Mutex;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::channel::Channel;
use crate::deadline::Deadline;
use crate::device;
use crate::device::DeviceUse;
use crate::error::Error;
use crate::error::Result;
use crate::handles::Handle;
use crate::handles::Table;
use crate::life;
use crate::life::Life;
use crate::life::Return;
use crate::local_interrupts::Kind;
use crate::lock::lock;
use crate::nodes;
use crate::protocol::Frame;
use crate::protocol::Hello;
use crate::protocol::MOST;

/// Interrupts without data.
pub static INTERRUPTS: Table<RemoteInterrupt> = Table::new(9);
/// Interrupts with data.
pub static DATA_INTERRUPTS: Table<RemoteInterrupt> = Table::new(10);

/// Time that a trigger waits for room: a trigger that counts, and one with data whose ring may
/// still grow.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which a trigger with data tries again meanwhile. It can't poll: its message is sent
/// as a whole or not at all, and an endpoint is writable as soon as one byte is free.
const RETRY: Duration = Duration::from_millis(1);

struct Target {
    class: u32,
    channel: Channel,
    counting: bool,
    life: Life,
    /// Whether a trigger has waited [`PATIENCE`] in vain. The ring then has its final size, and no
    /// later trigger waits for it to grow.
    is_grown: bool,
}

/// A connection to an interrupt of another process.
pub struct RemoteInterrupt {
    /// The use of the device. It ends with the release, although a thread may still be leaving a
    /// wait.
    device: DeviceUse,
    kind: Kind,
    node: u16,
    number: u32,
    targets: Mutex<Vec<Target>>,
}

fn table(kind: Kind) -> &'static Table<RemoteInterrupt> {
    match kind {
        Kind::Plain => &INTERRUPTS,
        Kind::Data => &DATA_INTERRUPTS,
    }
}

impl Target {
    fn connect(node: u16, class: u32, number: u32, deadline: Deadline) -> Result<(Self, bool)> {
        let (life, channel, welcome) = life::connect_within(node, deadline, || {
            Channel::connect(node, class, Hello::new(number), deadline)
        })?;
        let target = Self {
            class,
            channel,
            counting: welcome.counting,
            life,
            is_grown: false,
        };
        Ok((target, welcome.shared))
    }

    fn trigger(&mut self, data: &[u8], kind: Kind) -> Result<()> {
        let deadline = Deadline::in_time(PATIENCE);
        let frame = Frame::Trigger(data.to_vec());
        loop {
            match self.channel.send(&frame) {
                Err(Error::EWOULD_BLOCK) => (),
                result => return result,
            }
            if kind == Kind::Data {
                // A full ring grows as soon as the peer has answered.
                self.is_grown |= deadline.is_over();
                if self.is_grown {
                    return Err(Error::NOSPC);
                }
                std::thread::sleep(RETRY);
                continue;
            }
            // The receiver has not waited for many triggers yet, and this one counts as one with
            // them.
            if !self.counting {
                return Ok(());
            }
            if !self.channel.endpoint.wait(PollFlags::OUT, deadline)? {
                return Err(Error::NOSPC);
            }
        }
    }
}

impl RemoteInterrupt {
    /// Implements `SCIConnectInterrupt()` and `SCIConnectDataInterrupt()`.
    pub fn connect(
        device: Handle,
        kind: Kind,
        node_id: u32,
        number: u32,
        timeout: u32,
    ) -> Result<Handle> {
        let node = nodes::scif_node(node_id)?;
        let held = device::using(device)?;
        let deadline = Deadline::of_connect(timeout);
        let first = Target::connect(node, kind.class(), number, deadline);
        let alone = matches!(first, Ok((_, false)));
        let mut targets = Vec::new();
        let error = match first {
            Ok((target, _)) => {
                targets.push(target);
                None
            }
            Err(error) => Some(error),
        };
        // The first interrupt of a shared number may have gone.
        if !alone && error.is_none_or(|error| error == Error::NO_SUCH_INTNO) {
            let others = kind.sharers();
            let others = others.map(|class| Target::connect(node, class, number, deadline));
            targets.extend(others.flatten().map(|(target, _)| target));
        }
        if targets.is_empty() {
            return Err(error.unwrap_or(Error::NO_SUCH_INTNO));
        }
        let interrupt = Self {
            device: held,
            kind,
            node,
            number,
            targets: Mutex::new(targets),
        };
        table(kind).insert(std::sync::Arc::new(interrupt))
    }

    /// Implements `SCITriggerInterrupt()` and `SCITriggerDataInterrupt()`.
    pub fn trigger(&self, data: &[u8]) -> Result<()> {
        if data.len() > MOST {
            return Err(Error::OUT_OF_RANGE);
        }
        let mut targets = lock(&self.targets);
        let mut reached = Err(Error::NOT_CONNECTED);
        let mut gone = Vec::new();
        for (index, target) in targets.iter_mut().enumerate() {
            let mut result = target.trigger(data, self.kind);
            if result == Err(Error::NOT_CONNECTED) {
                result = self.trigger_again(target, data);
                if result == Err(Error::NOT_CONNECTED) {
                    gone.push(index);
                    continue;
                }
            }
            reached = result;
        }
        for index in gone.into_iter().rev() {
            targets.swap_remove(index);
        }
        reached
    }

    /// Triggers after the connection has ended. If the link was down and the node is back, connects
    /// once more.
    fn trigger_again(&self, target: &mut Target, data: &[u8]) -> Result<()> {
        if target.life.goes_on() {
            return Err(Error::NOT_CONNECTED);
        }
        match target.life.returned() {
            Return::Away => Err(Error::NODE_NOT_RESPONDING),
            Return::Other => Err(Error::NOT_CONNECTED),
            Return::Same(_) => {
                let deadline = Deadline::of_connect(0);
                let again = Target::connect(self.node, target.class, self.number, deadline);
                let again = again.map_err(|error| match error {
                    // The interrupt was removed meanwhile.
                    Error::NO_SUCH_INTNO => Error::NOT_CONNECTED,
                    _ => Error::NODE_NOT_RESPONDING,
                });
                *target = again?.0;
                target.trigger(data, self.kind)
            }
        }
    }

    /// Implements `SCIDisconnectInterrupt()` and `SCIDisconnectDataInterrupt()`.
    pub fn disconnect(handle: Handle, kind: Kind) -> Result<()> {
        table(kind).remove(handle)?.release();
        Ok(())
    }

    /// Releases all resources.
    pub fn release(&self) {
        let targets = core::mem::take(&mut *lock(&self.targets));
        for target in targets {
            target.channel.say_bye();
        }
        self.device.release();
    }
}
