// SPDX-License-Identifier: GPL-2.0
//! Man pages and shell completions of `scif` and `lab`, made of the definitions of their command
//! lines when they are installed: what they say is what the programs take.
//!
//! A program of its own, so that those two do not carry what only this needs. [`help`] reads what
//! clap keeps as plain text, [`mdoc`] is the language of the pages, [`page`] a page,
//! [`completion`] a completion.
//!
//! # Invariants
//! - Hidden commands and options appear nowhere.
//! - The same definitions and date give the same files.

pub mod completion;
pub mod help;
pub mod mdoc;
pub mod page;

use std::fs;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use clap::Command;
use clap::CommandFactory;

use crate::completion::SHELLS;
use crate::page::Reference;

/// A program, and what its pages refer to beside each other.
pub struct Program {
    /// Its command line.
    pub command: Command,
    /// Pages of others.
    pub see_also: Vec<Reference>,
}

/// The programs of this project that people type.
pub fn programs() -> Vec<Program> {
    let reference = |name: &str, section| Reference {
        name: name.to_owned(),
        section,
    };
    vec![
        Program {
            command: scif::command::definition(),
            see_also: vec![reference("scif", 4), reference("scif", 7)],
        },
        Program {
            command: lab::arguments::Arguments::command(),
            see_also: vec![reference("scif", 1)],
        },
    ]
}

/// Writes all pages and completions into a folder.
pub fn generate(folder: &Path, date: &str) -> Result<()> {
    for program in programs() {
        for page in page::pages(&program, date) {
            write(&folder.join("man1"), &page.file_name, &page.text)?;
        }
        for shell in SHELLS {
            let file = completion::completion(&program.command, shell);
            write(&folder.join(shell.to_string()), &file.name, &file.text)?;
        }
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let file = folder.join(name);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&file, text))
        .with_context(|| format!("cannot write {}", file.display()))
}
