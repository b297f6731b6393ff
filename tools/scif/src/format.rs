// SPDX-License-Identifier: GPL-2.0

//! Numbers in the form that people write and read: sizes, rates, times.

use std::time::Duration;

/// Formats a size, as `1.5 MiB`.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else if value < 10.0 {
        format!("{value:.2} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// Returns bytes per second; 0 if there is no time.
pub fn rate(bytes: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 {
        bytes as f64 / seconds
    } else {
        0.0
    }
}

/// Formats a rate, as `1.5 MiB/s`.
pub fn per_second(bytes_per_second: f64) -> String {
    format!("{}/s", size(bytes_per_second as u64))
}

/// Formats a short time, as `12.3 us`.
pub fn short_time(time: Duration) -> String {
    let nanoseconds = time.as_nanos() as f64;
    match nanoseconds {
        0.0..1e3 => format!("{nanoseconds} ns"),
        1e3..1e6 => format!("{:.1} us", nanoseconds / 1e3),
        1e6..1e9 => format!("{:.2} ms", nanoseconds / 1e6),
        _ => format!("{:.2} s", nanoseconds / 1e9),
    }
}

/// Formats a time left, as `1 min 5 s`.
pub fn long_time(seconds: f64) -> String {
    let seconds = seconds.ceil().clamp(0.0, 1e9) as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Parses a size: a number, with K, M or G for powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size such as 64, 4K or 1M");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Returns the value below which `percent` of the sorted values are.
pub fn percentile(sorted: &[Duration], percent: f64) -> Duration {
    // Corrects the rounding error of the product.
    let index = (percent * sorted.len() as f64 / 100.0 - 1e-6).ceil() as usize;
    sorted
        .get(index.saturating_sub(1))
        .or(sorted.last())
        .copied()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_formatted_and_parsed() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.50 KiB");
        assert_eq!(size(150 << 20), "150.0 MiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
        for (text, expected) in [("64", 64), ("4K", 4096), ("1MiB", 1 << 20), ("2g", 2 << 30)] {
            assert_eq!(parse_size(text), Ok(expected));
        }
        for text in ["", "K", "-1", "1.5M", "4X", "99999999999G", "1é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_formatted() {
        assert_eq!(short_time(Duration::from_nanos(999)), "999 ns");
        assert_eq!(short_time(Duration::from_nanos(12_345)), "12.3 us");
        assert_eq!(short_time(Duration::from_secs(2)), "2.00 s");
        assert_eq!(long_time(0.1), "1 s");
        assert_eq!(long_time(65.0), "1 min 5 s");
        assert_eq!(long_time(f64::INFINITY), "277777 h 46 min");
        assert_eq!(rate(5, Duration::ZERO), 0.0);
    }

    #[test]
    fn percentile_is_the_nearest_rank() {
        let values: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile(&values, 50.0), Duration::from_millis(50));
        assert_eq!(percentile(&values, 99.0), Duration::from_millis(99));
        assert_eq!(percentile(&values[..1], 99.0), Duration::from_millis(1));
        assert_eq!(percentile(&[], 50.0), Duration::ZERO);
    }
}
