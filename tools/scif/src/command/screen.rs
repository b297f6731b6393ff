// SPDX-License-Identifier: GPL-2.0

//! A terminal that shows one page after another, and reads keys meanwhile.
//!
//! Its former content comes back when the screen is dropped.

use crate::cancel::Cancel;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::termios::LocalModes;
use rustix::termios::OptionalActions;
use rustix::termios::SpecialCodeIndex;
use rustix::termios::Termios;
use std::io;
use std::io::IsTerminal;
use std::io::Write;
use std::time::Duration;
use std::time::Instant;

/// The output of pages.
#[derive(Debug)]
pub struct Screen {
    /// The former settings of the keyboard; none if it is no terminal, or not this process's.
    keyboard: Option<Termios>,
    /// Whether standard output is a terminal.
    is_terminal: bool,
    colour: bool,
    pages: u64,
}

/// The reason why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time has come.
    Time,
    /// The user wants to quit.
    Quit,
}

impl Screen {
    /// Takes the terminal, if standard output is one.
    pub fn new() -> Self {
        let mut this = Self::quiet();
        if io::stdout().is_terminal() {
            this.is_terminal = true;
            this.colour = std::env::var_os("NO_COLOR").is_none();
            this.listen();
            // The alternate screen, without a cursor.
            this.say("\x1b[?1049h\x1b[?25l");
        }
        this
    }

    /// Creates a screen that shows nothing, but waits.
    pub fn quiet() -> Self {
        Self {
            keyboard: None,
            is_terminal: false,
            colour: false,
            pages: 0,
        }
    }

    /// Makes keys arrive at once without echo. Keys that send signals still do.
    fn listen(&mut self) {
        let Ok(before) = rustix::termios::tcgetattr(io::stdin()) else {
            return;
        };
        let mut raw = before.clone();
        raw.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        raw.special_codes[SpecialCodeIndex::VMIN] = 0;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        if rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, &raw).is_ok() {
            self.keyboard = Some(before);
        }
    }

    /// Writes to the terminal. If the terminal is gone, the next wait finds out.
    fn say(&self, text: &str) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }

    /// Returns the number of lines and columns: any number where there is no terminal.
    fn size(&self) -> (usize, usize) {
        let size = self
            .is_terminal
            .then(|| rustix::termios::tcgetwinsize(io::stdout()));
        match size {
            Some(Ok(size)) if size.ws_row > 0 && size.ws_col > 0 => {
                (size.ws_row.into(), size.ws_col.into())
            }
            _ => (usize::MAX, usize::MAX),
        }
    }

    /// Shows a page. On a terminal it replaces the last page and is cut to the size; elsewhere it
    /// follows the last page. The first `head` lines stand out.
    pub fn show(&mut self, lines: &[String], head: usize) -> io::Result<()> {
        let text = page(lines, head, self.size(), self.colour);
        let text = match (self.is_terminal, self.pages) {
            // Lines are replaced one by one, so that nothing flickers; the rest of the last page is
            // erased.
            (true, _) => format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")),
            (false, 0) => text + "\n",
            (false, _) => format!("\n{text}\n"),
        };
        self.pages += 1;
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    }

    /// Waits until `then`, unless there is a reason to stop.
    pub fn wait_until(&self, then: Instant, cancel: &Cancel) -> Woken {
        loop {
            let left = then.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return match cancel.is_set() {
                    true => Woken::Quit,
                    false => Woken::Time,
                };
            }
            if self.wait(left, cancel) {
                return Woken::Quit;
            }
        }
    }

    /// Waits for `time` or less. Returns whether to quit.
    fn wait(&self, time: Duration, cancel: &Cancel) -> bool {
        let timeout = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        };
        let stdin = io::stdin();
        let mut files = vec![PollFd::new(cancel, PollFlags::IN)];
        if self.keyboard.is_some() {
            files.push(PollFd::new(&stdin, PollFlags::IN));
        }
        // Another signal, such as that of a new size, shortens the wait.
        if rustix::event::poll(&mut files, Some(&timeout)).is_err() {
            return cancel.is_set();
        }
        let ready: Vec<bool> = files
            .iter()
            .map(|file| !file.revents().is_empty())
            .collect();
        drop(files);
        if ready.first() == Some(&true) {
            return true;
        }
        if ready.get(1) == Some(&true) {
            let mut keys = [0; 64];
            return match rustix::io::read(&stdin, &mut keys) {
                // The terminal is gone.
                Ok(0) | Err(_) => true,
                Ok(count) => keys[..count].iter().any(|key| matches!(key, b'q' | b'Q')),
            };
        }
        false
    }
}

impl Default for Screen {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.keyboard {
            let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
        if self.is_terminal {
            self.say("\x1b[?25h\x1b[?1049l");
        }
    }
}

/// Returns a page of at most this size, without the end of the last line.
fn page(lines: &[String], head: usize, (rows, columns): (usize, usize), colour: bool) -> String {
    let lines = lines.iter().take(rows).enumerate();
    let lines: Vec<String> = lines
        .map(|(index, line)| {
            let line: String = line.chars().take(columns).collect();
            match colour && index < head {
                true => format!("\x1b[1m{line}\x1b[0m"),
                false => line,
            }
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_cut_to_the_screen_size() {
        let lines: Vec<String> = ["title", "énough", "more"].map(str::to_owned).into();
        assert_eq!(page(&lines, 1, (2, 3), false), "tit\néno");
        assert_eq!(
            page(&lines, 1, (usize::MAX, usize::MAX), true),
            "\x1b[1mtitle\x1b[0m\nénough\nmore"
        );
    }

    #[test]
    fn screen_wait_ends_by_timeout_or_cancel() {
        let cancel = Cancel::new().unwrap();
        let screen = Screen::quiet();
        assert_eq!(screen.wait_until(Instant::now(), &cancel), Woken::Time);
        cancel.cancel();
        let far = Instant::now() + Duration::from_secs(3600);
        assert_eq!(screen.wait_until(far, &cancel), Woken::Quit);
    }
}
