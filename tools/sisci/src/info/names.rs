// SPDX-License-Identifier: GPL-2.0

//! The names that programs of this host have bound, as the module shows them in debugfs: segments
//! and interrupts of SISCI.

use scif::watch::table::rows;
use serde::Serialize;

/// The file in which the module shows the names.
pub const DEBUGFS: &str = "/sys/kernel/debug/scif/names";

/// The classes, with their names here.
pub const CLASSES: &[(&str, &str)] = &[
    ("Segments", "segment"),
    ("Interrupts", "interrupt"),
    ("Data interrupts", "data-interrupt"),
];

/// A name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Name {
    /// One of [`CLASSES`], or another class.
    pub class: String,
    /// The name itself.
    pub number: u32,
    /// The port that the name leads to.
    pub port: Option<u16>,
    /// The process that has opened the endpoint.
    pub opener: Option<String>,
}

/// Returns the class of a line, by its word or by its number in the kernel's header.
fn class(word: &str) -> String {
    let class = match word {
        "1" => "segment",
        "2" => "interrupt",
        "3" | "data_interrupt" | "data" => "data-interrupt",
        other => other,
    };
    class.to_owned()
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses the lines of the file; other lines are left out.
pub fn parse(text: &str) -> Vec<Name> {
    let names = rows(text).filter_map(|row| {
        Some(Name {
            class: class(&row.text("class")?),
            number: number(&row.text("name")?)?,
            port: row.number("port"),
            opener: row.text("opener"),
        })
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_lines_are_parsed_and_invalid_ones_skipped() {
        let text = "class name port opener\n\
            segment 0x1000 12 1234:a\\040b\ndata_interrupt 7 - -\nnonsense\nsegment x 1 1\n";
        let names = parse(text);
        assert_eq!(names.len(), 2);
        assert_eq!(names[0].number, 0x1000);
        assert_eq!(names[0].opener.as_deref(), Some("1234:a b"));
        assert_eq!(names[1].class, "data-interrupt");
        assert_eq!(names[1].port, None);
        assert_eq!(parse(""), []);
    }
}
