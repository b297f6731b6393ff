// SPDX-License-Identifier: GPL-2.0

//! `scif doctor`: reports what works on this machine, and what to change.

use crate::command::output::print;
use crate::command::output::print_json;
use crate::doctor::Finding;
use crate::doctor::Grade;
use crate::doctor::facts::Facts;
use crate::doctor::judge::judge;
use crate::doctor::look::look;
use crate::error::Error;
use crate::error::Result;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;

const EXAMPLES: &str = "\
Examples:
  sudo scif doctor          on both hosts, before all other commands
  sudo scif doctor --json   the same as JSON, with all facts";

/// Check whether SCIF works on this machine, and advise changes
///
/// Doctor reads facts about bridges and their drivers, BAR sizes, interrupts, the IOMMU and DMA
/// engines. It also reads facts about the kernel, the module's parameters, the user's rights and
/// limits, links, network devices, and the kernel's log. It reads only this machine, and changes nothing. Root gets
/// more findings. Lines that begin with # are commands for root that carry out the advice. Run them
/// in the printed order, then run doctor again. Doctor exits with 1 if a finding keeps SCIF from
/// working.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Print JSON: the findings, and the facts behind them
    #[arg(long)]
    pub json: bool,
}

/// The content of the JSON output.
#[derive(Serialize)]
struct Report<'a> {
    findings: &'a [Finding],
    facts: &'a Facts,
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let facts = look(Path::new("/"));
    let findings = judge(&facts);
    if arguments.json {
        print_json(&Report {
            findings: &findings,
            facts: &facts,
        })?;
        return verdict(&findings);
    }
    let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    print(text(&findings, colour))?;
    verdict(&findings)
}

/// Returns an error if a finding is a problem.
fn verdict(findings: &[Finding]) -> Result<()> {
    let problems = findings
        .iter()
        .filter(|finding| finding.grade == Grade::Problem);
    match problems.count() {
        0 => Ok(()),
        1 => Err(Error::Refused(
            "one thing keeps SCIF from working here".into(),
        )),
        count => Err(Error::Refused(format!(
            "{count} things keep SCIF from working here"
        ))),
    }
}

fn text(findings: &[Finding], colour: bool) -> String {
    let mut lines = Vec::new();
    for finding in findings {
        let (mark, start) = match finding.grade {
            Grade::Good => ("ok   ", "\x1b[32m"),
            Grade::Advice => ("note ", "\x1b[33m"),
            Grade::Problem => ("BAD  ", "\x1b[31m"),
        };
        let (start, end) = if colour { (start, "\x1b[0m") } else { ("", "") };
        lines.push(format!(
            "{start}{mark}{end} {:8} {}",
            finding.about, finding.text
        ));
        if let Some(advice) = &finding.advice {
            let end = if finding.commands.is_empty() { "" } else { ":" };
            lines.push(format!("{:15}-> {advice}{end}", ""));
        }
        let commands = finding.commands.iter();
        lines.extend(commands.map(|command| format!("{:18}# {command}", "")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_aligned() {
        let findings = [
            Finding {
                about: "module",
                grade: Grade::Good,
                text: "scif is loaded".into(),
                advice: None,
                commands: Vec::new(),
            },
            Finding {
                about: "bridge",
                grade: Grade::Problem,
                text: "there is none".into(),
                advice: Some("buy one".into()),
                commands: vec!["modprobe bridge".into()],
            },
        ];
        let expected = "ok    module   scif is loaded
BAD   bridge   there is none
               -> buy one:
                  # modprobe bridge";
        assert_eq!(text(&findings, false), expected);
        assert!(text(&findings, true).contains("\x1b[31mBAD  \x1b[0m"));
    }
}
