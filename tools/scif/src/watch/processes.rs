// SPDX-License-Identifier: GPL-2.0

//! The endpoints of processes that the caller may inspect, by their open files.

use super::endpoint::Endpoint;
use crate::error::Error;
use crate::error::Result;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns all endpoints that the caller may see. An endpoint with several descriptors, in any
/// processes, appears once: as one of the first process.
pub fn endpoints(proc: &Path) -> Result<Vec<Endpoint>> {
    let entries =
        std::fs::read_dir(proc).map_err(Error::local(format!("cannot list {}", proc.display())))?;
    let mut pids: Vec<u32> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for pid in pids {
        for endpoint in of_process(proc, pid) {
            // An endpoint without an address can't appear twice.
            let key = endpoint
                .own
                .clone()
                .map(|own| (own, endpoint.channel.clone()));
            if key.is_none_or(|key| seen.insert(key)) {
                found.push(endpoint);
            }
        }
    }
    Ok(found)
}

/// Returns the endpoints of one process; none if the caller may not inspect it, or if it has just
/// ended.
fn of_process(proc: &Path, pid: u32) -> Vec<Endpoint> {
    let process = proc.join(pid.to_string());
    let Ok(files) = std::fs::read_dir(process.join("fd")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for file in files.flatten() {
        // Most files are not of SCIF, and reading `fdinfo` of each would take long.
        let target = std::fs::read_link(file.path()).unwrap_or_default();
        if target.file_name().is_none_or(|name| name != "scif") {
            continue;
        }
        let info = std::fs::read_to_string(process.join("fdinfo").join(file.file_name()));
        if let Some(endpoint) = info.ok().as_deref().and_then(Endpoint::of_fdinfo) {
            found.push(endpoint);
        }
    }
    if found.is_empty() {
        return found;
    }
    let name = std::fs::read_to_string(process.join("comm")).ok();
    let name = name.map(|name| name.trim_end_matches('\n').to_owned());
    let uid = std::fs::metadata(&process).ok().map(|found| found.uid());
    for endpoint in &mut found {
        endpoint.pid = Some(pid);
        endpoint.uid = uid;
        endpoint.name.clone_from(&name);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::write_all;
    use std::fs::create_dir_all;
    use std::os::unix::fs::symlink;

    #[test]
    fn open_scif_files_are_read_as_endpoints() {
        let root = tempfile::tempdir().unwrap();
        let connected =
            "scif-state:\tconnected\nscif-own:\t0:5\nscif-peer:\t1:6\nscif-channel:\t0x1\n";
        write_all(
            root.path(),
            &[
                ("12/comm", "one prog\n"),
                ("12/fdinfo/3", connected),
                ("12/fdinfo/4", "pos:\t0\n"),
                (
                    "12/fdinfo/5",
                    "scif-state:\tlistening\nscif-own:\t0:5\nscif-queued:\t2\n",
                ),
                // A child that has inherited the endpoint.
                ("13/fdinfo/3", connected),
                ("14/comm", "other\n"),
                ("self/comm", "no number\n"),
            ],
        );
        for (link, target) in [
            ("12/fd/3", "/dev/scif"),
            ("12/fd/4", "/home/scif"),
            ("12/fd/5", "/dev/mic/scif"),
            ("12/fd/6", "socket:[1]"),
            ("13/fd/3", "/dev/scif"),
        ] {
            let link = root.path().join(link);
            create_dir_all(link.parent().unwrap()).unwrap();
            symlink(target, link).unwrap();
        }
        let mut found = endpoints(root.path()).unwrap();
        found.sort_by(|a, b| a.state.cmp(&b.state));
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].name.as_deref(), Some("one prog"));
        assert_eq!((found[0].pid, found[1].pid), (Some(12), Some(12)));
        assert_eq!((found[1].state.as_str(), found[1].queued), ("listening", 2));
    }
}
