// SPDX-License-Identifier: GPL-2.0
//! The results: figures with lines, each with values by size, one for each round.

use std::collections::BTreeMap;

use serde::Serialize;

/// The size of values without a size.
pub const NO_SIZE: u64 = 0;

/// All values of a run.
#[derive(Debug, Default, Serialize)]
pub struct Results {
    figures: BTreeMap<String, BTreeMap<String, BTreeMap<u64, Vec<f64>>>>,
}

impl Results {
    /// Adds the value of one round.
    pub fn add(&mut self, figure: &str, line: &str, size: u64, value: f64) {
        self.figures
            .entry(figure.to_owned())
            .or_default()
            .entry(line.to_owned())
            .or_default()
            .entry(size)
            .or_default()
            .push(value);
    }

    /// Returns the median of all rounds.
    pub fn median(&self, figure: &str, line: &str, size: u64) -> Option<f64> {
        median(self.figures.get(figure)?.get(line)?.get(&size)?)
    }

    /// Returns the ratio of one line to another.
    pub fn ratio(&self, figure: &str, line: &str, other: &str, size: u64) -> Option<f64> {
        Some(self.median(figure, line, size)? / self.median(figure, other, size)?)
    }

    /// Returns all values of a figure, a row for each line and size.
    pub fn values(&self, figure: &str) -> String {
        let mut text = String::new();
        for (line, sizes) in self.figures.get(figure).into_iter().flatten() {
            for (size, values) in sizes {
                let list: Vec<String> = values.iter().map(|value| format!("{value:.3}")).collect();
                let median = median(values).unwrap_or(f64::NAN);
                let list = list.join(" ");
                text.push_str(&format!("{median:8.3}  {line}, {size}: {list}\n"));
            }
        }
        text
    }

    /// Returns the sizes of a line.
    pub fn sizes(&self, figure: &str, line: &str) -> Vec<u64> {
        let line = self.figures.get(figure).and_then(|lines| lines.get(line));
        line.map(|sizes| sizes.keys().copied().collect())
            .unwrap_or_default()
    }

    /// Returns the lines of a figure, each with its medians by size.
    pub fn lines(&self, figure: &str) -> Vec<(String, Vec<(u64, f64)>)> {
        let Some(lines) = self.figures.get(figure) else {
            return Vec::new();
        };
        lines
            .iter()
            .map(|(name, sizes)| {
                let points = sizes
                    .iter()
                    .filter_map(|(size, values)| Some((*size, median(values)?)));
                (name.clone(), points.collect())
            })
            .collect()
    }

    /// Returns the names of all figures.
    pub fn figures(&self) -> Vec<String> {
        self.figures.keys().cloned().collect()
    }
}

/// Returns the median; the lower of two middle values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_lower_middle_value() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0]), Some(1.0));
        assert_eq!(median(&[3.0, 9.0, 1.0]), Some(3.0));
    }

    #[test]
    fn ratio_is_computed_from_medians() {
        let mut results = Results::default();
        for (ours, other) in [(1.0, 4.0), (2.0, 4.0), (90.0, 1.0)] {
            results.add("f", "ours", 64, ours);
            results.add("f", "other", 64, other);
        }
        assert_eq!(results.ratio("f", "ours", "other", 64), Some(0.5));
        assert_eq!(results.ratio("f", "ours", "other", 65), None);
        assert_eq!(results.ratio("f", "ours", "none", 64), None);
        assert_eq!(results.lines("f").len(), 2);
        assert_eq!(results.sizes("f", "ours"), [64]);
    }
}
