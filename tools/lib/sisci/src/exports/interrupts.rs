// SPDX-License-Identifier: LGPL-2.1

//! Interrupts, with data and without.

use super::ErrorPlace;
use super::call;
use super::callback;
use super::exported;
use super::required;
use crate::callback::DataFunction;
use crate::callback::StatusFunction;
use crate::device;
use crate::error::Error;
use crate::flags;
use crate::handles::Handle;
use crate::local_interrupts;
use crate::local_interrupts::Callback;
use crate::local_interrupts::Kind;
use crate::local_interrupts::LocalInterrupt;
use crate::nodes;
use crate::remote_interrupts;
use crate::remote_interrupts::RemoteInterrupt;
use std::ffi::c_void;

exported! {
    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be read and written; the callback takes its argument from any
    /// thread.
    fn SCICreateInterrupt(
        sd: Handle,
        interrupt: *mut Handle,
        adapter: u32,
        number: *mut u32,
        function: Option<StatusFunction>,
        argument: *mut c_void,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                let allowed =
                    flags::USE_CALLBACK | flags::FIXED_INTNO | flags::SHARED_INT | flags::COUNTING_INT;
                flags::check(flags, allowed)?;
                let (interrupt, number) = (required(interrupt)?, required(number)?);
                let callback = callback(function, argument, flags)?.map(Callback::Plain);
                let _device = device::using(sd)?;
                nodes::check_adapter(adapter)?;
                let fixed = (flags & flags::FIXED_INTNO != 0).then(|| number.read());
                let (handle, taken) = LocalInterrupt::create(sd, Kind::Plain, fixed, flags, callback)?;
                interrupt.write(handle);
                number.write(taken);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIRemoveInterrupt(
        interrupt: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                LocalInterrupt::remove(interrupt, Kind::Plain)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIWaitForInterrupt(
        interrupt: Handle,
        timeout: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                local_interrupts::INTERRUPTS.get(interrupt)?.wait(0, timeout)?;
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIConnectInterrupt(
        sd: Handle,
        interrupt: *mut Handle,
        node: u32,
        adapter: u32,
        number: u32,
        timeout: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                let interrupt = required(interrupt)?;
                nodes::check_adapter(adapter)?;
                interrupt.write(RemoteInterrupt::connect(sd, Kind::Plain, node, number, timeout)?);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIDisconnectInterrupt(
        interrupt: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                RemoteInterrupt::disconnect(interrupt, Kind::Plain)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCITriggerInterrupt(
        interrupt: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                remote_interrupts::INTERRUPTS.get(interrupt)?.trigger(&[])
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be read and written; the callback takes its argument from any
    /// thread.
    fn SCICreateDataInterrupt(
        sd: Handle,
        interrupt: *mut Handle,
        adapter: u32,
        number: *mut u32,
        function: Option<DataFunction>,
        argument: *mut c_void,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                let allowed =
                    flags::USE_CALLBACK | flags::FIXED_INTNO | flags::SHARED_INT | flags::COUNTING_INT;
                flags::check(flags, allowed)?;
                let (interrupt, number) = (required(interrupt)?, required(number)?);
                let callback = callback(function, argument, flags)?.map(Callback::Data);
                let _device = device::using(sd)?;
                nodes::check_adapter(adapter)?;
                let fixed = (flags & flags::FIXED_INTNO != 0).then(|| number.read());
                let (handle, taken) = LocalInterrupt::create(sd, Kind::Data, fixed, flags, callback)?;
                interrupt.write(handle);
                number.write(taken);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIRemoveDataInterrupt(
        interrupt: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                LocalInterrupt::remove(interrupt, Kind::Data)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `data` has as many bytes as `length` points to; pointers are null or can be written to.
    fn SCIWaitForDataInterrupt(
        interrupt: Handle,
        data: *mut c_void,
        length: *mut u32,
        timeout: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                let length = required(length)?;
                let room = length.read() as usize;
                let interrupt = local_interrupts::DATA_INTERRUPTS.get(interrupt)?;
                if data.is_null() && room > 0 {
                    return Err(Error::ILLEGAL_PARAMETER);
                }
                match interrupt.wait(room, timeout) {
                    Ok(bytes) => {
                        core::ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast(), bytes.len());
                        length.write(bytes.len() as u32);
                        Ok(())
                    }
                    Err(missed) => {
                        if missed.error == Error::OVERFLOW {
                            length.write(missed.length as u32);
                        }
                        Err(missed.error)
                    }
                }
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIConnectDataInterrupt(
        sd: Handle,
        interrupt: *mut Handle,
        node: u32,
        adapter: u32,
        number: u32,
        timeout: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                let interrupt = required(interrupt)?;
                nodes::check_adapter(adapter)?;
                interrupt.write(RemoteInterrupt::connect(sd, Kind::Data, node, number, timeout)?);
                Ok(())
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// Pointers are null or can be written to.
    fn SCIDisconnectDataInterrupt(
        interrupt: Handle,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                RemoteInterrupt::disconnect(interrupt, Kind::Data)
            })
        }
    }

    /// Implements the function that its man page describes.
    ///
    /// # Safety
    ///
    /// `data` has `length` bytes; `error` is null or can be written to.
    fn SCITriggerDataInterrupt(
        interrupt: Handle,
        data: *mut c_void,
        length: u32,
        flags: u32,
        error: ErrorPlace,
    ) {
        // SAFETY: By the contract of this function.
        unsafe {
            call(error, (), || {
                flags::check(flags, 0)?;
                let interrupt = remote_interrupts::DATA_INTERRUPTS.get(interrupt)?;
                if length == 0 {
                    return interrupt.trigger(&[]);
                }
                let bytes = core::slice::from_raw_parts(required(data)?.cast::<u8>(), length as usize);
                interrupt.trigger(bytes)
            })
        }
    }
}
