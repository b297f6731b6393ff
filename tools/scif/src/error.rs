// SPDX-License-Identifier: GPL-2.0

//! The errors of the tool, in words for the person at the terminal, and as exit statuses.

use std::io;

/// A failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of this machine, such as a file or a limit.
    #[error("{failure}: {}", words(.source))]
    Local {
        /// The operation, and its object.
        failure: String,
        /// The reason.
        source: io::Error,
    },
    /// A refusal by this tool, complete as it is.
    #[error("{0}")]
    Refused(String),
    /// There is no SCIF on this machine.
    #[error("cannot open /dev/scif ({}): {advice}", errno_name(.source))]
    NoDevice {
        /// The advice.
        advice: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// There is no trace of SCIF on this machine.
    #[error("cannot read {path} ({}): is the module loaded? (modprobe scif, or insmod scif.ko)", errno_name(.source))]
    NotLoaded {
        /// The path where SCIF would be seen.
        path: String,
        /// The reason why the path can't be read.
        source: io::Error,
    },
    /// No connection could be made.
    #[error("cannot connect to node {node} port {port} ({}): {advice}", errno_name(.source))]
    Unreachable {
        /// The node.
        node: u16,
        /// The port.
        port: u16,
        /// The advice.
        advice: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The connection broke.
    #[error("{peer} {} during {activity} ({})", how_lost(.source, *.node_lost), errno_name(.source))]
    Lost {
        /// The peer, as `node 1`.
        peer: String,
        /// The activity, as `the copy`.
        activity: &'static str,
        /// Whether the node itself is gone, and not only the program on it.
        node_lost: bool,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The command makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The peer has refused.
    #[error("{peer} says: {text}")]
    Peer {
        /// The peer, as `node 1`.
        peer: String,
        /// The words of the peer, made printable.
        text: String,
    },
    /// The peer broke the protocol.
    #[error("{peer} broke the protocol ({text}); are both sides of the same version?")]
    Protocol {
        /// The peer, as `node 1`.
        peer: String,
        /// The violation.
        text: String,
    },
    /// The two ends have hashed different bytes.
    #[error("the content changed on the way: SHA-256 {sent} was sent, {received} was received")]
    Mismatch {
        /// The hash of the sender.
        sent: String,
        /// The hash of the receiver.
        received: String,
    },
    /// The connection broke after all had been sent, but before the peer confirmed that it is on
    /// disk.
    #[error("{0}, when everything had been sent")]
    Unconfirmed(Box<Error>),
    /// An error, with its consequence for the person.
    #[error("{error}: {consequence}")]
    Consequence {
        /// The error.
        error: Box<Error>,
        /// The consequence.
        consequence: String,
    },
    /// A signal has asked the tool to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Wraps an error of this machine.
    pub fn local(failure: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let failure = failure.into();
        move |source| Self::Local { failure, source }
    }

    /// Returns the exit status, as `--help` lists them.
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

    /// Returns whether the connection ended because the peer was silent.
    pub fn timed_out(&self) -> bool {
        matches!(self, Self::Lost { source, .. } if source.kind() == io::ErrorKind::TimedOut)
    }

    /// Returns the name of the kernel's error, if there is one.
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

/// Returns an error in words, with its name instead of its number.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((words, _)) => format!("{words} ({})", errno_name(error)),
        None => text,
    }
}

/// Returns the symbolic name of an error number, as manual pages use it.
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
    fn device_open_errors_have_distinct_exit_statuses() {
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
    fn error_text_names_the_errno() {
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
