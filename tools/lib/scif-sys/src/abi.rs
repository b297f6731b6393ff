// SPDX-License-Identifier: LGPL-2.1

//! The numbers and arguments of `linux/scif_ioctl.h` and `linux/scif_services.h`, and the flags of
//! `scif.h`.
//!
//! Each definition has its C name beside it. A test has a compiler compare all of them with the
//! headers.

use rustix::ioctl::Opcode;
use rustix::ioctl::opcode;

/// Defines constants that C knows as `SCIF_...`.
macro_rules! constants {
    ($($all:ident: $type:ty { $($name:ident = $value:expr,)* })*) => {
        $(
            $(pub const $name: $type = $value;)*
            #[cfg(test)]
            const $all: &[(&str, $type)] = &[$((concat!("SCIF_", stringify!($name)), $name),)*];
        )*
    };
}

constants! {
    FLAGS: i32 {
        ACCEPT_SYNC = 1,
        SEND_BLOCK = 1,
        RECV_BLOCK = 1,
        PROT_READ = 1,
        PROT_WRITE = 2,
        MAP_FIXED = 0x10,
        FENCE_INIT_SELF = 1,
        FENCE_INIT_PEER = 2,
        SIGNAL_LOCAL = 0x10,
        RMA_USECPU = 1,
        RMA_USECACHE = 2,
        RMA_SYNC = 4,
        RMA_ORDERED = 8,
    }

    SERVICES: u32 {
        ADMIN_PORT_END = 1024,
        NAME_SEGMENT = 1,
        NAME_INTERRUPT = 2,
        NAME_DATA_INTERRUPT = 3,
        NAME_CLASS_USER = 0x100,
        NAME_ANY = 1,
        MAP_ONES_AFTER_LOSS = 1,
        MEMORY_DEVICE = 1,
    }

    NUMBERS: Opcode {
        // The argument is a port, although the call number says eight bytes.
        BIND = opcode::read_write::<u64>(b's', 1),
        LISTEN = opcode::write::<i32>(b's', 2),
        CONNECT = opcode::read_write::<Connect>(b's', 3),
        ACCEPTREQ = opcode::read_write::<Accept>(b's', 4),
        ACCEPTREG = opcode::read_write::<u64>(b's', 5),
        SEND = opcode::read_write::<Message>(b's', 6),
        RECV = opcode::read_write::<Message>(b's', 7),
        REG = opcode::read_write::<Register>(b's', 8),
        UNREG = opcode::read_write::<Unregister>(b's', 9),
        READFROM = opcode::read_write::<Copy>(b's', 10),
        WRITETO = opcode::read_write::<Copy>(b's', 11),
        VREADFROM = opcode::read_write::<Copy>(b's', 12),
        VWRITETO = opcode::read_write::<Copy>(b's', 13),
        GET_NODEIDS = opcode::read_write::<NodeIds>(b's', 14),
        FENCE_MARK = opcode::read_write::<FenceMark>(b's', 15),
        FENCE_WAIT = opcode::read_write::<i32>(b's', 16),
        FENCE_SIGNAL = opcode::read_write::<FenceSignal>(b's', 17),
        BIND_NAME = opcode::none(b's', 0x40),
        CONNECT_NAME = opcode::none(b's', 0x41),
        SEND_ALL = opcode::none(b's', 0x42),
        NODE_STATUS = opcode::none(b's', 0x43),
        MAP_POLICY = opcode::none(b's', 0x44),
        MEMORY_CREATE = opcode::none(b's', 0x45),
        MEMORY_REGISTER = opcode::none(b's', 0x46),
        REMOTE_ADDRESS = opcode::none(b's', 0x47),
    }
}

/// Defines structures, each with its name in C, and those of its fields.
macro_rules! arguments {
    ($($(#[$about:meta])* $c:literal $name:ident { $($c_field:literal $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$about])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name {
                $(#[doc = concat!("`", $c_field, "` in C.")] pub $field: $type,)*
            }
        )*

        /// Expressions of C, and the expected value of each.
        #[cfg(test)]
        fn layouts() -> Vec<(String, u64)> {
            let mut facts = Vec::new();
            $(
                facts.push((format!("sizeof(struct {})", $c), size_of::<$name>() as u64));
                $(facts.push((
                    format!("__builtin_offsetof(struct {}, {})", $c, $c_field),
                    std::mem::offset_of!($name, $field) as u64,
                ));)*
            )*
            facts
        }
    };
}

arguments! {
    /// One end of a connection.
    "scif_port_id" PortId {
        "node" node: u16,
        "port" port: u16,
    }

    "scifioctl_connect" Connect {
        "self" own: PortId,
        "peer" peer: PortId,
    }

    /// A connection that [`crate::accept_request`] has taken off the queue.
    "scifioctl_accept" Accept {
        "flags" flags: i32,
        "peer" peer: PortId,
        "endpt" endpoint: u64,
    }

    "scifioctl_msg" Message {
        "msg" address: u64,
        "len" length: i32,
        "flags" flags: i32,
        "out_len" moved: i32,
    }

    "scifioctl_reg" Register {
        "addr" address: u64,
        "len" length: u64,
        "offset" offset: i64,
        "prot" protection: i32,
        "flags" flags: i32,
        "out_offset" registered: i64,
    }

    "scifioctl_unreg" Unregister {
        "offset" offset: i64,
        "len" length: u64,
    }

    "scifioctl_copy" Copy {
        "loffset" local: i64,
        "len" length: u64,
        "roffset" remote: i64,
        "addr" address: u64,
        "flags" flags: i32,
    }

    "scifioctl_fence_mark" FenceMark {
        "flags" flags: i32,
        "mark" mark: u64,
    }

    "scifioctl_fence_signal" FenceSignal {
        "loff" local: i64,
        "lval" local_value: u64,
        "roff" remote: i64,
        "rval" remote_value: u64,
        "flags" flags: i32,
    }

    "scifioctl_node_ids" NodeIds {
        "nodes" nodes: u64,
        "self" own: u64,
        "len" length: i32,
    }

    "scif_bind_name" BindName {
        "size" size: u32,
        "flags" flags: u32,
        "name_class" class: u32,
        "name" name: u32,
        "reserved" reserved: u64,
    }

    "scif_connect_name" ConnectName {
        "size" size: u32,
        "flags" flags: u32,
        "name_class" class: u32,
        "name" name: u32,
        "node" node: u16,
        "own_port" own_port: u16,
        "peer_port" peer_port: u16,
        "reserved" reserved: u16,
        "reserved2" reserved2: u64,
    }

    "scif_send_all" SendAll {
        "size" size: u32,
        "flags" flags: u32,
        "msg" address: u64,
        "len" length: u64,
        "reserved" reserved: u64,
    }

    "scif_node_status" NodeStatus {
        "size" size: u32,
        "flags" flags: u32,
        "node" node: u16,
        "reserved" reserved: u16,
        "fd" fd: i32,
        "reserved2" reserved2: u64,
    }

    "scif_map_policy" MapPolicy {
        "size" size: u32,
        "flags" flags: u32,
        "reserved" reserved: u64,
    }

    "scif_memory_create" MemoryCreate {
        "size" size: u32,
        "flags" flags: u32,
        "address" address: u64,
        "len" length: u64,
        "prot" protection: u32,
        "fd" fd: i32,
        "reserved" reserved: u64,
    }

    "scif_memory_register" MemoryRegister {
        "size" size: u32,
        "flags" flags: u32,
        "fd" fd: i32,
        "prot" protection: u32,
        "from" from: u64,
        "len" length: u64,
        "offset" offset: i64,
        "reserved" reserved: u64,
    }

    /// The address at which devices of this host reach a window of the peer.
    "scif_remote_address" RemoteAddress {
        "size" size: u32,
        "flags" flags: u32,
        "offset" offset: i64,
        "len" length: u64,
        "address" address: u64,
        "contiguous" contiguous: u64,
        "reserved" reserved: u64,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::Command;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn constants_and_layouts_match_the_c_headers() {
        let number = |(name, value): (&str, u64)| (name.to_owned(), value);
        let flags = FLAGS.iter().map(|&(name, value)| (name, value as u64));
        let services = SERVICES.iter().map(|&(name, value)| (name, value.into()));
        let numbers = NUMBERS.iter().map(|&(name, value)| (name, value.into()));
        let constants = flags.chain(services).chain(numbers).map(number);

        let mut source = String::from(
            "#define SCIF_NEW_NAMES\n#include <scif.h>\n#include <linux/scif_services.h>\n",
        );
        for (expression, value) in constants.chain(layouts()) {
            source += &format!(
                "_Static_assert((unsigned long)({expression}) == {value}ul, \"{expression}\");\n"
            );
        }
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
        let mut compiler = Command::new("cc")
            .args(["-std=gnu11", "-fsyntax-only", "-x", "c", "-"])
            .args([
                format!("-I{root}/tools/lib/scif"),
                format!("-I{root}/include/uapi"),
            ])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a compiler");
        let mut input = compiler.stdin.take().expect("a pipe");
        input.write_all(source.as_bytes()).expect("a reader");
        drop(input);
        assert!(compiler.wait().expect("a status").success());
    }
}
