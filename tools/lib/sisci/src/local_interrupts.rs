// SPDX-License-Identifier: LGPL-2.1

//! Local interrupts, with data and without: numbers that peers trigger.
//!
//! Shared interrupts: the first interrupt of a number has the name of the number. Others of that
//! number, of any process, take the name in one of [`SHARERS`] further classes. A peer that
//! connects looks in all classes.

use std::sync::Arc;

use crate::callback;
use crate::channel::Channel;
use crate::deadline::Deadline;
use crate::device;
use crate::device::DeviceUse;
use crate::error::Error;
use crate::error::OK;
use crate::error::Result;
use crate::flags;
use crate::handles::Handle;
use crate::handles::Table;
use crate::library;
use crate::listener::Connected;
use crate::listener::Listener;
use crate::nodes;
use crate::protocol::Hello;
use crate::protocol::MOST;
use crate::receiver::Counting;
use crate::receiver::Missed;
use crate::receiver::Receiver;
use crate::threads::Caller;

/// Largest number of further interrupts that share a number.
pub const SHARERS: u32 = 16;

/// Interrupts without data.
pub static INTERRUPTS: Table<LocalInterrupt> = Table::new(7);
/// Interrupts with data.
pub static DATA_INTERRUPTS: Table<LocalInterrupt> = Table::new(8);

/// The kind of an interrupt: with data, or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Data,
}

impl Kind {
    /// Returns the class of names.
    pub fn class(self) -> u32 {
        match self {
            Self::Plain => scif_sys::NAME_INTERRUPT,
            Self::Data => scif_sys::NAME_DATA_INTERRUPT,
        }
    }

    /// Returns the classes of names for interrupts that share a number with another.
    pub fn sharers(self) -> core::ops::Range<u32> {
        let first = scif_sys::NAME_CLASS_USER + 0x10 + self.class() * SHARERS;
        first..first + SHARERS
    }

    fn table(self) -> &'static Table<LocalInterrupt> {
        match self {
            Self::Plain => &INTERRUPTS,
            Self::Data => &DATA_INTERRUPTS,
        }
    }
}

/// The callback of an interrupt.
pub enum Callback {
    /// A callback without data.
    Plain(callback::Status),
    /// A callback with data.
    Data(callback::Data),
}

/// A local interrupt.
pub struct LocalInterrupt {
    /// The use of the device. It ends with the release, although a thread may still be leaving a
    /// wait.
    device: DeviceUse,
    listener: Arc<Listener>,
    receiver: Arc<Receiver>,
    has_callback: bool,
    caller: Caller,
}

/// Takes a number that other interrupts may have, too.
fn shared(kind: Kind, number: u32) -> Result<Arc<Listener>> {
    let attendant = library::attendant()?;
    let first = Listener::new(&attendant, kind.class(), Some(number), Error::INTNO_USED);
    if !matches!(first, Err(Error::INTNO_USED)) {
        return first;
    }
    let hello = Hello::new(number);
    let there = Channel::connect(nodes::own()?, kind.class(), hello, Deadline::after(1000));
    if matches!(there, Ok((_, welcome)) if !welcome.shared) {
        return Err(Error::INTNO_USED);
    }
    let mut others = kind
        .sharers()
        .map(|class| Listener::new(&attendant, class, Some(number), Error::INTNO_USED));
    others.find(Result::is_ok).unwrap_or(Err(Error::INTNO_USED))
}

impl LocalInterrupt {
    /// Implements `SCICreateInterrupt()` and `SCICreateDataInterrupt()`. Returns the handle and the
    /// number.
    pub fn create(
        device: Handle,
        kind: Kind,
        number: Option<u32>,
        wanted: u32,
        callback: Option<Callback>,
    ) -> Result<(Handle, u32)> {
        let held = device::using(device)?;
        let is_shared = wanted & flags::SHARED_INT != 0;
        let listener = match number {
            Some(number) if is_shared => shared(kind, number)?,
            number => {
                let attendant = library::attendant()?;
                Listener::new(&attendant, kind.class(), number, Error::INTNO_USED)?
            }
        };
        let counting = match kind {
            Kind::Data => Counting::Data,
            Kind::Plain if wanted & flags::COUNTING_INT != 0 => Counting::Each,
            Kind::Plain => Counting::Once,
        };
        let interrupt = Arc::new(Self {
            device: held,
            listener,
            receiver: Receiver::new(counting, is_shared)?,
            has_callback: callback.is_some(),
            caller: Caller::default(),
        });
        let number = interrupt.listener.number();
        let handle = kind.table().insert(interrupt.clone())?;
        let opened = interrupt.open(handle, callback);
        if let Err(error) = opened {
            let _ = Self::remove(handle, kind);
            return Err(error);
        }
        Ok((handle, number))
    }

    fn open(&self, handle: Handle, callback: Option<Callback>) -> Result<()> {
        if let Some(callback) = callback {
            let (receiver, handle) = (self.receiver.clone(), handle as usize);
            self.caller.start(move || {
                while let Ok(mut data) = receiver.next(MOST, Deadline::NEVER) {
                    let handle = handle as Handle;
                    let again = match &callback {
                        Callback::Plain(callback) => callback.call(handle, OK),
                        Callback::Data(callback) => callback.call(handle, &mut data, OK),
                    };
                    if !again {
                        break;
                    }
                }
            })?;
        }
        let receiver: Arc<dyn Connected> = self.receiver.clone();
        self.listener.open(Arc::downgrade(&receiver))
    }

    /// Implements `SCIRemoveInterrupt()` and `SCIRemoveDataInterrupt()`.
    pub fn remove(handle: Handle, kind: Kind) -> Result<()> {
        kind.table().remove(handle)?.release();
        Ok(())
    }

    /// Releases all resources. All waiters return.
    pub fn release(&self) {
        self.listener.close();
        self.receiver.close();
        self.caller.join();
        self.device.release();
    }

    /// Implements `SCIWaitForInterrupt()`, and `SCIWaitForDataInterrupt()` with `room` bytes for
    /// the data.
    pub fn wait(&self, room: usize, timeout: u32) -> core::result::Result<Vec<u8>, Missed> {
        if self.has_callback {
            return Err(Error::ILLEGAL_OPERATION.into());
        }
        self.receiver.next(room, Deadline::after(timeout))
    }
}
