// SPDX-License-Identifier: GPL-2.0
//! Foreign output, made fit to be quoted.

/// Returns the last lines of a text, without a newline at the end.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// Returns a text without terminal control sequences.
pub fn printable(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => {
                if characters.next_if_eq(&'[').is_some() {
                    // Parameters, then one final letter.
                    while characters.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
                } else {
                    characters.next();
                }
            }
            '\n' | '\t' => result.push(character),
            character if character.is_control() => {}
            character => result.push(character),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_are_removed() {
        assert_eq!(
            printable("\u{1b}[2J\u{1b}[01;31mred\u{1b}[0m\r\n\u{1b}c."),
            "red\n."
        );
        assert_eq!(printable("cut\u{1b}["), "cut");
    }

    #[test]
    fn last_lines_returns_the_last_nonempty_lines() {
        assert_eq!(last_lines("a\n\nb\r\nc\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
    }
}
