// SPDX-License-Identifier: GPL-2.0
//! The man pages of a program: one for the program, and one for each visible command, as
//! `program-command(1)`, and for the commands of commands.
//!
//! clap_mangen writes the parts for which clap has a structure. Examples and exit status are plain
//! text to clap, behind the options in `--help`. This module finds them by their titles and makes
//! sections of them. If the help of a command has no exit status, the page has that of the program.
//! Other code installs the pages.

use std::iter;

use anyhow::Result;
use clap::Arg;
use clap::Command;
use clap::builder::StyledStr;
use clap_mangen::Man;
use clap_mangen::roff::Roff;
use clap_mangen::roff::bold;
use clap_mangen::roff::roman;

use crate::program::Program;

const EXAMPLES: &str = "Examples:";
const EXIT_STATUS: &str = "Exit status:";

/// A line of the help with at least this indent continues the line before.
const CONTINUATION: &str = "         ";

/// A man page.
pub struct Page {
    /// The name of the file, as `scif-cp.1`.
    pub file_name: String,
    /// The content, in man(7).
    pub text: String,
}

/// Makes the pages of a program.
pub fn pages(program: &Program, date: &str) -> Result<Vec<Page>> {
    let mut command = program.command.clone().disable_help_subcommand(true);
    // This gives the commands the global options, and their full names.
    command.build();
    let own = page(&command, &command, program.see_also.clone(), date);
    let others = all_shown(&command)
        .into_iter()
        .map(|each| page(each, &command, mentioned(each, &command), date));
    [own].into_iter().chain(others).collect()
}

fn shown(program: &Command) -> impl Iterator<Item = &Command> {
    program.get_subcommands().filter(|each| !each.is_hide_set())
}

/// Returns all visible commands, with the commands of commands.
fn all_shown(program: &Command) -> Vec<&Command> {
    shown(program)
        .flat_map(|each| [vec![each], all_shown(each)].concat())
        .collect()
}

/// Makes the page of the program or of one of its commands.
fn page(subject: &Command, program: &Command, see_also: Vec<String>, date: &str) -> Result<Page> {
    let after = after_help(subject);
    let command = (subject.clone())
        .override_usage(usage(subject))
        .long_about(description(subject, &after))
        .subcommand_help_heading("COMMANDS");
    let version = program.get_version().unwrap_or_default();
    let man = Man::new(command)
        .title(full_name(subject).to_uppercase())
        .section("1")
        .date(date)
        .source(format!("SCIF for Linux {version}"))
        .manual("General Commands Manual");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if shown(subject).next().is_some() {
        man.render_subcommands_section(&mut text)?;
    }
    man.render_options_section(&mut text)?;

    let mut roff = Roff::new();
    let mut statuses = items(&after, EXIT_STATUS);
    let of_program = after_help(program);
    if statuses.is_empty() {
        statuses = items(&of_program, EXIT_STATUS);
    }
    exit_status(&mut roff, &statuses);
    examples(&mut roff, &items(&after, EXAMPLES));
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman(see_also.join(", "))]);
    roff.to_writer(&mut text)?;
    Ok(Page {
        file_name: man.get_filename(),
        text: finished(&String::from_utf8(text)?),
    })
}

/// Returns the full name, as `scif-cp`.
fn full_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// Returns all options with their values. The synopsis of clap_mangen and the usage of clap lack
/// some.
fn usage(command: &Command) -> String {
    let visible =
        |each: &&Arg| !each.is_hide_set() && !matches!(each.get_id().as_str(), "help" | "version");
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) =
        (command.get_arguments().filter(visible)).partition(|each| each.is_positional());
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut words = vec![name.to_owned()];
    words.extend(options.iter().map(|each| match each.is_required_set() {
        true => each.to_string(),
        false => format!("[{each}]"),
    }));
    words.extend(positional.iter().map(ToString::to_string));
    if command.is_args_conflicts_with_subcommands_set() {
        words.push("|".to_owned());
    }
    if command.has_subcommands() {
        words.push("<COMMAND>".to_owned());
    }
    words.join(" ")
}

/// Returns the text of the help before the options, without the part that is in NAME, and the text
/// behind the options without a title.
fn description(command: &Command, after: &str) -> String {
    let about = plain(command.get_about());
    let long = plain(command.get_long_about());
    let before = match long.split_once("\n\n") {
        Some((_, more)) => more,
        None => &about,
    };
    let untitled = |line: &&str| !line.starts_with(' ') && ![EXAMPLES, EXIT_STATUS].contains(line);
    let behind: Vec<&str> = after.lines().filter(untitled).collect();
    let text = format!("{before}\n\n{}", behind.join("\n").trim());
    text.trim().to_owned()
}

fn after_help(command: &Command) -> String {
    plain((command.get_after_long_help()).or(command.get_after_help()))
}

fn plain(text: Option<&StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

/// Returns the lines below a title: each an item, and its meaning behind two spaces or more. Either
/// may be empty: a long item has its meaning in the next line.
fn items<'a>(help: &'a str, title: &str) -> Vec<(&'a str, &'a str)> {
    help.lines()
        .skip_while(|line| *line != title)
        .skip(1)
        .take_while(|line| line.is_empty() || line.starts_with(' '))
        .filter(|line| !line.is_empty())
        .map(|line| {
            let text = line.trim();
            match text.split_once("  ") {
                _ if line.starts_with(CONTINUATION) => ("", text),
                Some((item, meaning)) => (item, meaning.trim_start()),
                None => (text, ""),
            }
        })
        .collect()
}

fn exit_status(roff: &mut Roff, items: &[(&str, &str)]) {
    roff.control("SH", ["EXIT STATUS"]);
    roff.control("PD", ["0"]);
    for (status, meaning) in items {
        if !status.is_empty() {
            roff.control("TP", ["10"]);
            roff.text([bold(*status)]);
        }
        roff.text([roman(*meaning)]);
    }
    roff.control("PD", []);
}

fn examples(roff: &mut Roff, items: &[(&str, &str)]) {
    if items.is_empty() {
        return;
    }
    roff.control("SH", ["EXAMPLES"]);
    roff.control("RS", ["4"]);
    roff.control("EX", []);
    for (command, meaning) in items {
        if !command.is_empty() {
            roff.text([bold(*command)]);
        }
        if !meaning.is_empty() {
            roff.text([roman(format!("    {meaning}"))]);
        }
    }
    roff.control("EE", []);
    roff.control("RE", []);
}

/// Returns the pages that the page of a command refers to: that of the program, and those of other
/// commands that its help mentions.
fn mentioned(command: &Command, program: &Command) -> Vec<String> {
    let text = plain(command.get_long_about().or(command.get_about()));
    let others = shown(program).filter(|each| {
        let typed = each.get_bin_name().unwrap_or_default();
        each.get_name() != command.get_name() && text.contains(&format!("`{typed}`"))
    });
    ([program].into_iter().chain(others))
        .map(|each| format!("{}(1)", full_name(each)))
        .collect()
}

/// Corrects the output of the libraries; no other function changes it.
fn finished(text: &str) -> String {
    // Each section begins with roff's definition of the apostrophe; one is enough.
    let preamble = Roff::new().render();
    let text = text.replace(&preamble, "");
    // This makes the gap before the possible values without a warning of mandoc.
    let text = text.replace(".br\n\n.br\n", ".sp\n");
    // Text to be typed is in backticks in the help, and in bold in the pages.
    let fonts = iter::once("").chain([r"\fB", r"\fR"].into_iter().cycle());
    let parts = fonts.zip(text.split('`'));
    let text: String = parts.flat_map(|(font, part)| [font, part]).collect();
    format!(
        ".\\\" SPDX-License-Identifier: GPL-2.0\n\
         .\\\" Made by tools/manuals of the definition of the command line.\n\
         {preamble}{text}"
    )
}
