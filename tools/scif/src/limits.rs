// SPDX-License-Identifier: GPL-2.0

//! The limits of the system for this process.

use rustix::process::Resource;
use rustix::process::Rlimit;
use rustix::process::getrlimit;
use rustix::process::setrlimit;

/// Raises the number of open files as far as this process may. If that is not enough, the code that
/// opens files reports it.
pub fn many_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}
