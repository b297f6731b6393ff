// SPDX-License-Identifier: GPL-2.0

//! What can go wrong, in words for the person at the terminal, and as an exit status.

use std::io;

/// A failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something on this machine: a file, a limit.
    #[error("{what}: {}", words(.source))]
    Local {
        /// What was tried, on what.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A refusal of our own, complete as it is.
    #[error("{0}")]
    Refused(String),
    /// There is no SCIF on this machine.
    #[error("cannot open /dev/scif ({}): {advice}", errno_name(.source))]
    NoDevice {
        /// What to do.
        advice: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// There is no trace of SCIF on this machine.
    #[error("cannot read {path} ({}): is the module loaded? (modprobe scif, or insmod scif.ko)", errno_name(.source))]
    NotLoaded {
        /// Where it would be seen.
        path: String,
        /// Why it is not.
        source: io::Error,
    },
    /// No connection came about.
    #[error("cannot connect to node {node} port {port} ({}): {advice}", errno_name(.source))]
    Unreachable {
        /// The node.
        node: u16,
        /// The port.
        port: u16,
        /// What to do.
        advice: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The connection broke.
    #[error("{peer} {} during {activity} ({})", how_lost(.source, *.node_lost), errno_name(.source))]
    Lost {
        /// The peer, as `node 1`.
        peer: String,
        /// What was going on, as `the copy`.
        activity: &'static str,
        /// The node itself is gone, and not only the program on it.
        node_lost: bool,
        /// What the kernel said.
        source: io::Error,
    },
    /// The command makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The peer said no.
    #[error("{peer} says: {text}")]
    Peer {
        /// The peer, as `node 1`.
        peer: String,
        /// Its words, made printable.
        text: String,
    },
    /// The peer broke the protocol.
    #[error("{peer} broke the protocol ({text}); are both sides of the same version?")]
    Protocol {
        /// The peer, as `node 1`.
        peer: String,
        /// What was wrong.
        text: String,
    },
    /// The two ends have hashed different bytes.
    #[error("the content changed on the way: SHA-256 {sent} was sent, {received} was received")]
    Mismatch {
        /// The sender's.
        sent: String,
        /// The receiver's.
        received: String,
    },
    /// The connection broke when all had been sent, before the peer's word that it is on disk.
    #[error("{0}, when everything had been sent")]
    Unconfirmed(Box<Error>),
    /// Any of these, with what it means for the person.
    #[error("{error}: {consequence}")]
    Consequence {
        /// What happened.
        error: Box<Error>,
        /// What follows.
        consequence: String,
    },
    /// A signal asked us to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Wraps a local failure.
    pub fn local(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Local { what, source }
    }

    /// The exit status, as `--help` lists them.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Local { .. } | Self::Refused(_) => 1,
            Self::Usage(_) => 2,
            Self::Unreachable { .. } => 3,
            Self::Lost { .. } => 4,
            Self::Unconfirmed(error) | Self::Consequence { error, .. } => error.exit_status(),
            Self::Peer { .. } | Self::Protocol { .. } => 5,
            Self::Mismatch { .. } => 6,
            Self::NoDevice { source, .. } | Self::NotLoaded { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => 8,
                _ if matches!(
                    source.raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)
                ) =>
                {
                    1
                }
                _ => 7,
            },
            Self::Interrupted => 130,
        }
    }

    /// Whether it is the silence of the peer that ended the connection.
    pub fn timed_out(&self) -> bool {
        matches!(self, Self::Lost { source, .. } if source.kind() == io::ErrorKind::TimedOut)
    }

    /// The kernel's error number, if there is one.
    pub fn errno(&self) -> Option<String> {
        match self {
            Self::Local { source, .. }
            | Self::NoDevice { source, .. }
            | Self::NotLoaded { source, .. }
            | Self::Unreachable { source, .. }
            | Self::Lost { source, .. } => Some(errno_name(source)),
            Self::Unconfirmed(error) | Self::Consequence { error, .. } => error.errno(),
            _ => None,
        }
    }
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Error>;

/// The exit statuses, for `--help`.
pub const EXIT_STATUS_HELP: &str = "\
Exit status:
  0    done
  1    something on this machine failed: a file, a limit
  2    wrong usage
  3    no connection: no such node, or no `scif serve` on it
  4    the node or the connection was lost
  5    the other side refused, or broke the protocol
  6    the content arrived changed (SHA-256 differs)
  7    no SCIF here: the module is not loaded
  8    this user may not use SCIF here: not in the group scif
  130  interrupted";

fn how_lost(source: &io::Error, node_lost: bool) -> &'static str {
    if source.kind() == io::ErrorKind::TimedOut {
        "did not answer"
    } else if node_lost {
        "was lost"
    } else {
        "closed the connection"
    }
}

/// An error in words, with its name instead of its number.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((words, _)) => format!("{words} ({})", errno_name(error)),
        None => text,
    }
}

/// The symbolic name of an error number, as manual pages use it.
pub fn errno_name(error: &io::Error) -> String {
    let name = match error.raw_os_error() {
        Some(libc::EACCES) => "EACCES",
        Some(libc::EADDRINUSE) => "EADDRINUSE",
        Some(libc::EAGAIN) => "EAGAIN",
        Some(libc::EBUSY) => "EBUSY",
        Some(libc::ECONNREFUSED) => "ECONNREFUSED",
        Some(libc::ECONNRESET) => "ECONNRESET",
        Some(libc::EEXIST) => "EEXIST",
        Some(libc::EFAULT) => "EFAULT",
        Some(libc::EINTR) => "EINTR",
        Some(libc::EINVAL) => "EINVAL",
        Some(libc::EIO) => "EIO",
        Some(libc::EISCONN) => "EISCONN",
        Some(libc::EISDIR) => "EISDIR",
        Some(libc::ELOOP) => "ELOOP",
        Some(libc::EMFILE) => "EMFILE",
        Some(libc::ENODEV) => "ENODEV",
        Some(libc::ENOENT) => "ENOENT",
        Some(libc::ENOMEM) => "ENOMEM",
        Some(libc::ENOSPC) => "ENOSPC",
        Some(libc::ENOSYS) => "ENOSYS",
        Some(libc::ENOTCONN) => "ENOTCONN",
        Some(libc::ENOTDIR) => "ENOTDIR",
        Some(libc::ENOTTY) => "ENOTTY",
        Some(libc::ENXIO) => "ENXIO",
        Some(libc::EOPNOTSUPP) => "EOPNOTSUPP",
        Some(libc::EPERM) => "EPERM",
        Some(libc::EPIPE) => "EPIPE",
        Some(libc::EROFS) => "EROFS",
        Some(libc::ETIMEDOUT) => "ETIMEDOUT",
        Some(libc::EXDEV) => "EXDEV",
        Some(number) => return format!("error {number}"),
        None => return error.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_module_no_rights_and_no_memory_differ() {
        let status = |number| {
            let source = io::Error::from_raw_os_error(number);
            Error::NoDevice { advice: "", source }.exit_status()
        };
        assert_eq!(status(libc::ENOENT), 7);
        assert_eq!(status(libc::EACCES), 8);
        assert_eq!(status(libc::EPERM), 8);
        assert_eq!(status(libc::ENOMEM), 1);
    }

    #[test]
    fn words_name_the_error() {
        let error = Error::local("cannot read 'x'")(io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(
            error.to_string(),
            "cannot read 'x': No such file or directory (ENOENT)"
        );
        assert_eq!(words(&io::Error::other("bad luck")), "bad luck");
        assert_eq!(
            errno_name(&io::Error::from_raw_os_error(95_000)),
            "error 95000"
        );
    }
}
