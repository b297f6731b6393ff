// SPDX-License-Identifier: GPL-2.0

//! A file that gets its name when it is complete, and never before.
//!
//! The file is made without a name (O_TMPFILE) where the file system can do that. So not even
//! SIGKILL or a power cut leaves a file behind. Elsewhere it has a hidden name beside the target,
//! and is removed on failure. All operations go through the descriptor of the directory: no other
//! process can exchange the directory on the way.

use rustix::fs::AtFlags;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::io;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

/// A file that is being written.
#[derive(Debug)]
pub struct NewFile {
    directory: OwnedFd,
    name: OsString,
    file: File,
    /// The hidden name, if the file has one.
    hidden: Option<OsString>,
}

impl NewFile {
    /// Creates a file that will become `name` in `directory`; `name` is a single component.
    pub fn create(directory: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::openat(&directory, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => Ok(Self {
                directory,
                name: name.to_owned(),
                file: file.into(),
                hidden: None,
            }),
            // Errors of file systems and old kernels without O_TMPFILE.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                Self::create_hidden(directory, name)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn create_hidden(directory: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::RUSR | Mode::WUSR;
        let (hidden, file) = with_hidden_name(name, |hidden| {
            rustix::fs::openat(&directory, hidden, flags, mode)
        })?;
        Ok(Self {
            directory,
            name: name.to_owned(),
            file: file.into(),
            hidden: Some(hidden),
        })
    }

    /// Puts the file on disk and gives it its name, in place of the former file of that name.
    pub fn commit(mut self, mode: u32) -> io::Result<()> {
        // Never sets set-user-ID and similar bits: the other side is not trusted that far.
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode) & permitted())?;
        self.file.sync_all()?;
        if self.hidden.is_none() && self.link(&self.name)? {
            self.sync_directory();
            return Ok(());
        }
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => {
                with_hidden_name(&self.name, |hidden| match self.link(hidden) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(Errno::EXIST),
                    Err(error) => Err(error),
                })?
                .0
            }
        };
        let renamed = rustix::fs::renameat(&self.directory, &hidden, &self.directory, &self.name);
        if renamed.is_err() {
            self.hidden = Some(hidden);
        }
        renamed?;
        self.sync_directory();
        Ok(())
    }

    /// Gives the file a name, unless that name is taken.
    fn link(&self, name: &OsStr) -> rustix::io::Result<bool> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let linked = rustix::fs::linkat(
            rustix::fs::CWD,
            path,
            &self.directory,
            name,
            AtFlags::SYMLINK_FOLLOW,
        );
        match linked {
            // There is no /proc here: the other way needs a privilege, or a recent kernel.
            Err(Errno::NOENT) => {
                match rustix::fs::linkat(&self.file, "", &self.directory, name, AtFlags::EMPTY_PATH)
                {
                    Err(Errno::EXIST) => Ok(false),
                    result => result.map(|()| true),
                }
            }
            Err(Errno::EXIST) => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Makes the name survive a power cut as well, where that is possible. The content is on disk
    /// and has its name already, so a failure here does not fail the commit.
    fn sync_directory(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(directory) = rustix::fs::openat(&self.directory, ".", flags, Mode::empty()) {
            let _ = rustix::fs::fsync(directory);
        }
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl AsFd for NewFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // If the file can't be removed, nothing more can be done.
            let _ = rustix::fs::unlinkat(&self.directory, hidden, AtFlags::empty());
        }
    }
}

/// Returns the permission bits that the umask of this process leaves: cp and scp give them to a new
/// file, too.
fn permitted() -> Mode {
    // The call that reads the umask also sets it. Files that are created meanwhile here have no
    // other bits.
    static PERMITTED: LazyLock<Mode> = LazyLock::new(|| {
        let others = Mode::RWXG | Mode::RWXO;
        let umask = rustix::process::umask(others);
        rustix::process::umask(umask);
        (Mode::RWXU | others) - umask
    });
    *PERMITTED
}

/// Tries hidden names for `name` until `make` finds one that is free.
fn with_hidden_name<T>(
    name: &OsStr,
    make: impl Fn(&OsStr) -> rustix::io::Result<T>,
) -> io::Result<(OsString, T)> {
    // This leaves room for dot and suffix in the 255 bytes of a name.
    let bytes = name.as_bytes();
    let stem = OsStr::from_bytes(&bytes[..bytes.len().min(200)]);
    for attempt in 0..100u32 {
        let mut hidden = OsString::from(".");
        hidden.push(stem);
        hidden.push(format!(
            ".{:016x}.part",
            RandomState::new().hash_one(attempt)
        ));
        match make(&hidden) {
            Ok(made) => return Ok((hidden, made)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn directory(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    fn names(path: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    }

    type Create = fn(OwnedFd, &OsStr) -> io::Result<NewFile>;

    #[test]
    fn new_file_appears_only_when_committed() {
        for create in [NewFile::create as Create, NewFile::create_hidden] {
            let temporary = tempfile::tempdir().unwrap();
            let path = temporary.path();
            for content in ["first", "second"] {
                let mut file = create(directory(path), OsStr::new("name")).unwrap();
                file.write_all(content.as_bytes()).unwrap();
                let before = std::fs::read_to_string(path.join("name")).ok();
                assert_ne!(before.as_deref(), Some(content));
                file.commit(0o4751).unwrap();
                assert_eq!(std::fs::read_to_string(path.join("name")).unwrap(), content);
                let mode = path.join("name").metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o7777, 0o751 & permitted().as_raw_mode());
                assert_eq!(names(path), ["name"]);
            }
        }
    }

    /// The umask belongs to the process, so the test runs itself in a process with another umask.
    #[test]
    fn umask_limits_the_mode_of_a_new_file() {
        const FOLDER: &str = "SCIF_TEST_UMASK_FOLDER";
        if let Some(path) = std::env::var_os(FOLDER) {
            let path = Path::new(&path);
            let file = NewFile::create(directory(path), OsStr::new("name")).unwrap();
            return file.commit(0o666).unwrap();
        }
        let temporary = tempfile::tempdir().unwrap();
        let name = "new_file::tests::umask_limits_the_mode_of_a_new_file";
        let ended = std::process::Command::new("sh")
            .args(["-c", "umask 027; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(name)
            .env(FOLDER, temporary.path())
            .output()
            .unwrap();
        assert!(ended.status.success(), "{ended:?}");
        let made = temporary.path().join("name").metadata().unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, 0o640);
    }

    #[test]
    fn dropped_new_file_leaves_nothing() {
        for create in [NewFile::create as Create, NewFile::create_hidden] {
            let temporary = tempfile::tempdir().unwrap();
            let path = temporary.path();
            let mut file = create(directory(path), OsStr::new("name")).unwrap();
            file.write_all(b"half").unwrap();
            drop(file);
            assert!(names(path).is_empty());
        }
    }

    #[test]
    fn failed_rename_leaves_nothing() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path();
        std::fs::create_dir(path.join("name")).unwrap();
        for create in [NewFile::create as Create, NewFile::create_hidden] {
            let file = create(directory(path), OsStr::new("name")).unwrap();
            assert!(file.commit(0o600).is_err());
            assert_eq!(names(path), ["name"]);
        }
    }

    #[test]
    fn longest_file_name_can_be_created() {
        let temporary = tempfile::tempdir().unwrap();
        let name = "n".repeat(255);
        for create in [NewFile::create as Create, NewFile::create_hidden] {
            for _ in 0..2 {
                let file = create(directory(temporary.path()), OsStr::new(&name)).unwrap();
                file.commit(0o600).unwrap();
            }
        }
    }
}
