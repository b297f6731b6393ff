// SPDX-License-Identifier: GPL-2.0
//! The guests' kernels: where scripts/kernel built them, and their in-tree modules.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::config::Flavour;
use crate::paths;

/// The in-tree modules the lab knows: name, place in the build tree, what has to be loaded
/// before.
const MODULES: [(&str, &str, &[&str]); 12] = [
    ("ntb_hw_intel", "drivers/ntb/hw/intel/ntb_hw_intel.ko", &[]),
    ("ntb_hw_epf", "drivers/ntb/hw/epf/ntb_hw_epf.ko", &[]),
    ("ntb_pingpong", "drivers/ntb/test/ntb_pingpong.ko", &[]),
    ("ntb_tool", "drivers/ntb/test/ntb_tool.ko", &[]),
    ("ntb_perf", "drivers/ntb/test/ntb_perf.ko", &[]),
    ("ntb_transport", "drivers/ntb/ntb_transport.ko", &[]),
    (
        "ntb_netdev",
        "drivers/net/ntb_netdev.ko",
        &["ntb_transport"],
    ),
    ("plx_dma", "drivers/dma/plx_dma.ko", &[]),
    ("dmatest", "drivers/dma/dmatest.ko", &[]),
    ("lzo_compress", "lib/lzo/lzo_compress.ko", &[]),
    ("zsmalloc", "mm/zsmalloc.ko", &[]),
    (
        "zram",
        "drivers/block/zram/zram.ko",
        &["lzo_compress", "zsmalloc"],
    ),
];

/// A built kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    flavour: Flavour,
    tree: PathBuf,
}

impl Kernel {
    /// Finds the kernel and builds it if it is not there; the progress goes to the terminal.
    pub fn ensure(flavour: Flavour) -> Result<Kernel> {
        let tree = ask("build", flavour)?;
        Ok(Kernel { flavour, tree })
    }

    /// Finds the kernel; an error if it is not built.
    pub fn find(flavour: Flavour) -> Result<Kernel> {
        let tree = ask("where", flavour)?;
        if !tree.join("scif-kernel-ready").exists() {
            bail!(
                "the {} kernel is not built; run 'scripts/environment run scripts/kernel build {}'",
                flavour.name(),
                flavour.name()
            );
        }
        Ok(Kernel { flavour, tree })
    }

    /// Which it is.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The build tree (KDIR), the same path here and in the guests.
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// What QEMU boots.
    pub fn image(&self) -> PathBuf {
        self.tree.join("arch/x86/boot/bzImage")
    }

    /// The in-tree module `name` and, before it, what it needs; as (name, path) in the order
    /// of loading.
    pub fn modules(&self, name: &str) -> Result<Vec<(&'static str, PathBuf)>> {
        let Some((name, place, needs)) = MODULES.iter().find(|(known, ..)| *known == name) else {
            let known: Vec<&str> = MODULES.iter().map(|(name, ..)| *name).collect();
            bail!(
                "the lab knows no in-tree module '{name}', only {}; load others by their path",
                known.join(", ")
            );
        };
        let mut order = Vec::new();
        for needed in *needs {
            order.extend(self.modules(needed)?);
        }
        let path = self.tree.join(place);
        if !path.exists() {
            bail!(
                "{} does not exist: the kernel was built without {name}",
                path.display()
            );
        }
        order.push((*name, path));
        Ok(order)
    }
}

fn ask(what: &str, flavour: Flavour) -> Result<PathBuf> {
    let script = paths::repository().join("scripts/kernel");
    let output = Command::new(&script)
        .args([what, flavour.name()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", script.display()))?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || folder.is_empty() {
        bail!("'scripts/kernel {what} {}' failed", flavour.name());
    }
    Ok(PathBuf::from(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_modules_exist() {
        for (name, _, needs) in MODULES {
            for needed in needs {
                assert!(
                    MODULES.iter().any(|(known, ..)| known == needed),
                    "{name} needs the unknown {needed}"
                );
            }
        }
    }
}
