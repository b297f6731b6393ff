// SPDX-License-Identifier: GPL-2.0
//! A memory window of an NTB function: its BAR, and the memory behind it.
//!
//! Whether a window traps or is mapped is settled before QEMU connects, and can't change while a
//! guest runs. A mapped window leads to one place of the peer's RAM. So it takes the translation to
//! that place and no other, and can't enforce a limit.

use std::sync::Arc;

use crate::config::Link;
use crate::config::MAX_IDT_WINDOW_SIZE;
use crate::config::Personality;
use crate::config::TRAPPED_WINDOW_SIZE;
use crate::config::Windows;
use crate::guest_memory::Pin;
use crate::pci::Bar;
use crate::ram::Ram;

/// The number of memory windows.
pub const WINDOWS: usize = 2;

/// The BAR of each window.
pub const BARS: [usize; WINDOWS] = [2, 4];

/// Returns the BARs of a function: the registers, of `registers` bytes, and the windows.
pub fn bars(registers: u64, windows: &[Window; WINDOWS]) -> Vec<Bar> {
    let registers = Bar {
        index: 0,
        size: registers,
        prefetchable: false,
    };
    let windows = windows.iter().zip(BARS).map(|(window, index)| Bar {
        index,
        size: window.size,
        prefetchable: true,
    });
    std::iter::once(registers).chain(windows).collect()
}

/// A memory window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The size, a power of two.
    pub size: u64,
    /// The memory behind the window.
    pub backing: Backing,
}

/// The memory behind a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Every access traps and goes to the peer's translation.
    Trapped {
        /// A translation must be a multiple of this.
        alignment: u64,
    },
    /// Accesses go to the peer's RAM from `base` on, without trapping.
    Mapped {
        /// The offset into the peer's RAM.
        base: u64,
    },
}

/// The target of an access through a window.
pub enum Reach {
    /// The peer's memory.
    Memory {
        /// The RAM.
        ram: Arc<Ram>,
        /// The offset into the RAM.
        offset: u64,
        /// Number of bytes that are in one piece, at least 1 and at most the number asked for.
        length: u64,
        /// The pin, which the caller must hold during the access.
        pin: Option<Pin>,
    },
    /// The link is down.
    LinkDown {
        /// Number of bytes that this answer is for.
        length: u64,
    },
    /// An address beyond the limit, or without memory of the peer.
    Nothing,
}

impl Window {
    /// Returns the windows of both ends of a link between guests with this much RAM; 0 is upstream.
    /// Both ends have windows of the same sizes, as drivers take for granted.
    pub fn of(link: &Link, ram_sizes: [u64; 2]) -> [[Self; WINDOWS]; 2] {
        let trapped = |size| Self {
            size,
            backing: Backing::Trapped {
                alignment: match link.personality {
                    Personality::Gen3 => size,
                    Personality::Gen5 | Personality::Amd => crate::config::PAGE_SIZE,
                    Personality::Idt => 4,
                },
            },
        };
        let mapped = |size, base| Self {
            size,
            backing: Backing::Mapped { base },
        };
        let largest = ram_sizes[0].max(ram_sizes[1]).next_power_of_two();
        let aperture = match link.personality {
            Personality::Gen3 | Personality::Gen5 | Personality::Amd => mapped(largest, 0),
            // The driver of IDT does not check whether a translation was taken.
            Personality::Idt => trapped(largest.min(MAX_IDT_WINDOW_SIZE)),
        };
        let aperture = [trapped(TRAPPED_WINDOW_SIZE), aperture];
        match link.windows {
            Windows::Aperture => [aperture; 2],
            Windows::Mixed => [aperture, [trapped(TRAPPED_WINDOW_SIZE), trapped(largest)]],
            Windows::Fixed { base, size } => [[mapped(size, base), mapped(size, base + size)]; 2],
            Windows::Trapped { size } => [[trapped(size), trapped(size)]; 2],
        }
    }

    /// Returns whether every access traps.
    pub fn traps(&self) -> bool {
        matches!(self.backing, Backing::Trapped { .. })
    }

    /// Returns whether the window can lead to that address. Zero always passes: it stands for
    /// "nowhere".
    pub fn accepts(&self, translation: u64) -> bool {
        match self.backing {
            Backing::Trapped { alignment } => translation % alignment == 0,
            Backing::Mapped { base } => translation == base || translation == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(personality: Personality, windows: Windows, ram: [u64; 2]) -> [Window; WINDOWS] {
        let link = Link {
            upstream: 0,
            downstream: 1,
            personality,
            windows,
            model: None,
        };
        let [upstream, downstream] = Window::of(&link, ram);
        assert_eq!(upstream, downstream);
        upstream
    }

    #[test]
    fn only_one_side_of_a_mixed_link_traps() {
        let link = Link {
            upstream: 0,
            downstream: 1,
            personality: Personality::Gen5,
            windows: Windows::Mixed,
            model: None,
        };
        let [upstream, downstream] = Window::of(&link, [512 << 20, 512 << 20]);
        assert_eq!(
            upstream.map(|window| window.size),
            downstream.map(|window| window.size)
        );
        assert!(!upstream[1].accepts(0x1000) && downstream[1].accepts(0x1000));
    }

    #[test]
    fn aperture_covers_the_larger_ram() {
        let [trapped, aperture] =
            windows(Personality::Gen5, Windows::Aperture, [512 << 20, 768 << 20]);
        assert_eq!(trapped.size, 1 << 20);
        assert!(trapped.accepts(0x1234_5000));
        assert!(!trapped.accepts(0x1234_5800));
        assert_eq!(aperture.size, 1 << 30);
        assert!(aperture.accepts(0));
        assert!(!aperture.accepts(0x1000));
    }

    #[test]
    fn gen3_translation_must_be_aligned_to_the_window_size() {
        let [trapped, _] = windows(Personality::Gen3, Windows::Aperture, [1 << 20; 2]);
        assert!(trapped.accepts(0x30_0000));
        assert!(!trapped.accepts(0x1000));
    }

    #[test]
    fn fixed_windows_are_adjacent() {
        let fixed = Windows::Fixed {
            base: 0x1000_0000,
            size: 0x20_0000,
        };
        let [one, two] = windows(Personality::Gen5, fixed, [512 << 20; 2]);
        assert!(one.accepts(0x1000_0000) && !one.accepts(0x1020_0000));
        assert!(two.accepts(0x1020_0000) && !two.accepts(0x1000_0000));
    }
}
