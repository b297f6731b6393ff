// SPDX-License-Identifier: GPL-2.0
//! The instructions of a guest's kernel, one after the other, from a function until the return to
//! user space: their number, and their functions. The result is exact on any machine.
//!
//! The other CPUs of the guest stand still meanwhile, and no interrupt comes.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;

use crate::debugger::Debugger;
use crate::lab::Lab;

/// Largest number of instructions that are counted; some thousands take a second.
const MOST: usize = 100_000;

/// Addresses of user space are below.
const KERNEL: u64 = 1 << 63;

/// The instructions of one call.
#[derive(Clone, Debug)]
pub struct Steps {
    /// The number of instructions.
    pub total: usize,
    /// The number of instructions of each function, the largest first.
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
            // The padding before a function, which the kernel fills in when the function is traced,
            // is no function.
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

/// A node that stands still, with one of its CPUs at the beginning of a function. Dropping this
/// lets the node go on.
pub struct Stopped {
    debugger: Debugger,
    symbols: Symbols,
    function: String,
    node: usize,
}

impl Lab {
    /// Stops a node at a call of a function of its kernel, after `skip` earlier calls. A program
    /// must make the call meanwhile.
    pub fn stop_at(&self, node: usize, function: &str, skip: usize) -> Result<Stopped> {
        let symbols = Symbols::parse(&self.node(node).read("/proc/kallsyms")?);
        let start = symbols
            .address(function)
            .with_context(|| format!("node {node} has no function {function}"))?;
        let mut debugger = Debugger::attach(self.paths(), node)?;
        debugger
            .run_to(start, skip)
            .with_context(|| format!("node {node} has not called {function}"))?;
        Ok(Stopped {
            debugger,
            symbols,
            function: function.to_owned(),
            node,
        })
    }
}

impl Stopped {
    /// Returns the instructions of the call, until the return to the program. If the call sleeps,
    /// they include those of other tasks that run meanwhile.
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
    fn address_belongs_to_the_function_that_starts_before_it() {
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
