// SPDX-License-Identifier: GPL-2.0
//! The man pages of a program: one for it, and one for each of its commands that is not hidden.
//!
//! A command is documented as `program-command(1)`. What its help does not say about the exit
//! status, the help of the program says.

use std::collections::BTreeSet;

use clap::Arg;
use clap::Command;

use crate::Program;
use crate::help::AfterHelp;
use crate::help::Item;
use crate::mdoc::Mdoc;
use crate::mdoc::typed;
use crate::mdoc::word;

/// A man page.
pub struct Page {
    /// As `scif-cp.1`.
    pub file_name: String,
    /// In mdoc(7).
    pub text: String,
}

/// A man page, as another one refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// As `scif`.
    pub name: String,
    /// As 7.
    pub section: u8,
}

/// Makes the pages of a program.
pub fn pages(program: &Program, date: &str) -> Vec<Page> {
    let mut command = program.command.clone();
    // Gives the commands the options that are for all, and names to all values.
    command.build();
    let maker = Maker {
        program: &command,
        see_also: &program.see_also,
        date,
    };
    let mut pages = vec![maker.page(None)];
    pages.extend(commands(&command).map(|each| maker.page(Some(each))));
    pages
}

/// The commands that are shown; "help" is clap's own.
fn commands(program: &Command) -> impl Iterator<Item = &Command> {
    program
        .get_subcommands()
        .filter(|each| !each.is_hide_set() && each.get_name() != "help")
}

struct Maker<'a> {
    program: &'a Command,
    see_also: &'a [Reference],
    date: &'a str,
}

impl Maker<'_> {
    /// The page of the program, or of one of its commands.
    fn page(&self, command: Option<&Command>) -> Page {
        let subject = command.unwrap_or(self.program);
        let name = match command {
            Some(command) => self.name_of(command),
            None => self.program.get_name().to_owned(),
        };
        let after = after_help(subject);
        let mut page = Mdoc::default();
        page.line(".\\\" SPDX-License-Identifier: GPL-2.0");
        page.line(".\\\" Made by tools/manuals of the definition of the command line.");
        page.line(&format!(".Dd {}", self.date));
        page.line(&format!(".Dt {} 1", word(&name.to_uppercase())));
        let version = self.program.get_version().unwrap_or_default();
        page.line(&format!(
            ".Os {}",
            word(&format!("SCIF for Linux {version}"))
        ));
        let about = subject.get_about().map(ToString::to_string);
        let about = about.unwrap_or_default();
        page.section("NAME");
        page.line(&format!(".Nm {}", word(&name)));
        page.line(&format!(".Nd {}", word(&uncapitalized(&about))));
        self.synopsis(&mut page, command);
        description(&mut page, subject, &about, &after);
        self.list_of_commands(&mut page, command);
        options(&mut page, subject);
        let exit_status = match after.exit_status.is_empty() {
            true => after_help(self.program).exit_status,
            false => after.exit_status,
        };
        if !exit_status.is_empty() {
            page.section("EXIT STATUS");
            items(&mut page, &exit_status, "-width \"128 + N\" -compact");
        }
        examples(&mut page, &after.examples);
        self.references(&mut page, command);
        Page {
            file_name: format!("{name}.1"),
            text: page.finish(),
        }
    }

    fn name_of(&self, command: &Command) -> String {
        format!("{}-{}", self.program.get_name(), command.get_name())
    }

    fn synopsis(&self, page: &mut Mdoc, command: Option<&Command>) {
        page.section("SYNOPSIS");
        let subject = command.unwrap_or(self.program);
        let name = subject.get_bin_name().unwrap_or(subject.get_name());
        page.line(&format!(".Nm {}", word(name)));
        let shown = |each: &&Arg| !matches!(each.get_id().as_str(), "help" | "version");
        for option in visible(subject).filter(|each| !each.is_positional()) {
            if shown(&option) {
                let names = spelling(option, false);
                match option.is_required_set() {
                    true => page.line(&format!(".{names}")),
                    false => page.line(&format!(".Op {names}")),
                }
            }
        }
        for argument in visible(subject).filter(|each| each.is_positional()) {
            let value = value(argument);
            match argument.is_required_set() {
                true => page.line(&format!(".{value}")),
                false => page.line(&format!(".Op {value}")),
            }
        }
        if command.is_none() {
            page.line(".Ar COMMAND");
            page.line(".Op Ar ARGUMENT ...");
        }
    }

    fn list_of_commands(&self, page: &mut Mdoc, command: Option<&Command>) {
        if command.is_some() {
            return;
        }
        page.section("COMMANDS");
        page.line(".Bl -tag -width Ds");
        for each in commands(self.program) {
            page.line(&format!(".It Xr {} 1", word(&self.name_of(each))));
            if let Some(about) = each.get_about() {
                page.paragraph(&sentence(&about.to_string()));
            }
        }
        page.line(".El");
    }

    /// The program and its commands refer to each other, where one is mentioned.
    fn references(&self, page: &mut Mdoc, command: Option<&Command>) {
        let mut references = BTreeSet::new();
        let mut own = self.program.get_name().to_owned();
        match command {
            None => {
                references.extend(commands(self.program).map(|each| (1, self.name_of(each))));
                references
                    .extend((self.see_also.iter()).map(|each| (each.section, each.name.clone())));
            }
            Some(command) => {
                references.insert((1, own));
                own = self.name_of(command);
                let about = command.get_long_about().or(command.get_about());
                let about = about.map(ToString::to_string).unwrap_or_default();
                let mentioned = commands(self.program).filter(|each| {
                    (each.get_bin_name()).is_some_and(|typed| about.contains(&format!("`{typed}`")))
                });
                references.extend(mentioned.map(|each| (1, self.name_of(each))));
            }
        }
        references.remove(&(1, own));
        page.section("SEE ALSO");
        let count = references.len();
        for (index, (section, name)) in references.iter().enumerate() {
            let comma = if index + 1 < count { " ," } else { "" };
            page.line(&format!(".Xr {} {section}{comma}", word(name)));
        }
    }
}

fn after_help(command: &Command) -> AfterHelp {
    let text = (command.get_after_long_help()).or(command.get_after_help());
    AfterHelp::parse(&text.map(ToString::to_string).unwrap_or_default())
}

fn visible(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|each| !each.is_hide_set())
}

fn description(page: &mut Mdoc, command: &Command, about: &str, after: &AfterHelp) {
    page.section("DESCRIPTION");
    let long = command.get_long_about().map(ToString::to_string);
    let long = long.unwrap_or_default();
    let mut paragraphs: Vec<&str> = long.split("\n\n").collect();
    // The first one is in NAME already.
    paragraphs.remove(0);
    if paragraphs.is_empty() {
        paragraphs.push(about);
    }
    paragraphs.extend(after.paragraphs.iter().map(String::as_str));
    for (index, paragraph) in paragraphs.iter().enumerate() {
        if index > 0 {
            page.line(".Pp");
        }
        page.paragraph(&sentence(paragraph));
    }
}

fn options(page: &mut Mdoc, command: &Command) {
    page.section("OPTIONS");
    page.line(".Bl -tag -width Ds");
    let (arguments, options): (Vec<&Arg>, Vec<&Arg>) =
        visible(command).partition(|each| each.is_positional());
    for each in arguments.into_iter().chain(options) {
        page.line(&match each.is_positional() {
            true => format!(".It {}", value(each)),
            false => format!(".It {}", spelling(each, true)),
        });
        let help = each.get_long_help().or(each.get_help());
        let help = match (each.get_id().as_str(), help) {
            // Clap's own speaks of another form of the help.
            ("help", _) => "Print help.".to_owned(),
            (_, help) => help.map(ToString::to_string).unwrap_or_default(),
        };
        page.paragraph(&sentence(&help));
        default(page, each);
        possible_values(page, each);
    }
    page.line(".El");
}

fn possible_values(page: &mut Mdoc, argument: &Arg) {
    let values: Vec<Item> = argument
        .get_possible_values()
        .iter()
        .filter(|each| !each.is_hide_set())
        .map(|each| Item {
            name: each.get_name().to_owned(),
            meaning: each.get_help().map(ToString::to_string).unwrap_or_default(),
        })
        .collect();
    if values.is_empty() {
        return;
    }
    if values.iter().all(|each| each.meaning.is_empty()) {
        let names: Vec<String> = values
            .iter()
            .map(|each| format!("`{}`", each.name))
            .collect();
        page.paragraph(&format!("One of {}.", names.join(", ")));
        return;
    }
    page.line(".Pp");
    items(page, &values, "-width Ds -compact");
}

fn default(page: &mut Mdoc, argument: &Arg) {
    let values: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|each| each.to_string_lossy().into_owned())
        .collect();
    let takes_value = argument.get_action().takes_values();
    if let Some(variable) = argument.get_env() {
        let variable = variable.to_string_lossy();
        page.paragraph(&format!(
            "The environment variable `{variable}` sets it, too."
        ));
    }
    if takes_value && !values.is_empty() {
        page.paragraph(&format!("The default is `{}`.", values.join(",")));
    }
}

/// An option with its value, as arguments of a macro: both names, or the long one.
fn spelling(option: &Arg, both: bool) -> String {
    let long = option.get_long().map(|long| format!("Fl {}", flag(long)));
    let short = option.get_short().map(|short| format!("Fl {short}"));
    let mut result = match (short, long) {
        (Some(short), Some(long)) if both => format!("{short} , {long}"),
        (short, long) => long.or(short).unwrap_or_default(),
    };
    if option.get_action().takes_values() {
        let optional = (option.get_num_args()).is_some_and(|count| count.min_values() == 0);
        let value = value(option);
        match (optional, option.is_require_equals_set()) {
            (true, true) => result += &format!(" Ns Oo = Ns {value} Oc"),
            (true, false) => result += &format!(" Op {value}"),
            (false, true) => result += &format!(" Ns = Ns {value}"),
            (false, false) => result += &format!(" {value}"),
        }
    }
    result
}

fn flag(long: &str) -> String {
    word(&format!("-{long}"))
}

/// The names of an argument's values, as arguments of a macro.
fn value(argument: &Arg) -> String {
    let names: Vec<String> = argument
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(|name| word(name))
        .collect();
    let several = argument.is_positional()
        && (argument.get_num_args()).is_some_and(|count| count.max_values() > 1);
    let more = if several { " ..." } else { "" };
    format!("Ar {}{more}", names.join(" "))
}

fn items(page: &mut Mdoc, items: &[Item], list: &str) {
    page.line(&format!(".Bl -tag {list}"));
    for item in items {
        page.line(&format!(".It Li {}", typed(&item.name)));
        page.paragraph(&item.meaning);
    }
    page.line(".El");
}

fn examples(page: &mut Mdoc, examples: &[Item]) {
    if examples.is_empty() {
        return;
    }
    page.section("EXAMPLES");
    if examples.iter().all(|each| !each.meaning.is_empty()) {
        items(page, examples, "-width Ds");
        return;
    }
    page.line(".Bd -literal -offset indent");
    for each in examples {
        page.literal(format!("{}  {}", each.name, each.meaning).trim_end());
    }
    page.line(".Ed");
}

/// With a full stop at its end.
fn sentence(text: &str) -> String {
    let text = text.trim();
    match text.ends_with(['.', '?', '!']) {
        true => text.to_owned(),
        false => format!("{text}."),
    }
}

/// As a line of NAME begins and ends.
fn uncapitalized(text: &str) -> String {
    let mut characters = text.trim_end_matches('.').chars();
    match characters.next() {
        Some(first) => first.to_lowercase().chain(characters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs;

    fn all() -> Vec<(Command, Vec<Page>)> {
        programs()
            .into_iter()
            .map(|program| {
                let pages = pages(&program, "November 21, 2026");
                (program.command, pages)
            })
            .collect()
    }

    #[test]
    fn every_visible_command_has_a_page_and_no_other() {
        for (program, pages) in all() {
            let name = program.get_name();
            let mut expected = vec![format!("{name}.1")];
            expected.extend(
                program
                    .get_subcommands()
                    .filter(|each| !each.is_hide_set())
                    .map(|each| format!("{name}-{}.1", each.get_name())),
            );
            let found: Vec<String> = pages.into_iter().map(|page| page.file_name).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn every_option_is_on_its_page() {
        for (program, pages) in all() {
            for command in program.get_subcommands().filter(|each| !each.is_hide_set()) {
                let file = format!("{}-{}.1", program.get_name(), command.get_name());
                let page = pages.iter().find(|page| page.file_name == file).unwrap();
                for option in command.get_arguments().filter_map(|each| each.get_long()) {
                    let item = format!("Fl {}", flag(option));
                    assert!(page.text.contains(&item), "--{option} in {file}");
                }
            }
        }
    }

    #[test]
    fn hidden_commands_are_mentioned_nowhere() {
        for (program, pages) in all() {
            for command in program.get_subcommands().filter(|each| each.is_hide_set()) {
                let name = format!("{}-{}", program.get_name(), command.get_name());
                for page in &pages {
                    assert!(!page.text.contains(&name), "{name} in {}", page.file_name);
                }
            }
        }
    }

    #[test]
    fn what_follows_the_options_is_understood() {
        for (program, _) in all() {
            for command in program.get_subcommands().chain([&program]) {
                let text = command.get_after_help().map(ToString::to_string);
                let text = text.unwrap_or_default().to_lowercase();
                let after = after_help(command);
                let name = command.get_name();
                assert_eq!(
                    text.contains("example"),
                    !after.examples.is_empty(),
                    "{name}"
                );
                assert_eq!(
                    text.contains("exit"),
                    !after.exit_status.is_empty(),
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn pages_are_complete() {
        for (_, pages) in all() {
            for page in pages {
                for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS"] {
                    let heading = format!(".Sh {section}\n");
                    assert!(
                        page.text.contains(&heading),
                        "{section} in {}",
                        page.file_name
                    );
                }
                assert!(!page.text.contains(".Sh EXAMPLES\n.Sh"));
            }
        }
    }
}
