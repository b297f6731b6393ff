// SPDX-License-Identifier: GPL-2.0
//! The results of KUnit suites, as the kernel shows them in debugfs (KTAP).
//!
//! A module's suites run when it is loaded, and loading succeeds even if they fail. So the lab must
//! check their results.

/// The results of suites of a kernel or module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KunitResults {
    /// The names of the suites that have run.
    pub suites: Vec<String>,
    /// Number of cases that passed.
    pub passed: usize,
    /// The names of the cases that were skipped.
    pub skipped: Vec<String>,
    /// The names of the cases that failed, each with the output before.
    pub failed: Vec<String>,
}

impl KunitResults {
    /// Adds the results of one suite: the contents of its file `results`.
    pub fn add(&mut self, ktap: &str) {
        let mut said: Vec<&str> = Vec::new();
        let (before, mut planned, mut failed_whole) = (self.cases(), None, None);
        for line in ktap.lines() {
            // Cases are indented by four; the line of the suite itself is not, and repeats them.
            let indented = line.starts_with("    ");
            let text = line.trim_start();
            let (passed, rest) = match (text.strip_prefix("ok "), text.strip_prefix("not ok ")) {
                (Some(rest), _) => (true, rest),
                (_, Some(rest)) => (false, rest),
                _ => {
                    if let Some(name) = text.strip_prefix("# Subtest: ") {
                        self.suites.push(name.to_owned());
                    } else if let (true, Some(count)) = (indented, text.strip_prefix("1..")) {
                        planned = count.parse::<usize>().ok();
                    }
                    said.push(line);
                    continue;
                }
            };
            let name = rest.split_once(' ').map_or(rest, |(_, name)| name);
            if !indented {
                // A suite without cases can fail as a whole.
                if !passed && self.failed.is_empty() {
                    failed_whole = Some(name.to_owned());
                }
            } else if let Some((name, _)) = name.split_once(" # SKIP") {
                self.skipped.push(name.to_owned());
            } else if passed {
                self.passed += 1;
            } else {
                let mut story = name.to_owned();
                for line in &said {
                    story.push_str("\n  ");
                    story.push_str(line.trim());
                }
                self.failed.push(story);
            }
            said.clear();
        }
        let ran = self.cases() - before;
        self.failed.extend(failed_whole);
        if planned != Some(ran) {
            let name = self.suites.last().map_or("a suite", String::as_str);
            self.failed
                .push(format!("{name}: {ran} cases have ended, of {planned:?}"));
        }
    }

    fn cases(&self) -> usize {
        self.passed + self.skipped.len() + self.failed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kunit_results_are_counted() {
        let ktap = "KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: scif\n    1..3\n    \
                    ok 1 one\n    # two: EXPECTATION FAILED at x.rs:1\n    not ok 2 two\n    \
                    ok 3 three # SKIP no device\n# scif: pass:1 fail:1 skip:1 total:3\n\
                    not ok 1 scif\n";
        let mut results = KunitResults::default();
        results.add(ktap);
        assert_eq!(results.suites, ["scif"]);
        assert_eq!(results.passed, 1);
        assert_eq!(results.skipped, ["three"]);
        assert_eq!(
            results.failed,
            ["two\n  # two: EXPECTATION FAILED at x.rs:1"]
        );
    }
    #[test]
    fn suite_that_did_not_finish_has_failed() {
        let ktap = "KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: scif\n    1..2\n    \
                    ok 1 one\n";
        let mut results = KunitResults::default();
        results.add(ktap);
        assert_eq!(results.passed, 1);
        assert_eq!(results.failed, ["scif: 1 cases have ended, of Some(2)"]);
    }

    #[test]
    fn suite_can_fail_without_a_failed_case() {
        let ktap = "KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: scif\n    1..1\n    \
                    ok 1 one\nnot ok 1 scif\n";
        let mut results = KunitResults::default();
        results.add(ktap);
        assert_eq!((results.passed, &*results.failed[0]), (1, "scif"));
    }
}
