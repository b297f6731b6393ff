// SPDX-License-Identifier: GPL-2.0

//! `counters`: a line `name value` for each counter.

use crate::{
    endpoint::scif::Scif,
    rma::caches::Caches,
    transport::engine::Engines, //
};
use kernel::{
    fmt,
    sync::atomic::Relaxed, //
};

pub(super) fn show(
    scif: &Scif,
    caches: &Caches,
    engines: &Engines,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let counts = scif.counts();
    writeln!(f, "connections {}", counts.connections)?;
    writeln!(f, "closing_connections {}", counts.closing_connections)?;
    writeln!(f, "exported_windows {}", counts.exported_windows)?;
    writeln!(f, "mappings {}", counts.mappings)?;
    let cache = &caches.counters;
    writeln!(f, "cache_hits {}", cache.hits.load(Relaxed))?;
    writeln!(f, "cache_misses {}", cache.misses.load(Relaxed))?;
    writeln!(f, "cache_pages {}", cache.pages.load(Relaxed))?;
    writeln!(
        f,
        "cache_invalidations {}",
        cache.invalidations.load(Relaxed)
    )?;
    writeln!(f, "cache_evictions {}", cache.evictions.load(Relaxed))?;
    show_engines(engines, f)
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
