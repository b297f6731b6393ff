// SPDX-License-Identifier: GPL-2.0
//! Finds lines in a kernel log that a test must not cause.
//!
//! The input is the output of `dmesg --raw`: `<level>[ seconds] text`, the level with the facility
//! in its upper bits.

/// Begins of reports of the kernel's own checkers, at any level.
const REPORTS: [&str; 24] = [
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
    // Lines of KUnit, which debug kernels run when the module is loaded.
    ": ASSERTION FAILED at",
    ": EXPECTATION FAILED at",
];

/// Lines of the checkers when nothing is wrong.
const HARMLESS: [&str; 4] = [
    "DMA-API: preallocated",
    "DMA-API: debugging enabled",
    "DMA-API: mapping ", // "... debug entries", printed as the table grows.
    "DMA-API: dma_debug_entry pool grown",
];

/// Known reports that mean nothing: a part of the first line, and a part of the other lines.
///
/// The kernel's own drivers cause some, and this project can't change them.
/// plx_dma_free_chan_resources() calls pci_irq_vector(), which takes a mutex, inside
/// rcu_read_lock(). So these reports appear on a debug kernel when a DMA channel is released. The
/// driver's remove() takes `ring_lock` with softirqs on, and its tasklet takes it, too. So lockdep
/// reports that where an engine's driver was unbound and bound again. After a report of its own,
/// lockdep is off until the next boot.
///
/// A debug kernel runs the module's own tests each time that it loads the module. One of them plays
/// a client that forgets resources, which the module must report.
const KNOWN: [(&str, &str); 5] = [
    ("suspicious RCU usage", "plx_dma_free_chan_resources+"),
    (
        "sleeping function called from invalid context",
        "plx_dma_free_chan_resources+",
    ),
    ("Invalid wait context", "plx_dma_free_chan_resources+"),
    ("inconsistent lock state", "(&plxdev->ring_lock)"),
    ("scif: module scif_test has gone", "scif_test"),
];

/// The begin of a KCSAN report, with the functions of both accesses and their modules; the end is a
/// line of `=`. KCSAN checks all of the kernel, whose own races, as of timers and work queues, do
/// not count here.
const RACE: &str = "BUG: KCSAN: ";

/// Largest number of lines of one report.
const LONGEST: usize = 120;
/// Number of lines of a report that are quoted.
const CONTEXT: usize = 40;

/// The line by which `mark_kernel_log` divides the log.
pub const MARK: &str = "lab: mark: ";

/// Returns the part of a log after the last mark.
pub fn since_mark(log: &str) -> &str {
    match log.rfind(MARK) {
        Some(at) => log[at..].split_once('\n').map_or("", |(_, rest)| rest),
        None => log,
    }
}

/// Returns the reports in a log, each with some lines of context. Warnings and worse of the module
/// `scif` count as reports. A report whose first line contains one of `expected` does not count.
pub fn scan(log: &str, expected: &[&str]) -> Vec<String> {
    let lines: Vec<(u32, &str)> = log.lines().map(split).collect();
    let mut reports = Vec::new();
    let mut number = 0;
    while let Some(&(level, text)) = lines.get(number) {
        let report = is_report(text);
        let warning = level <= 4 && is_ours(text);
        if !report && !warning {
            number += 1;
            continue;
        }
        let end = if report {
            number + report_length(&lines[number..])
        } else {
            number + 1
        };
        let block = &lines[number..end];
        let known = KNOWN.iter().any(|(first, rest)| {
            text.contains(first) && block.iter().any(|(_, line)| line.contains(rest))
        });
        let of_others = text.contains(RACE) && !text.contains("[scif]");
        if !known && !of_others && !expected.iter().any(|expected| text.contains(expected)) {
            let quoted: Vec<&str> = block.iter().take(CONTEXT).map(|(_, line)| *line).collect();
            reports.push(quoted.join("\n"));
        }
        number = end;
    }
    reports
}

/// Returns how many lines belong to the report that starts here: up to the end of its back trace,
/// if it has one.
fn report_length(lines: &[(u32, &str)]) -> usize {
    let is_race = lines.first().is_some_and(|(_, line)| line.contains(RACE));
    let end = lines.iter().take(LONGEST).position(|(_, line)| {
        if is_race {
            return line.contains("=====");
        }
        line.contains("</TASK>") || line.contains("---[ end ") || line.contains(MARK)
    });
    match end {
        Some(end) => end + 1,
        None => lines.len().min(CONTEXT),
    }
}

/// Returns the output of the last boot's crash on a console, if it crashed.
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

/// Returns whether the line is of the module: "[   12.345678] scif: ..." or "... scif 0000:00:05.0:
/// ...".
fn is_ours(text: &str) -> bool {
    let message = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .map_or(text, |(_, message)| message)
        .trim_start();
    message.starts_with("scif:") || message.starts_with("scif ")
}

/// Returns the level (7 if there is none) and the rest of a line.
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
    fn clean_log_has_no_reports() {
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
        let kunit = "<6>[ 1.0]     # a_case: ASSERTION FAILED at /src/x.rs:9";
        assert_eq!(scan(kunit, &[]).len(), 1);
    }

    #[test]
    fn known_reports_of_other_drivers_are_ignored() {
        let known = "<4>[ 1.0] BUG: sleeping function called from invalid context at x.c:1\n\
                     <4>[ 1.1] Call Trace:\n<4>[ 1.2]  plx_dma_free_chan_resources+0x1/0x2\n\
                     <4>[ 1.3]  </TASK>\n";
        assert!(scan(known, &[]).is_empty());
        let lock = "<4>[ 1.0] WARNING: inconsistent lock state\n\
                    <4>[ 1.1] takes:\n\
                    <4>[ 1.2] ffff8880 (&plxdev->ring_lock){+.?.}-{3:3}, at: plx_dma_process_desc+0x1/0x2\n\
                    <4>[ 1.3]  </TASK>\n";
        assert!(scan(lock, &[]).is_empty());
        assert_eq!(
            scan(&lock.replace("plxdev->ring_lock", "scif_lock"), &[]).len(),
            1
        );
        // The same report of other code, right behind the known one.
        let other = known.replace("plx_dma_free_chan_resources", "scif_something");
        let reports = scan(&format!("{known}{other}"), &[]);
        assert_eq!(reports.len(), 1);
        assert!(reports[0].contains("scif_something"));
    }

    #[test]
    fn data_races_of_other_code_are_ignored() {
        let race = "<3>[ 1.0] ======\n<3>[ 1.0] BUG: KCSAN: data-race in f / g\n\
                    <3>[ 1.1] read to 0x1 of 8 bytes by task 1 on cpu 1:\n<3>[ 1.2]  f+0x1/0x2\n\
                    <3>[ 1.2]  in_f+0x1/0x2 [scif]\n<3>[ 1.3] write to 0x1 of 8 bytes by interrupt on cpu 0:\n\
                    <3>[ 1.4]  g+0x1/0x2\n<3>[ 1.5] ======\n";
        let ours = race.replace("in f / g", "in f / g [scif]");
        assert!(scan(race, &[]).is_empty());
        assert_eq!(scan(&ours, &[]).len(), 1);
        // The report of a race in other code ends before the next report.
        assert!(!scan(&format!("{race}{ours}"), &[])[0].contains("f / g\n"));
    }

    #[test]
    fn warnings_of_scif_are_reported() {
        assert_eq!(scan("<4>[ 1.0] scif: the link is down", &[]).len(), 1);
        assert_eq!(
            scan("<3>[ 1.0] scif 0000:00:05.0: bad message", &[]).len(),
            1
        );
        assert!(scan("<5>[ 1.0] scif: the link is down", &[]).is_empty());
        assert!(scan("<4>[ 1.0] scif: the link is down", &["link is down"]).is_empty());
    }

    #[test]
    fn crash_of_an_earlier_boot_is_ignored() {
        assert_eq!(crash("SeaBIOS\nKernel panic - old\nSeaBIOS\nfine"), None);
        let console = "SeaBIOS\nfine\nBUG: x\ntrace\n";
        assert_eq!(crash(console).as_deref(), Some("BUG: x\ntrace"));
    }

    #[test]
    fn only_lines_after_the_last_mark_are_returned() {
        let log = "<4>WARNING: old\n<6>lab: mark: one\n<6>new";
        assert_eq!(since_mark(log), "<6>new");
        assert_eq!(since_mark("<6>new"), "<6>new");
        assert_eq!(since_mark("<6>lab: mark: one"), "");
    }
}
