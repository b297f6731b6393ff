// SPDX-License-Identifier: GPL-2.0
//! The requests of the lab to a guest.

use std::sync::Arc;

use super::channel::Channel;
use super::exec;
use super::files;
use crate::wire::Outcome;
use crate::wire::Request;

/// Carries out the request, and returns its outcome.
pub(super) fn serve(channel: &Arc<Channel>, request: Request) -> Outcome {
    let (task, result) = match request {
        Request::Exec(exec) => (
            exec.argv.first().cloned().unwrap_or_default(),
            exec::run(channel, exec),
        ),
        Request::Push { path, name, mode } => (
            format!("cannot write {path}"),
            files::receive(channel, &path, &name, mode),
        ),
        Request::Pull { path } => (format!("cannot read {path}"), files::send(channel, &path)),
    };
    result.unwrap_or_else(|error| Outcome::Failed {
        message: format!("{task}: {error}"),
        errno: error.raw_os_error().unwrap_or(0),
    })
}
