// SPDX-License-Identifier: GPL-2.0

//! The calls of a run, as text and as values: a run is a list of them, which can be written down, cut shorter and made
//! again.
//!
//! An endpoint is named by its slot in a small table, memory by its place in the arena (`memory.rs`).

use std::fmt;
use std::str::FromStr;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;

/// How many endpoints a run has at most.
pub const SLOTS: usize = 10;

/// Defines the calls: each is a line of its name and of numbers.
macro_rules! calls {
    ($($(#[$about:meta])* $name:ident $word:literal { $($field:ident: $type:ty),* })*) => {
        /// A call with its arguments.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call {
            $($(#[$about])* $name { $($field: $type),* },)*
        }

        impl Call {
            /// The word that its line begins with.
            pub fn word(&self) -> &'static str {
                match self {
                    $(Self::$name { .. } => $word,)*
                }
            }

            /// The slot of the endpoint that it is made on.
            pub fn slot(&self) -> usize {
                match *self {
                    $(Self::$name { slot, .. } => slot,)*
                }
            }
        }

        impl fmt::Display for Call {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name { $($field),* } => {
                        write!(f, $word)?;
                        $(write!(f, concat!(" ", stringify!($field), "={}"), $field)?;)*
                        Ok(())
                    })*
                }
            }
        }

        impl FromStr for Call {
            type Err = anyhow::Error;

            fn from_str(line: &str) -> Result<Self> {
                let mut words = line.split_whitespace();
                let word = words.next().context("an empty line")?;
                match word {
                    $($word => Ok(Self::$name {
                        $($field: field(words.next(), stringify!($field))?,)*
                    }),)*
                    _ => bail!("{word:?} is no call"),
                }
            }
        }
    };
}

/// Reads a field that was printed as `name=value`.
fn field<T: FromStr>(word: Option<&str>, name: &str) -> Result<T>
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

calls! {
    Open "open" { slot: usize }
    Close "close" { slot: usize }
    Bind "bind" { slot: usize, port: u16 }
    Listen "listen" { slot: usize, backlog: i32 }
    /// To a port of this node, without waiting.
    Connect "connect" { slot: usize, port: u16 }
    /// Takes a request off the queue, and makes the endpoint in another slot this end of it.
    Accept "accept" { slot: usize, into: usize, flags: i32 }
    Send "send" { slot: usize, len: i32, flags: i32 }
    SendAll "send_all" { slot: usize, len: u64 }
    Receive "receive" { slot: usize, len: i32, flags: i32 }
    Poll "poll" { slot: usize }
    Register "register" { slot: usize, at: u64, len: u64, offset: i64, protection: i32, flags: i32 }
    Unregister "unregister" { slot: usize, offset: i64, len: u64 }
    /// Between windows.
    Copy "copy" { slot: usize, write: bool, local: i64, remote: i64, len: u64, flags: i32 }
    /// Between memory and windows.
    CopyMemory "copy_memory" { slot: usize, write: bool, at: u64, remote: i64, len: u64, flags: i32 }
    Map "map" { slot: usize, offset: i64, pages: usize, write: bool }
    Mark "mark" { slot: usize, flags: i32 }
    Wait "wait" { slot: usize, mark: i32 }
    Signal "signal" { slot: usize, flags: i32, local: i64, remote: i64, value: u64 }
    /// A call with any number, and an address that can't be read.
    Unknown "unknown" { slot: usize, number: u32 }
}

/// Lists the calls of a text, one per line; `#` begins a comment.
pub fn parse(text: &str) -> Result<Vec<Call>> {
    let lines = text.lines().enumerate().map(|(index, line)| {
        let (line, _) = line.split_once('#').unwrap_or((line, ""));
        (index, line.trim())
    });
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(index, line)| line.parse().with_context(|| format!("line {}", index + 1)))
        .collect()
}

/// Writes calls down as [`parse`] reads them.
pub fn print(calls: &[Call]) -> String {
    let lines: Vec<String> = calls.iter().map(Call::to_string).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Chooser;
    use crate::model::Model;

    #[test]
    fn what_is_printed_is_parsed() {
        let mut chooser = Chooser::new(7);
        let calls: Vec<Call> = (0..10_000).map(|_| chooser.call(&Model::new())).collect();
        assert_eq!(parse(&print(&calls)).unwrap(), calls);
    }

    #[test]
    fn a_line_that_is_no_call_is_named() {
        let error = parse("open slot=1\nclose port=1\n").unwrap_err();
        assert!(format!("{error:#}").contains("line 2"), "{error:#}");
        assert!(parse("fly slot=1").is_err());
        assert!(parse("open").is_err());
        assert_eq!(parse("# nothing\n\n").unwrap(), []);
    }
}
