// SPDX-License-Identifier: GPL-2.0
//! Results of benchmarks: values by figure, line, size and round, their medians, and a chart of
//! each figure.

pub mod charts;
pub mod results;
