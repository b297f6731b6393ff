// SPDX-License-Identifier: GPL-2.0
//! Reads the text that follows the options in `--help`, for which clap has no structure.
//!
//! It is made of blocks. A block has a title, `Examples:` or `Exit status:`, alone in its line with
//! indented lines below, each an item and after two spaces or more what it means; where the item is
//! long, its meaning is alone in the next line, further to the right. Or it has no title and is a
//! paragraph.

/// What is an item, if a line is indented no further.
const DEEPEST: usize = 8;

/// The text, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AfterHelp {
    /// Commands to type.
    pub examples: Vec<Item>,
    /// What the program exits with.
    pub exit_status: Vec<Item>,
    /// All else.
    pub paragraphs: Vec<String>,
}

/// One line of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it is about.
    pub name: String,
    /// What it means; may be empty.
    pub meaning: String,
}

impl AfterHelp {
    /// Takes a text apart.
    pub fn parse(text: &str) -> Self {
        enum Block {
            Examples,
            ExitStatus,
            Paragraph,
        }
        let mut result = Self::default();
        let mut block = Block::Paragraph;
        let mut new_paragraph = true;
        for line in text.lines() {
            if line.trim().is_empty() {
                new_paragraph = true;
                continue;
            }
            if !line.starts_with(' ') {
                block = match line {
                    "Examples:" => Block::Examples,
                    "Exit status:" => Block::ExitStatus,
                    _ => Block::Paragraph,
                };
            }
            match block {
                Block::Examples if line.starts_with(' ') => add(&mut result.examples, line),
                Block::ExitStatus if line.starts_with(' ') => add(&mut result.exit_status, line),
                Block::Examples | Block::ExitStatus => {}
                Block::Paragraph => match result.paragraphs.last_mut() {
                    Some(paragraph) if !new_paragraph => {
                        paragraph.push(' ');
                        paragraph.push_str(line.trim());
                    }
                    _ => result.paragraphs.push(line.trim().to_owned()),
                },
            }
            new_paragraph = false;
        }
        result
    }
}

fn add(items: &mut Vec<Item>, line: &str) {
    let text = line.trim();
    let indented = line.len() - line.trim_start().len();
    if let (true, Some(item)) = (indented > DEEPEST, items.last_mut()) {
        if !item.meaning.is_empty() {
            item.meaning.push(' ');
        }
        item.meaning.push_str(text);
        return;
    }
    let (name, meaning) = text.split_once("  ").unwrap_or((text, ""));
    items.push(Item {
        name: name.to_owned(),
        meaning: meaning.trim_start().to_owned(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, meaning: &str) -> Item {
        Item {
            name: name.to_owned(),
            meaning: meaning.to_owned(),
        }
    }

    #[test]
    fn blocks() {
        let text = "\
Examples:
  a --b c     does it
  a much longer one

              does more
  a

Two lines,
one paragraph.

Another.

Exit status:
  0    done
  128 + N  a signal";
        let expected = AfterHelp {
            examples: vec![
                item("a --b c", "does it"),
                item("a much longer one", "does more"),
                item("a", ""),
            ],
            exit_status: vec![item("0", "done"), item("128 + N", "a signal")],
            paragraphs: vec![
                "Two lines, one paragraph.".to_owned(),
                "Another.".to_owned(),
            ],
        };
        assert_eq!(AfterHelp::parse(text), expected);
        assert_eq!(AfterHelp::parse(""), AfterHelp::default());
    }
}
