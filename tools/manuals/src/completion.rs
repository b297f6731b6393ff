// SPDX-License-Identifier: GPL-2.0
//! The completions of a program for shells, under the names by which the shells find them.
//!
//! All three shells look a command up by the last part of its path. So the completion of `lab` also
//! works for `scripts/lab`.

use clap::Command;
use clap_complete::Shell;

/// The shells that have completions.
pub const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// A completion.
pub struct Completion {
    /// The name of the file.
    pub name: String,
    /// The content of the file.
    pub text: String,
}

/// Makes a completion.
pub fn completion(command: &Command, shell: Shell) -> Completion {
    let name = command.get_name();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible(command), name, &mut text);
    Completion {
        name: match shell {
            Shell::Zsh => format!("_{name}"),
            Shell::Fish => format!("{name}.fish"),
            _ => name.to_owned(),
        },
        text: String::from_utf8_lossy(&text).into_owned(),
    }
}

/// Returns a copy of a command for its completion, without hidden parts: clap_complete would show
/// them.
fn visible(command: &Command) -> Command {
    // Names in clap are constants. The few copies live as long as this short program.
    let constant = |text: &str| -> &'static str { Box::leak(text.into()) };
    let mut copy = Command::new(constant(command.get_name()));
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        copy = copy.version(constant(version));
    }
    let arguments = command.get_arguments().filter(|each| !each.is_hide_set());
    let commands = command.get_subcommands().filter(|each| !each.is_hide_set());
    // An argument may name a group. A group can't contain hidden arguments.
    let groups = command.get_groups().filter(|group| {
        group.get_args().all(|id| {
            command
                .get_arguments()
                .any(|each| each.get_id() == id && !each.is_hide_set())
        })
    });
    copy.args(arguments.cloned())
        .groups(groups.cloned())
        .subcommands(commands.map(visible))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::programs;

    #[test]
    fn completion_offers_exactly_the_visible_commands() {
        for program in programs() {
            for shell in SHELLS {
                let file = completion(&program.command, shell);
                let words: Vec<&str> = file
                    .text
                    .split(|c: char| !c.is_alphanumeric() && c != '-')
                    .collect();
                for command in program.command.get_subcommands() {
                    assert_eq!(
                        words.contains(&command.get_name()),
                        !command.is_hide_set(),
                        "{} in {} for {shell}",
                        command.get_name(),
                        file.name
                    );
                    for option in command.get_arguments().filter_map(|each| each.get_long()) {
                        assert!(
                            file.text.contains(option),
                            "--{option} in {} for {shell}",
                            file.name
                        );
                    }
                }
            }
        }
    }
}
