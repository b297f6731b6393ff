// SPDX-License-Identifier: LGPL-2.1

//! Virtual devices, with which a program makes other resources.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::atomic::Ordering::Acquire;

use crate::error::Error;
use crate::error::Result;
use crate::handles::Handle;
use crate::handles::Table;
use crate::lock::lock;

/// A virtual device.
#[derive(Default)]
pub struct Device {
    uses: AtomicUsize,
}

/// All virtual devices.
pub static DEVICES: Table<Device> = Table::new(1);

/// A use of a device by a resource. The device can't be closed before the use is released or
/// dropped.
pub struct DeviceUse(Mutex<Option<Arc<Device>>>);

impl DeviceUse {
    /// Ends the use: the program has released the resource, though a thread may still be about to
    /// leave it.
    pub fn release(&self) {
        if let Some(device) = lock(&self.0).take() {
            device.uses.fetch_sub(1, AcqRel);
        }
    }
}

impl Drop for DeviceUse {
    fn drop(&mut self) {
        self.release();
    }
}

/// Implements `SCIOpen()`.
pub fn open() -> Result<Handle> {
    DEVICES.insert(Arc::new(Device::default()))
}

/// Implements `SCIClose()`.
pub fn close(handle: Handle) -> Result<()> {
    match DEVICES.get(handle)?.uses.load(Acquire) {
        0 => DEVICES.remove(handle).map(drop),
        _ => Err(Error::BUSY),
    }
}

/// Makes a use of a device.
pub fn using(handle: Handle) -> Result<DeviceUse> {
    let device = DEVICES.get(handle)?;
    device.uses.fetch_add(1, AcqRel);
    Ok(DeviceUse(Mutex::new(Some(device))))
}
