// SPDX-License-Identifier: GPL-2.0
//! The references that measure hardware without SCIF in between: the reference modules, and
//! raw_reference.

use anyhow::Context;
use anyhow::Result;
use lab::Lab;
use serde_json::Value;

use crate::plan::Plan;
use crate::run;
use crate::setup;
use crate::setup::Bridge;

/// Copies in flight, here and for SCIF.
pub const DEPTH: u32 = 8;

/// Largest descriptor of the reference's engine.
pub const LARGEST_PIECE: u64 = 4 << 20;

/// The references of a lab.
pub struct Raw<'a> {
    pub lab: &'a Lab,
    /// Seconds for each measurement.
    pub seconds: f64,
}

/// Copies to and from the mapped aperture.
pub struct Aperture {
    pub size: u64,
    pub write_ns: f64,
    pub read_ns: f64,
    pub write_p50_ns: f64,
}

fn field(line: &Value, name: &str) -> f64 {
    line[name].as_f64().unwrap_or(f64::NAN)
}

impl Raw<'_> {
    /// Measures DMA for the given time; a few copies first tell how many fit. Returns bytes per
    /// second.
    pub fn dma(&self, way: &str, size: u64, piece: u64) -> Result<f64> {
        let once = |count: u64| -> Result<(f64, f64)> {
            let order = format!("{way} {size} {DEPTH} {count} {piece}");
            let text = run::write_and_read(self.lab, "/sys/kernel/debug/raw_dma/run", &order)?;
            Ok((run::number(&text, "bytes ")?, run::number(&text, "ns ")?))
        };
        let (bytes, ns) = once(u64::from(DEPTH) * 2)?;
        let each = ns / (bytes / size as f64);
        let count = (self.seconds * 1e9 / each).clamp(8.0, 1e6) as u64;
        let (bytes, ns) = once(count)?;
        Ok(bytes / ns * 1e9)
    }

    /// Measures the aperture, mapped by a program.
    pub fn aperture(&self, sizes: &[u64]) -> Result<Vec<Aperture>> {
        let file = format!(
            "/sys/bus/pci/devices/{}/resource4_wc",
            Bridge::Scif.device()
        );
        let offset = setup::RESERVED.to_string();
        let seconds = (self.seconds / 2.0).to_string();
        let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
        let mut arguments = vec!["aperture", &file, &offset, &seconds];
        arguments.extend(sizes.iter().map(String::as_str));
        let lines = run::reference(self.lab, &arguments)?;
        let found = lines.iter().map(|line| {
            Ok(Aperture {
                size: line["size"].as_u64().context("no size")?,
                write_ns: field(line, "write_ns"),
                read_ns: field(line, "read_ns"),
                write_p50_ns: field(line, "write_p50_ns"),
            })
        });
        found.collect()
    }

    /// Measures the aperture for one size.
    pub fn aperture_of(&self, size: u64) -> Result<Aperture> {
        self.aperture(&[size])?.pop().context("no size")
    }

    /// Measures an ioctl that does nothing, in microseconds.
    pub fn call(&self) -> Result<f64> {
        let lines = run::reference(self.lab, &["ioctl", "20000"])?;
        let line = lines.first().context("no call")?;
        Ok(field(line, "call_ns") / 1e3)
    }

    /// Measures a doorbell and its answer, which "interrupt" or "thread" gives. Returns the median
    /// in microseconds.
    pub fn doorbell(&self, answerer: &str, count: u32) -> Result<f64> {
        let file = format!(
            "/sys/kernel/debug/raw_doorbell/{}/run",
            Bridge::Doorbell.device()
        );
        let text = run::write_and_read(self.lab, &file, &format!("{answerer} {count}"))?;
        Ok(run::number(&text, "p50_ns ")? / 1e3)
    }

    /// Returns sizes, and the time to pin and unpin them in microseconds, with "small" or "huge"
    /// pages.
    pub fn pin_and_unpin(&self, pages: &str, sizes: &[u64]) -> Result<Vec<(u64, f64)>> {
        let sizes = Plan::list(sizes);
        let mut arguments = vec!["pin", pages, "200"];
        arguments.extend(sizes.split(','));
        let lines = run::reference(self.lab, &arguments)?;
        let found = lines.iter().map(|line| {
            let us = (field(line, "pin_p50_ns") + field(line, "unpin_p50_ns")) / 1e3;
            Ok((line["size"].as_u64().context("no size")?, us))
        });
        found.collect()
    }
}
