// SPDX-License-Identifier: GPL-2.0

//! A connection inside one process, for tests: two ends that behave as SCIF promises.
//!
//! Messages are a bounded byte stream. Windows are found by offset, and checked for range and
//! protection. When an end is dropped, the other one can still receive, and then gets ECONNRESET.
//! Copies happen at the fence, the latest moment that the interface allows. So a protocol that
//! forgets its fence fails its tests.

use crate::device::Mark;
use crate::device::Protection;
use crate::device::Rma;
use crate::region::Region;
use crate::transport::Bytes;
use crate::transport::Listener;
use crate::transport::Transport;
use crate::transport::Wait;
use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

const RING: usize = 4096;

/// Longest time that a call sleeps.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

struct Window {
    region: Arc<Region>,
    protection: Protection,
}

#[derive(Clone, Copy)]
struct Copy {
    from: (usize, i64),
    to: (usize, i64),
    length: usize,
}

#[derive(Default)]
struct Side {
    /// Bytes in flight to this side.
    arrived: VecDeque<u8>,
    closed: bool,
    windows: BTreeMap<i64, Window>,
    /// Copies that this side has started and no fence has made yet.
    started: VecDeque<Copy>,
    /// Number of this side's copies that were made.
    performed: i32,
}

#[derive(Default)]
struct Pair {
    sides: Mutex<[Side; 2]>,
    changed: Condvar,
}

/// One end of a pair.
pub struct InProcess {
    pair: Arc<Pair>,
    own: usize,
}

/// Makes two connected ends.
pub fn pair() -> (InProcess, InProcess) {
    let pair = Arc::new(Pair::default());
    (
        InProcess {
            pair: pair.clone(),
            own: 0,
        },
        InProcess { pair, own: 1 },
    )
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// Returns the window that contains a range, and the offset in the window.
fn find(side: &Side, offset: i64, length: usize) -> io::Result<(&Window, usize)> {
    let (start, window) = side
        .windows
        .range(..=offset)
        .next_back()
        .ok_or_else(|| errno(libc::ENXIO))?;
    let within = usize::try_from(offset - start).map_err(|_| errno(libc::ENXIO))?;
    match within.checked_add(length) {
        Some(end) if end <= window.region.len() => Ok((window, within)),
        _ => Err(errno(libc::ENXIO)),
    }
}

fn perform(sides: &[Side; 2], copy: Copy) -> io::Result<()> {
    let (from, start) = find(&sides[copy.from.0], copy.from.1, copy.length)?;
    let mut bytes = vec![0; copy.length];
    from.region.read(start, &mut bytes)?;
    let (to, start) = find(&sides[copy.to.0], copy.to.1, copy.length)?;
    to.region.write(start, &bytes)
}

impl InProcess {
    fn lock(&self) -> MutexGuard<'_, [Side; 2]> {
        self.pair
            .sides
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_changed<'a>(
        &self,
        sides: MutexGuard<'a, [Side; 2]>,
        deadline: Instant,
    ) -> io::Result<MutexGuard<'a, [Side; 2]>> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(self
            .pair
            .changed
            .wait_timeout(sides, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0)
    }

    fn start(&self, copy: Copy, how: Rma) -> io::Result<()> {
        let mut sides = self.lock();
        if sides[1 - self.own].closed {
            return Err(errno(libc::ECONNRESET));
        }
        if copy.length == 0 {
            return Err(errno(libc::EINVAL));
        }
        let (from, _) = find(&sides[copy.from.0], copy.from.1, copy.length)?;
        let (to, _) = find(&sides[copy.to.0], copy.to.1, copy.length)?;
        if from.protection == Protection::Write || to.protection == Protection::Read {
            return Err(errno(libc::EACCES));
        }
        if how.sync {
            return perform(&sides, copy);
        }
        sides[self.own].started.push_back(copy);
        Ok(())
    }
}

impl Bytes for InProcess {
    type Listener = Nowhere;

    fn send(&self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let mut sides = self.lock();
        for byte in bytes {
            while sides[1 - self.own].arrived.len() >= RING && !sides[1 - self.own].closed {
                sides = self.wait_changed(sides, deadline)?;
            }
            if sides[1 - self.own].closed {
                return Err(errno(libc::ECONNRESET));
            }
            sides[1 - self.own].arrived.push_back(*byte);
            self.pair.changed.notify_all();
        }
        Ok(())
    }

    fn recv(&self, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut sides = self.lock();
        for byte in bytes {
            *byte = loop {
                if let Some(byte) = sides[self.own].arrived.pop_front() {
                    break byte;
                }
                if sides[1 - self.own].closed {
                    return Err(errno(libc::ECONNRESET));
                }
                sides = self.wait_changed(sides, deadline)?;
            };
            self.pair.changed.notify_all();
        }
        Ok(())
    }

    fn send_measured(&self, bytes: &[u8], _wait: Wait) -> io::Result<()> {
        self.send(bytes, Instant::now() + LONGEST_WAIT)
    }

    fn recv_measured(&self, bytes: &mut [u8], _wait: Wait) -> io::Result<()> {
        self.recv(bytes, Instant::now() + LONGEST_WAIT)
    }

    fn listen(&self, _backlog: i32) -> io::Result<Nowhere> {
        Err(errno(libc::EOPNOTSUPP))
    }
}

/// The listener type: no further connections exist inside a process.
#[derive(Debug)]
pub enum Nowhere {}

impl Listener for Nowhere {
    type Connection = ();

    fn port(&self) -> u16 {
        match *self {}
    }

    fn accept(&self, _deadline: Instant) -> io::Result<()> {
        match *self {}
    }
}

impl Transport for InProcess {
    fn register(&self, region: &Arc<Region>, protection: Protection) -> io::Result<i64> {
        let windows = &mut self.lock()[self.own].windows;
        // There is a gap behind each window, so that a copy that runs over the end is noticed.
        let offset = windows.last_key_value().map_or(0x10000, |(start, window)| {
            start + window.region.len() as i64 + 0x10000
        });
        let region = region.clone();
        windows.insert(offset, Window { region, protection });
        Ok(offset)
    }

    fn register_at(
        &self,
        region: &Arc<Region>,
        protection: Protection,
        offset: i64,
    ) -> io::Result<()> {
        let windows = &mut self.lock()[self.own].windows;
        let region = region.clone();
        match windows.insert(offset, Window { region, protection }) {
            None => Ok(()),
            Some(_) => Err(errno(libc::EADDRINUSE)),
        }
    }

    fn unregister(&self, offset: i64, length: usize) -> io::Result<()> {
        let windows = &mut self.lock()[self.own].windows;
        let before = windows.len();
        windows.retain(|start, _| !(offset..offset + length as i64).contains(start));
        match windows.len() {
            after if after < before => Ok(()),
            _ => Err(errno(libc::ENXIO)),
        }
    }

    fn write_to(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()> {
        let (from, to) = ((self.own, local), (1 - self.own, remote));
        self.start(Copy { from, to, length }, how)
    }

    fn read_from(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()> {
        let (from, to) = ((1 - self.own, remote), (self.own, local));
        self.start(Copy { from, to, length }, how)
    }

    fn mark(&self) -> io::Result<Mark> {
        let own = &self.lock()[self.own];
        Ok(Mark(own.performed + own.started.len() as i32))
    }

    fn wait(&self, mark: Mark) -> io::Result<()> {
        let mut sides = self.lock();
        if sides[1 - self.own].closed {
            return Err(errno(libc::ECONNRESET));
        }
        while sides[self.own].performed < mark.0 {
            let copy = sides[self.own].started.pop_front();
            sides[self.own].performed += 1;
            perform(&sides, copy.ok_or_else(|| errno(libc::EINVAL))?)?;
        }
        Ok(())
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        let mut sides = self.lock();
        sides[self.own].closed = true;
        sides[self.own].windows.clear();
        self.pair.changed.notify_all();
    }
}
