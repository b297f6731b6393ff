// SPDX-License-Identifier: LGPL-2.1

//! The errors of the library, by the numbers of `sisci_error.h`.
//!
//! The kernel's errors mean different things in different calls, so the caller translates them.
//! [`Error::from`] is for errors that mean the same everywhere.

use std::ffi::CStr;

use rustix::io::Errno;

/// A number of `sisci_error.h` other than success.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(u32);

/// The result of calls inside the library.
pub type Result<T> = core::result::Result<T, Error>;

/// `SCI_ERR_OK`
pub const OK: u32 = 0;

const MASK: u32 = 0x4000_0000;

macro_rules! errors {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Error {
            $(
                #[doc = $text]
                pub const $name: Self = Self($number | MASK);
            )*

            /// All errors.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }

        /// Returns the text of `SCIGetErrorString()`.
        pub fn text(code: u32) -> &'static CStr {
            const fn c(bytes: &'static str) -> &'static CStr {
                match CStr::from_bytes_with_nul(bytes.as_bytes()) {
                    Ok(text) => text,
                    Err(_) => c"",
                }
            }
            match code {
                OK => c"SCI_ERR_OK: no error",
                $(
                    code if code == $number | MASK => const {
                        c(concat!("SCI_ERR_", stringify!($name), ": ", $text, "\0"))
                    },
                )*
                _ => c"unknown error",
            }
        }
    };
}

errors! {
    BUSY = 0x900, "other resources depend on this one";
    FLAG_NOT_IMPLEMENTED = 0x901, "the flag is not implemented";
    ILLEGAL_FLAG = 0x902, "a flag that this function does not take";
    NOSPC = 0x904, "out of memory or other resources";
    API_NOSPC = 0x905, "the library is out of resources";
    HW_NOSPC = 0x906, "the hardware is out of resources";
    NOT_IMPLEMENTED = 0x907, "not implemented";
    ILLEGAL_ADAPTERNO = 0x908, "not a number of an adapter";
    NO_SUCH_ADAPTERNO = 0x909, "there is no adapter of that number";
    TIMEOUT = 0x90a, "nothing happened within the time given";
    OUT_OF_RANGE = 0x90b, "beyond the end";
    NO_SUCH_SEGMENT = 0x90c, "the node has no such segment or interrupt available";
    ILLEGAL_NODEID = 0x90d, "not an id of a node";
    CONNECTION_REFUSED = 0x90e, "the connection was refused";
    SEGMENT_NOT_CONNECTED = 0x90f, "the segment is not connected";
    SIZE_ALIGNMENT = 0x910, "the size is not aligned";
    OFFSET_ALIGNMENT = 0x911, "the offset is not aligned";
    ILLEGAL_PARAMETER = 0x912, "a parameter can't be right";
    MAX_ENTRIES = 0x913, "more entries than the queue has";
    SEGMENT_NOT_PREPARED = 0x914, "the segment is not prepared";
    ILLEGAL_ADDRESS = 0x915, "the address can't be used";
    ILLEGAL_OPERATION = 0x916, "not allowed in this state";
    ILLEGAL_QUERY = 0x917, "there is no such query";
    SEGMENTID_USED = 0x918, "the id of the segment is in use";
    SYSTEM = 0x919, "a call of the system failed";
    CANCELLED = 0x91a, "the resource was released meanwhile";
    NOT_CONNECTED = 0x91b, "not connected";
    NOT_AVAILABLE = 0x91c, "not available";
    INCONSISTENT_VERSIONS = 0x91d, "the driver is missing, or of another version";
    COND_INT_RACE_PROBLEM = 0x91e, "a race of conditional interrupts";
    OVERFLOW = 0x91f, "more data than there is room for";
    NOT_INITIALIZED = 0x920, "SCIInitialize() has not been called";
    ACCESS = 0x921, "no permission";
    NOT_SUPPORTED = 0x940, "not supported";
    DEPRECATED = 0x941, "not supported any more";
    INTNO_USED = 0x942, "the number of the interrupt is in use";
    DMA_NOT_AVAILABLE = 0x943, "there is no DMA engine";
    DMA_DISABLED = 0x944, "DMA is disabled";
    EWOULD_BLOCK = 0x945, "there is no room now";
    SEMAPHORE_COUNT_EXCEEDED = 0x946, "a semaphore's count was exceeded";
    IRQL_ILLEGAL = 0x947, "not allowed at this interrupt level";
    LOCAL_BUSY = 0x948, "this side is busy";
    ALL_BUSY = 0x949, "all are busy";
    NO_SUCH_FDID = 0x94a, "there is no such fabric device";
    NO_SUCH_NODEID = 0xa00, "there is no such node";
    NODE_NOT_RESPONDING = 0xa02, "the node does not respond";
    NO_REMOTE_LINK_ACCESS = 0xa04, "the remote node has no link";
    NO_LINK_ACCESS = 0xa05, "this host has no link";
    TRANSFER_FAILED = 0xa06, "the transfer failed";
}

impl Error {
    /// `SCI_ERR_NO_SUCH_INTNO`
    pub const NO_SUCH_INTNO: Self = Self::NO_SUCH_SEGMENT;

    /// Returns the number for C.
    pub fn code(self) -> u32 {
        self.0
    }

    /// Returns the error that a peer sent. An unknown number stands for a refusal.
    pub fn from_code(code: u32) -> Self {
        let known = Self::ALL.iter().find(|error| error.0 == code);
        known.copied().unwrap_or(Self::CONNECTION_REFUSED)
    }
}

impl core::fmt::Debug for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&text(self.0).to_string_lossy())
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::NOSPC | Errno::AGAIN => Self::NOSPC,
            Errno::PERM | Errno::ACCESS => Self::ACCESS,
            Errno::NOTCONN | Errno::CONNRESET | Errno::NODEV => Self::NOT_CONNECTED,
            Errno::TIMEDOUT => Self::TIMEOUT,
            Errno::OPNOTSUPP | Errno::NOTTY => Self::NOT_SUPPORTED,
            Errno::NXIO => Self::OUT_OF_RANGE,
            Errno::IO => Self::TRANSFER_FAILED,
            _ => Self::SYSTEM,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_text_contains_its_name() {
        for error in Error::ALL {
            let text = text(error.code()).to_str().expect("ASCII");
            assert!(text.starts_with("SCI_ERR_"), "{text}");
            assert_eq!(Error::from_code(error.code()), *error);
        }
        assert_eq!(text(0x1234), c"unknown error");
        assert_eq!(Error::from_code(7), Error::CONNECTION_REFUSED);
    }
}
