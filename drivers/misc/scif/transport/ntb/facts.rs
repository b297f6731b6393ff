// SPDX-License-Identifier: GPL-2.0

//! What there is to see of a link, for people.

use super::{
    aperture::{
        Aperture,
        Behind, //
    },
    link::NtbLink,
    state::Inner, //
};
use crate::{
    sys::arena::Purpose,
    transport::{
        links::{
            Facts,
            Link,
            Own,
            Up, //
        },
        outbound::Outbound,
        path::Path, //
    },
};

fn state(inner: &Inner) -> (&'static str, Option<Up>) {
    match &inner.up {
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
    }
}

fn own(aperture: &Aperture, is_exposed: bool) -> Own {
    Own {
        mode: aperture.mode().name(),
        aperture: aperture.len,
        taken: match &aperture.behind {
            Behind::All => None,
            Behind::Arena(arena) => Some((
                arena.bytes_for(Purpose::Windows),
                arena.bytes_for(Purpose::Rings),
            )),
            Behind::Pool(pool) => Some((0, pool.bytes_taken())),
        },
        is_guarded: !is_exposed && !matches!(aperture.behind, Behind::All),
        reason: aperture.reason,
    }
}

impl Link for NtbLink {
    fn look(&self, f: &mut dyn FnMut(&Facts<'_>)) {
        let Ok(name) = self.full_name() else { return };
        // Who takes a session down has the lock all the time, and waits for others.
        let (state, up, own) = match self.inner.try_lock() {
            None => ("changing", None, None),
            Some(inner) => {
                let (state, up) = state(&inner);
                (
                    state,
                    up,
                    inner
                        .aperture
                        .as_ref()
                        .map(|aperture| own(aperture, self.is_exposed)),
                )
            }
        };
        f(&Facts {
            name: &name,
            state,
            up,
            own,
            doorbells: self.register.numbers(),
        });
    }
}
