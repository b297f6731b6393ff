// SPDX-License-Identifier: GPL-2.0

//! The part of libsisci's C interface that these tools need, and the search for the library.
//!
//! The library is opened at run time: next to the program (`../lib64`), below `DISPREFIX`, in
//! `/opt/DIS`, and where the dynamic linker searches. The declarations are those of `sisci_api.h`.

use std::ffi::OsString;
use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::path::Path;
use std::path::PathBuf;

use libloading::Library;

/// A resource.
pub type Handle = *mut c_void;
/// The place for an error.
pub type ErrorPlace = *mut u32;
/// A callback; the tools use none.
pub type NoCallback = *const c_void;

const fn error(number: u32) -> u32 {
    number | 0x4000_0000
}

/// `SCI_ERR_OK`
pub const OK: u32 = 0;
/// `SCI_ERR_TIMEOUT`
pub const TIMEOUT: u32 = error(0x90a);
/// `SCI_ERR_NO_SUCH_SEGMENT`, `SCI_ERR_NO_SUCH_INTNO`
pub const NO_SUCH_SEGMENT: u32 = error(0x90c);
/// `SCI_ERR_ILLEGAL_NODEID`
pub const ILLEGAL_NODEID: u32 = error(0x90d);
/// `SCI_ERR_CONNECTION_REFUSED`
pub const CONNECTION_REFUSED: u32 = error(0x90e);
/// `SCI_ERR_SEGMENT_NOT_CONNECTED`
pub const SEGMENT_NOT_CONNECTED: u32 = error(0x90f);
/// `SCI_ERR_SEGMENTID_USED`
pub const SEGMENTID_USED: u32 = error(0x918);
/// `SCI_ERR_NOT_CONNECTED`
pub const NOT_CONNECTED: u32 = error(0x91b);
/// `SCI_ERR_INCONSISTENT_VERSIONS`
pub const INCONSISTENT_VERSIONS: u32 = error(0x91d);
/// `SCI_ERR_NOT_INITIALIZED`
pub const NOT_INITIALIZED: u32 = error(0x920);
/// `SCI_ERR_NOT_SUPPORTED`
pub const NOT_SUPPORTED: u32 = error(0x940);
/// `SCI_ERR_INTNO_USED`
pub const INTNO_USED: u32 = error(0x942);
/// `SCI_ERR_NO_SUCH_NODEID`
pub const NO_SUCH_NODEID: u32 = error(0xa00);
/// `SCI_ERR_NODE_NOT_RESPONDING`
pub const NODE_NOT_RESPONDING: u32 = error(0xa02);
/// `SCI_ERR_NO_LINK_ACCESS`
pub const NO_LINK_ACCESS: u32 = error(0xa05);
/// `SCI_ERR_TRANSFER_FAILED`
pub const TRANSFER_FAILED: u32 = error(0xa06);

/// `SCI_INFINITE_TIMEOUT`
pub const INFINITE: u32 = u32::MAX;
/// `SCI_FLAG_FIXED_INTNO`
pub const FIXED_INTNO: u32 = 0x2;
/// `SCI_FLAG_PRIVATE`
pub const PRIVATE: u32 = 0x4;
/// `SCI_FLAG_COUNTING_INT`
pub const COUNTING_INT: u32 = 0x20;
/// `SCI_FLAG_DMA_READ`
pub const DMA_READ: u32 = 0x10;
/// `SCI_FLAG_BROADCAST`
pub const BROADCAST: u32 = 0x4_0000;
/// `SCI_FLAG_NO_FLUSH`
pub const NO_FLUSH: u32 = 0x2_0000;
/// `DIS_BROADCAST_NODEID_GROUP_ALL`
pub const ALL_NODES: u32 = 252;
/// `SCI_DMAQUEUE_DONE`
pub const DMA_DONE: u32 = 3;

/// `SCI_Q_ADAPTER`
pub const QUERY_ADAPTER: u32 = 1;
/// `SCI_Q_VENDORID`
pub const QUERY_VENDOR: u32 = 6;
/// `SCI_Q_API`
pub const QUERY_API: u32 = 7;
/// `SCI_Q_DMA`
pub const QUERY_DMA: u32 = 8;

/// `sci_query_string_t`
#[repr(C)]
pub struct QueryString {
    /// The buffer.
    pub text: *mut c_char,
    /// The size.
    pub length: u32,
}

/// `sci_query_adapter_t`
#[repr(C)]
pub struct QueryAdapter {
    /// The number of the adapter.
    pub adapter: u32,
    /// Not used.
    pub port: u32,
    /// The query.
    pub subcommand: u32,
    /// The place for the answer.
    pub data: *mut c_void,
}

/// `sci_query_dma_t`
#[repr(C)]
pub struct QueryDma {
    /// The number of the adapter.
    pub adapter: u32,
    /// The query.
    pub subcommand: u32,
    /// The place for the answer.
    pub data: *mut c_void,
}

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of an opened library.
        #[allow(non_snake_case, missing_docs)]
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            /// Keeps the library open.
            _library: Library,
        }

        impl Functions {
            fn of(library: Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    $(
                        // SAFETY: The type is that of the header, and the library has the version
                        // of the header.
                        $name: unsafe {
                            *library.get::<unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                concat!(stringify!($name), "\0").as_bytes(),
                            )?
                        },
                    )*
                    _library: library,
                })
            }
        }
    };
}

functions! {
    SCIInitialize(u32, ErrorPlace);
    SCITerminate();
    SCIOpen(*mut Handle, u32, ErrorPlace);
    SCIClose(Handle, u32, ErrorPlace);
    SCIGetErrorString(u32) -> *const c_char;
    SCIQuery(u32, *mut c_void, u32, ErrorPlace);
    SCIProbeNode(Handle, u32, u32, u32, ErrorPlace) -> c_int;
    SCICreateSegment(Handle, *mut Handle, u32, usize, NoCallback, *mut c_void, u32, ErrorPlace);
    SCIPrepareSegment(Handle, u32, u32, ErrorPlace);
    SCISetSegmentAvailable(Handle, u32, u32, ErrorPlace);
    SCIRemoveSegment(Handle, u32, ErrorPlace);
    SCIConnectSegment(
        Handle, *mut Handle, u32, u32, u32, NoCallback, *mut c_void, u32, u32, ErrorPlace
    );
    SCIDisconnectSegment(Handle, u32, ErrorPlace);
    SCIGetRemoteSegmentSize(Handle) -> usize;
    SCIMapLocalSegment(
        Handle, *mut Handle, usize, usize, *mut c_void, u32, ErrorPlace
    ) -> *mut c_void;
    SCIMapRemoteSegment(
        Handle, *mut Handle, usize, usize, *mut c_void, u32, ErrorPlace
    ) -> *mut c_void;
    SCIUnmapSegment(Handle, u32, ErrorPlace);
    SCICreateMapSequence(Handle, *mut Handle, u32, ErrorPlace);
    SCIRemoveSequence(Handle, u32, ErrorPlace);
    SCICheckSequence(Handle, u32, ErrorPlace) -> u32;
    SCIFlush(Handle, u32);
    SCIMemCpy(Handle, *mut c_void, Handle, usize, usize, u32, ErrorPlace);
    SCICreateDMAQueue(Handle, *mut Handle, u32, u32, u32, ErrorPlace);
    SCIRemoveDMAQueue(Handle, u32, ErrorPlace);
    SCIStartDmaTransfer(
        Handle, Handle, Handle, usize, usize, usize, NoCallback, *mut c_void, u32, ErrorPlace
    );
    SCIWaitForDMAQueue(Handle, u32, u32, ErrorPlace) -> u32;
    SCICreateInterrupt(
        Handle, *mut Handle, u32, *mut u32, NoCallback, *mut c_void, u32, ErrorPlace
    );
    SCIRemoveInterrupt(Handle, u32, ErrorPlace);
    SCIWaitForInterrupt(Handle, u32, u32, ErrorPlace);
    SCIConnectInterrupt(Handle, *mut Handle, u32, u32, u32, u32, u32, ErrorPlace);
    SCIDisconnectInterrupt(Handle, u32, ErrorPlace);
    SCITriggerInterrupt(Handle, u32, ErrorPlace);
    SCICreateDataInterrupt(
        Handle, *mut Handle, u32, *mut u32, NoCallback, *mut c_void, u32, ErrorPlace
    );
    SCIRemoveDataInterrupt(Handle, u32, ErrorPlace);
    SCIWaitForDataInterrupt(Handle, *mut c_void, *mut u32, u32, u32, ErrorPlace);
    SCIConnectDataInterrupt(Handle, *mut Handle, u32, u32, u32, u32, u32, ErrorPlace);
    SCIDisconnectDataInterrupt(Handle, u32, ErrorPlace);
    SCITriggerDataInterrupt(Handle, *mut c_void, u32, u32, ErrorPlace);
}

/// Returns the places where the library may be, in order. The last is left to the dynamic linker.
fn places(program: Option<&Path>, prefix: Option<OsString>) -> Vec<PathBuf> {
    let beside = program.and_then(|program| Some(program.parent()?.parent()?.to_owned()));
    let prefixes = [
        beside,
        prefix.map(PathBuf::from),
        Some(PathBuf::from("/opt/DIS")),
    ];
    let mut places: Vec<PathBuf> = prefixes
        .into_iter()
        .flatten()
        .map(|prefix| prefix.join("lib64/libsisci.so.2"))
        .collect();
    places.push("libsisci.so.2".into());
    places
}

/// Opens the library. If no place has it, the error lists the places with their errors.
pub fn load() -> Result<Functions, String> {
    let program = std::env::current_exe().ok();
    let places = places(program.as_deref(), std::env::var_os("DISPREFIX"));
    let mut looked = Vec::new();
    for place in places {
        if place.is_absolute() && !place.exists() {
            looked.push(format!("{} is not there", place.display()));
            continue;
        }
        // SAFETY: The initialization of libsisci has no effect on this program.
        let opened = unsafe { Library::new(&place) };
        match opened.and_then(Functions::of) {
            Ok(functions) => return Ok(functions),
            Err(error) => looked.push(format!("{}: {error}", place.display())),
        }
    }
    Err(looked.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_is_searched_beside_the_program_first() {
        let program = Path::new("/x/bin/sisci-info");
        let found = places(Some(program), Some("/y".into()));
        let expected = ["/x", "/y", "/opt/DIS"];
        let expected = expected.map(|prefix| format!("{prefix}/lib64/libsisci.so.2"));
        assert_eq!(found[..3], expected.map(PathBuf::from));
        assert_eq!(found[3], PathBuf::from("libsisci.so.2"));
        assert_eq!(places(None, None).len(), 2);
    }
}
