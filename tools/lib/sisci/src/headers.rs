// SPDX-License-Identifier: LGPL-2.1

//! Tests that compare transcribed constants with the headers, which a C program reads.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use crate::dma;
use crate::error::Error;
use crate::error::text;
use crate::exports::constants;
use crate::flags;
use crate::queries;
use crate::write_protection;

/// An expression of C, and its expected value.
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
        ("UFFDIO_API", write_protection::API),
        ("UFFDIO_REGISTER", write_protection::REGISTER),
        ("UFFDIO_WAKE", write_protection::WAKE),
        ("UFFDIO_WRITEPROTECT", write_protection::WRITEPROTECT),
        ("USERFAULTFD_IOC_NEW", write_protection::NEW),
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
fn constants_and_layouts_match_the_c_headers() {
    let facts: Vec<Fact> = numbers().into_iter().chain(layouts()).collect();
    let mut source = String::from(
        "#include <sys/ioctl.h>\n#include <sisci_api.h>\n#include <linux/userfaultfd.h>\n",
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
        .arg(&file)
        .output()
        .expect("a compiler");
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
}
