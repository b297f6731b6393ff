// SPDX-License-Identifier: GPL-2.0
//! The goals, line by line: a figure, the goal, the measured value.

use plots::results::NO_SIZE;
use plots::results::Results;
use serde::Serialize;

use crate::counts;
use crate::counts::Costs;
use crate::figures::*;
use crate::net;
use crate::plan::SIZE_LARGE;
use crate::plan::SIZE_MIDDLE;
use crate::plan::SIZE_PAGE;
use crate::plan::SIZE_SMALL;

/// Differences of counts may be off by this: other events happen now and then.
const NOISE: f64 = 0.02;

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    pub figure: &'static str,
    pub wanted: Limit,
    /// The measured value; none if there is none.
    pub reached: Option<f64>,
}

impl Goal {
    /// Returns whether the goal is reached, if that is known.
    pub fn is_met(&self) -> Option<bool> {
        let reached = self.reached.filter(|value| value.is_finite())?;
        Some(match self.wanted {
            Limit::AtLeast(limit) => reached >= limit,
            Limit::AtMost(limit) => reached <= limit,
        })
    }

    /// Returns the cells for people.
    pub fn cells(&self) -> [String; 4] {
        let wanted = match self.wanted {
            Limit::AtLeast(limit) => format!(">= {}", number(limit)),
            Limit::AtMost(limit) => format!("<= {}", number(limit)),
        };
        let (reached, verdict) = match (self.reached, self.is_met()) {
            (Some(value), Some(true)) => (number(value), "yes"),
            (Some(value), Some(false)) => (number(value), "no"),
            _ => ("-".to_owned(), "not measured"),
        };
        [self.figure.to_owned(), reached, wanted, verdict.to_owned()]
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        0.0..10.0 => format!("{value:.3}"),
        10.0..1000.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Returns the whole table.
pub fn goals(results: &Results, costs: &Costs, net_costs: &Costs) -> Vec<Goal> {
    let mut goals = copies(results);
    goals.extend(messages(results));
    goals.extend(counted(costs));
    goals.extend(windows(results));
    goals.extend(connections(results));
    goals.extend(modes(results));
    goals.extend(sisci(results));
    goals.extend(network(results, net_costs));
    goals
}

fn at_least(figure: &'static str, limit: f64, reached: Option<f64>) -> Goal {
    let wanted = Limit::AtLeast(limit);
    Goal {
        figure,
        wanted,
        reached,
    }
}

fn at_most(figure: &'static str, limit: f64, reached: Option<f64>) -> Goal {
    let wanted = Limit::AtMost(limit);
    Goal {
        figure,
        wanted,
        reached,
    }
}

/// Returns the smaller value; none if one is missing.
fn smaller(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a?.min(b?))
}

fn copies(results: &Results) -> Vec<Goal> {
    let pair = |name, size| results.median(PAIRS, name, size);
    let dma = |size| smaller(pair(PAIR_WRITE, size), pair(PAIR_READ, size));
    vec![
        at_least(
            "writeto and readfrom by DMA, 1 MiB in huge pages, depth 8 / raw DMA (the lower one)",
            0.95,
            dma(SIZE_LARGE),
        ),
        at_least("the same at 64 KiB", 0.85, dma(SIZE_MIDDLE)),
        at_least("the same at 4 KiB", 0.60, dma(SIZE_PAGE)),
        at_least(
            "the same at 64 KiB in small pages / raw DMA by pages",
            0.85,
            smaller(
                pair(PAIR_WRITE_PAGES, SIZE_MIDDLE),
                pair(PAIR_READ_PAGES, SIZE_MIDDLE),
            ),
        ),
        at_least(
            "mmap store bandwidth, 1 MiB / raw aperture",
            0.98,
            pair(PAIR_MMAP, SIZE_LARGE),
        ),
        at_least(
            "USECPU writeto 64 KiB / raw aperture",
            0.90,
            pair(PAIR_CPU, SIZE_MIDDLE),
        ),
        at_most(
            "writeto 64 B SYNC / (empty ioctl + raw 64 B copy)",
            2.0,
            pair(PAIR_SMALL, SIZE_SMALL),
        ),
        at_least(
            "readfrom / writeto by DMA, 1 MiB, with the link model",
            0.90,
            results.ratio(MODEL, MODEL_READ, MODEL_WRITE, SIZE_LARGE),
        ),
    ]
}

fn messages(results: &Results) -> Vec<Goal> {
    let pair = |name, size| results.median(PAIRS, name, size);
    vec![
        at_most(
            "send/recv 8 B round trip, both asleep / raw doorbell round trip",
            1.3,
            pair(PAIR_DOORBELL, 8),
        ),
        at_most(
            "the same / raw doorbell round trip that a thread answers",
            1.3,
            pair(PAIR_DOORBELL_THREAD, 8),
        ),
        at_most(
            "8 B round trip / TCP, blocking, both asleep",
            1.0 / 3.0,
            pair(PAIR_TCP, 8),
        ),
        at_most(
            "8 B round trip / TCP, both busy polling",
            1.0 / 15.0,
            pair(PAIR_TCP_POLLING, 8),
        ),
        // The emulated CPU executes the kernel's `rep movsq` from and to processes word by word.
        at_least(
            "stream of 64 KiB messages / raw aperture copy",
            0.40,
            pair(PAIR_STREAM, SIZE_MIDDLE),
        ),
        at_most(
            "stream of 64 B messages, time of each / TCP's",
            1.0 / 3.0,
            pair(PAIR_STREAM_TCP, SIZE_SMALL),
        ),
        at_least(
            "64 KiB messages over a mapped ring / raw aperture copy",
            0.60,
            pair(PAIR_RING, SIZE_MIDDLE),
        ),
        at_most(
            "64 B messages over a mapped ring, time of each / TCP's",
            1.0 / 3.0,
            pair(PAIR_RING_TCP, SIZE_SMALL),
        ),
        at_most(
            "8 B round trip over a mapped ring / TCP, both busy polling",
            1.0 / 15.0,
            pair(PAIR_RING_TRIP, 8),
        ),
        at_least(
            "throughput / TCP, 1 MiB messages",
            10.0,
            pair(PAIR_BULK_TCP, SIZE_LARGE),
        ),
    ]
}

fn counted(costs: &Costs) -> Vec<Goal> {
    let cost = |name: &str| costs.get(name);
    let polled = cost(counts::STREAM_POLLING).map(|cost| cost.trapped_reads + cost.trapped_writes);
    let trip = cost(counts::TRIP_POLLING).map(|cost| cost.trapped_reads + cost.trapped_writes);
    let reads = costs
        .iter()
        .filter(|(name, _)| **name != counts::CONNECTION)
        .map(|(_, cost)| cost.trapped_reads)
        .max_by(f64::total_cmp);
    vec![
        at_most(
            "trapped accesses per message of a stream, the receiver polls",
            NOISE,
            polled,
        ),
        at_most("trapped accesses per round trip, both poll", NOISE, trip),
        at_most(
            "doorbells per message to a sleeper (half of a round trip)",
            1.0 + NOISE,
            cost(counts::TRIP_ASLEEP).map(|cost| cost.doorbells / 2.0),
        ),
        at_most(
            "doorbells per message of a stream to one that is awake",
            NOISE,
            cost(counts::STREAM_POLLING).map(|cost| cost.doorbells),
        ),
        at_most(
            "trapped reads per message, per transfer, per window (the most)",
            NOISE,
            reads,
        ),
    ]
}

fn windows(results: &Results) -> Vec<Goal> {
    let worst = results
        .sizes(PAIRS, PAIR_WINDOW)
        .into_iter()
        .filter_map(|size| results.median(PAIRS, PAIR_WINDOW, size))
        .max_by(f64::total_cmp);
    let huge = || {
        let size = *results.sizes(PAIRS, PAIR_HUGE).last()?;
        results.median(PAIRS, PAIR_HUGE, size)
    };
    let many = |line| results.median(MANY, line, NO_SIZE);
    vec![
        at_most(
            "register+unregister / (raw pin + unpin + 2 doorbell round trips), the worst size",
            1.3,
            worst,
        ),
        at_least(
            "the same with 2 MiB pages, times cheaper per byte, the largest size",
            50.0,
            huge(),
        ),
        at_most(
            "unregister of 10,000 windows at once / that many single ones",
            1.0 / 20.0,
            many(UNREGISTER_ALL)
                .zip(many(UNREGISTER_ONE))
                .map(|(all, one)| all / (10_000.0 * one)),
        ),
        at_most(
            "look-up among 100,000 windows / among 10",
            2.0,
            many(LOOK_UP_MANY)
                .zip(many(LOOK_UP_FEW))
                .map(|(many, few)| many / few),
        ),
    ]
}

fn connections(results: &Results) -> Vec<Goal> {
    let doorbells = |name| results.median(PAIRS, name, NO_SIZE);
    let many = |line| results.median(MANY, line, NO_SIZE);
    vec![
        at_most(
            "connect+accept / doorbell round trip",
            6.0,
            doorbells(PAIR_CONNECT),
        ),
        at_most("close / doorbell round trip", 4.0, doorbells(PAIR_CLOSE)),
        at_most(
            "connect, the last hundred of 10,000 / the first",
            1.2,
            many(LAST_OF_FIRST),
        ),
        at_most(
            "memory of an idle connection beyond its ring, bytes",
            4096.0,
            many(IDLE_CONNECTION),
        ),
        at_least(
            "4 DMA channels / 1, where the engine is the limit",
            3.5,
            results
                .median(ENGINES, SCIF_DMA_HUGE, 4)
                .zip(results.median(ENGINES, SCIF_DMA_HUGE, 1))
                .map(|(four, one)| four / one),
        ),
    ]
}

fn modes(results: &Results) -> Vec<Goal> {
    let ratio = |figure, line, other| results.ratio(figure, line, other, SIZE_LARGE);
    let small = |figure| ratio(figure, BOUNCE_SMALLEST_MODE, BOUNCE_MEBIBYTE_MODE);
    vec![
        at_least(
            "arena: writeto by DMA, 1 MiB / flat, windows that trap in both",
            0.95,
            ratio(MODES_ARENA, ARENA_MODE, FLAT_MODE),
        ),
        at_most(
            "arena: register+unregister of a page / flat, though it flushes the IOTLB",
            1.5,
            results.ratio(MODES_WINDOW, ARENA_MODE, FLAT_MODE, SIZE_PAGE),
        ),
        at_least(
            "bounce over 1 MiB: writeto by DMA, 1 MiB / flat",
            0.45,
            ratio(MODES_DMA, BOUNCE_MEBIBYTE_MODE, FLAT_MODE),
        ),
        at_least(
            "bounce over 1 MiB: writeto by CPU, 1 MiB / memcpy in one node",
            0.40,
            ratio(MODES_CPU, BOUNCE_MEBIBYTE_MODE, LOCAL_COPY),
        ),
        at_least(
            "bounce over 64 KiB / over 1 MiB: writeto by CPU, 1 MiB",
            0.50,
            small(MODES_CPU),
        ),
        at_least("the same without a flag", 0.50, small(MODES_AUTO)),
        at_least("the same by DMA", 0.50, small(MODES_DMA)),
    ]
}

fn sisci(results: &Results) -> Vec<Goal> {
    let pair = |name, size| results.median(PAIRS, name, size);
    vec![
        at_least(
            "SISCI: stores, 1 MiB / stores to a mapping of SCIF",
            0.98,
            pair(PAIR_SISCI_STORES, SIZE_LARGE),
        ),
        at_least(
            "SISCI: DMA of 64 KiB / writeto, readfrom (the lower one)",
            0.97,
            smaller(
                pair(PAIR_SISCI_PUSH, SIZE_MIDDLE),
                pair(PAIR_SISCI_PULL, SIZE_MIDDLE),
            ),
        ),
        at_least(
            "the same of 1 MiB",
            0.97,
            smaller(
                pair(PAIR_SISCI_PUSH, SIZE_LARGE),
                pair(PAIR_SISCI_PULL, SIZE_LARGE),
            ),
        ),
        at_most(
            "SISCI: interrupt there and back / raw doorbell round trip",
            1.3,
            pair(PAIR_SISCI_INTERRUPT_USUAL, NO_SIZE),
        ),
        at_most(
            "the same, the waiter sleeps at once (busy_poll_us=0)",
            1.3,
            pair(PAIR_SISCI_INTERRUPT, NO_SIZE),
        ),
        at_most(
            "and that / raw doorbell round trip that a thread answers",
            1.3,
            pair(PAIR_SISCI_INTERRUPT_THREAD, NO_SIZE),
        ),
        at_most(
            "SISCI: SCICheckSequence, ns over an empty loop",
            50.0,
            pair(SISCI_SEQUENCE, NO_SIZE),
        ),
    ]
}

fn network(results: &Results, costs: &Costs) -> Vec<Goal> {
    let pair = |name, size| results.median(PAIRS, name, size);
    let packet = costs.get(net::COUNT_PACKET);
    vec![
        at_least(
            "IP: a TCP flow, MTU 1500 / ntb_netdev, the better of CPU and engine",
            10.0,
            pair(PAIR_NET_USUAL, net::MTU_USUAL),
        ),
        at_least(
            "the same, MTU 64000",
            5.0,
            pair(PAIR_NET_LARGE, net::MTU_LARGE),
        ),
        at_most(
            "IP: TCP round trip of 1 B, both asleep / ntb_netdev",
            0.5,
            pair(PAIR_NET_TRIP, 1),
        ),
        at_most(
            "the same, both with SO_BUSY_POLL",
            0.05,
            pair(PAIR_NET_TRIP_POLLING, 1),
        ),
        at_least(
            "IP: UDP packets of 64 B per second / ntb_netdev",
            5.0,
            pair(PAIR_NET_PACKETS, 64),
        ),
        at_least(
            "IP: 4 TCP flows with the link model / the link's limit",
            0.8,
            pair(PAIR_NET_MODEL, NO_SIZE),
        ),
        at_most(
            "IP: trapped reads per packet of a stream",
            0.001,
            packet.map(|cost| cost.trapped_reads),
        ),
        at_most(
            "IP: doorbells per packet of a stream, MTU 1500",
            0.02,
            packet.map(|cost| cost.doorbells),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_without_measurements_are_undecided() {
        let goals = goals(&Results::default(), &Costs::new(), &Costs::new());
        assert!(goals.len() > 20);
        assert!(goals.iter().all(|goal| goal.is_met().is_none()));
    }

    #[test]
    fn goal_is_met_within_its_limit() {
        assert_eq!(at_least("x", 0.9, Some(0.9)).is_met(), Some(true));
        assert_eq!(at_least("x", 0.9, Some(0.89)).is_met(), Some(false));
        assert_eq!(at_most("x", 2.0, Some(2.1)).is_met(), Some(false));
        assert_eq!(at_most("x", 2.0, Some(f64::NAN)).is_met(), None);
        let [_, reached, wanted, verdict] = at_most("x", 2.0, Some(12.34)).cells();
        assert_eq!((&*reached, &*wanted, &*verdict), ("12.3", "<= 2.000", "no"));
    }
}
