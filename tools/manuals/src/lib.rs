// SPDX-License-Identifier: GPL-2.0
//! Man pages and shell completions of `scif` and `lab`. They are made of the definitions of the
//! command lines when they are installed, so they always match the programs.
//!
//! This is a program of its own, so that the two do not carry its dependencies. [`program`] has the
//! programs, [`page`] makes the pages, [`completion`] the completions.
//!
//! # Invariants
//! - Hidden commands and options appear nowhere.
//! - The same definitions and date give the same files.

pub mod completion;
pub mod page;
pub mod program;

use std::fs;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;

use crate::completion::SHELLS;

pub use program::Program;
pub use program::programs;

/// Writes all pages and completions into a folder.
pub fn generate(folder: &Path, date: &str) -> Result<()> {
    for program in programs() {
        for page in page::pages(&program, date)? {
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
