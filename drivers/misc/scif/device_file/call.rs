// SPDX-License-Identifier: GPL-2.0

//! What an ioctl asks for, taken apart.
//!
//! The number of an ioctl names the call and, since the size is part of it, the layout of its
//! argument. All layouts are read into one [`Call`], and from there on it does not matter who has
//! called: [`Call::parse`] knows the numbers of `linux/scif_ioctl.h`, [`compat`](super::compat) and
//! [`parse_mic`] know others.
//!
//! Nothing is checked here but that the argument can be read.
//!
//! # The numbers of the MIC library, behind the module parameter `mic_compat`
//!
//! That library came before `linux/scif_ioctl.h`. It opens `/dev/mic/scif`, and its numbers for
//! calls with a structure carry the size of a pointer instead of the structure's. The structures
//! are the same, but for one; the remaining numbers are, too. So no number stands for two layouts,
//! and both sets are served on both devices.
//!
//! The library was 64-bit only: to 32-bit processes these numbers are unknown, with the version,
//! which would promise them.
//!
//! `parse` has more than 60 lines because it is a list: one arm for each number.

use crate::{
    arguments::{
        Direction,
        LocalSide, //
    },
    sys::{
        buffer::Buffer,
        uapi::{
            self,
            place,
            user_structure,
            Place, //
        },
    },
};
use core::mem::offset_of;
use kernel::{
    ioctl::{
        _IO,
        _IOC_NR,
        _IOC_TYPE,
        _IOWR, //
    },
    prelude::*,
    uaccess::UserPtr, //
};

/// Turns a field that holds a pointer into the address that the caller means.
pub(super) type Pointer = fn(u64) -> usize;

/// The pointers of 64-bit callers.
pub(super) fn native_pointer(pointer: u64) -> usize {
    pointer as usize
}

/// A call, with what it was given and the places where its results go.
pub(super) enum Call {
    Bind {
        port: Place<u16>,
    },
    Listen {
        backlog: i32,
    },
    Connect {
        peer: uapi::scif_port_id,
        own: Place<uapi::scif_port_id>,
    },
    /// ACCEPTREQ
    Accept {
        flags: i32,
        peer: Place<uapi::scif_port_id>,
        handle: Place<u64>,
    },
    /// ACCEPTREG
    TakeOver {
        handle: u64,
    },
    Send(Message),
    Receive(Message),
    Register(Registration),
    Unregister {
        offset: i64,
        len: u64,
    },
    Transfer {
        direction: Direction,
        local: LocalSide,
        remote: i64,
        len: u64,
        flags: i32,
    },
    NodeIds {
        nodes: usize,
        room: i32,
        own: Place<u16>,
        /// Where the room was said, and where the number of nodes goes, too.
        count: Place<i32>,
    },
    FenceMark {
        flags: i32,
        mark: Place<i32>,
    },
    FenceWait {
        mark: i32,
    },
    FenceSignal(uapi::scifioctl_fence_signal),
    /// SCIF_GET_VERSION of the MIC library
    Version,
}

/// The arguments of send and receive.
pub(super) struct Message {
    pub(super) memory: usize,
    pub(super) len: i32,
    pub(super) flags: i32,
    pub(super) count: Place<i32>,
    /// What stood there.
    pub(super) said: i32,
}

/// The arguments of register.
pub(super) struct Registration {
    pub(super) address: usize,
    pub(super) len: u64,
    pub(super) offset: i64,
    pub(super) protection: i32,
    pub(super) flags: i32,
    pub(super) result: Place<i64>,
}

impl Call {
    /// A call with a number of `linux/scif_ioctl.h`; ENOTTY for another number.
    #[inline(always)]
    pub(super) fn parse(cmd: u32, arg: usize, pointer: Pointer) -> Result<Self> {
        let at = pointer(arg as u64);
        Ok(match cmd {
            // The number says 8 bytes; callers pass 2 or 4.
            uapi::SCIF_BIND => Self::Bind {
                port: Place::at(at),
            },
            // Here and in FENCE_WAIT the argument is the value itself.
            uapi::SCIF_LISTEN => Self::Listen {
                backlog: arg as i32,
            },
            uapi::SCIF_CONNECT => {
                let request: uapi::scifioctl_connect = uapi::read(at)?;
                Self::Connect {
                    peer: request.peer,
                    own: place!(at, uapi::scifioctl_connect, self_),
                }
            }
            uapi::SCIF_ACCEPTREQ => {
                let request: uapi::scifioctl_accept = uapi::read(at)?;
                Self::Accept {
                    flags: request.flags,
                    peer: place!(at, uapi::scifioctl_accept, peer),
                    handle: place!(at, uapi::scifioctl_accept, endpt),
                }
            }
            uapi::SCIF_ACCEPTREG => Self::TakeOver {
                handle: uapi::read(at)?,
            },
            uapi::SCIF_SEND => Self::Send(Message::read(at, pointer)?),
            uapi::SCIF_RECV => Self::Receive(Message::read(at, pointer)?),
            uapi::SCIF_REG => {
                let request: uapi::scifioctl_reg = uapi::read(at)?;
                Self::Register(Registration {
                    address: pointer(request.addr),
                    len: request.len,
                    offset: request.offset,
                    protection: request.prot,
                    flags: request.flags,
                    result: place!(at, uapi::scifioctl_reg, out_offset),
                })
            }
            uapi::SCIF_UNREG => {
                let range: uapi::scifioctl_unreg = uapi::read(at)?;
                Self::Unregister {
                    offset: range.offset,
                    len: range.len,
                }
            }
            uapi::SCIF_READFROM => Self::transfer(Direction::Read, &uapi::read(at)?),
            uapi::SCIF_WRITETO => Self::transfer(Direction::Write, &uapi::read(at)?),
            uapi::SCIF_VREADFROM => {
                Self::transfer_memory(Direction::Read, &uapi::read(at)?, pointer)
            }
            uapi::SCIF_VWRITETO => {
                Self::transfer_memory(Direction::Write, &uapi::read(at)?, pointer)
            }
            uapi::SCIF_GET_NODEIDS => {
                let request: uapi::scifioctl_node_ids = uapi::read(at)?;
                Self::NodeIds {
                    nodes: pointer(request.nodes),
                    room: request.len,
                    own: Place::at(pointer(request.self_)),
                    count: place!(at, uapi::scifioctl_node_ids, len),
                }
            }
            uapi::SCIF_FENCE_MARK => {
                let request: uapi::scifioctl_fence_mark = uapi::read(at)?;
                Self::FenceMark {
                    flags: request.flags,
                    mark: Place::at(pointer(request.mark)),
                }
            }
            uapi::SCIF_FENCE_WAIT => Self::FenceWait { mark: arg as i32 },
            uapi::SCIF_FENCE_SIGNAL => Self::FenceSignal(uapi::read(at)?),
            _ => return Err(ENOTTY),
        })
    }

    /// readfrom and writeto: between windows.
    pub(super) fn transfer(direction: Direction, request: &uapi::scifioctl_copy) -> Self {
        Self::Transfer {
            direction,
            local: LocalSide::Windows(request.loffset),
            remote: request.roffset,
            len: request.len,
            flags: request.flags,
        }
    }

    /// vreadfrom and vwriteto: between the caller's memory and windows.
    pub(super) fn transfer_memory(
        direction: Direction,
        request: &uapi::scifioctl_copy,
        pointer: Pointer,
    ) -> Self {
        Self::Transfer {
            direction,
            local: LocalSide::Memory(Buffer::user(
                UserPtr::from_addr(pointer(request.addr)),
                request.len as usize,
            )),
            remote: request.roffset,
            len: request.len,
            flags: request.flags,
        }
    }
}

impl Message {
    fn read(at: usize, pointer: Pointer) -> Result<Self> {
        let request: uapi::scifioctl_msg = uapi::read(at)?;
        Ok(Self {
            memory: pointer(request.msg),
            len: request.len,
            flags: request.flags,
            count: place!(at, uapi::scifioctl_msg, out_len),
            said: request.out_len,
        })
    }
}

// ----- the numbers of the MIC library ---------------------------------------------------------------

/// What SCIF_GET_VERSION returns.
pub(super) const VERSION: isize = 1;

user_structure! {
    /// The argument of GET_NODEIDS.
    #[repr(C)]
    struct NodeIds {
        nodes: u64,
        len: i32,
        self_: u64,
    }
}

static_assert!(size_of::<NodeIds>() == 24);
static_assert!(offset_of!(NodeIds, len) == 8 && offset_of!(NodeIds, self_) == 16);

/// The MIC library's number of a call.
const fn number(newer: u32) -> u32 {
    _IOWR::<u64>(_IOC_TYPE(newer), _IOC_NR(newer))
}

const ACCEPTREQ: u32 = number(uapi::SCIF_ACCEPTREQ);
const SEND: u32 = number(uapi::SCIF_SEND);
const RECV: u32 = number(uapi::SCIF_RECV);
const REG: u32 = number(uapi::SCIF_REG);
const UNREG: u32 = number(uapi::SCIF_UNREG);
const READFROM: u32 = number(uapi::SCIF_READFROM);
const WRITETO: u32 = number(uapi::SCIF_WRITETO);
const VREADFROM: u32 = number(uapi::SCIF_VREADFROM);
const VWRITETO: u32 = number(uapi::SCIF_VWRITETO);
const GET_NODEIDS: u32 = number(uapi::SCIF_GET_NODEIDS);
const FENCE_MARK: u32 = number(uapi::SCIF_FENCE_MARK);
const FENCE_SIGNAL: u32 = number(uapi::SCIF_FENCE_SIGNAL);
const GET_VERSION: u32 = _IO(_IOC_TYPE(uapi::SCIF_BIND), 23);

static_assert!(ACCEPTREQ == 0xc008_7304 && FENCE_SIGNAL == 0xc008_7311);
static_assert!(GET_VERSION == 0x7317);

/// A call with a number that only the MIC library has; ENOTTY for another number.
pub(super) fn parse_mic(cmd: u32, arg: usize) -> Result<Call> {
    let newer = match cmd {
        ACCEPTREQ => uapi::SCIF_ACCEPTREQ,
        SEND => uapi::SCIF_SEND,
        RECV => uapi::SCIF_RECV,
        REG => uapi::SCIF_REG,
        UNREG => uapi::SCIF_UNREG,
        READFROM => uapi::SCIF_READFROM,
        WRITETO => uapi::SCIF_WRITETO,
        VREADFROM => uapi::SCIF_VREADFROM,
        VWRITETO => uapi::SCIF_VWRITETO,
        FENCE_MARK => uapi::SCIF_FENCE_MARK,
        FENCE_SIGNAL => uapi::SCIF_FENCE_SIGNAL,
        GET_NODEIDS => {
            let request: NodeIds = uapi::read(arg)?;
            return Ok(Call::NodeIds {
                nodes: native_pointer(request.nodes),
                room: request.len,
                own: Place::at(native_pointer(request.self_)),
                count: place!(arg, NodeIds, len),
            });
        }
        GET_VERSION => return Ok(Call::Version),
        _ => return Err(ENOTTY),
    };
    Call::parse(newer, arg, native_pointer)
}

#[kunit_tests(scif_device_file_mic)]
mod tests {
    use super::*;

    fn assert_newer_do_not_know(number: u32) {
        let call = Call::parse(number, 0, native_pointer);
        assert!(matches!(call, Err(error) if error == ENOTTY));
        #[cfg(CONFIG_COMPAT)]
        {
            let call = crate::device_file::compat::parse(number, 0);
            assert!(matches!(call, Err(error) if error == ENOTTY));
        }
    }

    #[test]
    fn no_number_stands_for_two_layouts() {
        // These have the same structure in both sets.
        let common = [uapi::SCIF_BIND, uapi::SCIF_CONNECT, uapi::SCIF_ACCEPTREG];
        for nr in 0..=255 {
            let mic = _IOWR::<u64>(_IOC_TYPE(uapi::SCIF_BIND), nr);
            if !common.contains(&mic) {
                assert_newer_do_not_know(mic);
            }
        }
        assert_newer_do_not_know(GET_VERSION);
        assert!(matches!(parse_mic(GET_VERSION, 0), Ok(Call::Version)));
        assert!(matches!(parse_mic(uapi::SCIF_BIND, 0), Err(error) if error == ENOTTY));
    }
}
