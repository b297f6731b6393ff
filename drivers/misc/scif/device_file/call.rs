// SPDX-License-Identifier: GPL-2.0

//! What an ioctl asks for, taken apart.
//!
//! The number of an ioctl names the call and, since the size is part of it, the layout of its
//! argument. All layouts are read into one [`Call`], and from there on it does not matter who has
//! called: [`Call::parse`] knows the numbers of `linux/scif_ioctl.h`, [`compat`](super::compat) and
//! [`mic`](super::mic) know others.
//!
//! Nothing is checked here but that the argument can be read.
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
            Place, //
        },
    },
};
use kernel::{
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
