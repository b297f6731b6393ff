// SPDX-License-Identifier: GPL-2.0
//! The whole emulator, with its sockets and RAM files in a folder of their own.

use std::sync::mpsc::Receiver;
use std::sync::mpsc::channel;
use std::time::Duration;
use std::time::Instant;

use ntb_emulator::config::Guest;
use ntb_emulator::config::Link;
use ntb_emulator::config::Personality;
use ntb_emulator::config::Topology;
use ntb_emulator::config::Windows;
use ntb_emulator::control::Client as Control;
use ntb_emulator::emulator::Emulator;
use ntb_emulator::emulator::Event;
use tempfile::TempDir;

use crate::guest::DmaClient;
use crate::guest::NtbClient;

/// The RAM of each guest.
pub const RAM: u64 = 8 << 20;
/// The vector of the link.
pub const LINK: usize = 32;

/// A running emulator, whose guests a test plays.
pub struct Lab {
    /// The configuration.
    pub topology: Topology,
    /// The emulator, until a test ends it.
    pub emulator: Option<Emulator>,
    /// The events of the emulator.
    pub events: Receiver<Event>,
    folder: TempDir,
}

impl Lab {
    /// Starts an emulator with those links.
    pub fn new(
        guests: usize,
        links: &[(usize, usize)],
        personality: Personality,
        windows: Windows,
    ) -> Self {
        Self::with(guests, links, |topology| {
            for link in &mut topology.links {
                link.personality = personality;
                link.windows = windows;
            }
        })
    }

    /// Starts an emulator with those links, after `change` has changed the configuration.
    pub fn with(
        guests: usize,
        links: &[(usize, usize)],
        change: impl FnOnce(&mut Topology),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut topology = Topology {
            directory: folder.path().to_owned(),
            guests: (0..guests)
                .map(|guest| Guest {
                    ram_file: folder.path().join(format!("ram-{guest}")),
                    ram_size: RAM,
                    dma_channels: 1,
                    engine: None,
                })
                .collect(),
            links: links
                .iter()
                .map(|(upstream, downstream)| Link {
                    upstream: *upstream,
                    downstream: *downstream,
                    personality: Personality::Gen5,
                    windows: Windows::Aperture,
                    model: None,
                })
                .collect(),
            slowdown: 1,
            weak_order: None,
        };
        change(&mut topology);
        let (sender, events) = channel();
        let emulator = Emulator::start(topology.clone(), sender).unwrap();
        Self {
            topology,
            emulator: Some(emulator),
            events,
            folder,
        }
    }

    /// Starts an emulator with two guests and a link.
    pub fn pair() -> Self {
        Self::new(2, &[(0, 1)], Personality::Gen5, Windows::Aperture)
    }

    /// Returns a client of an NTB function.
    pub fn ntb(&self, guest: usize, index: usize) -> NtbClient {
        NtbClient::connect(&self.topology, guest, index)
    }

    /// Returns a client of a guest's first DMA function.
    pub fn dma(&self, guest: usize) -> DmaClient {
        self.channel(guest, 0)
    }

    /// Returns a client of a DMA function.
    pub fn channel(&self, guest: usize, index: usize) -> DmaClient {
        DmaClient::connect(&self.topology, guest, index)
    }

    /// Returns a client of the control socket.
    pub fn control(&self) -> Control {
        Control::connect(self.folder.path()).unwrap()
    }

    /// Returns both ends of the first link, which is up.
    pub fn up(&self) -> (NtbClient, NtbClient) {
        let mut a = self.ntb(0, 0);
        let mut b = self.ntb(1, 0);
        a.enable_link();
        b.enable_link();
        a.expect(LINK);
        b.expect(LINK);
        assert!(a.link_is_up() && b.link_is_up());
        (a, b)
    }

    /// Checks that nothing has failed so far.
    pub fn healthy(&self) {
        if let Ok(event) = self.events.try_recv() {
            panic!("{event:?}");
        }
    }
}

/// Returns bytes that differ by seed and place.
pub fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed)
        .collect()
}

/// Waits until a condition holds, with a limit for hangs.
pub fn wait(goal: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(200),
            "waiting until {goal}"
        );
        std::thread::yield_now();
    }
}
