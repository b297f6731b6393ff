// SPDX-License-Identifier: GPL-2.0

//! What is going on, for people and tools: `/sys/kernel/debug/scif`.
//!
//! - `nodes`: a line for each node that is or was known: id, state, link, aperture mode, generation.
//! - `counters`: a line `name value` for each counter.

use crate::{
    node::Fabric,
    session::Session, //
};
use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

/// The files; they go when this is dropped.
pub(crate) struct Files {
    _nodes: Pin<KBox<File<Arc<Fabric>>>>,
    _counters: Pin<KBox<File<Arc<Fabric>>>>,
    _directory: Dir,
}

impl Files {
    pub(crate) fn new(fabric: &Arc<Fabric>) -> Result<Self> {
        let directory = Dir::new(c"scif");
        let nodes = KBox::pin_init(
            directory.read_callback_file(c"nodes", fabric.clone(), &show_nodes),
            GFP_KERNEL,
        )?;
        let counters = KBox::pin_init(
            directory.read_callback_file(c"counters", fabric.clone(), &show_counters),
            GFP_KERNEL,
        )?;
        Ok(Self {
            _nodes: nodes,
            _counters: counters,
            _directory: directory,
        })
    }
}

fn show_nodes(fabric: &Arc<Fabric>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "node state link aperture generation")?;
    writeln!(
        f,
        "{} self loopback local {:016x}",
        fabric.own_id(),
        fabric.generation
    )?;
    let mut result = Ok(());
    fabric.for_each_node(|node| {
        if result.is_err() {
            return;
        }
        let online = node
            .session
            .as_ref()
            .filter(|session| !session.is_over())
            .map(|session| session.transport.mode());
        result = writeln!(
            f,
            "{} {} ntb:{} {} {:016x}",
            node.id,
            if online.is_some() { "online" } else { "lost" },
            node.link.to_str().unwrap_or("?"),
            online.unwrap_or("-"),
            node.generation
        );
    });
    result
}

fn show_counters(fabric: &Arc<Fabric>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mut connections, mut exports, mut mappings) = (0, 0, 0);
    let mut add = |session: &Session| {
        connections += session.connection_count();
        exports += session.export_count();
        mappings += session.mappings.count();
    };
    if let Some(session) = fabric.loopback() {
        add(&session);
    }
    for session in &fabric.sessions().map_err(|_| fmt::Error)? {
        add(session);
    }
    writeln!(f, "connections {connections}")?;
    writeln!(f, "exported_windows {exports}")?;
    writeln!(f, "mappings {mappings}")?;
    let cache = &fabric.registrations;
    writeln!(f, "cache_hits {}", cache.hits.load(Relaxed))?;
    writeln!(f, "cache_misses {}", cache.misses.load(Relaxed))?;
    writeln!(f, "cache_pages {}", cache.pages.load(Relaxed))?;
    writeln!(
        f,
        "cache_invalidations {}",
        cache.invalidations.load(Relaxed)
    )?;
    writeln!(f, "cache_evictions {}", cache.evictions.load(Relaxed))?;
    if let Some(engine) = fabric.existing_engine() {
        writeln!(f, "dma_bytes {}", engine.bytes.load(Relaxed))?;
        writeln!(f, "dma_errors {}", engine.errors.load(Relaxed))?;
    }
    Ok(())
}
