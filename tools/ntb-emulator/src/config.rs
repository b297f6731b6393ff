// SPDX-License-Identifier: GPL-2.0
//! The configuration of the emulator: guests, and the NTB pairs between them.
//!
//! The program reads a [`Topology`] from a JSON file, which the program's starter (the lab) has
//! written. Guests are numbered by their place in the list. The names of all sockets follow from
//! the topology, so both sides compute them from here.
//!
//! Nothing in this file touches the file system except [`Topology::load`].

use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use serde::Deserialize;
use serde::Serialize;

use crate::model::figures::EngineFigures;
use crate::model::figures::LinkFigures;
use crate::model::figures::validate_slowdown;
use crate::order::Engines;
use crate::order::WeakOrder;

#[cfg(test)]
mod tests;

/// The page size of the guests.
pub const PAGE_SIZE: u64 = 4096;

/// Up to this size a q35 guest's physical addresses equal offsets into its RAM file.
pub const MAX_RAM_SIZE: u64 = 2 << 30;

/// The size of a trapped window of an aperture pair.
pub const TRAPPED_WINDOW_SIZE: u64 = 1 << 20;

/// The largest window that ntb_hw_idt takes: it keeps the size in an `int`.
pub const MAX_IDT_WINDOW_SIZE: u64 = 1 << 30;

/// Largest number of DMA functions of a guest.
pub const MAX_DMA_CHANNELS: usize = 4;

/// Longest path that a Unix socket can be bound to.
const MAX_SOCKET_PATH: usize = 107;

/// The whole configuration of one emulator process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// The directory of the sockets. It must exist.
    pub directory: PathBuf,
    /// The guests; a guest's number is its index.
    pub guests: Vec<Guest>,
    /// The NTB pairs, each between two different guests.
    #[serde(default)]
    pub links: Vec<Link>,
    /// The factor by which everything that has a model is slowed down.
    #[serde(default = "as_it_is", skip_serializing_if = "is_as_it_is")]
    pub slowdown: u64,
    /// The way in which writes are reordered. If it is `None`, all writes keep their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weak_order: Option<WeakOrder>,
}

fn as_it_is() -> u64 {
    1
}

fn is_as_it_is(slowdown: &u64) -> bool {
    *slowdown == 1
}

/// One guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// The file that is the guest's RAM (`memory-backend-file,share=on`). Created if
    /// it does not exist, reused with its contents if it does.
    pub ram_file: PathBuf,
    /// The size of the guest's RAM in bytes.
    pub ram_size: u64,
    /// Number of DMA functions (of one channel each) of the guest.
    #[serde(default = "one_channel")]
    pub dma_channels: usize,
    /// The figures of each engine; without them, an engine is as fast as this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineFigures>,
}

fn one_channel() -> usize {
    1
}

/// A pair of NTB functions back to back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The guest that holds the upstream end.
    pub upstream: usize,
    /// The guest that holds the downstream end.
    pub downstream: usize,
    /// The hardware that both ends look like.
    #[serde(default)]
    pub personality: Personality,
    /// The kind of the two memory windows of each end.
    #[serde(default)]
    pub windows: Windows,
    /// The figures of the link; without them, the link is as fast as this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<LinkFigures>,
}

/// The hardware an NTB function looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Personality {
    /// Intel Skylake (8086:201c): a translation is aligned to the size of the window.
    Gen3,
    /// Intel Granite Rapids (8086:0db4): a translation is aligned to a page.
    #[default]
    Gen5,
    /// IDT 89HPES32NT8AG2 (111d:808f): the end that uses a window sets its translation.
    Idt,
    /// AMD (1022:17d7): eight scratchpads; a translation is aligned to a page.
    Amd,
}

/// The memory that the two windows (BAR 2 and BAR 4) of an NTB function lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Windows {
    /// Window 0 traps and takes any translation. Window 1 is mapped over all of the peer's RAM and
    /// takes translation 0 only. With IDT both windows trap, and the second is as large as that
    /// RAM.
    #[default]
    Aperture,
    /// Both windows are mapped at fixed places of the peer's RAM, window 0 at `base`
    /// and window 1 right behind it, and take only that translation.
    Fixed {
        /// The place in the peer's RAM that window 0 leads to.
        base: u64,
        /// The size of each window, a power of two.
        size: u64,
    },
    /// Like `Aperture`, but window 1 of the downstream guest traps and takes any translation: the
    /// upstream guest, whose memory is behind it, may have an IOMMU.
    Mixed,
    /// Both windows trap and take any translation.
    Trapped {
        /// The size of each window, a power of two.
        size: u64,
    },
}

/// One end of a link, as its guest sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NtbFunction {
    /// The index of the link in [`Topology::links`].
    pub link: usize,
    /// 0 for the upstream, 1 for the downstream end.
    pub end: usize,
    /// The guest at the other end.
    pub peer: usize,
}

impl Topology {
    /// Reads and validates a topology.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        let topology: Self = serde_json::from_str(&text).with_context(|| {
            format!(
                "{} is no valid configuration; --help shows an example",
                path.display()
            )
        })?;
        topology
            .validate()
            .with_context(|| format!("in the configuration {}", path.display()))?;
        Ok(topology)
    }

    /// Checks the topology. The error says what is wrong.
    pub fn validate(&self) -> Result<()> {
        for (number, guest) in self.guests.iter().enumerate() {
            ensure!(
                guest.ram_size > 0 && guest.ram_size % PAGE_SIZE == 0,
                "guest {number}: ram_size {} is not a positive multiple of {PAGE_SIZE}",
                guest.ram_size
            );
            ensure!(
                guest.ram_size <= MAX_RAM_SIZE,
                "guest {number}: ram_size {} is more than {MAX_RAM_SIZE}, above which guest addresses no longer equal file offsets",
                guest.ram_size
            );
            ensure!(
                guest.dma_channels <= MAX_DMA_CHANNELS,
                "guest {number}: {} DMA channels, at most {MAX_DMA_CHANNELS} are possible",
                guest.dma_channels
            );
            if let Some(engine) = &guest.engine {
                engine
                    .validate()
                    .with_context(|| format!("guest {number}: engine"))?;
            }
            for other in &self.guests[..number] {
                ensure!(
                    other.ram_file != guest.ram_file,
                    "guest {number}: another guest uses {} as well; every guest needs its own RAM file",
                    guest.ram_file.display()
                );
            }
        }
        validate_slowdown(self.slowdown)?;
        for (number, link) in self.links.iter().enumerate() {
            self.validate_link(link)
                .with_context(|| format!("link {number}"))?;
        }
        self.validate_order()?;
        for path in self.sockets() {
            let length = path.as_os_str().len();
            ensure!(
                length <= MAX_SOCKET_PATH,
                "the socket path {} has {length} bytes and {MAX_SOCKET_PATH} are possible; use a shorter directory",
                path.display()
            );
        }
        Ok(())
    }

    fn validate_order(&self) -> Result<()> {
        let Some(order) = self.weak_order else {
            return Ok(());
        };
        ensure!(
            !self.has_model(),
            "reordered writes do not take the time of a model: use a weak order or a model, not both"
        );
        let traps = |link: &Link| {
            link.personality == Personality::Idt || matches!(link.windows, Windows::Trapped { .. })
        };
        ensure!(
            order.engines == Engines::Switch || self.links.iter().all(traps),
            "with the engines at the root, reads by CPUs push writes of engines, and the emulator does not see reads through mapped windows: all windows must trap"
        );
        Ok(())
    }

    fn validate_link(&self, link: &Link) -> Result<()> {
        for guest in [link.upstream, link.downstream] {
            if guest >= self.guests.len() {
                bail!("guest {guest} does not exist");
            }
        }
        ensure!(
            link.upstream != link.downstream,
            "guest {} is at both ends",
            link.upstream
        );
        if let Some(model) = &link.model {
            model.validate().context("model")?;
        }
        let largest = match link.personality {
            Personality::Gen3 | Personality::Gen5 | Personality::Amd => MAX_RAM_SIZE,
            Personality::Idt => MAX_IDT_WINDOW_SIZE,
        };
        match link.windows {
            Windows::Mixed | Windows::Fixed { .. } if link.personality == Personality::Idt => {
                bail!(
                    "no windows of idt are mapped: its driver would not see which translation they take"
                )
            }
            Windows::Aperture | Windows::Mixed => {}
            Windows::Trapped { size } => ensure!(
                size.is_power_of_two() && (PAGE_SIZE..=largest).contains(&size),
                "window size {size} is not a power of two between {PAGE_SIZE} and {largest}"
            ),
            Windows::Fixed { base, size } => {
                ensure!(
                    size.is_power_of_two() && (PAGE_SIZE..=MAX_RAM_SIZE).contains(&size),
                    "window size {size} is not a power of two between {PAGE_SIZE} and {MAX_RAM_SIZE}"
                );
                ensure!(
                    base > 0 && base % PAGE_SIZE == 0,
                    "base {base} of the windows is not a positive multiple of {PAGE_SIZE}"
                );
                if link.personality == Personality::Gen3 {
                    ensure!(
                        base % size == 0,
                        "base {base} is not aligned to the window size {size}, as gen3 needs"
                    );
                }
                for guest in [link.upstream, link.downstream] {
                    let ram = self.guests[guest].ram_size;
                    ensure!(
                        base.checked_add(2 * size).is_some_and(|end| end <= ram),
                        "two windows of {size} bytes at {base} do not fit into the {ram} bytes of guest {guest}"
                    );
                }
            }
        }
        Ok(())
    }

    /// Returns whether a link or an engine has a model of its time.
    pub fn has_model(&self) -> bool {
        self.links.iter().any(|link| link.model.is_some())
            || self.guests.iter().any(|guest| guest.engine.is_some())
    }

    /// Returns the NTB functions of a guest, in the order of their numbers.
    pub fn ntb_functions(&self, guest: usize) -> impl Iterator<Item = NtbFunction> + '_ {
        self.links
            .iter()
            .enumerate()
            .filter_map(move |(link, entry)| {
                if entry.upstream == guest {
                    let peer = entry.downstream;
                    Some(NtbFunction { link, end: 0, peer })
                } else if entry.downstream == guest {
                    let peer = entry.upstream;
                    Some(NtbFunction { link, end: 1, peer })
                } else {
                    None
                }
            })
    }

    /// Returns the vfio-user sockets of a guest's NTB functions.
    pub fn ntb_sockets(&self, guest: usize) -> Vec<PathBuf> {
        (0..self.ntb_functions(guest).count())
            .map(|index| ntb_socket(&self.directory, guest, index))
            .collect()
    }

    /// Returns the vfio-user sockets of a guest's DMA functions.
    pub fn dma_sockets(&self, guest: usize) -> Vec<PathBuf> {
        let channels = self.guests.get(guest).map_or(0, |entry| entry.dma_channels);
        (0..channels)
            .map(|index| dma_socket(&self.directory, guest, index))
            .collect()
    }

    /// Returns all sockets that the emulator creates.
    pub fn sockets(&self) -> Vec<PathBuf> {
        let mut all = vec![control_socket(&self.directory)];
        for guest in 0..self.guests.len() {
            all.extend(self.ntb_sockets(guest));
            all.extend(self.dma_sockets(guest));
        }
        all
    }
}

/// Returns the vfio-user socket of the `index`-th NTB function of a guest.
pub fn ntb_socket(directory: &Path, guest: usize, index: usize) -> PathBuf {
    directory.join(format!("guest-{guest}-ntb-{index}.sock"))
}

/// Returns the vfio-user socket of the `index`-th DMA function of a guest.
pub fn dma_socket(directory: &Path, guest: usize, index: usize) -> PathBuf {
    directory.join(format!("guest-{guest}-dma-{index}.sock"))
}

/// Returns the socket of [`crate::control`].
pub fn control_socket(directory: &Path) -> PathBuf {
    directory.join("emulator.sock")
}
