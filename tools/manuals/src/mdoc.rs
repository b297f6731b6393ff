// SPDX-License-Identifier: GPL-2.0
//! Writes mdoc(7), the language that the pages of libscif are in as well.
//!
//! # Invariants
//! - Nothing that is handed over as text or as a word is taken for a macro or an escape.
//! - Each line is complete, and no line of text is longer than [`WIDTH`] if its words are not.

/// How long a line of text becomes.
const WIDTH: usize = 78;

/// A page that is being written.
#[derive(Debug, Default)]
pub struct Mdoc {
    text: String,
}

impl Mdoc {
    /// A line with a macro, and its arguments as they are: those of others go through [`word`] or [`typed`].
    pub fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// A section.
    pub fn section(&mut self, title: &str) {
        self.line(&format!(".Sh {title}"));
    }

    /// Running text, each sentence on lines of its own. What is in backticks is to be typed.
    pub fn paragraph(&mut self, text: &str) {
        for sentence in sentences(text) {
            let mut line = String::new();
            for word in sentence.split_whitespace() {
                if !line.is_empty() && line.len() + 1 + word.len() > WIDTH {
                    self.text_line(&line);
                    line.clear();
                }
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            self.text_line(&line);
        }
    }

    /// A line to be shown as it is.
    pub fn literal(&mut self, line: &str) {
        self.text_line(&escape(line));
    }

    /// The page.
    pub fn finish(self) -> String {
        self.text
    }

    fn text_line(&mut self, line: &str) {
        if line.starts_with(['.', '\'']) {
            self.text.push_str("\\&");
        }
        self.line(line);
    }
}

/// A name, or several words, as one argument of a macro.
pub fn word(text: &str) -> String {
    argument(text, &escape(text).replace("\\-", "-"))
}

/// What is to be typed as it is, as one argument of a macro.
pub fn typed(text: &str) -> String {
    argument(text, &escape(text))
}

fn argument(text: &str, escaped: &str) -> String {
    // What is that short can be a macro or a delimiter.
    let guard = if text.len() <= 3 { "\\&" } else { "" };
    match text.contains(' ') {
        true => format!("\"{guard}{escaped}\""),
        false => format!("{guard}{escaped}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('"', "\\(dq")
        .replace('\'', "\\(aq")
        .replace('`', "\\(ga")
        .replace('-', "\\-")
}

/// The sentences of a text, escaped, with bold for what is in backticks.
fn sentences(text: &str) -> Vec<String> {
    let mut typed = false;
    let marked: Vec<String> = text
        .split('`')
        .map(|part| {
            let escaped = escape(part);
            let result = if typed {
                format!("\\fB{escaped}\\fP")
            } else {
                // Hyphens between words stay such.
                escaped
                    .replace("\\-", "-")
                    .replace(" --", " \\-\\-")
                    .replace(" -", " \\-")
            };
            typed = !typed;
            result
        })
        .collect();
    let mut result: Vec<String> = Vec::new();
    let mut begins = true;
    for word in marked.concat().split_whitespace() {
        match result.last_mut() {
            Some(sentence) if !begins => {
                sentence.push(' ');
                sentence.push_str(word);
            }
            _ => result.push(word.to_owned()),
        }
        begins = word.ends_with(['.', '?', '!']);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_macro() {
        let mut page = Mdoc::default();
        page.paragraph("One. .Sh is 'two' and C:\\. See `a --b`, re-read it with --c");
        page.literal("'a' \"b\" -c");
        assert_eq!(
            page.finish(),
            "One.\n\\&.Sh is \\(aqtwo\\(aq and C:\\e.\n\
             See \\fBa \\-\\-b\\fP, re-read it with \\-\\-c\n\
             \\(aqa\\(aq \\(dqb\\(dq \\-c\n"
        );
        assert_eq!(word("Sh"), "\\&Sh");
        assert_eq!(word("scif-cp"), "scif-cp");
        assert_eq!(word("FILE NAME"), "\"FILE NAME\"");
        assert_eq!(typed("a -b \"c\""), "\"a \\-b \\(dqc\\(dq\"");
    }

    #[test]
    fn long_text_is_wrapped() {
        let mut page = Mdoc::default();
        page.paragraph(&"word ".repeat(50));
        let page = page.finish();
        assert!(page.lines().all(|line| line.len() <= WIDTH));
        assert_eq!(page.split_whitespace().count(), 50);
    }
}
