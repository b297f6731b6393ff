// SPDX-License-Identifier: GPL-2.0

//! SCIF: connections and one-sided memory access between hosts joined by PCIe NTBs.

use kernel::prelude::*;

mod sys;

module! {
    type: ScifModule,
    name: "scif",
    authors: ["The SCIF for Linux authors"],
    description: "Symmetric Communications Interface over PCIe NTB",
    license: "GPL",
}

struct ScifModule;

impl kernel::Module for ScifModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self)
    }
}
