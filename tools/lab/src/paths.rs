// SPDX-License-Identifier: GPL-2.0
//! The paths of the environment's folders, and of the files of one lab.
//!
//! The state of a lab is in `/cache/run/lab-NAME`. The process that runs the lab holds a lock on
//! the file `lock` there. So a folder whose lock is free was left by a lab that was killed.

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use rustix::fs::FlockOperation;

use crate::config::check_name;
use crate::interrupt;

/// The type of a tmpfs in statfs() (linux/magic.h).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Returns the repository, in the environment and in the guests.
pub fn repository() -> &'static Path {
    Path::new("/src")
}

/// Returns the cache folder, in the environment and in the guests.
pub fn cache() -> &'static Path {
    Path::new("/cache")
}

/// Refuses to run outside the pinned environment.
pub fn require_environment() -> Result<()> {
    if std::env::var_os("SCIF_IN_ENVIRONMENT").is_none() {
        bail!(
            "labs run inside the pinned environment: use scripts/lab, or scripts/environment run ..."
        );
    }
    Ok(())
}

/// Returns a program that is built with this one: beside it, or beside its folder (tests).
pub fn sibling(name: &str, given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        if !path.exists() {
            bail!("{} does not exist", path.display());
        }
        return Ok(path.to_owned());
    }
    let program = std::env::current_exe().context("cannot find out where this program is")?;
    program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|path| path.exists())
        .with_context(|| {
            format!(
                "the program '{name}' is not beside {}; build it with 'cargo build -p {}'",
                program.display(),
                if name == "lab-agent" { "lab" } else { name }
            )
        })
}

/// Refuses a path that guests do not see: they see the root, the repository and the cache, and
/// nothing else of the machine.
pub(crate) fn visible_in_guests(path: &Path) -> Result<()> {
    let hidden = ["/tmp", "/dev", "/proc", "/sys", "/run"];
    if !path.is_absolute() || hidden.iter().any(|folder| path.starts_with(folder)) {
        bail!(
            "{} is not visible in the guests; they see /src, /cache and the rest of the environment's root",
            path.display()
        );
    }
    Ok(())
}

/// The folder of one lab.
#[derive(Clone, Debug)]
pub struct LabPaths {
    folder: PathBuf,
}

impl LabPaths {
    /// Returns the paths of the lab `name`, whether it exists or not.
    pub fn new(name: &str) -> Result<LabPaths> {
        check_name(name)?;
        Ok(LabPaths {
            folder: runs().join(format!("lab-{name}")),
        })
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder for the guests' memory: on a tmpfs, so that the memory is never written
    /// to a disk. The tmpfs of the environment is private to the processes of one run and vanishes
    /// with them.
    pub fn memory(&self) -> PathBuf {
        for folder in ["/tmp", "/dev/shm"] {
            if rustix::fs::statfs(folder).is_ok_and(|fs| fs.f_type == TMPFS_MAGIC) {
                let name = self.folder.file_name().unwrap_or_default();
                return Path::new(folder).join(name);
            }
        }
        self.folder.join("memory")
    }

    /// Returns the socket of the process that owns the lab.
    pub fn control(&self) -> PathBuf {
        self.folder.join("control.sock")
    }

    /// Returns the file with the owner's output.
    pub fn log(&self) -> PathBuf {
        self.folder.join("lab.log")
    }

    /// Returns the folder that guests see as /exchange.
    pub fn exchange(&self) -> PathBuf {
        self.folder.join("exchange")
    }

    /// Returns the file with the emulator's output.
    pub fn emulator_log(&self) -> PathBuf {
        self.folder.join("emulator.log")
    }

    /// Returns the file with the output of a node's serial console.
    pub fn console_log(&self, node: usize) -> PathBuf {
        self.folder.join(format!("console-{node}.log"))
    }

    /// Returns the socket of a node's serial console.
    pub fn console(&self, node: usize) -> PathBuf {
        self.folder.join(format!("console-{node}.sock"))
    }

    /// Returns the socket of the virtio-serial port of a node's agent.
    pub fn agent(&self, node: usize) -> PathBuf {
        self.folder.join(format!("agent-{node}.sock"))
    }

    /// Returns the socket of the monitor of a node's QEMU.
    pub fn monitor(&self, node: usize) -> PathBuf {
        self.folder.join(format!("monitor-{node}.sock"))
    }

    /// Returns the socket where a node's QEMU waits for a debugger.
    pub(crate) fn debugger(&self, node: usize) -> PathBuf {
        self.folder.join(format!("debugger-{node}.sock"))
    }

    /// Returns the file with the output of a node's QEMU.
    pub fn qemu_log(&self, node: usize) -> PathBuf {
        self.folder.join(format!("qemu-{node}.log"))
    }

    fn lock_file(&self) -> PathBuf {
        self.folder.join("lock")
    }

    /// Returns whether a process runs the lab.
    pub fn is_running(&self) -> bool {
        let Ok(file) = File::open(self.lock_file()) else {
            return false;
        };
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err()
    }

    /// Makes the folder, empty but for the log, and takes its lock.
    pub fn claim(&self, name: &str) -> Result<Claim> {
        sweep();
        let lock = loop {
            fs::create_dir_all(&self.folder)
                .with_context(|| format!("cannot make {}", self.folder.display()))?;
            let lock = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(self.lock_file())
                .with_context(|| format!("cannot open {}", self.lock_file().display()))?;
            // A process that only checks the lock also holds it for a moment.
            let deadline = Instant::now() + Duration::from_secs(1);
            while rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                if Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                }
                bail!(
                    "the lab '{name}' is running already; end it with 'lab --name {name} down' or give another --name"
                );
            }
            // Another process may have removed the folder between the two steps.
            if is_same_file(&lock, &self.lock_file()) {
                break lock;
            }
        };
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let path = entry.path();
            if path == self.lock_file() || path == self.log() {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                fs::remove_dir_all(&path)
            } else {
                fs::remove_file(&path)
            }
            .with_context(|| format!("cannot remove {} of an earlier lab", path.display()))?;
        }
        interrupt::register(&self.folder);
        fs::create_dir_all(self.exchange())
            .with_context(|| format!("cannot make {}", self.exchange().display()))?;
        Ok(Claim {
            folder: self.folder.clone(),
            _lock: lock,
        })
    }
}

/// Removes the folders of labs that were killed.
fn sweep() {
    let Ok(entries) = fs::read_dir(runs()) else {
        return;
    };
    for entry in entries.flatten() {
        let folder = entry.path();
        if !entry.file_name().as_encoded_bytes().starts_with(b"lab-") {
            continue;
        }
        let Ok(lock) = File::open(folder.join("lock")) else {
            continue;
        };
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_same_file(&lock, &folder.join("lock"))
        {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

fn is_same_file(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => open.dev() == named.dev() && open.ino() == named.ino(),
        _ => false,
    }
}

/// Returns the folder with the folders of labs.
pub fn runs() -> PathBuf {
    cache().join("run")
}

/// The right to a lab's folder. The drop removes the folder.
#[derive(Debug)]
pub struct Claim {
    folder: PathBuf,
    _lock: File,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
        interrupt::unregister(&self.folder);
    }
}
