// SPDX-License-Identifier: LGPL-2.1

//! The arguments of `/dev/scif`: `linux/scif_ioctl.h` and `linux/scif_services.h`.
//!
//! A transcription; `headers.rs` compiles the headers and compares. Data only: the calls are in
//! [`crate::endpoint`].

#![allow(missing_docs)] // The headers have it.

/// The device that endpoints are opened from.
pub const DEVICE: &std::ffi::CStr = c"/dev/scif";

pub const NAME_SEGMENT: u32 = 1;
pub const NAME_INTERRUPT: u32 = 2;
pub const NAME_DATA_INTERRUPT: u32 = 3;
pub const NAME_CLASS_USER: u32 = 0x100;
pub const NAME_ANY: u32 = 1;
pub const MAP_ONES_AFTER_LOSS: u32 = 1;
pub const MEMORY_DEVICE: u32 = 1;
pub const MAP_FIXED: u32 = 0x10;
pub const PROT_READ: u32 = 1;
pub const PROT_WRITE: u32 = 2;
pub const RMA_USECACHE: i32 = 2;
pub const RMA_SYNC: i32 = 4;
pub const FENCE_INIT_SELF: i32 = 1;
pub const SIGNAL_LOCAL: i32 = 0x10;

macro_rules! arguments {
    ($(struct $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Default)]
            pub struct $name {
                $(pub $field: $type,)*
            }
        )*
    };
}

arguments! {
    struct PortId {
        node: u16,
        port: u16,
    }

    struct Accept {
        flags: i32,
        peer: PortId,
        endpoint: u64,
    }

    struct Message {
        address: u64,
        length: i32,
        flags: i32,
        moved: i32,
    }

    struct Register {
        address: u64,
        length: u64,
        offset: i64,
        protection: i32,
        flags: i32,
        registered: i64,
    }

    struct Unregister {
        offset: i64,
        length: u64,
    }

    struct Copy {
        local: i64,
        length: u64,
        remote: i64,
        address: u64,
        flags: i32,
    }

    struct FenceMark {
        flags: i32,
        mark: u64,
    }

    struct FenceSignal {
        local: i64,
        local_value: u64,
        remote: i64,
        remote_value: u64,
        flags: i32,
    }

    struct NodeIds {
        nodes: u64,
        own: u64,
        length: i32,
    }

    struct BindName {
        size: u32,
        flags: u32,
        name_class: u32,
        name: u32,
        reserved: u64,
    }

    struct ConnectName {
        size: u32,
        flags: u32,
        name_class: u32,
        name: u32,
        node: u16,
        own_port: u16,
        peer_port: u16,
        reserved: u16,
        reserved2: u64,
    }

    struct SendAll {
        size: u32,
        flags: u32,
        message: u64,
        length: u64,
        reserved: u64,
    }

    struct NodeStatus {
        size: u32,
        flags: u32,
        node: u16,
        reserved: u16,
        fd: i32,
        reserved2: u64,
    }

    struct MapPolicy {
        size: u32,
        flags: u32,
        reserved: u64,
    }

    struct MemoryCreate {
        size: u32,
        flags: u32,
        address: u64,
        length: u64,
        protection: u32,
        fd: i32,
        reserved: u64,
    }

    struct MemoryRegister {
        size: u32,
        flags: u32,
        fd: i32,
        protection: u32,
        from: u64,
        length: u64,
        offset: i64,
        reserved: u64,
    }

    struct RemoteAddress {
        size: u32,
        flags: u32,
        offset: i64,
        length: u64,
        address: u64,
        contiguous: u64,
        reserved: u64,
    }
}

const WRITE: u32 = 1;
const READ: u32 = 2;

/// `_IOC('s', number)`, in the numbering of x86 and arm64.
const fn code(direction: u32, number: u32, size: usize) -> u32 {
    (direction << 30) | ((size as u32) << 16) | ((b's' as u32) << 8) | number
}

const fn both<T>(number: u32) -> u32 {
    code(READ | WRITE, number, size_of::<T>())
}

pub const BIND: u32 = both::<u64>(1);
pub const LISTEN: u32 = code(WRITE, 2, size_of::<i32>());
pub const ACCEPTREQ: u32 = both::<Accept>(4);
pub const ACCEPTREG: u32 = both::<u64>(5);
pub const RECV: u32 = both::<Message>(7);
pub const REG: u32 = both::<Register>(8);
pub const UNREG: u32 = both::<Unregister>(9);
pub const READFROM: u32 = both::<Copy>(10);
pub const WRITETO: u32 = both::<Copy>(11);
pub const VREADFROM: u32 = both::<Copy>(12);
pub const VWRITETO: u32 = both::<Copy>(13);
pub const GET_NODEIDS: u32 = both::<NodeIds>(14);
pub const FENCE_MARK: u32 = both::<FenceMark>(15);
pub const FENCE_WAIT: u32 = both::<i32>(16);
pub const FENCE_SIGNAL: u32 = both::<FenceSignal>(17);
pub const BIND_NAME: u32 = code(0, 0x40, 0);
pub const CONNECT_NAME: u32 = code(0, 0x41, 0);
pub const SEND_ALL: u32 = code(0, 0x42, 0);
pub const NODE_STATUS: u32 = code(0, 0x43, 0);
pub const MAP_POLICY: u32 = code(0, 0x44, 0);
pub const MEMORY_CREATE: u32 = code(0, 0x45, 0);
pub const MEMORY_REGISTER: u32 = code(0, 0x46, 0);
pub const REMOTE_ADDRESS: u32 = code(0, 0x47, 0);
