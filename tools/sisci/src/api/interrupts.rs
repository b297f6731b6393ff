// SPDX-License-Identifier: GPL-2.0

//! Interrupts, with data and without.

use std::ptr::null;
use std::ptr::null_mut;
use std::sync::Arc;

use super::ADAPTER;
use super::Handle;
use super::LocalDataInterrupt;
use super::LocalInterrupt;
use super::RemoteDataInterrupt;
use super::RemoteInterrupt;
use super::Sisci;
use crate::error::Error;
use crate::error::Result;
use crate::ffi;

/// Turns a timeout into `None`.
fn unless_timeout<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(Error::Sisci {
            code: ffi::TIMEOUT, ..
        }) => Ok(None),
        other => other.map(Some),
    }
}

impl LocalInterrupt {
    /// Makes an interrupt of this number, each of whose triggers counts.
    pub fn new(sisci: &Arc<Sisci>, number: u32) -> Result<Self> {
        let (mut handle, mut number) = (null_mut(), number);
        let flags = ffi::FIXED_INTNO | ffi::COUNTING_INT;
        let failure = format!("cannot make interrupt {number}");
        sisci.call(failure, |functions, error| {
            // SAFETY: The places can be written to; there is no callback.
            unsafe {
                (functions.SCICreateInterrupt)(
                    sisci.device.0,
                    &mut handle,
                    ADAPTER,
                    &mut number,
                    null(),
                    null_mut(),
                    flags,
                    error,
                )
            }
        })?;
        Ok(Self {
            sisci: sisci.clone(),
            handle: Handle(handle),
        })
    }

    /// Waits for a trigger. Returns false if none came within `timeout` milliseconds.
    pub fn wait(&self, timeout: u32) -> Result<bool> {
        let failure = "cannot wait for an interrupt";
        let waited = self.sisci.call(failure, |functions, error| {
            // SAFETY: The place can be written to.
            unsafe { (functions.SCIWaitForInterrupt)(self.handle.0, timeout, 0, error) }
        });
        Ok(unless_timeout(waited)?.is_some())
    }
}

impl RemoteInterrupt {
    /// Connects to an interrupt.
    pub fn connect(sisci: &Arc<Sisci>, node: u32, number: u32) -> Result<Self> {
        let mut handle = null_mut();
        let failure = format!("cannot connect to interrupt {number} of node {node}");
        sisci.call(failure, |functions, error| {
            let connect = functions.SCIConnectInterrupt;
            let timeout = ffi::INFINITE;
            // SAFETY: The places can be written to.
            unsafe {
                connect(
                    sisci.device.0,
                    &mut handle,
                    node,
                    ADAPTER,
                    number,
                    timeout,
                    0,
                    error,
                )
            }
        })?;
        Ok(Self {
            sisci: sisci.clone(),
            handle: Handle(handle),
        })
    }

    /// Triggers the interrupt.
    pub fn trigger(&self) -> Result<()> {
        let failure = "cannot trigger an interrupt";
        self.sisci.call(failure, |functions, error| {
            // SAFETY: The place can be written to.
            unsafe { (functions.SCITriggerInterrupt)(self.handle.0, 0, error) }
        })
    }
}

impl LocalDataInterrupt {
    /// Makes a data interrupt of this number.
    pub fn new(sisci: &Arc<Sisci>, number: u32) -> Result<Self> {
        let (mut handle, mut number) = (null_mut(), number);
        let failure = format!("cannot make data interrupt {number}");
        sisci.call(failure, |functions, error| {
            // SAFETY: The places can be written to; there is no callback.
            unsafe {
                (functions.SCICreateDataInterrupt)(
                    sisci.device.0,
                    &mut handle,
                    ADAPTER,
                    &mut number,
                    null(),
                    null_mut(),
                    ffi::FIXED_INTNO,
                    error,
                )
            }
        })?;
        Ok(Self {
            sisci: sisci.clone(),
            handle: Handle(handle),
        })
    }

    /// Waits for a message. Returns none if none came within `timeout` milliseconds.
    pub fn wait(&self, timeout: u32) -> Result<Option<Vec<u8>>> {
        let mut room = vec![0u8; 4096];
        let mut length = room.len() as u32;
        let failure = "cannot wait for a message";
        let waited = self.sisci.call(failure, |functions, error| {
            let (handle, data) = (self.handle.0, room.as_mut_ptr().cast());
            // SAFETY: The buffer has `length` bytes, and the places can be written to.
            unsafe {
                (functions.SCIWaitForDataInterrupt)(handle, data, &mut length, timeout, 0, error)
            }
        });
        let message = unless_timeout(waited)?.map(|()| {
            room.truncate(length as usize);
            room
        });
        Ok(message)
    }
}

impl RemoteDataInterrupt {
    /// Connects to a data interrupt.
    pub fn connect(sisci: &Arc<Sisci>, node: u32, number: u32) -> Result<Self> {
        let mut handle = null_mut();
        let failure = format!("cannot connect to data interrupt {number} of node {node}");
        sisci.call(failure, |functions, error| {
            let connect = functions.SCIConnectDataInterrupt;
            let timeout = ffi::INFINITE;
            // SAFETY: The places can be written to.
            unsafe {
                connect(
                    sisci.device.0,
                    &mut handle,
                    node,
                    ADAPTER,
                    number,
                    timeout,
                    0,
                    error,
                )
            }
        })?;
        Ok(Self {
            sisci: sisci.clone(),
            handle: Handle(handle),
        })
    }

    /// Sends a message.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        let failure = "cannot send a message";
        self.sisci.call(failure, |functions, error| {
            let data = message.as_ptr().cast_mut().cast();
            // SAFETY: The message has that many bytes, and the library only reads them.
            unsafe {
                (functions.SCITriggerDataInterrupt)(
                    self.handle.0,
                    data,
                    message.len() as u32,
                    0,
                    error,
                )
            }
        })
    }
}
