// SPDX-License-Identifier: GPL-2.0
//! An attack on the other guest's memory through one end of a bridge.
//!
//! A raid goes through every window of an end, page by page, and reads all memory of the other
//! guest that the guest's kernel lets the bridge reach at this moment. It looks for two marks of 16
//! bytes at the beginning of a page: one says that the page may be seen, the other that it must not
//! be seen. On request a raid also writes: to pages that may be seen, or to all pages.
//!
//! A raid counts what it finds. The test judges the result.

use serde::Deserialize;
use serde::Serialize;

use crate::config::PAGE_SIZE;
use crate::guest_memory::Access;
use crate::ntb::port::Port;
use crate::ntb::window::Reach;

/// Size of a mark.
pub const MARK: usize = 16;

/// Mark at the beginning of a page that may be seen.
pub const PUBLIC: &[u8; MARK] = b"scif: may be see";
/// Mark at the beginning of a page that must not be seen.
pub const SECRET: &[u8; MARK] = b"scif: a secret!!";

/// The pages that a raid writes to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writes {
    /// No page.
    #[default]
    Nothing,
    /// Pages that may be seen, behind the mark.
    Public,
    /// All pages that can be written to, at every place.
    Everything,
}

/// The result of raids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loot {
    /// Pages of windows that were tried.
    pub tried: u64,
    /// Pages that could be read.
    pub read: u64,
    /// Pages that could be written to, of the pages where the raid tried.
    pub written: u64,
    /// Pages where the raid tried to write, and could not.
    pub refused: u64,
    /// Pages that may be seen.
    pub public: u64,
    /// Pages that must not be seen.
    pub secret: u64,
}

impl Loot {
    /// Returns the sum of both results.
    pub fn plus(self, other: Self) -> Self {
        Self {
            tried: self.tried + other.tried,
            read: self.read + other.read,
            written: self.written + other.written,
            refused: self.refused + other.refused,
            public: self.public + other.public,
            secret: self.secret + other.secret,
        }
    }
}

/// The bytes that a raid writes, which are no mark.
const SCRAWL: [u8; MARK] = *b"scif: I was here";

/// Goes once through all windows of an end.
pub fn raid(port: &Port, writes: Writes) -> Loot {
    let mut loot = Loot::default();
    for (window, entry) in port.windows().iter().enumerate() {
        for offset in (0..entry.size).step_by(PAGE_SIZE as usize) {
            loot.tried += 1;
            let mark = look(port, window, offset);
            loot.read += u64::from(mark.is_some());
            let is_public = mark.as_ref() == Some(PUBLIC);
            loot.public += u64::from(is_public);
            loot.secret += u64::from(mark.as_ref() == Some(SECRET));
            let (wanted, behind) = match writes {
                Writes::Nothing => (false, 0),
                Writes::Public => (is_public, MARK as u64),
                Writes::Everything => (true, 0),
            };
            if wanted {
                match scrawl(port, window, offset + behind) {
                    true => loot.written += 1,
                    false => loot.refused += 1,
                }
            }
        }
    }
    loot
}

/// Returns the first bytes of a page.
fn look(port: &Port, window: usize, offset: u64) -> Option<[u8; MARK]> {
    let mut mark = [0; MARK];
    match port.reach(window, offset, MARK as u64, Access::Read) {
        Reach::Memory {
            ram,
            offset,
            length,
            pin: _pin,
        } if length == MARK as u64 => ram.read(offset, &mut mark).ok().map(|()| mark),
        _ => None,
    }
}

fn scrawl(port: &Port, window: usize, offset: u64) -> bool {
    match port.reach(window, offset, MARK as u64, Access::Write) {
        Reach::Memory {
            ram,
            offset,
            length,
            pin: _pin,
        } if length == MARK as u64 => ram.write(offset, &SCRAWL).is_ok(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Link as Entry;
    use crate::config::Personality;
    use crate::config::Windows;
    use crate::guest_memory::GuestMemory;
    use crate::ntb::link::Link;
    use crate::ram::Ram;

    const IOVA: u64 = 0x7_0000_0000;
    const SIZE: u64 = 0x1_0000;

    #[test]
    fn raid_finds_exactly_the_mapped_memory() {
        let rams = [1 << 20; 2].map(|size| Arc::new(Ram::anonymous(size).unwrap()));
        let view = |guest: usize| Arc::new(GuestMemory::new(Arc::clone(&rams[guest])));
        let entry = Entry {
            upstream: 0,
            downstream: 1,
            personality: Personality::Gen5,
            windows: Windows::Trapped { size: SIZE },
            model: None,
        };
        let link = Link::new(&entry, [view(0), view(1)], None);
        let ports = [Port::new(&link, 0), Port::new(&link, 1)];
        for port in &ports {
            port.connect();
            port.register_write(0xb0d4, &[8]);
        }
        ports[1].register_write(0x10, &IOVA.to_le_bytes());
        ports[1].register_write(0x18, &SIZE.to_le_bytes());
        let file = || Some(rams[1].file().unwrap());
        let memory = ports[1].memory();
        rams[1].write(0x3000, PUBLIC).unwrap();
        rams[1].write(0x4000, PUBLIC).unwrap();
        rams[1].write(0x5000, SECRET).unwrap();
        assert_eq!(raid(&ports[0], Writes::Nothing).read, 0);
        // Two pages that may be seen, of which one may be written to.
        memory
            .map(IOVA, 0x1000, 0x3000, true, true, file())
            .unwrap();
        memory
            .map(IOVA + 0x2000, 0x1000, 0x4000, true, false, file())
            .unwrap();
        let loot = raid(&ports[0], Writes::Public);
        assert_eq!((loot.tried, loot.read), (2 * SIZE / PAGE_SIZE, 2));
        assert_eq!((loot.public, loot.secret), (2, 0));
        assert_eq!((loot.written, loot.refused), (1, 1));
        let mut scrawled = [0; MARK];
        rams[1].read(0x3010, &mut scrawled).unwrap();
        assert_eq!(scrawled, SCRAWL);
        // A page that must not be seen.
        memory
            .map(IOVA + 0x8000, 0x1000, 0x5000, true, true, file())
            .unwrap();
        assert_eq!(raid(&ports[0], Writes::Nothing).secret, 1);
        assert_eq!(raid(&ports[0], Writes::Everything).written, 2);
        assert_eq!(raid(&ports[0], Writes::Nothing).public, 1);
    }
}
