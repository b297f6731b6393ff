// SPDX-License-Identifier: GPL-2.0

//! What there is to see of a link, for people.

use super::link::NtbLink;
use crate::transport::{
    links::{
        Facts,
        Link,
        Up, //
    },
    outbound::Outbound,
    path::Path, //
};

impl Link for NtbLink {
    fn look(&self, f: &mut dyn FnMut(&Facts<'_>)) {
        let Ok(name) = self.full_name() else { return };
        // Who takes a session down has the lock all the time, and waits for others.
        let (state, up) = match self.inner.try_lock() {
            None => ("changing", None),
            Some(inner) => match &inner.up {
                Some(up) => (
                    "up",
                    Some(Up {
                        node: Some(up.peer),
                        mode: up.path.mode(),
                        aperture: up.path.reachable(),
                        engines: up.path.engines().len(),
                    }),
                ),
                None if inner.block.is_some() => ("offering", None),
                None => ("down", None),
            },
        };
        f(&Facts {
            name: &name,
            state,
            up,
            doorbells: self.doorbells,
        });
    }
}
