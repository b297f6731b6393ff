// SPDX-License-Identifier: GPL-2.0
//! What was built for the kernel of a lab, and whether it is what the source says.

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
    /// A file that was built for the lab's kernel.
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

    /// The same for a module that is made of these folders: refused if one of their files was written
    /// after it was built, as of the first time that this is asked.
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

/// A file below a folder that was written after this time; any if there is none.
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
