// SPDX-License-Identifier: LGPL-2.1

//! The name by which programs ask for the library at run time.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libscif_ring.so.0");
}
