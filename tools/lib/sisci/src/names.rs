// SPDX-License-Identifier: LGPL-2.1

//! Names of nodes: numbers, names in a file, and the name of this host.
//!
//! The file is `/etc/dis/dishosts.conf` (`SISCI_HOSTS` overrides), of which lines of the form
//! `ADAPTER: name adapter id` and `HOSTNAME: name` are read. An adapter line gives the SISCI id
//! that the name stands for.

use std::fs;

use crate::error::Error;
use crate::error::Result;
use crate::nodes;

/// Returns the SISCI id of a node, by name.
pub fn node_of(name: &str) -> Result<u32> {
    if let Ok(id) = name.parse() {
        return nodes::scif_node(id).map(nodes::sisci_id);
    }
    let path = std::env::var("SISCI_HOSTS");
    let path = path.unwrap_or_else(|_| "/etc/dis/dishosts.conf".to_owned());
    let hosts = fs::read_to_string(path).unwrap_or_default();
    if let Some(id) = in_file(&hosts, name) {
        return Ok(id);
    }
    let own = rustix::system::uname();
    if own.nodename().to_string_lossy() == name || name == "localhost" {
        return Ok(nodes::sisci_id(nodes::own()?));
    }
    Err(Error::NO_SUCH_NODEID)
}

fn in_file(hosts: &str, name: &str) -> Option<u32> {
    hosts.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        match (words.next()?, words.next()?, words.next()?, words.next()?) {
            ("ADAPTER:", this, _, id) if this == name => id.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_name_in_the_file_gives_its_node_id() {
        let hosts =
            "# hosts\nHOSTNAME: one\nADAPTER: one 0 4 0 # first\nADAPTER: two 0 8\nADAPTER: x";
        assert_eq!(in_file(hosts, "one"), Some(4));
        assert_eq!(in_file(hosts, "two"), Some(8));
        assert_eq!(in_file(hosts, "three"), None);
        assert_eq!(in_file(hosts, "x"), None);
    }

    #[test]
    fn number_is_accepted_as_a_node_name() {
        assert_eq!(node_of("8"), Ok(8));
        assert_eq!(node_of("0"), Err(Error::ILLEGAL_NODEID));
    }
}
