// SPDX-License-Identifier: GPL-2.0

//! Safe calls of libsisci: a type for each resource, which releases it when it is dropped.
//!
//! Memory that other nodes write to is accessed by raw copies and volatile loads only: no reference
//! to it exists.

mod interrupts;
mod memory;

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::error::Error;
use crate::error::Result;
use crate::ffi;
use crate::ffi::Functions;

pub use memory::Map;
pub use memory::Sequence;

/// Adapter 0 is the only one.
const ADAPTER: u32 = 0;

/// A handle. The library accepts a handle from any thread.
#[derive(Clone, Copy, Debug)]
struct Handle(ffi::Handle);

// SAFETY: The library accepts a handle from any thread.
unsafe impl Send for Handle {}
// SAFETY: The library accepts a handle from any thread.
unsafe impl Sync for Handle {}

impl Handle {
    const NONE: Self = Self(null_mut());
}

/// The library, initialized, with a virtual device.
pub struct Sisci {
    functions: Functions,
    device: Handle,
}

/// The answer of `SCIQuery()` about DMA, `sci_dma_capabilities_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct DmaCapabilities {
    /// Number of engines that can be told apart.
    pub channels: u32,
    /// Largest size of a transfer in bytes.
    pub max_transfer_size: u32,
    /// Largest number of entries of a vector.
    pub max_vector_length: u32,
    /// Whether DMA copies to other nodes.
    pub push: u32,
    /// Whether DMA copies from other nodes.
    pub pull: u32,
    /// Whether DMA copies between other nodes.
    pub remote_to_remote: u32,
    /// Offsets and sizes must be multiples of this.
    pub min_align: u32,
    /// Offsets and sizes that are multiples of this are best.
    pub suggested_align: u32,
}

impl Sisci {
    /// Initializes the library and opens a virtual device.
    pub fn open() -> Result<Arc<Self>> {
        let mut this = Self {
            functions: ffi::load().map_err(|looked| Error::NoLibrary { looked })?,
            device: Handle::NONE,
        };
        this.call("cannot initialize libsisci", |functions, error| {
            // SAFETY: The error can be written to.
            unsafe { (functions.SCIInitialize)(0, error) }
        })?;
        let mut device = null_mut();
        this.call("cannot open a virtual device", |functions, error| {
            // SAFETY: The handle and the error can be written to.
            unsafe { (functions.SCIOpen)(&mut device, 0, error) }
        })?;
        this.device = Handle(device);
        Ok(Arc::new(this))
    }

    /// Calls a function with a place for its error.
    fn call<T>(
        &self,
        failure: impl std::fmt::Display,
        function: impl FnOnce(&Functions, ffi::ErrorPlace) -> T,
    ) -> Result<T> {
        let mut code = ffi::OK;
        let result = function(&self.functions, &mut code);
        match code {
            ffi::OK => Ok(result),
            code => Err(Error::Sisci {
                failure: failure.to_string(),
                code,
                text: self.words(code),
            }),
        }
    }

    /// Returns the text of an error.
    fn words(&self, code: u32) -> String {
        // SAFETY: The string exists as long as the library, see SCIGetErrorString(3).
        let text = unsafe { CStr::from_ptr((self.functions.SCIGetErrorString)(code)) };
        text.to_string_lossy().into_owned()
    }

    /// Queries a string by `SCIQuery()`.
    pub fn string(&self, command: u32) -> Result<String> {
        let mut room = [0u8; 256];
        let mut query = ffi::QueryString {
            text: room.as_mut_ptr().cast(),
            length: room.len() as u32,
        };
        self.call("cannot ask the library what it is", |functions, error| {
            // SAFETY: The structure is that of the command, and its room is `length` bytes.
            unsafe { (functions.SCIQuery)(command, (&raw mut query).cast(), 0, error) }
        })?;
        let end = room.iter().position(|byte| *byte == 0);
        Ok(String::from_utf8_lossy(&room[..end.unwrap_or(0)]).into_owned())
    }

    /// Queries a number of `SCI_Q_ADAPTER`. Returns `None` if the library can't tell.
    pub fn adapter(&self, subcommand: u32) -> Result<Option<u32>> {
        let mut answer = 0u32;
        let mut query = ffi::QueryAdapter {
            adapter: ADAPTER,
            port: 0,
            subcommand,
            data: (&raw mut answer).cast(),
        };
        let asked = self.call("cannot ask for the adapter", |functions, error| {
            let query = (&raw mut query).cast();
            // SAFETY: The structure is that of the command; it points to an unsigned int.
            unsafe { (functions.SCIQuery)(ffi::QUERY_ADAPTER, query, 0, error) }
        });
        match asked {
            Ok(()) => Ok(Some(answer)),
            Err(Error::Sisci {
                code: ffi::NOT_SUPPORTED,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Queries the capabilities of DMA.
    pub fn dma(&self) -> Result<DmaCapabilities> {
        let mut answer = DmaCapabilities::default();
        let mut query = ffi::QueryDma {
            adapter: ADAPTER,
            subcommand: 1,
            data: (&raw mut answer).cast(),
        };
        self.call("cannot ask what DMA can do", |functions, error| {
            let query = (&raw mut query).cast();
            // SAFETY: The structure is that of the command; it points to the structure for the
            // answer.
            unsafe { (functions.SCIQuery)(ffi::QUERY_DMA, query, 0, error) }
        })?;
        Ok(answer)
    }

    /// Returns why a node is out of reach; `None` if it is not.
    pub fn probe(&self, node: u32) -> Option<String> {
        let probed = self.call("", |functions, error| {
            // SAFETY: The error can be written to.
            unsafe { (functions.SCIProbeNode)(self.device.0, ADAPTER, node, 0, error) }
        });
        match probed {
            Err(Error::Sisci { text, .. }) => Some(text),
            _ => None,
        }
    }
}

impl Drop for Sisci {
    fn drop(&mut self) {
        if !self.device.0.is_null() {
            // SAFETY: The drop happens once, and all resources are released: each keeps this
            // object.
            unsafe {
                (self.functions.SCIClose)(self.device.0, 0, null_mut());
                (self.functions.SCITerminate)();
            }
        }
    }
}

/// Makes a type for a resource that has a function to release it.
macro_rules! resource {
    ($(#[$doc:meta])* $name:ident, $release:ident) => {
        $(#[$doc])*
        pub struct $name {
            sisci: Arc<Sisci>,
            handle: Handle,
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: This object owns the handle, and releases it once.
                unsafe { (self.sisci.functions.$release)(self.handle.0, 0, null_mut()) };
            }
        }
    };
}
resource!(
    /// A segment of this node.
    LocalSegment,
    SCIRemoveSegment
);
resource!(
    /// A segment of another node.
    RemoteSegment,
    SCIDisconnectSegment
);
resource!(
    /// A queue that makes DMA transfers.
    DmaQueue,
    SCIRemoveDMAQueue
);
resource!(
    /// An interrupt of this node, which other nodes can trigger.
    LocalInterrupt,
    SCIRemoveInterrupt
);
resource!(
    /// An interrupt of another node, which this node can trigger.
    RemoteInterrupt,
    SCIDisconnectInterrupt
);
resource!(
    /// A data interrupt of this node, to which other nodes can send messages.
    LocalDataInterrupt,
    SCIRemoveDataInterrupt
);
resource!(
    /// A data interrupt of another node, to which this node can send messages.
    RemoteDataInterrupt,
    SCIDisconnectDataInterrupt
);
