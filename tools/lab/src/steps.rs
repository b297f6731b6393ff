// SPDX-License-Identifier: GPL-2.0
//! One instruction of a guest's kernel after the other, from a function until the return to user
//! space: how many they are, and of which functions. That is exact, on whatever machine.
//!
//! The other processors of the guest stand still meanwhile, and no interrupt comes.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;

use crate::debugger::Debugger;
use crate::lab::Lab;

/// More are not counted: some thousands are gone through in a second.
const MOST: usize = 100_000;

/// Addresses of a process are below.
const KERNEL: u64 = 1 << 63;

/// The instructions of one call.
#[derive(Clone, Debug)]
pub struct Steps {
    /// How many they are.
    pub total: usize,
    /// Those of each function, most first.
    pub functions: Vec<(String, usize)>,
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (function, count) in &self.functions {
            writeln!(f, "{count:6}  {function}")?;
        }
        write!(f, "{:6}  instructions", self.total)
    }
}

/// The functions of a running kernel, as `/proc/kallsyms` has them, by their addresses.
struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    fn parse(text: &str) -> Symbols {
        let parsed = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            let name = words.next()?;
            // What stands before a function, to be filled in when that is called, is none.
            let is_function = kind.eq_ignore_ascii_case("t") && !name.starts_with("__pfx_");
            is_function.then(|| (address, name.to_owned()))
        });
        Symbols(parsed.collect())
    }

    fn address(&self, function: &str) -> Option<u64> {
        let mut all = self.0.iter();
        all.find_map(|(address, name)| (name == function).then_some(*address))
    }

    fn count(&self, pointers: &[u64]) -> Vec<(String, usize)> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for pointer in pointers {
            let found = self.0.range(..=pointer).next_back();
            *counts
                .entry(found.map_or("?", |(_, name)| name))
                .or_default() += 1;
        }
        let mut counts: Vec<_> = counts
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count))
            .collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }
}

/// A node that stands still, with one of its processors at the beginning of a function. Dropping this lets it go on.
pub struct Stopped {
    debugger: Debugger,
    symbols: Symbols,
    function: String,
    node: usize,
}

impl Lab {
    /// Stops a node at a call of a function of its kernel, after `skip` calls that came before. Somebody has to call it
    /// meanwhile.
    pub fn stop_at(&self, node: usize, function: &str, skip: usize) -> Result<Stopped> {
        let symbols = Symbols::parse(&self.node(node).read("/proc/kallsyms")?);
        let start = symbols
            .address(function)
            .with_context(|| format!("node {node} has no function {function}"))?;
        let mut debugger = Debugger::attach(self.paths(), node)?;
        debugger
            .run_to(start, skip)
            .with_context(|| format!("nobody calls {function} in node {node}"))?;
        Ok(Stopped {
            debugger,
            symbols,
            function: function.to_owned(),
            node,
        })
    }
}

impl Stopped {
    /// The instructions of the call, until the return to the program. If the call sleeps, they are those of whoever
    /// runs meanwhile, too.
    pub fn steps(mut self) -> Result<Steps> {
        let mut pointers = Vec::new();
        loop {
            let pointer = self.debugger.instruction_pointer()?;
            if pointer < KERNEL {
                break;
            }
            ensure!(
                pointers.len() < MOST,
                "{} in node {} does not end within {MOST} instructions",
                self.function,
                self.node
            );
            pointers.push(pointer);
            self.debugger.step()?;
        }
        Ok(Steps {
            total: pointers.len(),
            functions: self.symbols.count(&pointers),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_belong_to_the_function_that_begins_before() {
        let symbols = Symbols::parse(
            "ffffffff81000010 T first\nffffffff81000008 t __pfx_first\n\
             ffffffff81000020 t second\t[scif]\nffffffff81000030 d data\n",
        );
        assert_eq!(symbols.address("first"), Some(0xffff_ffff_8100_0010));
        assert_eq!(symbols.address("data"), None);
        let pointers = [0x10, 0x24, 0x2f, 0x30, 0x08].map(|low| 0xffff_ffff_8100_0000 + low);
        let counts = symbols.count(&pointers);
        let wanted = [("second", 3), ("?", 1), ("first", 1)];
        assert_eq!(counts, wanted.map(|(name, count)| (name.to_owned(), count)));
    }
}
