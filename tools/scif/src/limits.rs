// SPDX-License-Identifier: GPL-2.0

//! What the system lets this process have.

use rustix::process::Resource;
use rustix::process::Rlimit;
use rustix::process::getrlimit;
use rustix::process::setrlimit;

/// Lets the process have as many open files as it may. If it may not, that is told by what needs
/// them.
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
