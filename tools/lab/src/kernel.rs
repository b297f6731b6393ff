// SPDX-License-Identifier: GPL-2.0
//! The guests' kernels: the folder where scripts/kernel makes them, and the files that a guest
//! needs.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;

use crate::config::Flavour;
use crate::paths;

/// A kernel that exists.
#[derive(Clone, Debug)]
pub struct Kernel {
    flavour: Flavour,
    tree: PathBuf,
}

impl Kernel {
    /// Finds the kernel, and makes it if it does not exist; the progress goes to the terminal. If
    /// this process ends meanwhile in any way, the script that makes the kernel ends, too.
    pub fn ensure(flavour: Flavour) -> Result<Kernel> {
        let script = paths::repository().join("scripts/kernel");
        let mut child = Command::new(paths::repository().join("scripts/contained"))
            .arg("--lifeline")
            .arg(&script)
            .args(["build", flavour.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", script.display()))?;
        // The pipe is held until the script has ended: "contained" waits for the end of the pipe.
        let lifeline = child.stdin.take();
        let output = child.wait_with_output()?;
        drop(lifeline);
        let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || folder.is_empty() {
            bail!("'scripts/kernel build {}' failed", flavour.name());
        }
        Ok(Kernel {
            flavour,
            tree: PathBuf::from(folder),
        })
    }

    /// Returns the kind of kernel.
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// Returns the build tree (KDIR), the same path here and in the guests.
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Returns the image that QEMU boots.
    pub fn image(&self) -> PathBuf {
        self.tree.join("image")
    }

    /// Returns the folder that guests see as /lib/modules, the same path here and there.
    pub fn modules(&self) -> PathBuf {
        self.tree.join("root/lib/modules")
    }

    /// Returns the modules that a guest needs before it can mount its root, in the order of
    /// loading.
    pub fn early_modules(&self) -> Result<Vec<PathBuf>> {
        let folder = self.tree.join("early");
        let mut files = fs::read_dir(&folder)
            .and_then(|entries| {
                entries
                    .map(|entry| Ok(entry?.path()))
                    .collect::<std::io::Result<Vec<PathBuf>>>()
            })
            .with_context(|| format!("cannot read {}", folder.display()))?;
        files.sort();
        Ok(files)
    }
}
