// SPDX-License-Identifier: GPL-2.0
//! The orders of writes that tests are run in: of one seed, or of a range of them, one after the other;
//! and with which of them a test has failed.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use lab::WeakOrder;
use lab::WeakOrderEngines;

/// Seeds, and where the engines are in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seeds {
    seeds: RangeInclusive<u64>,
    engines: WeakOrderEngines,
}

impl Seeds {
    /// From `7`, `1-100`, or either with `,root`.
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

    /// The order of each seed.
    pub fn orders(&self) -> impl Iterator<Item = WeakOrder> {
        let engines = self.engines;
        let order = move |seed| WeakOrder { seed, engines };
        self.seeds.clone().map(order)
    }

    /// What shows how far a run of so many tests in each of them is: on a terminal, and if there are
    /// several.
    pub fn progress(&self, tests: usize) -> ProgressBar {
        let runs = self.seeds.clone().count() * tests;
        if runs < 2 {
            return ProgressBar::hidden();
        }
        // Hidden where there is no terminal.
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
    /// Its name.
    pub name: &'static str,
    /// The order of writes that it was run in, if it has none of its own.
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

/// An order as `--weak-order` takes it.
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
    fn seeds_are_one_or_a_range() {
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
