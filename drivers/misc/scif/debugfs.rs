// SPDX-License-Identifier: GPL-2.0

//! What is going on, for people and tools: `/sys/kernel/debug/scif`.
//!
//! - `nodes`: a line for each node that is or was known: id, state, link, aperture mode, generation.
//! - `counters`: a line `name value` for each counter.

use crate::{
    endpoint::scif::Scif,
    node::Nodes,
    rma::caches::Caches,
    transport::engine::Engines, //
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
    _nodes: Pin<KBox<File<Arc<Sources>>>>,
    _counters: Pin<KBox<File<Arc<Sources>>>>,
    _directory: Dir,
}

impl Files {
    /// Opens the door. May sleep.
    pub(crate) fn new(sources: Sources) -> Result<Self> {
        let sources = Arc::new(sources, GFP_KERNEL)?;
        let directory = Dir::new(c"scif");
        let nodes = KBox::pin_init(
            directory.read_callback_file(c"nodes", sources.clone(), &show_nodes),
            GFP_KERNEL,
        )?;
        let counters = KBox::pin_init(
            directory.read_callback_file(c"counters", sources, &show_counters),
            GFP_KERNEL,
        )?;
        Ok(Self {
            _nodes: nodes,
            _counters: counters,
            _directory: directory,
        })
    }
}

/// Where the numbers come from.
pub(crate) struct Sources {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) scif: Arc<Scif>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) engines: Arc<Engines>,
}

fn show_nodes(sources: &Arc<Sources>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "node state link aperture generation")?;
    let mut result = Ok(());
    sources.nodes.for_each(|node, is_this| {
        if result.is_err() {
            return;
        }
        let online = node
            .peer
            .as_ref()
            .filter(|peer| !peer.is_over())
            .map(|peer| peer.mode());
        let state = match (is_this, online) {
            (true, _) => "self",
            (false, Some(_)) => "online",
            (false, None) => "lost",
        };
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

fn show_counters(sources: &Arc<Sources>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let counts = sources.scif.counts();
    writeln!(f, "connections {}", counts.connections)?;
    writeln!(f, "closing_connections {}", counts.closing_connections)?;
    writeln!(f, "exported_windows {}", counts.exported_windows)?;
    writeln!(f, "mappings {}", counts.mappings)?;
    let cache = &sources.caches.counters;
    writeln!(f, "cache_hits {}", cache.hits.load(Relaxed))?;
    writeln!(f, "cache_misses {}", cache.misses.load(Relaxed))?;
    writeln!(f, "cache_pages {}", cache.pages.load(Relaxed))?;
    writeln!(
        f,
        "cache_invalidations {}",
        cache.invalidations.load(Relaxed)
    )?;
    writeln!(f, "cache_evictions {}", cache.evictions.load(Relaxed))?;
    show_engines(&sources.engines, f)
}

/// Those that have stopped are counted in the totals: what they have done is done.
fn show_engines(engines: &Engines, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut count = 0;
    let mut result = Ok(());
    let totals = engines.for_each(|engine| {
        let copied = engine.bytes.load(Relaxed);
        if result.is_ok() {
            result = writeln!(f, "engine_{count}_bytes {copied}");
        }
        count += 1;
    });
    result?;
    if count == 0 && totals.bytes == 0 && totals.errors == 0 {
        // There is none, and there never was one to speak of.
        return Ok(());
    }
    writeln!(f, "dma_channels {count}")?;
    writeln!(f, "dma_bytes {}", totals.bytes)?;
    writeln!(f, "dma_errors {}", totals.errors)
}
