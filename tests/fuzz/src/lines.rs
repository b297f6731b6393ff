// SPDX-License-Identifier: GPL-2.0

//! The steps of a run as text and as values: lines of a word and numbers, which can be printed,
//! shortened and repeated.

use std::fmt::Display;
use std::str::FromStr;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

/// Defines an enum whose variants are lines of a word and named numbers. All variants have one
/// field in common.
macro_rules! lines {
    (
        $(#[$of_all:meta])* $all:ident, $(#[$of_common:meta])* $common:ident: $type_of_common:ty;
        $($(#[$about:meta])* $name:ident $word:literal { $($field:ident: $type:ty),* })*
    ) => {
        $(#[$of_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $all {
            $($(#[$about])* $name { $($field: $type),* },)*
        }

        impl $all {
            /// All words that lines begin with.
            #[allow(dead_code)]
            pub const WORDS: &[&str] = &[$($word),*];

            /// The word that its line begins with.
            pub fn word(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $word,)*
                }
            }

            $(#[$of_common])*
            pub fn $common(&self) -> $type_of_common {
                match *self {
                    $(Self::$name { $common, .. } => $common,)*
                }
            }
        }

        impl std::fmt::Display for $all {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$name { $($field),* } => {
                        write!(f, $word)?;
                        $(write!(f, concat!(" ", stringify!($field), "={}"), $field)?;)*
                        Ok(())
                    })*
                }
            }
        }

        impl std::str::FromStr for $all {
            type Err = anyhow::Error;

            fn from_str(line: &str) -> anyhow::Result<Self> {
                let mut words = line.split_whitespace();
                match words.next().unwrap_or_default() {
                    $($word => Ok(Self::$name {
                        $($field: $crate::lines::field(words.next(), stringify!($field))?,)*
                    }),)*
                    word => anyhow::bail!("{word:?} begins no line"),
                }
            }
        }
    };
}
pub(crate) use lines;

/// Reads a field of the form `name=value`.
pub fn field<T: FromStr>(word: Option<&str>, name: &str) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let (said, value) = word
        .and_then(|word| word.split_once('='))
        .with_context(|| format!("{name}= is missing"))?;
    if said != name {
        bail!("{said}= stands where {name}= should");
    }
    value.parse().with_context(|| format!("{name}={value}"))
}

/// Parses the lines of a text. `#` begins a comment.
pub fn parse<T: FromStr<Err = anyhow::Error>>(text: &str) -> Result<Vec<T>> {
    let lines = text.lines().enumerate().map(|(index, line)| {
        let (line, _) = line.split_once('#').unwrap_or((line, ""));
        (index, line.trim())
    });
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| line.parse().with_context(|| format!("line {}", index + 1)))
        .collect()
}

/// Prints lines in the form that [`parse`] reads.
pub fn print(lines: &[impl Display]) -> String {
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
