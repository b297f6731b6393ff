// SPDX-License-Identifier: GPL-2.0
//! The drivers that the nodes of a lab load for emulated devices.

use ntb_emulator::config::Personality;

/// Returns the modules that nodes load: the driver of their NTB, and that of their DMA engines.
pub fn default_modules(personality: Personality) -> Vec<String> {
    let ntb = match personality {
        Personality::Gen3 | Personality::Gen5 => "ntb_hw_intel",
        Personality::Idt => "ntb_hw_idt",
        Personality::Amd => "ntb_hw_amd",
    };
    vec![ntb.to_owned(), "plx_dma".to_owned()]
}
