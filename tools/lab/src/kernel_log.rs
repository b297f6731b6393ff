// SPDX-License-Identifier: GPL-2.0
//! Finds in a kernel log what a test must not leave there.
//!
//! The input is what `dmesg --raw` prints: `<level>[ seconds] text`, the level with the
//! facility in its upper bits.

/// What starts a report of the kernel's own checkers, at whatever level it is printed.
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
    // Of KUnit, which debug kernels run when the module is loaded.
    ": ASSERTION FAILED at",
    ": EXPECTATION FAILED at",
];

/// What the checkers say when nothing is wrong.
const HARMLESS: [&str; 4] = [
    "DMA-API: preallocated",
    "DMA-API: debugging enabled",
    "DMA-API: mapping ", // "... debug entries", printed as the table grows.
    "DMA-API: dma_debug_entry pool grown",
];

/// Reports that mean nothing: what the first line contains, and what the rest does.
///
/// Nobody here can do anything about the kernel's own drivers: plx_dma_free_chan_resources() calls
/// pci_irq_vector(), which takes a mutex, inside rcu_read_lock(), so whoever gives a DMA channel back
/// on a debug kernel sees these. Its remove() takes `ring_lock` with softirqs on, which its tasklet takes,
/// too, so lockdep speaks of that where an engine's driver was unbound and bound again. After one of its own
/// reports, lockdep is off until the next boot.
///
/// A debug kernel runs the module's own tests each time that it loads the module, and one of them makes
/// up a client that forgets things, of which the module has to speak.
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

/// How KCSAN begins a report, with the functions of both accesses and their modules; it ends it with a line of `=`. It looks
/// at all of the kernel, whose own races, as of timers and work queues, are nobody's business here.
const RACE: &str = "BUG: KCSAN: ";

/// The most lines that belong to one report.
const LONGEST: usize = 120;
/// Lines of a report that are quoted.
const CONTEXT: usize = 40;

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

/// How many lines belong to the report that starts here: up to the end of its back trace,
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
        let kunit = "<6>[ 1.0]     # a_case: ASSERTION FAILED at /src/x.rs:9";
        assert_eq!(scan(kunit, &[]).len(), 1);
    }

    #[test]
    fn known_reports_of_others_do_not_count() {
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
        // The same of anybody else, right behind it.
        let other = known.replace("plx_dma_free_chan_resources", "scif_something");
        let reports = scan(&format!("{known}{other}"), &[]);
        assert_eq!(reports.len(), 1);
        assert!(reports[0].contains("scif_something"));
    }

    #[test]
    fn races_of_others_do_not_count() {
        let race = "<3>[ 1.0] ======\n<3>[ 1.0] BUG: KCSAN: data-race in f / g\n\
                    <3>[ 1.1] read to 0x1 of 8 bytes by task 1 on cpu 1:\n<3>[ 1.2]  f+0x1/0x2\n\
                    <3>[ 1.2]  in_f+0x1/0x2 [scif]\n<3>[ 1.3] write to 0x1 of 8 bytes by interrupt on cpu 0:\n\
                    <3>[ 1.4]  g+0x1/0x2\n<3>[ 1.5] ======\n";
        let ours = race.replace("in f / g", "in f / g [scif]");
        assert!(scan(race, &[]).is_empty());
        assert_eq!(scan(&ours, &[]).len(), 1);
        // One does not make the other belong to it.
        assert!(!scan(&format!("{race}{ours}"), &[])[0].contains("f / g\n"));
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
