// SPDX-License-Identifier: LGPL-2.1

//! Functions of the program that are called when an event occurs.

use std::ffi::c_void;

use crate::handles::Handle;
use crate::reason::Reason;

/// The return value of a callback that wants to be called again.
const CONTINUE: u32 = 2;

/// Calls the program's function. Returns whether the library may call it again. If the function has
/// forked, the child must not call it again: it has no source of events, even if it has initialized
/// the library anew.
fn again(call: impl FnOnce() -> u32) -> bool {
    let process = std::process::id();
    call() == CONTINUE && std::process::id() == process
}

/// `sci_cb_local_segment_t`
pub type LocalSegmentFunction =
    unsafe extern "C" fn(*mut c_void, Handle, u32, u32, u32, u32) -> u32;
/// `sci_cb_remote_segment_t`
pub type RemoteSegmentFunction = unsafe extern "C" fn(*mut c_void, Handle, u32, u32) -> u32;
/// `sci_cb_dma_t`, `sci_cb_interrupt_t`
pub type StatusFunction = unsafe extern "C" fn(*mut c_void, Handle, u32) -> u32;
/// `sci_cb_data_interrupt_t`
pub type DataFunction = unsafe extern "C" fn(*mut c_void, Handle, *mut c_void, u32, u32) -> u32;

/// A function and its first argument.
///
/// # Invariants
///
/// The program has said that `function` takes `argument`, from any thread, until the resource is
/// released.
#[derive(Clone, Copy)]
pub struct Callback<F> {
    function: F,
    argument: *mut c_void,
}

// SAFETY: By the type invariant.
unsafe impl<F: Send> Send for Callback<F> {}
// SAFETY: By the type invariant.
unsafe impl<F: Sync> Sync for Callback<F> {}

impl<F> Callback<F> {
    /// # Safety
    ///
    /// By the type invariant.
    pub unsafe fn new(function: F, argument: *mut c_void) -> Self {
        // INVARIANT: By the contract of this function.
        Self { function, argument }
    }
}

/// A callback for a local segment.
pub type LocalSegment = Callback<LocalSegmentFunction>;
/// A callback for a remote segment.
pub type RemoteSegment = Callback<RemoteSegmentFunction>;
/// A callback for a DMA queue or an interrupt.
pub type Status = Callback<StatusFunction>;
/// A callback for an interrupt with data.
pub type Data = Callback<DataFunction>;

impl LocalSegment {
    /// Calls the function. Returns whether to call it again.
    pub fn call(&self, segment: Handle, reason: Reason, node: u32, status: u32) -> bool {
        // SAFETY: By the type invariant.
        again(|| unsafe {
            (self.function)(self.argument, segment, reason.number(), node, 0, status)
        })
    }
}

impl RemoteSegment {
    /// Calls the function. Returns whether to call it again.
    pub fn call(&self, segment: Handle, reason: Reason, status: u32) -> bool {
        // SAFETY: By the type invariant.
        again(|| unsafe { (self.function)(self.argument, segment, reason.number(), status) })
    }
}

impl Status {
    /// Calls the function. Returns whether to call it again.
    pub fn call(&self, resource: Handle, status: u32) -> bool {
        // SAFETY: By the type invariant.
        again(|| unsafe { (self.function)(self.argument, resource, status) })
    }
}

impl Data {
    /// Calls the function. Returns whether to call it again.
    pub fn call(&self, resource: Handle, data: &mut [u8], status: u32) -> bool {
        let (bytes, len) = (data.as_mut_ptr(), data.len() as u32);
        // SAFETY: By the type invariant.
        again(|| unsafe { (self.function)(self.argument, resource, bytes.cast(), len, status) })
    }
}
