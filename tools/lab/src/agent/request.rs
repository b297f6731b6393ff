// SPDX-License-Identifier: GPL-2.0
//! What the lab can ask of a guest, and who does it.

use std::sync::Arc;

use super::channel::Channel;
use super::exec;
use super::files;
use crate::wire::Outcome;
use crate::wire::Request;

/// Does what the request asks and says how it ended.
pub(super) fn serve(channel: &Arc<Channel>, request: Request) -> Outcome {
    let (what, result) = match request {
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
        message: format!("{what}: {error}"),
        errno: error.raw_os_error().unwrap_or(0),
    })
}
