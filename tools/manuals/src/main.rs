// SPDX-License-Identifier: GPL-2.0
//! `manuals FOLDER DATE`: writes all pages and completions into a folder; `tools/Makefile` calls
//! it.

use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;

/// Make the man pages and shell completions of scif and lab.
#[derive(Parser)]
struct Arguments {
    /// The folder in which man1/, bash/, zsh/ and fish/ are made.
    folder: PathBuf,
    /// The date of the pages, as 2026-11-21.
    date: String,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    manuals::generate(&arguments.folder, &arguments.date)
}
