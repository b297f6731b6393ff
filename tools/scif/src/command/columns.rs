// SPDX-License-Identifier: GPL-2.0

//! Tables for people: columns that are as wide as their content.

/// The side of its column to which a cell is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// A table with a line of titles.
#[derive(Clone, Debug)]
pub struct Columns {
    sides: Vec<Side>,
    lines: Vec<Vec<String>>,
}

impl Columns {
    /// Makes a table with these titles.
    pub fn new(titles: &[(&str, Side)]) -> Self {
        Self {
            sides: titles.iter().map(|(_, side)| *side).collect(),
            lines: vec![
                titles
                    .iter()
                    .map(|(title, _)| (*title).to_owned())
                    .collect(),
            ],
        }
    }

    /// Adds a line.
    pub fn push<const N: usize>(&mut self, cells: [String; N]) {
        self.lines.push(cells.into());
    }

    /// Returns the lines, the titles first.
    pub fn lines(&self) -> Vec<String> {
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.sides.len()).map(width).collect();
        let line = |cells: &Vec<String>| {
            let mut text = String::new();
            for ((cell, side), width) in cells.iter().zip(&self.sides).zip(&widths) {
                if !text.is_empty() {
                    text.push_str("  ");
                }
                match side {
                    Side::Left => text.push_str(&format!("{cell:<width$}")),
                    Side::Right => text.push_str(&format!("{cell:>width$}")),
                }
            }
            text.trim_end().to_owned()
        };
        self.lines.iter().map(line).collect()
    }
}

/// Returns a value as text, or `-` for none.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Makes foreign text printable, such as the name of a process, so that it can't move the cursor.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut columns = Columns::new(&[("PID", Side::Right), ("NAME", Side::Left)]);
        columns.push(["1".into(), "é".into()]);
        columns.push(["12345".into(), "long name".into()]);
        assert_eq!(
            columns.lines(),
            ["  PID  NAME", "    1  é", "12345  long name"]
        );
        assert_eq!(or_dash(None::<u8>), "-");
        assert_eq!(printable("a\x1b[2Jb"), "a?[2Jb");
    }
}
