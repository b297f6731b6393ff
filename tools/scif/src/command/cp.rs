// SPDX-License-Identifier: GPL-2.0

//! `scif cp`: copies one file to a node, or from it.

use crate::cancel::Cancel;
use crate::client;
use crate::client::Copied;
use crate::command::connect::connect;
use crate::command::output::print;
use crate::command::output::print_json;
use crate::command::port::DEFAULT_PORT;
use crate::command::port::parse_port;
use crate::command::progress::Display;
use crate::confine::check_replaceable;
use crate::confine::open_regular;
use crate::confine::show;
use crate::error::Error;
use crate::error::Result;
use crate::format;
use crate::new_file::NewFile;
use crate::protocol::LONGEST_NAME;
use crate::protocol::LONGEST_PATH;
use crate::transfer::hexadecimal;
use clap::ValueHint;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use serde::Serialize;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  scif cp disk.img 1:images/new.img   to the folder that node 1 serves
  scif cp disk.img 1:images/          the same, and keep the file's name
  scif cp 1:images/new.img .          from node 1 to the current folder
  scif cp ./1:odd 1:odd               a local file whose name looks like a remote one";

/// Copy a file to a node, or from it: FILE NODE:PATH, or NODE:PATH FILE
///
/// NODE is a number that `scif nodes` lists. The other node runs `scif serve`. PATH is relative to
/// the folder that the node serves. The content goes by DMA from memory to memory. Both ends hash it
/// (SHA-256). The target gets its name only after all of the content has arrived, is correct, and is
/// on disk. So there is never a half file. The copy keeps permission bits, except those that the
/// umask of the receiving process removes. It never keeps set-user-ID, set-group-ID and sticky bits.
/// It copies one regular file at a time. After an interruption the copy starts from the beginning.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The source
    #[arg(value_name = "FROM", value_hint = ValueHint::AnyPath)]
    pub from: OsString,
    /// The target
    #[arg(value_name = "TO", value_hint = ValueHint::AnyPath)]
    pub to: OsString,
    /// The port of the server
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = parse_port)]
    pub port: u16,
    /// Show no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Local(PathBuf),
    Remote { node: u16, path: Vec<u8> },
}

impl Place {
    /// Parses an argument: `NODE:PATH` with a number for the node is remote, everything else local.
    fn parse(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        let local = || Ok(Self::Local(text.into()));
        let Some(colon) = bytes.iter().position(|byte| *byte == b':') else {
            return local();
        };
        let node = &bytes[..colon];
        if node.is_empty() || !node.iter().all(u8::is_ascii_digit) {
            return local();
        }
        let path = bytes[colon + 1..].to_vec();
        if path.len() > LONGEST_PATH {
            return Err(Error::Usage(format!(
                "the path {} is too long",
                show(&path)
            )));
        }
        let node = std::str::from_utf8(node)
            .ok()
            .and_then(|node| node.parse().ok());
        let node = node.ok_or_else(|| {
            Error::Usage(format!(
                "{} names a node that cannot exist; for a local file of this name, write ./ before it",
                show(bytes)
            ))
        })?;
        Ok(Self::Remote { node, path })
    }
}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    from: &'a str,
    to: &'a str,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    sha256_here: String,
    sha256_there: String,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let from = Place::parse(&arguments.from)?;
    let to = Place::parse(&arguments.to)?;
    let nothing_written = |error| nothing_written(error, &arguments.to);
    let (node, copied, time) = match (from, to) {
        (Place::Local(file), Place::Remote { node, path }) => {
            let (copied, time) = put(arguments, &file, node, &path).map_err(nothing_written)?;
            (node, copied, time)
        }
        (Place::Remote { node, path }, Place::Local(file)) => {
            let (copied, time) = get(arguments, node, &path, &file).map_err(nothing_written)?;
            (node, copied, time)
        }
        (Place::Local(_), Place::Local(_)) => {
            return Err(Error::Usage(
                "neither FROM nor TO is on a node: write NODE:PATH for one of them, with the node's \
                 number, such as 1:file"
                    .into(),
            ));
        }
        (Place::Remote { .. }, Place::Remote { .. }) => {
            return Err(Error::Usage(
                "FROM and TO are both on nodes: run the copy on one of the two".into(),
            ));
        }
    };
    report(arguments, node, &copied, time)
}

fn report(arguments: &Arguments, node: u16, copied: &Copied, time: Duration) -> Result<()> {
    let rate = format::rate(copied.bytes, time);
    let (here, there) = (hexadecimal(&copied.own), hexadecimal(&copied.peer));
    if arguments.json {
        return print_json(&Report {
            ok: true,
            from: &arguments.from.to_string_lossy(),
            to: &arguments.to.to_string_lossy(),
            bytes: copied.bytes,
            seconds: time.as_secs_f64(),
            bytes_per_second: rate,
            sha256_here: here,
            sha256_there: there,
        });
    }
    print(format_args!(
        "copied {} ({} bytes) in {:.2} s, {}\nsha256 {here}  here\nsha256 {there}  on node {node}",
        format::size(copied.bytes),
        copied.bytes,
        time.as_secs_f64(),
        format::per_second(rate)
    ))
}

/// Adds to an error its consequence for the target.
fn nothing_written(error: Error, target: &OsStr) -> Error {
    let target = show(target.as_bytes());
    let consequence = match &error {
        Error::Unconfirmed(_) => {
            format!("{target} is either unchanged or complete; check it on the node")
        }
        _ => format!("nothing was written to {target}"),
    };
    Error::Consequence {
        error: Box::new(error),
        consequence,
    }
}

fn put(arguments: &Arguments, file: &Path, node: u16, path: &[u8]) -> Result<(Copied, Duration)> {
    let shown = show(file.as_os_str().as_bytes());
    let open = |flags| rustix::fs::open(file, flags, Mode::empty());
    let source = open_regular(open, &shown)?;
    // "file/.." and similar paths are directories, so this one has a name.
    let name = file.file_name().unwrap_or_default().as_bytes();
    if name.len() > LONGEST_NAME {
        return Err(Error::Refused(format!("the name of {shown} is too long")));
    }
    // This side has nothing to clean up: signals have their usual effect.
    let session = connect(node, arguments.port, None)?;
    let mut display = Display::new(arguments.quiet);
    let copied = client::put(&session, source, path, name, &mut display);
    let time = display.finish();
    Ok((copied?, time))
}

fn get(arguments: &Arguments, node: u16, path: &[u8], file: &Path) -> Result<(Copied, Duration)> {
    // On a file system without O_TMPFILE there is a hidden file to remove.
    let cancel = Cancel::on_signals().map_err(Error::local("cannot catch signals"))?;
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let target = local_target(file, OsStr::from_bytes(name))?;
    let session = connect(node, arguments.port, Some(cancel))?;
    let mut display = Display::new(arguments.quiet);
    let copied = client::get(&session, path, target, &mut display);
    let time = display.finish();
    Ok((copied?, time))
}

/// Creates the file to write to: `path`, its link target, or `name` in `path` if that is a
/// directory.
fn local_target(path: &Path, name: &OsStr) -> Result<NewFile> {
    let shown = show(path.as_os_str().as_bytes());
    let path = match path.canonicalize() {
        Ok(real) if real.is_dir() => real.join(name),
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(Error::local(format!("cannot write {shown}"))(error)),
    };
    let name = match path.file_name() {
        Some(name) if !path.as_os_str().as_bytes().ends_with(b"/") => name,
        _ => {
            return Err(Error::Refused(format!(
                "{shown} is not the name of a file in an existing directory"
            )));
        }
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let cannot = || Error::local(format!("cannot write {shown}"));
    let directory = rustix::fs::open(parent, flags, Mode::empty())
        .map_err(io::Error::from)
        .map_err(cannot())?;
    check_replaceable(&directory, name, &shown)?;
    NewFile::create(directory, name).map_err(cannot())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn source_and_target_places_are_parsed() {
        let place = |text: &str| Place::parse(OsStr::new(text)).ok();
        let remote = |node, path: &str| {
            Some(Place::Remote {
                node,
                path: path.into(),
            })
        };
        let local = |path: &str| Some(Place::Local(path.into()));
        assert_eq!(place("1:a/b"), remote(1, "a/b"));
        assert_eq!(place("12:"), remote(12, ""));
        assert_eq!(place("0:a:b"), remote(0, "a:b"));
        assert_eq!(place("./1:a"), local("./1:a"));
        assert_eq!(place("a:b"), local("a:b"));
        assert_eq!(place(":b"), local(":b"));
        assert_eq!(place("file"), local("file"));
        assert_eq!(place("70000:a"), None);
    }

    #[test]
    fn local_target_follows_directories_and_links() {
        let temporary = tempfile::tempdir().unwrap();
        let base = temporary.path();
        std::fs::write(base.join("old"), "old").unwrap();
        std::os::unix::fs::symlink("old", base.join("link")).unwrap();
        let write = |path: &Path| {
            let mut file = local_target(path, OsStr::new("name"))?;
            file.write_all(b"new").unwrap();
            file.commit(0o644).unwrap();
            Ok::<_, Error>(())
        };
        write(&base.join("fresh")).unwrap();
        write(base).unwrap();
        write(&base.join("link")).unwrap();
        for name in ["fresh", "name", "old"] {
            assert_eq!(std::fs::read_to_string(base.join(name)).unwrap(), "new");
        }
        assert!(base.join("link").is_symlink());
        assert!(write(&base.join("missing/file")).is_err());
        assert!(write(&base.join("missing/")).is_err());
        assert!(write(&base.join("old/")).is_err());
        assert!(write(Path::new("/dev/null")).is_err());
        assert!(write(Path::new("")).is_err());
    }
}
