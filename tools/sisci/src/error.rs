// SPDX-License-Identifier: GPL-2.0

//! The errors of the tools, in words for the person at the terminal, and as exit statuses.

use std::process::ExitCode;

use scif::command::output::note;
use scif::command::output::print_json;
use serde::Serialize;

use crate::ffi;

/// A failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library can't be found.
    #[error(
        "cannot find libsisci.so ({looked}): install it (make sisci_install), or set DISPREFIX to the folder it was installed in"
    )]
    NoLibrary {
        /// The places that were tried, and the errors.
        looked: String,
    },
    /// The library has returned an error.
    #[error("{failure}: {text}{}", advice(*.code))]
    Sisci {
        /// The operation, and its object.
        failure: String,
        /// The error.
        code: u32,
        /// The error in words.
        text: String,
    },
    /// A failure in code that is shared with the tool `scif`.
    #[error("{0}")]
    Scif(#[from] scif::error::Error),
    /// A refusal by these tools, complete as it is.
    #[error("{0}")]
    Refused(String),
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Error>;

/// The exit statuses, for `--help`.
pub const EXIT_STATUS_HELP: &str = "\
Exit status:
  0    done
  1    something on this machine failed
  2    wrong usage
  3    the other side is not there
  4    the node, or the program on it, was lost
  7    no SISCI here: no library, or the module is not loaded
  130  interrupted";

/// Returns the advice for an error, if there is one.
fn advice(code: u32) -> &'static str {
    match code {
        ffi::NO_SUCH_SEGMENT => "; run `sisci-bench server` on that node first",
        ffi::NO_SUCH_NODEID | ffi::ILLEGAL_NODEID => "; `sisci-info` lists the nodes",
        ffi::NODE_NOT_RESPONDING | ffi::NO_LINK_ACCESS => {
            "; `scif doctor` tells the fault of the link"
        }
        ffi::SEGMENTID_USED | ffi::INTNO_USED => "; is another one running? `--id` takes another",
        ffi::INCONSISTENT_VERSIONS => "; is the module loaded? (modprobe scif, or insmod scif.ko)",
        _ => "",
    }
}

impl Error {
    /// Returns the exit status, as `--help` lists them.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::NoLibrary { .. } => 7,
            Self::Sisci { code, .. } => match *code {
                ffi::NO_SUCH_SEGMENT
                | ffi::NO_SUCH_NODEID
                | ffi::ILLEGAL_NODEID
                | ffi::NODE_NOT_RESPONDING
                | ffi::NO_LINK_ACCESS
                | ffi::CONNECTION_REFUSED => 3,
                ffi::NOT_CONNECTED | ffi::SEGMENT_NOT_CONNECTED | ffi::TRANSFER_FAILED => 4,
                ffi::INCONSISTENT_VERSIONS | ffi::NOT_INITIALIZED => 7,
                _ => 1,
            },
            Self::Scif(error) => error.exit_status(),
            Self::Refused(_) => 1,
        }
    }
}

/// Converts an error for the shared code that measures.
impl From<Error> for scif::error::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Scif(error) => error,
            other => Self::Refused(other.to_string()),
        }
    }
}

#[derive(Serialize)]
struct Failure {
    ok: bool,
    error: String,
    exit_status: u8,
}

/// Ends a program: reports the error, if there is one.
pub fn finish(program: &str, json: bool, result: Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    note(format_args!("{program}: {error}"));
    if json {
        // If the JSON can't be printed, the line above must do.
        let _ = print_json(&Failure {
            ok: false,
            error: error.to_string(),
            exit_status: error.exit_status(),
        });
    }
    ExitCode::from(error.exit_status())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: u32) -> Error {
        Error::Sisci {
            failure: "cannot connect".into(),
            code,
            text: "SCI_ERR_X".into(),
        }
    }

    #[test]
    fn error_kinds_have_their_own_exit_status() {
        assert_eq!(of(ffi::NO_SUCH_SEGMENT).exit_status(), 3);
        assert_eq!(of(ffi::NOT_CONNECTED).exit_status(), 4);
        assert_eq!(of(ffi::INCONSISTENT_VERSIONS).exit_status(), 7);
        assert_eq!(of(1).exit_status(), 1);
        assert_eq!(
            Error::Scif(scif::error::Error::Interrupted).exit_status(),
            130
        );
        assert_eq!(
            of(ffi::NO_SUCH_NODEID).to_string(),
            "cannot connect: SCI_ERR_X; `sisci-info` lists the nodes"
        );
    }
}
