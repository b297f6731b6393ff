// SPDX-License-Identifier: GPL-2.0

//! What is going on, for people and tools: `/sys/kernel/debug/scif`.
//!
//! A file for each of the files below. All but `counters` have a first line that names their columns;
//! columns are separated by a space, `-` stands for what there is not, and new ones come at the end.

mod counters;
mod endpoints;
mod field;
mod links;
mod marks;
mod names;
mod nodes;
mod pins;
mod windows;

use crate::{
    endpoint::scif::Scif,
    names::service::Names,
    node::Nodes,
    rma::caches::Caches,
    transport::{
        engine::Engines,
        links::Links, //
    },
};
use kernel::{
    debugfs::{
        Dir,
        File, //
    },
    fmt,
    prelude::*,
    sync::Arc, //
};

/// The files; they go when this is dropped.
pub(crate) struct Files {
    _files: KVec<Pin<KBox<File<Arc<Sources>>>>>,
    _directory: Dir,
}

impl Files {
    /// Opens the door. May sleep.
    pub(crate) fn new(sources: Sources) -> Result<Self> {
        let sources = Arc::new(sources, GFP_KERNEL)?;
        let directory = Dir::new(c"scif");
        let mut files = KVec::new();
        let mut add = |file| -> Result { Ok(files.push(file?, GFP_KERNEL)?) };
        add(open(&directory, c"nodes", &sources, &|from, f| {
            nodes::show(&from.nodes, f)
        }))?;
        add(open(&directory, c"links", &sources, &|from, f| {
            links::show(&from.links, f)
        }))?;
        add(open(&directory, c"endpoints", &sources, &|from, f| {
            endpoints::show(&from.scif, f)
        }))?;
        add(open(&directory, c"windows", &sources, &|from, f| {
            windows::show(&from.scif, f)
        }))?;
        add(open(&directory, c"marks", &sources, &|from, f| {
            marks::show(&from.scif, f)
        }))?;
        add(open(&directory, c"pins", &sources, &|from, f| {
            pins::show(&from.caches.ledger, f)
        }))?;
        add(open(&directory, c"names", &sources, &|from, f| {
            names::show(&from.names, f)
        }))?;
        add(open(&directory, c"counters", &sources, &|from, f| {
            counters::show(&from.scif, &from.caches, &from.engines, f)
        }))?;
        Ok(Self {
            _files: files,
            _directory: directory,
        })
    }
}

/// A file that shows what `show` writes.
fn open<F>(
    directory: &Dir,
    name: &CStr,
    sources: &Arc<Sources>,
    show: &'static F,
) -> Result<Pin<KBox<File<Arc<Sources>>>>>
where
    F: Fn(&Arc<Sources>, &mut fmt::Formatter<'_>) -> fmt::Result + Send + Sync + 'static,
{
    KBox::pin_init(
        directory.read_callback_file(name, sources.clone(), show),
        GFP_KERNEL,
    )
}

/// Where the numbers come from.
pub(crate) struct Sources {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) scif: Arc<Scif>,
    pub(crate) names: Arc<Names>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) engines: Arc<Engines>,
    pub(crate) links: Arc<Links>,
}
