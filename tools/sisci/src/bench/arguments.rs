// SPDX-License-Identifier: GPL-2.0

//! The arguments behind the name of a test.

use std::path::PathBuf;

use scif::command::port::DEFAULT_PORT;
use scif::command::port::parse_port;
use scif::format::parse_size;

use super::control;

/// The arguments of all tests.
#[derive(Clone, Debug, clap::Args)]
pub struct Client {
    /// The SISCI id of the server's node, which `sisci-info` shows
    pub node: u32,
    /// Sizes, 8 B to 4 MiB
    #[arg(long, value_delimiter = ',', default_value = "8,64,1K,4K,64K,1M", value_parser = size)]
    pub sizes: Vec<usize>,
    /// Number of rounds; the test prints the median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seconds for each measurement in each round
    #[arg(long, default_value_t = 0.1, value_parser = seconds)]
    pub seconds: f64,
    /// Also measure the calls of SCIF below each figure
    #[arg(long)]
    pub reference: bool,
    /// The port of `scif serve --bench`, for --reference
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = parse_port)]
    pub port: u16,
    /// The server's --id
    #[arg(long, default_value_t = control::ID)]
    pub id: u32,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw charts into this folder
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub plots: Option<PathBuf>,
}

fn size(text: &str) -> std::result::Result<usize, String> {
    match parse_size(text)? {
        size if (8..=control::LARGEST as u64).contains(&size) => Ok(size as usize),
        _ => Err(format!("'{text}' is not between 8 and 4M")),
    }
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!(
            "'{text}' is not a number of seconds from 0.001 to 60"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_and_seconds_out_of_range_are_refused() {
        assert_eq!(size("4K"), Ok(4096));
        assert!(size("4").is_err() && size("8M").is_err() && size("x").is_err());
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert!(seconds("0").is_err() && seconds("nan").is_err());
    }
}
