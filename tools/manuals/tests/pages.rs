// SPDX-License-Identifier: GPL-2.0
//! Tests that the man pages match the command lines. `mandoc -T lint` in `scripts/check` tests that
//! they are well-formed.

use clap::Arg;
use clap::Command;
use manuals::Program;
use manuals::page::Page;
use manuals::page::pages;
use manuals::programs;

const DATE: &str = "2026-11-21";

fn all() -> Vec<(Command, Vec<Page>)> {
    programs()
        .into_iter()
        .map(|program| {
            let pages = pages(&program, DATE).unwrap();
            (program.command, pages)
        })
        .collect()
}

fn find<'a>(pages: &'a [Page], file_name: &str) -> &'a str {
    let page = pages.iter().find(|page| page.file_name == file_name);
    &page.unwrap().text
}

/// Adds the expected files of a command: its own and those of its commands.
fn add_names(command: &Command, name: &str, names: &mut Vec<String>) {
    names.push(format!("{name}.1"));
    for each in command.get_subcommands().filter(|each| !each.is_hide_set()) {
        add_names(each, &format!("{name}-{}", each.get_name()), names);
    }
}

#[test]
fn exactly_the_visible_commands_have_a_page() {
    for (program, pages) in all() {
        let name = program.get_name();
        let mut expected = Vec::new();
        add_names(&program, name, &mut expected);
        let found: Vec<String> = pages.into_iter().map(|page| page.file_name).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn every_option_is_on_its_page() {
    for (program, pages) in all() {
        for command in program.get_subcommands().filter(|each| !each.is_hide_set()) {
            let file = format!("{}-{}.1", program.get_name(), command.get_name());
            let page = find(&pages, &file);
            for option in command.get_arguments().filter_map(|each| each.get_long()) {
                let item = format!(r"\fB\-\-{}\fR", option.replace('-', r"\-"));
                assert!(page.contains(&item), "--{option} in {file}");
            }
        }
    }
}

#[test]
fn hidden_commands_are_on_no_page() {
    for (program, pages) in all() {
        for command in program.get_subcommands().filter(|each| each.is_hide_set()) {
            let name = format!(r"{}\-{}", program.get_name(), command.get_name());
            for page in &pages {
                assert!(!page.text.contains(&name), "{name} in {}", page.file_name);
            }
        }
    }
}

#[test]
fn text_after_the_options_becomes_sections() {
    for (program, pages) in all() {
        let own = format!("{}.1", program.get_name());
        let commands = program.get_subcommands().filter(|each| !each.is_hide_set());
        let files = commands
            .map(|each| {
                (
                    each,
                    format!("{}-{}.1", program.get_name(), each.get_name()),
                )
            })
            .chain([(&program, own)]);
        for (command, file) in files {
            let text = command.get_after_help().map(ToString::to_string);
            let text = text.unwrap_or_default().to_lowercase();
            let page = find(&pages, &file);
            assert_eq!(
                text.contains("example"),
                page.contains(".SH EXAMPLES\n.RS 4\n.EX\n\\fB"),
                "{file}"
            );
            assert!(!page.contains("Examples:"), "{file}");
            assert!(!page.contains("Exit status:"), "{file}");
        }
    }
}

#[test]
fn every_page_has_all_required_sections() {
    for (_, pages) in all() {
        for page in pages {
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"] {
                let heading = format!(".SH {section}\n");
                assert!(
                    page.text.contains(&heading),
                    "{section} in {}",
                    page.file_name
                );
            }
            let statuses = ".SH \"EXIT STATUS\"\n.PD 0\n.TP 10\n";
            assert!(page.text.contains(statuses), "{}", page.file_name);
            assert!(page.text.contains(".SH \"SEE ALSO\"\n"));
            // Text that is in backticks in the help is in bold, with an end for each begin.
            let count = |font| page.text.matches(font).count();
            assert_eq!(count(r"\fB") + count(r"\fI"), count(r"\fR"));
        }
    }
}

/// Tests a made-up command whose texts have all possible forms.
#[test]
fn help_text_is_formatted_into_sections() {
    let help = "\
Examples:
  p c --b     does 'it'
  p c a much longer one

              does more
  p c

Two lines,
one paragraph.

Another.

Exit status:
  0        done
  128 + N  a signal";
    let option = Arg::new("b").long("b").value_name("B").default_value("x");
    let required = Arg::new("d").long("d").required(true);
    let several = Arg::new("f").value_name("FILE").num_args(1..);
    let command = Command::new("c")
        .about("Does it")
        .long_about("Does it\n\n.It runs `p d`.")
        .args([option, required, several.required(true)])
        .after_help(help);
    let program = Program {
        command: Command::new("p")
            .version("1.0")
            .subcommands([command, Command::new("d")]),
        see_also: Vec::new(),
    };
    let pages = pages(&program, DATE).unwrap();
    let page = find(&pages, "p-c.1");
    let expected = r#".TH P-C 1 2026-11-21 "SCIF for Linux 1.0" "General Commands Manual"
.SH NAME
p\-c \- Does it
.SH SYNOPSIS
\fBp c\fR [\-\-b <B>] \-\-d <d> <FILE>...
.SH DESCRIPTION
\&.It runs \fBp d\fR.
.PP
Two lines,
one paragraph.
.PP
Another.
.SH OPTIONS
"#;
    assert!(page.contains(expected), "{page}");
    let expected = r#".SH "EXIT STATUS"
.PD 0
.TP 10
\fB0\fR
done
.TP 10
\fB128 + N\fR
a signal
.PD
.SH EXAMPLES
.RS 4
.EX
\fBp c \-\-b\fR
    does \*(Aqit\*(Aq
\fBp c a much longer one\fR
    does more
\fBp c\fR
.EE
.RE
.SH "SEE ALSO"
p(1), p\-d(1)
"#;
    assert!(page.ends_with(expected), "{page}");
}
