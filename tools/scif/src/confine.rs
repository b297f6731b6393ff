// SPDX-License-Identifier: GPL-2.0

//! The folder that is served, which no path can leave.
//!
//! The kernel resolves every path of a client in one step, beneath the descriptor of the folder
//! (openat2 with RESOLVE_BENEATH and RESOLVE_NO_MAGICLINKS). So no `..`, no symbolic link, and no
//! rename at the wrong moment leads outside. All further operations use the resulting descriptor,
//! never the path again. Paths are bytes; an absolute path starts at the folder.

use crate::error::Error;
use crate::error::Result;
use crate::error::errno_name;
use crate::new_file::NewFile;
use rustix::fs::AtFlags;
use rustix::fs::FileType;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::fs::ResolveFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A served folder.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
}

/// A file opened for reading.
#[derive(Debug)]
pub struct Found {
    /// The file.
    pub file: File,
    /// The permission bits.
    pub mode: u32,
    /// The size.
    pub size: u64,
}

/// Examines a file that was opened, for reading or only as a path.
pub fn examine(file: File, shown: &str) -> Result<Found> {
    let status = rustix::fs::fstat(&file)
        .map_err(io::Error::from)
        .map_err(Error::local(format!("cannot examine {shown}")))?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Ok(Found {
            file,
            mode: status.st_mode & 0o777,
            size: u64::try_from(status.st_size).unwrap_or(0),
        }),
        FileType::Directory => Err(Error::Refused(format!(
            "{shown} is a directory: only single files can be copied (pack it with tar first)"
        ))),
        _ => Err(not_regular(shown)),
    }
}

/// Returns the refusal of a file that is not regular.
pub fn not_regular(shown: &str) -> Error {
    Error::Refused(format!("{shown} is not a regular file"))
}

/// The flags for reading: no wait for the other end of a FIFO, and no controlling terminal.
const READING: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Opens a regular file for reading. Any other file is examined without being opened: opening a
/// device can have effects, and opening a FIFO wakes up the process that waits at its other end.
pub fn open_regular(
    open: impl Fn(OFlags) -> rustix::io::Result<OwnedFd>,
    shown: &str,
) -> Result<Found> {
    let looked_at = open(OFlags::PATH | OFlags::CLOEXEC).map_err(|e| failed("read", shown, e))?;
    let looked_at = examine(looked_at.into(), shown)?.file;
    let path = format!("/proc/self/fd/{}", looked_at.as_raw_fd());
    let opened = match rustix::fs::open(path, READING, Mode::empty()) {
        // There is no /proc here.
        Err(Errno::NOENT) => open(READING),
        result => result,
    };
    examine(opened.map_err(|e| failed("read", shown, e))?.into(), shown)
}

impl Root {
    /// Opens the folder.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = show(path.as_os_str().as_bytes());
        let failed = |error: Errno| Error::local(format!("cannot serve {shown}"))(error.into());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        let root = Self { folder };
        // Where there is no openat2, this fails here and not at the first client.
        match root.resolve(b".", flags) {
            Ok(_) => Ok(root),
            // The folder is open already, so these errors are about the call and not about the
            // folder.
            Err(error @ (Errno::NOSYS | Errno::PERM)) => Err(Error::Refused(format!(
                "cannot serve {shown}: the system call openat2, which keeps clients inside the folder, is \
                 forbidden here ({}): allow it in the filter of the container or service (docker: \
                 --security-opt seccomp=FILE, systemd: SystemCallFilter=openat2); kernels before 5.6 lack it",
                errno_name(&error.into())
            ))),
            Err(error) => Err(failed(error)),
        }
    }

    /// Opens a file for reading.
    pub fn read(&self, path: &[u8]) -> Result<Found> {
        let shown = show(path);
        let relative = relative(path)?;
        open_regular(|flags| self.resolve(relative, flags), &shown)
    }

    /// Creates a file that gets its name when it is complete: the file that `path` names, or `name`
    /// in the directory that `path` names. Returns its path as well.
    pub fn create(&self, path: &[u8], name: &[u8]) -> Result<(NewFile, Vec<u8>)> {
        let relative = relative(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let shown = show(path);
        let failed = |error| failed("write", &shown, error);
        let (directory, name, path) = match self.resolve(relative, flags) {
            Ok(directory) => (directory, name, [relative, b"/", name].concat()),
            Err(Errno::NOENT | Errno::NOTDIR) => {
                let (parent, name) = split(relative);
                let directory = self.resolve(parent, flags).map_err(failed)?;
                (directory, name, relative.to_vec())
            }
            Err(error) => return Err(failed(error)),
        };
        if !is_name(name) {
            return Err(Error::Refused(format!(
                "{} is not the name of a file in an existing directory",
                show(&path)
            )));
        }
        let name = OsStr::from_bytes(name);
        check_replaceable(&directory, name, &show(&path))?;
        let file = NewFile::create(directory, name)
            .map_err(Error::local(format!("cannot write {}", show(&path))))?;
        Ok((file, path))
    }

    fn resolve(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..100 {
            match rustix::fs::openat2(&self.folder, path, flags, Mode::empty(), how) {
                // A rename went on meanwhile, and the kernel can't be sure.
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return result,
            }
        }
        Err(Errno::AGAIN)
    }
}

/// Refuses the name unless it is free or names a regular file.
pub fn check_replaceable(directory: &OwnedFd, name: &OsStr, shown: &str) -> Result<()> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => Ok(()),
            FileType::Symlink => Err(Error::Refused(format!(
                "{shown} is a symbolic link: it is neither followed nor replaced"
            ))),
            _ => Err(not_regular(shown)),
        },
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(failed("write", shown, error)),
    }
}

fn failed(verb: &str, shown: &str, error: Errno) -> Error {
    match error {
        Errno::XDEV => Error::Refused(format!(
            "cannot {verb} {shown}: the path leads out of the folder that is served"
        )),
        error => Error::local(format!("cannot {verb} {shown}"))(error.into()),
    }
}

/// Returns the path without leading slashes; the folder itself for an empty path.
fn relative(path: &[u8]) -> Result<&[u8]> {
    if path.contains(&0) {
        return Err(Error::Refused("a path cannot contain a NUL byte".into()));
    }
    let start = path.iter().position(|byte| *byte != b'/');
    Ok(start.map_or(b".", |start| &path[start..]))
}

/// Splits a path into directory and last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..=slash], &path[slash + 1..]),
        None => (b".", path),
    }
}

fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// Returns a path for messages.
pub fn show(path: &[u8]) -> String {
    format!("'{}'", path.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::inotify;
    use std::fs;
    use std::io::Read;
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// Makes a folder `root` to serve, beside a `secret` to protect.
    fn fixture() -> (TempDir, PathBuf, Root) {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("root");
        fs::create_dir_all(path.join("sub")).unwrap();
        fs::write(temporary.path().join("secret"), "secret").unwrap();
        fs::write(path.join("sub/file"), "public").unwrap();
        let root = Root::open(&path).unwrap();
        (temporary, path, root)
    }

    fn put(root: &Root, path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
        let (mut file, path) = root.create(path, name)?;
        file.write_all(b"new").unwrap();
        file.commit(0o644).unwrap();
        Ok(path)
    }

    #[test]
    fn files_inside_the_root_can_be_read_and_written() {
        let (_temporary, path, root) = fixture();
        for name in [&b"sub/file"[..], b"/sub/file", b"//sub/../sub/./file"] {
            let mut content = String::new();
            let mut found = root.read(name).unwrap();
            found.file.read_to_string(&mut content).unwrap();
            assert_eq!((content.as_str(), found.size), ("public", 6));
        }
        for (to, name, expected) in [
            (&b"a"[..], &b"x"[..], "a"),
            (b"/sub/b", b"x", "sub/b"),
            (b"", b"x", "x"),
            (b"/", b"y", "y"),
            (b"sub", b"z", "sub/z"),
            (b"sub/", b"file", "sub/file"),
        ] {
            put(&root, to, name).unwrap();
            assert_eq!(fs::read_to_string(path.join(expected)).unwrap(), "new");
        }
    }

    #[test]
    fn paths_outside_the_root_are_refused() {
        let (temporary, path, root) = fixture();
        let outside = temporary.path();
        symlink(outside.join("secret"), path.join("absolute")).unwrap();
        symlink("../secret", path.join("relative")).unwrap();
        symlink("..", path.join("up")).unwrap();
        symlink(outside, path.join("directory")).unwrap();
        symlink("/proc/self/root", path.join("magic")).unwrap();
        symlink(outside.join("dangling"), path.join("dangling")).unwrap();
        for name in [
            &b"../secret"[..],
            b"/../secret",
            b"sub/../../secret",
            b"absolute",
            b"relative",
            b"up/secret",
            b"directory/secret",
            b"magic/etc/passwd",
            b"dangling",
            b"..",
            b"sub/\0/file",
        ] {
            assert!(root.read(name).is_err(), "read {}", show(name));
            assert!(put(&root, name, b"secret").is_err(), "put {}", show(name));
        }
        for name in [&b"../secret"[..], b"..", b".", b"", b"/secret", b"a\0b"] {
            assert!(put(&root, b"sub", name).is_err(), "name {}", show(name));
        }
        assert!(put(&root, b"up", b"secret").is_err());
        assert!(put(&root, b"directory", b"secret").is_err());
        assert!(put(&root, b"missing/file", b"x").is_err());
        assert!(put(&root, b"missing/", b"x").is_err());
        assert!(put(&root, b"sub/file/", b"x").is_err());
        let secret = fs::read_to_string(outside.join("secret")).unwrap();
        assert_eq!(secret, "secret");
        assert_eq!(fs::read_dir(outside).unwrap().count(), 2);
        assert_eq!(fs::read_to_string(path.join("sub/file")).unwrap(), "public");
    }

    #[test]
    fn files_that_are_not_regular_are_refused() {
        let (_temporary, path, root) = fixture();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path.join("fifo"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(
            root.read(b"fifo")
                .unwrap_err()
                .to_string()
                .contains("regular")
        );
        assert!(put(&root, b"fifo", b"x").is_err());
        assert!(root.read(b"sub").unwrap_err().to_string().contains("tar"));
        symlink("sub/file", path.join("link")).unwrap();
        assert!(root.read(b"link").is_ok());
        assert!(put(&root, b"link", b"x").is_err());
        symlink("sub", path.join("inside")).unwrap();
        put(&root, b"inside", b"through").unwrap();
        assert!(path.join("sub/through").exists());
    }

    #[test]
    fn fifo_is_refused_without_being_opened() {
        let (_temporary, path, root) = fixture();
        let fifo = path.join("fifo");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let events = inotify::init(flags).unwrap();
        inotify::add_watch(&events, &path, inotify::WatchFlags::OPEN).unwrap();
        let opened = || {
            let mut buffer = [0; 4096];
            rustix::io::read(&events, &mut buffer).map_or(0, |bytes| bytes)
        };
        assert!(root.read(b"fifo").is_err());
        assert!(put(&root, b"fifo", b"x").is_err());
        let local = |flags| rustix::fs::open(&fifo, flags, Mode::empty());
        assert!(open_regular(local, "fifo").is_err());
        assert_eq!(opened(), 0);
        // The watch reports a file that is really opened.
        fs::write(path.join("regular"), "x").unwrap();
        opened();
        root.read(b"regular").unwrap();
        assert_ne!(opened(), 0);
    }

    /// Forbids openat2 to this thread, as filters of containers do.
    fn forbid_openat2(errno: i32) {
        let statement = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut program = [
            statement(0x20, 0, 0, 0),
            statement(0x15, 0, 1, libc::SYS_openat2 as u32),
            statement(0x06, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
            statement(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: the calls read the program, which is alive, and bind this thread only.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &filter, 0, 0), 0);
        }
    }

    #[test]
    fn filtered_openat2_is_named_in_the_error() {
        let (_temporary, path, _) = fixture();
        for errno in [libc::EPERM, libc::ENOSYS] {
            let path = path.clone();
            let error = std::thread::spawn(move || {
                forbid_openat2(errno);
                Root::open(&path).unwrap_err()
            });
            let error = error.join().unwrap().to_string();
            assert!(error.contains("openat2"), "{error}");
            assert!(error.contains("SystemCallFilter"), "{error}");
        }
    }

    #[test]
    fn directory_replaced_by_a_link_does_not_escape_the_root() {
        // An attacker with an account on the machine would race for this. The path is resolved
        // once, and only the descriptor counts.
        let (temporary, path, root) = fixture();
        let (mut file, _) = root.create(b"sub/new", b"x").unwrap();
        file.write_all(b"new").unwrap();
        fs::rename(path.join("sub"), path.join("moved")).unwrap();
        symlink(temporary.path(), path.join("sub")).unwrap();
        file.commit(0o600).unwrap();
        assert!(!temporary.path().join("new").exists());
        assert!(path.join("moved/new").exists());
    }
}
