// SPDX-License-Identifier: GPL-2.0
//! Finds in a kernel log what a test must not leave there.
//!
//! The input is what `dmesg --raw` prints: `<level>[ seconds] text`, the level with the
//! facility in its upper bits.

/// What starts a report of the kernel's own checkers, at whatever level it is printed.
const REPORTS: [&str; 22] = [
    "WARNING: ",
    "BUG: ",
    "BUG kmalloc",
    "Oops: ",
    "Oops[",
    "Kernel panic",
    "KASAN: ",
    "UBSAN: ",
    "kernel BUG at",
    "general protection fault",
    "Unable to handle",
    "possible recursive locking",
    "possible circular locking",
    "inconsistent lock state",
    "suspicious RCU usage",
    "sleeping function called from invalid context",
    "scheduling while atomic",
    "DMA-API: ",
    "ODEBUG: ",
    "blocked for more than",
    "soft lockup",
    "new suspected memory leaks",
];

/// What the checkers say when nothing is wrong.
const HARMLESS: [&str; 4] = [
    "DMA-API: preallocated",
    "DMA-API: debugging enabled",
    "DMA-API: mapping ", // "... debug entries", printed as the table grows.
    "DMA-API: dma_debug_entry pool grown",
];

/// Lines after the first that are quoted for one report.
const CONTEXT: usize = 24;

/// A line by which `mark` divides the log.
pub const MARK: &str = "lab: mark: ";

/// The part of a log after the last mark.
pub fn since_mark(log: &str) -> &str {
    match log.rfind(MARK) {
        Some(at) => log[at..].split_once('\n').map_or("", |(_, rest)| rest),
        None => log,
    }
}

/// The reports in a log, each with some lines of context. Warnings and worse of the module
/// `scif` count as reports. A report that contains one of `expected` in its first line does
/// not.
pub fn scan(log: &str, expected: &[&str]) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    let mut reports = Vec::new();
    let mut quoted_until = 0;
    for (number, line) in lines.iter().enumerate() {
        let (level, text) = split(line);
        let bad = is_report(text) || (level <= 4 && is_ours(text));
        if number < quoted_until || !bad || expected.iter().any(|expected| text.contains(expected))
        {
            continue;
        }
        let end = if is_report(text) {
            (number + CONTEXT).min(lines.len())
        } else {
            number + 1
        };
        quoted_until = end;
        let quoted: Vec<&str> = lines[number..end]
            .iter()
            .map(|line| split(line).1)
            .collect();
        reports.push(quoted.join("\n"));
    }
    reports
}

/// What the crash of the last boot printed on a console, if it crashed.
pub fn crash(console: &str) -> Option<String> {
    const CRASHES: [&str; 6] = [
        "Kernel panic",
        "Oops: ",
        "BUG: ",
        "kernel BUG at",
        "general protection fault",
        "Unable to mount root",
    ];
    // The firmware's greeting starts a boot.
    let boot = console
        .rfind("SeaBIOS")
        .map_or(console, |at| &console[at..]);
    let lines: Vec<&str> = boot.lines().collect();
    let first = lines
        .iter()
        .position(|line| CRASHES.iter().any(|crash| line.contains(crash)))?;
    let end = (first + CONTEXT).min(lines.len());
    Some(lines[first..end].join("\n"))
}

fn is_report(text: &str) -> bool {
    REPORTS.iter().any(|report| text.contains(report))
        && !HARMLESS.iter().any(|harmless| text.contains(harmless))
}

/// Whether the module said it: "[   12.345678] scif: ..." or "... scif 0000:00:05.0: ...".
fn is_ours(text: &str) -> bool {
    let message = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .map_or(text, |(_, message)| message)
        .trim_start();
    message.starts_with("scif:") || message.starts_with("scif ")
}

/// The level (7 if there is none) and the rest of a line.
fn split(line: &str) -> (u32, &str) {
    line.strip_prefix('<')
        .and_then(|rest| rest.split_once('>'))
        .and_then(|(number, text)| Some((number.parse::<u32>().ok()? & 7, text)))
        .unwrap_or((7, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_log_has_no_reports() {
        let log = "<6>[    0.1] scif: loaded\n<4>[    0.2] acpi: something\n\
                   <6>[    0.3] DMA-API: preallocated 65536 debug entries\n<14>hello scif: x";
        assert!(scan(log, &[]).is_empty());
    }

    #[test]
    fn reports_are_quoted_with_context() {
        let log =
            "<6>[ 1.0] before\n<4>[ 1.1] WARNING: kernel/x.c:1 at f+0x1/0x2\n<4>[ 1.2] Call Trace:";
        let reports = scan(log, &[]);
        assert_eq!(reports.len(), 1);
        assert!(reports[0].starts_with("[ 1.1] WARNING"));
        assert!(reports[0].ends_with("Call Trace:"));
        assert!(scan(log, &["kernel/x.c:1"]).is_empty());
    }

    #[test]
    fn our_warnings_count() {
        assert_eq!(scan("<4>[ 1.0] scif: the link is down", &[]).len(), 1);
        assert_eq!(
            scan("<3>[ 1.0] scif 0000:00:05.0: bad message", &[]).len(),
            1
        );
        assert!(scan("<5>[ 1.0] scif: the link is down", &[]).is_empty());
        assert!(scan("<4>[ 1.0] scif: the link is down", &["link is down"]).is_empty());
    }

    #[test]
    fn the_crash_is_that_of_the_last_boot() {
        assert_eq!(crash("SeaBIOS\nKernel panic - old\nSeaBIOS\nfine"), None);
        let console = "SeaBIOS\nfine\nBUG: x\ntrace\n";
        assert_eq!(crash(console).as_deref(), Some("BUG: x\ntrace"));
    }

    #[test]
    fn marks_divide() {
        let log = "<4>WARNING: old\n<6>lab: mark: one\n<6>new";
        assert_eq!(since_mark(log), "<6>new");
        assert_eq!(since_mark("<6>new"), "<6>new");
        assert_eq!(since_mark("<6>lab: mark: one"), "");
    }
}
