// SPDX-License-Identifier: GPL-2.0

//! The transcription of the user ABI against the kernel's own header: a C program prints what the
//! header says, and every line must be what `scif::abi` says.

use scif::abi;
use std::mem::offset_of;
use std::process::Command;

/// A line `name = value` for each fact.
fn rust_facts() -> Vec<(String, u64)> {
    let mut facts: Vec<(String, u64)> = [
        ("SCIF_BIND", abi::BIND),
        ("SCIF_LISTEN", abi::LISTEN),
        ("SCIF_CONNECT", abi::CONNECT),
        ("SCIF_ACCEPTREQ", abi::ACCEPTREQ),
        ("SCIF_ACCEPTREG", abi::ACCEPTREG),
        ("SCIF_SEND", abi::SEND),
        ("SCIF_RECV", abi::RECV),
        ("SCIF_REG", abi::REG),
        ("SCIF_UNREG", abi::UNREG),
        ("SCIF_READFROM", abi::READFROM),
        ("SCIF_WRITETO", abi::WRITETO),
        ("SCIF_VREADFROM", abi::VREADFROM),
        ("SCIF_VWRITETO", abi::VWRITETO),
        ("SCIF_GET_NODEIDS", abi::GET_NODEIDS),
        ("SCIF_FENCE_MARK", abi::FENCE_MARK),
        ("SCIF_FENCE_WAIT", abi::FENCE_WAIT),
    ]
    .map(|(name, value)| (name.to_owned(), u64::from(value)))
    .into();
    macro_rules! layout {
        ($c:literal, $rust:ty, $($field:ident = $c_field:literal),*) => {
            facts.push((format!("sizeof(struct {})", $c), size_of::<$rust>() as u64));
            $(facts.push((
                format!("offsetof(struct {}, {})", $c, $c_field),
                offset_of!($rust, $field) as u64,
            ));)*
        };
    }
    layout!("scif_port_id", abi::PortId, node = "node", port = "port");
    layout!(
        "scifioctl_connect",
        abi::Connect,
        own = "self",
        peer = "peer"
    );
    layout!(
        "scifioctl_accept",
        abi::Accept,
        flags = "flags",
        peer = "peer",
        endpoint = "endpt"
    );
    layout!(
        "scifioctl_msg",
        abi::Message,
        address = "msg",
        length = "len",
        flags = "flags",
        moved = "out_len"
    );
    layout!(
        "scifioctl_reg",
        abi::Register,
        address = "addr",
        length = "len",
        offset = "offset",
        protection = "prot",
        flags = "flags",
        registered = "out_offset"
    );
    layout!(
        "scifioctl_unreg",
        abi::Unregister,
        offset = "offset",
        length = "len"
    );
    layout!(
        "scifioctl_copy",
        abi::Copy,
        local = "loffset",
        length = "len",
        remote = "roffset",
        address = "addr",
        flags = "flags"
    );
    layout!(
        "scifioctl_fence_mark",
        abi::FenceMark,
        flags = "flags",
        mark = "mark"
    );
    layout!(
        "scifioctl_node_ids",
        abi::NodeIds,
        nodes = "nodes",
        own = "self",
        length = "len"
    );
    facts
}

#[test]
fn numbers_and_layouts_are_those_of_the_header() {
    let facts = rust_facts();
    let temporary = tempfile::tempdir().unwrap();
    let (source, program) = (
        temporary.path().join("facts.c"),
        temporary.path().join("facts"),
    );
    let mut code = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <sys/ioctl.h>\n\
         #include <linux/scif_ioctl.h>\nint main(void)\n{\n",
    );
    for (fact, _) in &facts {
        code += &format!("\tprintf(\"%llu\\n\", (unsigned long long)({fact}));\n");
    }
    code += "\treturn 0;\n}\n";
    std::fs::write(&source, code).unwrap();
    let compiled = Command::new("cc")
        .args(["-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .status()
        .expect("cc is needed: run this in the environment");
    assert!(compiled.success());
    let output = Command::new(&program).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let values: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(values.len(), facts.len());
    for ((fact, ours), header) in facts.iter().zip(values) {
        assert_eq!(*ours, header, "{fact}");
    }
}
