// SPDX-License-Identifier: GPL-2.0

//! `nodes`: a line for each node that is or was known.

use crate::node::{
    self,
    Nodes, //
};
use kernel::fmt;

pub(super) fn show(nodes: &Nodes, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "node state link aperture generation")?;
    let mut result = Ok(());
    nodes.for_each(|node, is_this| {
        if result.is_err() {
            return;
        }
        let online = node
            .peer
            .as_ref()
            .filter(|peer| !peer.is_over())
            .map(|peer| peer.mode());
        let state = node::state(is_this, online.is_some());
        result = writeln!(
            f,
            "{} {} {} {} {:016x}",
            node.id,
            state,
            node.link.to_str().unwrap_or("?"),
            online.unwrap_or("-"),
            node.generation
        );
    });
    result
}
