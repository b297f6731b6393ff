// SPDX-License-Identifier: GPL-2.0
//! A file that gets its name only when it is whole.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::fs::Permissions;
use std::io;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

/// A file being written beside its target; removed when dropped, unless [`WholeFile::keep`]
/// was called.
pub(crate) struct WholeFile {
    file: File,
    partial: PathBuf,
    target: PathBuf,
}

impl WholeFile {
    /// Begins the file `target`; if that is a folder, the file `name` in it.
    pub(crate) fn create(target: &Path, name: &str) -> io::Result<WholeFile> {
        let mut target = target.to_owned();
        if target.is_dir() || target.as_os_str().as_encoded_bytes().ends_with(b"/") {
            target.push(name);
        }
        let mut partial = target.clone().into_os_string();
        partial.push(".lab-partial");
        let partial = PathBuf::from(partial);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&partial)?;
        Ok(WholeFile {
            file,
            partial,
            target,
        })
    }

    /// Completes the file: sets its mode and gives it its name.
    pub(crate) fn keep(self, mode: u32) -> io::Result<()> {
        self.file
            .set_permissions(Permissions::from_mode(mode & 0o7777))?;
        fs::rename(&self.partial, &self.target)
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        // After keep() there is no such file any more.
        let _ = fs::remove_file(&self.partial);
    }
}
