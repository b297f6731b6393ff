// SPDX-License-Identifier: GPL-2.0

//! The state of the module, for people and tools: `/sys/kernel/debug/scif`.
//!
//! Each file has a function here. In all files but `counters`, the first line names the columns.
//! Columns are separated by a space, `-` stands for a missing value, and new columns are added at
//! the end.

use crate::{
    endpoint::{
        connection::Traffic,
        endpoint_state,
        scif::Scif, //
    },
    transport::{
        engine::Engines,
        links::{
            self,
            Links, //
        }, //
    }, //
};
use kernel::{
    debugfs::Scope,
    fmt,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

/// Sources of the numbers in the files.
pub(crate) struct Sources {
    pub(crate) scif: Arc<Scif>,
    pub(crate) engines: Arc<Engines>,
    pub(crate) links: Arc<Links>,
}

/// Creates the files, which are removed when the returned value is dropped.
/// Context: may sleep.
pub(crate) fn open(sources: Sources) -> Result<Pin<KBox<Scope<Sources>>>> {
    let directory = Scope::dir(sources, c"scif", |sources, directory| {
        directory.read_callback_file(c"nodes", sources, &nodes);
        directory.read_callback_file(c"links", sources, &links);
        directory.read_callback_file(c"endpoints", sources, &endpoints);
        directory.read_callback_file(c"windows", sources, &windows);
        directory.read_callback_file(c"marks", sources, &marks);
        directory.read_callback_file(c"pins", sources, &pins);
        directory.read_callback_file(c"names", sources, &names);
        directory.read_callback_file(c"counters", sources, &counters);
    });
    KBox::pin_init(directory, GFP_KERNEL)
}

/// Shows `nodes`: a line for each node that is or was known.
fn nodes(sources: &Sources, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "node state link aperture generation")?;
    let mut result = Ok(());
    sources.scif.nodes.for_each(|node| {
        let mode = node.online().map(|peer| peer.mode());
        result = result.and(writeln!(
            f,
            "{} {} {} {} {:016x}",
            node.id,
            node.state(),
            node.link.to_str().unwrap_or("?"),
            OrDash(mode),
            node.generation
        ));
    });
    result
}

/// Shows `links`: a line for each link, including links without an answering peer.
fn links(sources: &Sources, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    links::show(&sources.links, f)
}

/// Shows `endpoints`: a line for each endpoint, and for each connection that has none.
fn endpoints(sources: &Sources, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("state own peer channel queued pid uid name")?;
    for (name, _) in Traffic::default().fields() {
        write!(f, " {name}")?;
    }
    f.write_str("\n")?;
    let own_node = sources.scif.nodes.own_id();
    for facts in sources.scif.endpoint_facts() {
        endpoint(&facts, own_node, f)?;
    }
    Ok(())
}

fn endpoint(
    facts: &endpoint_state::Facts,
    own_node: u16,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "{} {own_node}:{} ", facts.state, OrDash(facts.own_port))?;
    match facts.peer {
        Some(peer) => write!(f, "{}:{}", peer.node, peer.port)?,
        None => f.write_str("-")?,
    }
    let channel = facts.channel.map(Hex);
    write!(f, " {} {}", OrDash(channel), facts.queued)?;
    match &facts.opener {
        Some(opener) => write!(f, " {} {} {}", opener.pid(), opener.uid, opener.name())?,
        None => f.write_str(" - - -")?,
    }
    let nothing = Traffic::default();
    for (_, number) in facts.traffic.as_ref().unwrap_or(&nothing).fields() {
        write!(f, " {number}")?;
    }
    f.write_str("\n")
}

/// Shows `windows`: a line for each window of this node that a peer was offered and has not
/// released.
fn windows(sources: &Sources, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "node channel window offset bytes protection state reached"
    )?;
    sources.scif.for_each_window(|window| {
        let (channel, range) = (&window.registered.owner.channel, window.registered.range);
        writeln!(
            f,
            "{} {} {} {} {} {} {} {}",
            channel.node(),
            Hex(channel.id.0),
            window.id.0,
            Hex(range.start()),
            range.len(),
            window.protection_name(),
            window.state(),
            u8::from(window.is_reached())
        )
    })
}

/// Shows `marks`: a line for each connection that has transfers in flight, or deferred work behind
/// them.
fn marks(sources: &Sources, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "node channel issued complete in_flight deferred asked")?;
    let scif = &sources.scif;
    scif.for_each_in_flight(|node, channel, progress| {
        writeln!(
            f,
            "{node} {} {} {} {} {} {}",
            Hex(channel.0),
            progress.issued,
            progress.complete,
            progress.in_flight,
            progress.deferred,
            progress.asked
        )
    })
}

/// Shows `pins`: a line for each process with pinned and charged pages. The process may have ended.
fn pins(sources: &Sources, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "pid uid name pages bytes")?;
    for account in sources.scif.caches.ledger.iter() {
        let (process, pages) = (&account.process, account.pages.load(Relaxed));
        let bytes = pages.saturating_mul(PAGE_SIZE);
        let (pid, uid, name) = (process.pid(), process.uid, process.name());
        writeln!(f, "{pid} {uid} {name} {pages} {bytes}")?;
    }
    Ok(())
}

/// Shows `names`: a line for each name that a port of this node has.
fn names(sources: &Sources, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "class name port")?;
    let mut names = sources.scif.names.iter();
    names.try_for_each(|(name, port)| writeln!(f, "{} {} {port}", name.class, name.number))
}

/// Shows `counters`: a line `name value` for each counter.
fn counters(sources: &Sources, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let counts = sources.scif.counts(None);
    writeln!(f, "connections {}", counts.connections)?;
    writeln!(f, "closing_connections {}", counts.closing_connections)?;
    writeln!(f, "exported_windows {}", counts.exported_windows)?;
    writeln!(f, "mappings {}", counts.mappings)?;
    let cache = &sources.scif.caches.counters;
    writeln!(f, "cache_hits {}", cache.hits.load(Relaxed))?;
    writeln!(f, "cache_misses {}", cache.misses.load(Relaxed))?;
    writeln!(f, "cache_pages {}", cache.pages.load(Relaxed))?;
    let invalidations = cache.invalidations.load(Relaxed);
    writeln!(f, "cache_invalidations {invalidations}")?;
    writeln!(f, "cache_evictions {}", cache.evictions.load(Relaxed))?;
    sources.engines.show(f)
}

/// A value for display, or `-` for none.
struct OrDash<T>(Option<T>);

impl<T: core::fmt::Display> core::fmt::Display for OrDash<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

/// A number for display, in the format of the tracepoints.
struct Hex<T>(T);

impl<T: core::fmt::LowerHex> core::fmt::Display for Hex<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
