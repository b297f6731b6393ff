// SPDX-License-Identifier: GPL-2.0

//! The tables in debugfs: a first line with the names of the columns, then values, separated by
//! spaces; `-` means none. Characters that would break that format are escaped as in
//! `/proc/mounts`.

use std::str::FromStr;

/// A line, with the names of its columns.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    names: &'a str,
    values: &'a str,
}

/// Returns the lines below the first.
pub fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    let mut lines = text.lines();
    let names = lines.next().unwrap_or_default();
    lines.map(move |values| Row { names, values })
}

impl Row<'_> {
    fn field(&self, name: &str) -> Option<&str> {
        let position = self.names.split(' ').position(|each| each == name)?;
        let value = self.values.split(' ').nth(position)?;
        (value != "-" && !value.is_empty()).then_some(value)
    }

    /// Returns a value without escapes; `None` if there is none.
    pub fn text(&self, name: &str) -> Option<String> {
        self.field(name).map(unescape)
    }

    /// Returns a number.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.field(name)?.parse().ok()
    }
}

/// Replaces `\040` and similar escapes.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let escaped = others.get(..3).filter(|_| *first == b'\\').and_then(octal);
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8)
        .ok()
        .filter(|_| !text.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let text = "a b c\n1 - x\\134y\\040z\n2\n";
        let all: Vec<_> = rows(text).collect();
        assert_eq!(all[0].number("a"), Some(1));
        assert_eq!(all[0].text("b"), None);
        assert_eq!(all[0].text("c").as_deref(), Some("x\\y z"));
        assert_eq!(all[0].text("d"), None);
        assert_eq!(all[1].number::<u8>("a"), Some(2));
        assert_eq!(all[1].text("c"), None);
        assert_eq!(rows("").count(), 0);
    }

    #[test]
    fn invalid_escapes_are_kept() {
        for text in ["\\", "\\04", "\\9zz", "\\+12", "é\\777"] {
            assert_eq!(unescape(text), text);
        }
        assert_eq!(unescape("\\303\\251"), "é");
    }
}
