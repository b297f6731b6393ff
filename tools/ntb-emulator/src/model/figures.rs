// SPDX-License-Identifier: GPL-2.0
//! The figures of links and of DMA engines, and the sources of the defaults.
//!
//! Documentation/link-model.rst explains the same figures in more words. A figure that is called an
//! assumption there was chosen in proportion to known ones, and was not measured.

use anyhow::Result;
use anyhow::ensure;
use serde::Deserialize;
use serde::Serialize;

use super::picoseconds::Picoseconds;

/// Gen 3, 8 lanes, in bytes per second: of 62.96 Gb/s, flow control and acknowledgements
/// leave 57.88 Gb/s for transaction layer packets. R. Neugebauer et al., "Understanding PCIe
/// performance for end host networking", SIGCOMM 2018.
const GEN3_X8: u64 = 7_235_000_000;

/// Gen 4, 16 lanes: twice the rate and the same encoding, twice the lanes.
const GEN4_X16: u64 = 4 * GEN3_X8;

/// Bytes on the wire for a write beside its data: 2 of framing, 6 of the data link layer, 4 of the
/// common header, 12 of the header of a write to a 64-bit address. A read request is as long and
/// has no data. SIGCOMM 2018.
pub const REQUEST_HEADER: u64 = 24;

/// Bytes on the wire for a completion beside its data, with 8 bytes for its own header. SIGCOMM
/// 2018.
pub const COMPLETION_HEADER: u64 = 20;

/// The most data in a packet, and the most data in a request, as most machines have them. SIGCOMM
/// 2018.
const PAYLOAD: u64 = 256;
const REQUEST: u64 = 512;

/// A read of 64 bytes of warm memory by a directly attached device took 547 ns in the middle
/// (SIGCOMM 2018, a Xeon E5 v3 with a Netronome NFP-6000). A CPU's read of a register of such a
/// device goes the same way in the other direction. So it is assumed to take as long.
const REGISTER_READ: u64 = 550;

/// An assumption: the time of a register read, and two more bridges to pass, there and back. 8
/// bytes in this time are 9 MB/s, which is what Dolphin reports of a CPU that reads across a link.
const READ: u64 = 900;

/// An assumption: one way, below the 0.74 us from program to program that Dolphin gives for its IX
/// adapters. That time includes a store, and a poll that sees it.
const POSTED: u64 = 300;

/// An assumption: with these an engine reads across a link at half the rate at which it
/// writes, the proportion of Dolphin's DMA reads and writes (5.0 and 10.4 GB/s).
const OUTSTANDING: u64 = 4;

/// An assumption: a little less than the 4.67 GB/s reported for NTRDMA, in which an engine of the
/// CPU writes across an NTB.
const ENGINE: u64 = 4_500_000_000;

/// An assumption: half of a read of memory, as descriptors are fetched ahead.
const DESCRIPTOR: u64 = 250;

/// The least bandwidth: below that, a copy would keep a guest waiting for minutes.
const LEAST_BANDWIDTH: u64 = 1_000_000;

/// The longest time of a single operation.
const LONGEST: u64 = 1_000_000;

/// The largest factor by which the figures can be slowed down.
pub const MOST_SLOWDOWN: u64 = 1000;

/// The figures of a link. A figure that is not given is that of PCIe Gen 3 with 8 lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkFigures {
    /// Bytes per second in each direction, the headers of packets included.
    pub bandwidth: u64,
    /// Time of a posted write from one end to the other.
    pub posted_ns: u64,
    /// Time of a read that crosses the link, there and back.
    pub read_ns: u64,
    /// Time of a CPU's read of a register of its own end.
    pub register_read_ns: u64,
    /// The most data in a packet, in bytes.
    pub payload: u64,
    /// The most data that an engine asks for with a single request, in bytes.
    pub request: u64,
    /// Number of requests that an engine has in flight at once.
    pub outstanding: u64,
}

impl LinkFigures {
    /// PCIe Gen 3, 8 lanes.
    pub const GEN3_X8: Self = Self {
        bandwidth: GEN3_X8,
        posted_ns: POSTED,
        read_ns: READ,
        register_read_ns: REGISTER_READ,
        payload: PAYLOAD,
        request: REQUEST,
        outstanding: OUTSTANDING,
    };

    /// PCIe Gen 4, 8 lanes. It is an assumption that its times are those of Gen 3.
    pub const GEN4_X8: Self = Self {
        bandwidth: 2 * GEN3_X8,
        ..Self::GEN3_X8
    };

    /// PCIe Gen 4, 16 lanes. It is an assumption that its times are those of Gen 3.
    pub const GEN4_X16: Self = Self {
        bandwidth: GEN4_X16,
        ..Self::GEN3_X8
    };

    /// Checks the figures. The error says which one makes no sense.
    pub fn validate(&self) -> Result<()> {
        validate_bandwidth(self.bandwidth)?;
        for (name, value) in [
            ("posted_ns", self.posted_ns),
            ("read_ns", self.read_ns),
            ("register_read_ns", self.register_read_ns),
        ] {
            validate_time(name, value)?;
        }
        for (name, value) in [("payload", self.payload), ("request", self.request)] {
            ensure!(
                value.is_power_of_two() && (64..=4096).contains(&value),
                "{name} {value} is not a power of two between 64 and 4096"
            );
        }
        ensure!(
            (1..=1024).contains(&self.outstanding),
            "outstanding {} is not between 1 and 1024",
            self.outstanding
        );
        Ok(())
    }

    /// Returns the figures of a link that is slower by this factor.
    pub fn slowed(self, slowdown: u64) -> Self {
        Self {
            bandwidth: slower(self.bandwidth, slowdown),
            posted_ns: self.posted_ns.saturating_mul(slowdown),
            read_ns: self.read_ns.saturating_mul(slowdown),
            register_read_ns: self.register_read_ns.saturating_mul(slowdown),
            ..self
        }
    }

    /// Returns the time of a write of `bytes` on the wire.
    pub fn write(&self, bytes: u64) -> Picoseconds {
        let packets = bytes.div_ceil(self.payload);
        Picoseconds::of_bytes(bytes + packets * REQUEST_HEADER, self.bandwidth)
    }

    /// Returns the time on the wire of the requests for `bytes`.
    pub fn requests(&self, bytes: u64) -> Picoseconds {
        let requests = bytes.div_ceil(self.request);
        Picoseconds::of_bytes(requests * REQUEST_HEADER, self.bandwidth)
    }

    /// Returns the time on the wire of the completions with `bytes`.
    pub fn completions(&self, bytes: u64) -> Picoseconds {
        let packets = bytes.div_ceil(self.payload);
        Picoseconds::of_bytes(bytes + packets * COMPLETION_HEADER, self.bandwidth)
    }

    /// Returns how long an engine waits for `bytes` from the other side, if the wire is infinitely
    /// fast: one round trip for the first batch of requests in flight, and from then on one for
    /// each further batch.
    pub fn round_trips(&self, bytes: u64) -> Picoseconds {
        let at_once = self.request * self.outstanding;
        Picoseconds::nanoseconds(self.read_ns).per(bytes.max(at_once), at_once)
    }
}

impl Default for LinkFigures {
    fn default() -> Self {
        Self::GEN3_X8
    }
}

/// A DMA engine of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineFigures {
    /// The largest rate of its copies, in bytes per second.
    pub bandwidth: u64,
    /// Additional time of each descriptor.
    pub descriptor_ns: u64,
}

impl EngineFigures {
    /// Checks the figures. The error says which one makes no sense.
    pub fn validate(&self) -> Result<()> {
        validate_bandwidth(self.bandwidth)?;
        validate_time("descriptor_ns", self.descriptor_ns)
    }

    /// Returns the figures of an engine that is slower by this factor.
    pub fn slowed(self, slowdown: u64) -> Self {
        Self {
            bandwidth: slower(self.bandwidth, slowdown),
            descriptor_ns: self.descriptor_ns.saturating_mul(slowdown),
        }
    }

    /// Returns how long the engine is busy with `bytes`.
    pub fn copy(&self, bytes: u64) -> Picoseconds {
        Picoseconds::of_bytes(bytes, self.bandwidth)
    }
}

impl Default for EngineFigures {
    fn default() -> Self {
        Self {
            bandwidth: ENGINE,
            descriptor_ns: DESCRIPTOR,
        }
    }
}

/// Checks the factor of slowdown.
pub fn validate_slowdown(slowdown: u64) -> Result<()> {
    ensure!(
        (1..=MOST_SLOWDOWN).contains(&slowdown),
        "slowdown {slowdown} is not between 1 and {MOST_SLOWDOWN}"
    );
    Ok(())
}

fn validate_bandwidth(bandwidth: u64) -> Result<()> {
    ensure!(
        bandwidth >= LEAST_BANDWIDTH,
        "bandwidth {bandwidth} is less than {LEAST_BANDWIDTH} bytes per second"
    );
    Ok(())
}

fn validate_time(name: &str, nanoseconds: u64) -> Result<()> {
    ensure!(
        nanoseconds <= LONGEST,
        "{name} {nanoseconds} is more than {LONGEST}"
    );
    Ok(())
}

fn slower(bandwidth: u64, slowdown: u64) -> u64 {
    (bandwidth / slowdown.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GEN3: LinkFigures = LinkFigures::GEN3_X8;

    /// Returns the rate in bytes per second.
    fn rate(bytes: u64, time: Picoseconds) -> f64 {
        bytes as f64 / time.as_duration().as_secs_f64()
    }

    #[test]
    fn write_rates_match_the_paper() {
        // 256 of 280 bytes on the wire are data.
        let large = rate(1 << 20, GEN3.write(1 << 20));
        assert!((large / 6.615e9 - 1.0).abs() < 0.001, "{large}");
        // 8 of 32 bytes on the wire are data.
        let small = rate(8_000_000, Picoseconds::of_bytes(32_000_000, GEN3.bandwidth));
        assert!((small / 1.809e9 - 1.0).abs() < 0.001, "{small}");
        assert_eq!(GEN3.write(8), Picoseconds::of_bytes(32, GEN3.bandwidth));
        assert_eq!(
            GEN3.requests(513),
            Picoseconds::of_bytes(48, GEN3.bandwidth)
        );
        assert_eq!(
            GEN3.completions(257),
            Picoseconds::of_bytes(297, GEN3.bandwidth)
        );
    }

    #[test]
    fn engine_reads_at_half_its_write_rate() {
        let read = rate(1 << 20, GEN3.round_trips(1 << 20));
        let engine = EngineFigures::default().bandwidth as f64;
        assert!((0.45..0.55).contains(&(read / engine)), "{read}");
        // A small read takes a round trip.
        let trip = Picoseconds::nanoseconds(GEN3.read_ns);
        assert_eq!(GEN3.round_trips(1), trip);
        assert_eq!(GEN3.round_trips(2048), trip);
        assert!(GEN3.round_trips(2049) > trip);
    }

    #[test]
    fn default_figures_are_valid() {
        for figures in [GEN3, LinkFigures::GEN4_X8, LinkFigures::GEN4_X16] {
            figures.validate().unwrap();
        }
        EngineFigures::default().validate().unwrap();
        let one: LinkFigures = serde_json::from_str(r#"{"read_ns":2000}"#).unwrap();
        assert_eq!(one.read_ns, 2000);
        assert_eq!(one.bandwidth, GEN3.bandwidth);
    }

    #[test]
    fn invalid_figures_are_refused() {
        let refused = |text: &str, why: &str| {
            let figures: LinkFigures = serde_json::from_str(text).unwrap();
            let error = figures.validate().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(r#"{"bandwidth":0}"#, "bandwidth 0");
        refused(r#"{"payload":100}"#, "power of two");
        refused(r#"{"request":8192}"#, "power of two");
        refused(r#"{"outstanding":0}"#, "outstanding 0");
        refused(r#"{"read_ns":1000001}"#, "read_ns");
        assert!(validate_slowdown(0).is_err());
        assert!(validate_slowdown(1001).is_err());
    }

    proptest! {
        /// More bytes never take less time, nor less than the bytes by themselves.
        #[test]
        fn more_bytes_never_take_less_time(bytes in 0u64..1 << 27, more in 0u64..1 << 27) {
            for cost in [LinkFigures::write, LinkFigures::requests, LinkFigures::completions, LinkFigures::round_trips] {
                prop_assert!(cost(&GEN3, bytes) <= cost(&GEN3, bytes + more));
            }
            let bare = Picoseconds::of_bytes(bytes, GEN3.bandwidth);
            prop_assert!(GEN3.write(bytes) >= bare);
            prop_assert!(GEN3.completions(bytes) >= bare);
        }

        /// All proportions stay the same when the link is slowed down.
        #[test]
        fn slowdown_scales_all_costs(bytes in 1u64..1 << 27, slowdown in 1u64..=MOST_SLOWDOWN) {
            let slow = GEN3.slowed(slowdown);
            for cost in [LinkFigures::write, LinkFigures::completions, LinkFigures::round_trips] {
                let expected = cost(&GEN3, bytes).as_duration().as_secs_f64() * slowdown as f64;
                let found = cost(&slow, bytes).as_duration().as_secs_f64();
                // The tolerance includes the rounding to nanoseconds.
                prop_assert!((found - expected).abs() <= expected * 0.001 + slowdown as f64 * 1e-9);
            }
        }
    }
}
