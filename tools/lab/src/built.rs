// SPDX-License-Identifier: GPL-2.0
//! Files that were built for the kernel of a lab, and whether they are up to date.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::SystemTime;

use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;

use crate::lab::Lab;
use crate::paths;

impl Lab {
    /// Returns the path of a file that was built for the lab's kernel.
    pub fn built(&self, file: &str) -> Result<PathBuf> {
        let flavour = self.kernel().flavour().name();
        let path = paths::repository().join("build").join(flavour).join(file);
        ensure!(
            path.exists(),
            "{} does not exist; run 'make build KERNEL={flavour}'",
            path.display()
        );
        Ok(path)
    }

    /// Returns the path of a module that is made of these folders. Refuses the module if one of
    /// their files was written after the module was built; this is checked at the first call only.
    pub fn built_from(&self, file: &str, folders: &[&str]) -> Result<PathBuf> {
        static FRESH: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
        let path = self.built(file)?;
        let mut fresh = FRESH.lock().unwrap_or_else(PoisonError::into_inner);
        if fresh.contains(&path) {
            return Ok(path);
        }
        let stamp = fs::metadata(path.with_file_name("built"));
        let built = stamp.and_then(|stamp| stamp.modified()).ok();
        for folder in folders {
            if let Some(newer) = newer_than(&paths::repository().join(folder), built)? {
                bail!(
                    "{} was built before {} was changed; run 'make modules KERNEL={}'",
                    path.display(),
                    newer.display(),
                    self.kernel().flavour().name()
                );
            }
        }
        fresh.push(path.clone());
        Ok(path)
    }
}

/// Returns a file below a folder that was written after this time; any file if there is no time.
fn newer_than(folder: &Path, time: Option<SystemTime>) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if let Some(newer) = newer_than(&path, time)? {
                return Ok(Some(newer));
            }
        } else if time < Some(fs::metadata(&path)?.modified()?) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
