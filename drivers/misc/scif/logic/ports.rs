// SPDX-License-Identifier: GPL-2.0

//! Which ports of this node are taken.
//!
//! A bitmap of all 65536 port numbers. Port 0 means "any" in every call of SCIF and is never given
//! out. Asked for any port, the table goes round through those from [`FIRST_DYNAMIC`] on, so that a
//! port that was just freed comes back as late as possible: a peer may still hold messages for it.
//!
//! Who may have which port (privilege, ports below 1024) and how many endpoints share one is not
//! known here.

/// The first port that is given out to a caller that does not name one (`SCIF_PORT_RSVD`).
pub(crate) const FIRST_DYNAMIC: u16 = 1088;

const PORTS: u32 = 1 << 16;
const BITS: u32 = u64::BITS;
const WORDS: usize = (PORTS / BITS) as usize;

/// The port is taken, or is port 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InUse;

/// The set of ports that are taken.
///
/// It is 8 KiB large, too large for the kernel's stack: make it in place. **All bytes zero is an
/// empty table**, so zeroed memory will do.
#[repr(C)]
pub(crate) struct PortTable {
    /// One bit for each port that is taken.
    words: [u64; WORDS],
    /// Where to start looking for any port; below [`FIRST_DYNAMIC`] means there.
    next: u16,
}

/// The word of `port` and its bit in that word.
const fn locate(port: u16) -> (usize, u64) {
    let port = port as u32;
    ((port / BITS) as usize, 1_u64.wrapping_shl(port % BITS))
}

impl PortTable {
    /// Takes this very port.
    pub(crate) fn allocate(&mut self, port: u16) -> Result<(), InUse> {
        if port == 0 || self.replace(port, true) {
            return Err(InUse);
        }
        Ok(())
    }

    /// Takes some port from [`FIRST_DYNAMIC`] on; `None` if all of them are taken.
    pub(crate) fn allocate_any(&mut self) -> Option<u16> {
        let start = self.next.max(FIRST_DYNAMIC);
        let port = self
            .first_free(u32::from(start), PORTS)
            .or_else(|| self.first_free(u32::from(FIRST_DYNAMIC), u32::from(start)))?;
        self.allocate(port).ok()?;
        // After the last port comes 0, which means the first dynamic one.
        self.next = port.wrapping_add(1);
        Some(port)
    }

    /// Gives a port back. Returns whether it was taken.
    pub(crate) fn free(&mut self, port: u16) -> bool {
        self.replace(port, false)
    }

    /// Says from now on whether a port is taken. Returns whether it was.
    fn replace(&mut self, port: u16, is_taken: bool) -> bool {
        let (index, bit) = locate(port);
        let Some(word) = self.words.get_mut(index) else {
            return false;
        };
        let was_taken = *word & bit != 0;
        *word = (*word & !bit) | if is_taken { bit } else { 0 };
        was_taken
    }

    /// The lowest free port in `from..to`; looks at whole words.
    fn first_free(&self, from: u32, to: u32) -> Option<u16> {
        let mut at = from;
        while at < to {
            let word = self.words.get((at / BITS) as usize)?;
            // The free ports of the word, without those below `at`.
            let free = !word & u64::MAX.wrapping_shl(at % BITS);
            let base = at & !(BITS - 1);
            if free != 0 {
                let found = base | free.trailing_zeros();
                return u16::try_from(found).ok().filter(|_| found < to);
            }
            at = base.checked_add(BITS)?;
        }
        None
    }
}

#[cfg(test)]
impl PortTable {
    /// An empty table.
    pub(crate) const fn new() -> Self {
        Self {
            words: [0; WORDS],
            next: 0,
        }
    }

    /// Whether a port is taken; port 0 is not, it just cannot be had.
    pub(crate) fn is_used(&self, port: u16) -> bool {
        let (index, bit) = locate(port);
        self.words.get(index).is_some_and(|word| word & bit != 0)
    }
}
