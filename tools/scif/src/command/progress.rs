// SPDX-License-Identifier: GPL-2.0

//! The progress of a copy: a bar on a terminal, a line every few seconds elsewhere, both on
//! standard error.

use crate::client::Observer;
use crate::command::output::note;
use crate::format;
use indicatif::ProgressBar;
use indicatif::ProgressDrawTarget;
use indicatif::ProgressStyle;
use std::io::IsTerminal;
use std::time::Duration;
use std::time::Instant;

const BETWEEN_LINES: Duration = Duration::from_secs(2);

/// Shows the progress of one copy.
pub struct Display {
    kind: Kind,
    started: Instant,
    printed: Instant,
    done: u64,
    size: u64,
}

enum Kind {
    Silent,
    Lines,
    Bar(ProgressBar),
}

impl Display {
    /// Chooses the kind of display by the file that standard error goes to.
    pub fn new(quiet: bool) -> Self {
        let kind = if quiet {
            Kind::Silent
        } else if std::io::stderr().is_terminal() {
            Kind::Bar(ProgressBar::with_draw_target(
                None,
                ProgressDrawTarget::stderr_with_hz(10),
            ))
        } else {
            Kind::Lines
        };
        Self {
            kind,
            started: Instant::now(),
            printed: Instant::now(),
            done: 0,
            size: 0,
        }
    }

    /// Ends the display. Returns how long the copy took.
    pub fn finish(self) -> Duration {
        if let Kind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
        self.started.elapsed()
    }
}

impl Observer for Display {
    fn start(&mut self, size: u64) {
        self.size = size;
        self.started = Instant::now();
        self.printed = self.started;
        if let Kind::Bar(bar) = &self.kind {
            let template = "{bar:30} {percent:>3}% {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_length(size);
            bar.reset_elapsed();
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        match &self.kind {
            Kind::Silent => {}
            Kind::Bar(bar) => bar.inc(bytes),
            Kind::Lines => {
                if self.printed.elapsed() >= BETWEEN_LINES {
                    self.printed = Instant::now();
                    note(line(self.done, self.size, self.started.elapsed()));
                }
            }
        }
    }
}

fn line(done: u64, size: u64, elapsed: Duration) -> String {
    let rate = format::rate(done, elapsed);
    let percent = u128::from(done) * 100 / u128::from(size.max(1));
    format!(
        "{percent:>3}% {} of {}, {}, {} left",
        format::size(done),
        format::size(size),
        format::per_second(rate),
        format::long_time(size.saturating_sub(done) as f64 / rate)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_shows_percent_rate_and_time_left() {
        assert_eq!(
            line(1 << 20, 4 << 20, Duration::from_secs(1)),
            " 25% 1.00 MiB of 4.00 MiB, 1.00 MiB/s, 3 s left"
        );
        // Wrong sizes of a peer must not cause a panic.
        line(u64::MAX, 1, Duration::ZERO);
        line(0, u64::MAX, Duration::ZERO);
    }
}
