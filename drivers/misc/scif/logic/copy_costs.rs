// SPDX-License-Identifier: GPL-2.0

//! The choice between CPU and engine for the copy of a frame, by what both have cost the CPU.
//!
//! A CPU copies a small frame sooner than it can ask an engine for that. The size from which on an
//! engine is worth it differs between machines by an order of magnitude: it depends on the engine's
//! registers and descriptors, on the IOMMU, and on how the CPU's stores cross the bus. So the caller
//! measures how long the CPU is busy with each frame, and the cheaper way is taken for later frames of
//! about that size. Each [`EVERY`]th frame goes the other way, which replaces old measurements.
//!
//! This file reads no clock and makes no copy; the caller does.

/// Number of classes of sizes: each has frames of up to twice the size of the one before.
const CLASSES: u32 = 4;

/// Largest size of the first class in bytes.
const FIRST: u32 = 8 << 10;

/// Number of frames of a class of which one goes the way that costs more.
const EVERY: u32 = 128;

/// A new measurement counts one part in so many of the average.
const PARTS: u64 = 8;

/// A measurement counts at most as so many times the average, as an interrupt may have been handled
/// in the middle.
const OUTLIER: u64 = 4;

/// The maker of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copier {
    Cpu,
    Engine,
}

/// The measured costs of frames of about the same size.
#[derive(Clone, Copy)]
struct Class {
    /// Picoseconds of the CPU for each byte, if the CPU copies. `None` before the first measurement.
    by_cpu: Option<u64>,
    /// The same, if an engine copies.
    by_engine: Option<u64>,
    /// Number of choices, which wraps.
    choices: u32,
}

/// The measured costs of frames of all sizes.
pub(crate) struct CopyCosts([Class; CLASSES as usize]);

impl CopyCosts {
    /// Creates the costs before the first measurement.
    pub(crate) const fn new() -> Self {
        let class = Class {
            by_cpu: None,
            by_engine: None,
            choices: 0,
        };
        Self([class; CLASSES as usize])
    }

    fn class(&mut self, len: u32) -> Option<&mut Class> {
        let doubled = len.div_ceil(FIRST).max(1).next_power_of_two();
        let place = doubled.trailing_zeros().min(CLASSES.saturating_sub(1));
        self.0.get_mut(place as usize)
    }

    /// Returns the copier of the next frame, of `len` bytes.
    pub(crate) fn choose(&mut self, len: u32) -> Copier {
        let Some(class) = self.class(len) else {
            return Copier::Cpu;
        };
        let (Some(by_cpu), Some(by_engine)) = (class.by_cpu, class.by_engine) else {
            return match class.by_cpu {
                None => Copier::Cpu,
                Some(_) => Copier::Engine,
            };
        };
        class.choices = class.choices.wrapping_add(1);
        match (by_engine < by_cpu) != (class.choices % EVERY == 0) {
            true => Copier::Engine,
            false => Copier::Cpu,
        }
    }

    /// Notes that a frame of `len` bytes has kept the CPU busy for so long.
    pub(crate) fn measured(&mut self, copier: Copier, len: u32, nanoseconds: u64) {
        let Some(class) = self.class(len) else {
            return;
        };
        let cost = match copier {
            Copier::Cpu => &mut class.by_cpu,
            Copier::Engine => &mut class.by_engine,
        };
        let new = nanoseconds
            .saturating_mul(1000)
            .checked_div(len.into())
            .unwrap_or(0);
        *cost = Some(match *cost {
            None => new,
            Some(old) => {
                // At least 1, so that an average of 0 can grow.
                let new = new.min(old.max(1).saturating_mul(OUTLIER));
                let others = old.saturating_mul(PARTS.saturating_sub(1));
                others.saturating_add(new).div_ceil(PARTS)
            }
        });
    }
}
