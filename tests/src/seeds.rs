// SPDX-License-Identifier: GPL-2.0
//! The orders of writes that tests run in: the order of one seed, or of each seed of a range. Also
//! the order with which a test has failed.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use lab::WeakOrder;
use lab::WeakOrderEngines;

/// Seeds, and the place of the engines, which is the same for all seeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds {
    seeds: RangeInclusive<u64>,
    engines: WeakOrderEngines,
}

impl Seeds {
    /// Parses `7`, `1-100`, or either with `,root`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (seeds, place) = text.split_once(',').unwrap_or((text, "switch"));
        let (first, last) = seeds.split_once('-').unwrap_or((seeds, seeds));
        let order = |seed: &str| {
            lab::parse_weak_order(&format!("{seed},{place}"))
                .map_err(|error| format!("{error}, or a range of numbers, such as 1-100"))
        };
        let (first, last) = (order(first)?, order(last)?);
        if first.seed > last.seed {
            return Err("the first seed is not the smallest".to_owned());
        }
        Ok(Self {
            seeds: first.seed..=last.seed,
            engines: first.engines,
        })
    }

    /// Returns the order of each seed.
    pub fn orders(&self) -> impl Iterator<Item = WeakOrder> {
        let engines = self.engines;
        let order = move |seed| WeakOrder { seed, engines };
        self.seeds.clone().map(order)
    }

    /// Returns a progress bar for a run of this many tests with each seed. It shows only on a
    /// terminal, and if there are several seeds.
    pub fn progress(&self, tests: usize) -> ProgressBar {
        let runs = self.seeds.clone().count() * tests;
        if runs < 2 {
            return ProgressBar::hidden();
        }
        // The bar is hidden if there is no terminal.
        let bar = ProgressBar::new(runs as u64);
        let template = "{bar:30} {pos} of {len} ({elapsed}, about {eta} left)  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        bar
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.seeds.start(), self.seeds.end());
        match first == last {
            true => write!(f, "{first}"),
            false => write!(f, "{first}-{last}"),
        }
    }
}

/// A test that has failed.
pub struct Failed {
    /// The name.
    pub name: &'static str,
    /// The order of writes of the run, unless the test has an order of its own.
    pub order: Option<WeakOrder>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name;
        match self.order.map(argument) {
            None => write!(f, "{name}"),
            Some(order) => write!(
                f,
                "{name} with seed {order}; again: target/release/lab-tests --weak-order {order} {name}"
            ),
        }
    }
}

/// Formats an order as an argument of `--weak-order`.
fn argument(order: WeakOrder) -> String {
    let WeakOrder { seed, engines } = order;
    match engines {
        WeakOrderEngines::Switch => seed.to_string(),
        WeakOrderEngines::Root => format!("{seed},root"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_parse_as_one_number_or_a_range() {
        for text in ["7", "7,root", "7,switch"] {
            let seeds = Seeds::parse(text).unwrap();
            let orders: Vec<_> = seeds.orders().collect();
            assert_eq!(orders, [lab::parse_weak_order(text).unwrap()]);
            assert_eq!(seeds.to_string(), "7");
        }
        let seeds = Seeds::parse("3-5,root").unwrap();
        let arguments: Vec<_> = seeds.orders().map(argument).collect();
        assert_eq!(arguments, ["3,root", "4,root", "5,root"]);
        assert_eq!(seeds.to_string(), "3-5");
        for nonsense in ["", "x", "5-3", "1-", "-1", "1-2-3", "1,left", "1-2,left"] {
            assert!(Seeds::parse(nonsense).is_err(), "{nonsense}");
        }
    }
}
