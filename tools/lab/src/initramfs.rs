// SPDX-License-Identifier: GPL-2.0
//! The initramfs of every guest: busybox, the modules that the kernel needs to mount the root, and
//! a script that mounts the pinned root and starts the agent.
//!
//! It is written here as an uncompressed "newc" archive and cached under the hash of its
//! contents.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use sha2::Digest;
use sha2::Sha256;

use crate::kernel::Kernel;

const INIT: &str = include_str!("initramfs/init");
const BUSYBOX: &str = "/bin/busybox";
const FOLDERS: [&str; 9] = [
    "bin", "dev", "early", "proc", "sys", "lower", "overlay", "root", "tmp",
];

/// Makes the archive if it is not in `cache` yet. Returns its path.
pub fn ensure(cache: &Path, kernel: &Kernel) -> Result<PathBuf> {
    let busybox = fs::read(BUSYBOX).with_context(|| {
        format!(
            "cannot read {BUSYBOX}; the pinned root has it (busybox-static): run this through scripts/lab"
        )
    })?;
    let modules = kernel
        .early_modules()?
        .into_iter()
        .map(|path| {
            let contents =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            Ok((format!("early/{name}"), contents))
        })
        .collect::<Result<Vec<_>>>()?;
    let archive = archive(&busybox, &modules);
    let digest = Sha256::digest(&archive);
    let key = &format!("{digest:x}")[..12];
    let path = cache.join(format!("initramfs-{key}.cpio"));
    if !path.exists() {
        // The name has no process id: those begin anew in every environment.
        let mut partial = tempfile::NamedTempFile::new_in(cache)
            .with_context(|| format!("cannot make a file in {}", cache.display()))?;
        partial
            .write_all(&archive)
            .with_context(|| format!("cannot write to {} (no space?)", cache.display()))?;
        partial
            .persist(&path)
            .with_context(|| format!("cannot rename a file to {}", path.display()))?;
    }
    Ok(path)
}

fn archive(busybox: &[u8], modules: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = Archive::default();
    for folder in FOLDERS {
        archive.entry(folder, 0o040_755, (0, 0), &[]);
    }
    // The kernel opens the console for init before anything is mounted.
    archive.entry("dev/console", 0o020_600, (5, 1), &[]);
    archive.entry("bin/busybox", 0o100_755, (0, 0), busybox);
    for (name, contents) in modules {
        archive.entry(name, 0o100_644, (0, 0), contents);
    }
    archive.entry("init", 0o100_755, (0, 0), INIT.as_bytes());
    archive.finish()
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        self.inode += 1;
        let links = if mode & 0o170_000 == 0o040_000 { 2 } else { 1 };
        self.header(name, self.inode, mode, links, device, contents.len());
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn header(
        &mut self,
        name: &str,
        inode: u32,
        mode: u32,
        links: u32,
        device: (u32, u32),
        size: usize,
    ) {
        // Fields: inode, mode, uid, gid, links, mtime, size, the file's device, the
        // node's device, length of the name with its zero, checksum.
        let fields = [
            inode,
            mode,
            0,
            0,
            links,
            0,
            u32::try_from(size).expect("nothing in the initramfs is as large as 4 GiB"),
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    fn pad(&mut self) {
        while self.bytes.len() % 4 != 0 {
            self.bytes.push(0);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.header("TRAILER!!!", 0, 0, 1, (0, 0), 0);
        while self.bytes.len() % 512 != 0 {
            self.bytes.push(0);
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_entries_are_aligned_and_terminated() {
        let archive = archive(b"12345", &[("early/10-a.ko".to_owned(), vec![7; 13])]);
        assert_eq!(archive.len() % 512, 0);
        assert!(archive.starts_with(b"070701"));
        let text = String::from_utf8_lossy(&archive);
        assert!(text.contains("bin/busybox\0"));
        assert!(text.contains("early/10-a.ko\0"));
        assert!(text.contains("TRAILER!!!\0"));
        for (position, _) in text.match_indices("070701") {
            assert_eq!(position % 4, 0);
        }
    }

    #[test]
    fn same_content_makes_the_same_archive() {
        assert_eq!(archive(b"x", &[]), archive(b"x", &[]));
    }
}
