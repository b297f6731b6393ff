// SPDX-License-Identifier: LGPL-2.1

//! Tests: what is transcribed here against the headers, which a C program reads.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use crate::dma;
use crate::error::Error;
use crate::error::text;
use crate::exports::constants;
use crate::flags;
use crate::queries;
use crate::uapi;
use crate::write_protection;

/// An expression of C, and what it has to be.
type Fact = (String, u64);

fn numbers() -> Vec<Fact> {
    let mut facts = Vec::new();
    for (name, value) in flags::ALL {
        facts.push((format!("SCI_FLAG_{name}"), u64::from(*value)));
    }
    for (name, value) in constants::ALL {
        facts.push(((*name).to_owned(), u64::from(*value)));
    }
    for error in Error::ALL {
        let text = text(error.code()).to_string_lossy().into_owned();
        let name = text.split(':').next().unwrap_or_default().to_owned();
        facts.push((name, u64::from(error.code())));
    }
    for (name, value) in [
        ("SCIF_NAME_SEGMENT", uapi::NAME_SEGMENT),
        ("SCIF_NAME_INTERRUPT", uapi::NAME_INTERRUPT),
        ("SCIF_NAME_DATA_INTERRUPT", uapi::NAME_DATA_INTERRUPT),
        ("SCIF_NAME_CLASS_USER", uapi::NAME_CLASS_USER),
        ("SCIF_NAME_ANY", uapi::NAME_ANY),
        ("SCIF_MAP_ONES_AFTER_LOSS", uapi::MAP_ONES_AFTER_LOSS),
        ("SCIF_MEMORY_DEVICE", uapi::MEMORY_DEVICE),
        ("UFFDIO_API", write_protection::API),
        ("UFFDIO_REGISTER", write_protection::REGISTER),
        ("UFFDIO_WAKE", write_protection::WAKE),
        ("UFFDIO_WRITEPROTECT", write_protection::WRITEPROTECT),
        ("USERFAULTFD_IOC_NEW", write_protection::NEW),
        ("SCIF_BIND", uapi::BIND),
        ("SCIF_LISTEN", uapi::LISTEN),
        ("SCIF_ACCEPTREQ", uapi::ACCEPTREQ),
        ("SCIF_ACCEPTREG", uapi::ACCEPTREG),
        ("SCIF_RECV", uapi::RECV),
        ("SCIF_REG", uapi::REG),
        ("SCIF_UNREG", uapi::UNREG),
        ("SCIF_READFROM", uapi::READFROM),
        ("SCIF_WRITETO", uapi::WRITETO),
        ("SCIF_VREADFROM", uapi::VREADFROM),
        ("SCIF_VWRITETO", uapi::VWRITETO),
        ("SCIF_GET_NODEIDS", uapi::GET_NODEIDS),
        ("SCIF_FENCE_MARK", uapi::FENCE_MARK),
        ("SCIF_FENCE_WAIT", uapi::FENCE_WAIT),
        ("SCIF_FENCE_SIGNAL", uapi::FENCE_SIGNAL),
        ("SCIF_BIND_NAME", uapi::BIND_NAME),
        ("SCIF_CONNECT_NAME", uapi::CONNECT_NAME),
        ("SCIF_SEND_ALL", uapi::SEND_ALL),
        ("SCIF_NODE_STATUS", uapi::NODE_STATUS),
        ("SCIF_MAP_POLICY", uapi::MAP_POLICY),
        ("SCIF_MEMORY_CREATE", uapi::MEMORY_CREATE),
        ("SCIF_MEMORY_REGISTER", uapi::MEMORY_REGISTER),
        ("SCIF_REMOTE_ADDRESS", uapi::REMOTE_ADDRESS),
    ] {
        facts.push((name.to_owned(), u64::from(value)));
    }
    facts
}

fn layouts() -> Vec<Fact> {
    let mut facts = Vec::new();
    macro_rules! layout {
        ($c:literal, $rust:ty $(, $field:ident = $c_field:literal)*) => {
            facts.push((format!("sizeof({})", $c), size_of::<$rust>() as u64));
            $(facts.push((
                format!("__builtin_offsetof({}, {})", $c, $c_field),
                offset_of!($rust, $field) as u64,
            ));)*
        };
    }
    layout!(
        "struct scif_bind_name",
        uapi::BindName,
        name_class = "name_class",
        name = "name"
    );
    layout!(
        "struct scif_connect_name",
        uapi::ConnectName,
        name_class = "name_class",
        name = "name",
        node = "node",
        peer_port = "peer_port"
    );
    layout!(
        "struct scif_send_all",
        uapi::SendAll,
        message = "msg",
        length = "len"
    );
    layout!(
        "struct scif_node_status",
        uapi::NodeStatus,
        node = "node",
        fd = "fd"
    );
    layout!("struct scif_map_policy", uapi::MapPolicy, flags = "flags");
    layout!(
        "struct scif_memory_create",
        uapi::MemoryCreate,
        address = "address",
        length = "len",
        protection = "prot",
        fd = "fd"
    );
    layout!(
        "struct scif_memory_register",
        uapi::MemoryRegister,
        fd = "fd",
        protection = "prot",
        from = "from",
        length = "len",
        offset = "offset"
    );
    layout!(
        "struct scif_remote_address",
        uapi::RemoteAddress,
        offset = "offset",
        length = "len",
        address = "address",
        contiguous = "contiguous"
    );
    layout!(
        "struct scifioctl_accept",
        uapi::Accept,
        peer = "peer",
        endpoint = "endpt"
    );
    layout!("struct scifioctl_msg", uapi::Message, moved = "out_len");
    layout!(
        "struct scifioctl_reg",
        uapi::Register,
        registered = "out_offset"
    );
    layout!(
        "struct scifioctl_copy",
        uapi::Copy,
        address = "addr",
        flags = "flags"
    );
    layout!(
        "struct scifioctl_fence_signal",
        uapi::FenceSignal,
        remote = "roff",
        flags = "flags"
    );
    layout!(
        "struct scifioctl_node_ids",
        uapi::NodeIds,
        own = "self",
        length = "len"
    );
    layout!(
        "dis_dma_vec_t",
        dma::Entry,
        remote_offset = "remote_offset",
        flags = "flags"
    );
    layout!("sci_query_string_t", queries::Text);
    layout!("sci_query_adapter_t", queries::Adapter);
    layout!("sci_query_system_t", queries::System);
    layout!("sci_query_local_segment_t", queries::Resource);
    layout!("sci_query_remote_segment_t", queries::Resource);
    layout!("sci_query_map_t", queries::Resource);
    layout!("sci_query_dma_t", queries::Dma);
    layout!("sci_dma_capabilities_t", queries::DmaCapabilities);
    facts
}

#[test]
fn what_is_transcribed_is_what_the_headers_say() {
    let facts: Vec<Fact> = numbers().into_iter().chain(layouts()).collect();
    let mut source = String::from(
        "#include <linux/scif_ioctl.h>\n#include <linux/scif_services.h>\n\
         #include <sisci_api.h>\n#include <linux/userfaultfd.h>\n",
    );
    for (expression, value) in &facts {
        let _ = writeln!(
            source,
            "_Static_assert((unsigned long)({expression}) == {value}ul, \"{}\");",
            expression.replace('"', "")
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("facts.c");
    std::fs::write(&file, source).expect("room for a file");
    let root = env!("CARGO_MANIFEST_DIR");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-fsyntax-only"])
        .arg(format!("-I{root}/include"))
        .arg(format!("-I{root}/../../../include/uapi"))
        .arg(&file)
        .output()
        .expect("a compiler");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
}
