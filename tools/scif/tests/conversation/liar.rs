// SPDX-License-Identifier: GPL-2.0

//! Peers that speak the protocol as well as the tool does, and then lie, by seed: a client to a
//! server, and a server to a client. A layer below them changes their messages and copies; the
//! peers themselves do not know.

use crate::fixture::Fixture;
use crate::fixture::content;
use crate::fixture::source;
use crate::fixture::target;
use scif::client;
use scif::device::Mark;
use scif::device::Protection;
use scif::device::Rma;
use scif::error::Result;
use scif::in_process;
use scif::in_process::InProcess;
use scif::in_process::Nowhere;
use scif::region::Region;
use scif::server;
use scif::server::shares::Origin;
use scif::session::Session;
use scif::transport::Bytes;
use scif::transport::Transport;
use scif::transport::Wait;
use sha2::Digest;
use sha2::Sha256;
use std::cell::Cell;
use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

/// Time that either side waits for the other, which may send nothing any more. A build for
/// debugging takes longer to copy.
const TIMEOUT: Duration = match cfg!(debug_assertions) {
    true => Duration::from_millis(200),
    false => Duration::from_millis(20),
};

/// The size of the file: more than one buffer.
const SIZE: usize = (1 << 20) + 12_345;

const SEEDS: u64 = if cfg!(debug_assertions) { 120 } else { 300 };

#[derive(Clone, Copy, Debug)]
enum Kind {
    Number,
    Old,
    Silence,
    Twice,
    Copy,
    Window,
}

/// Number of lies of each kind.
type Counts = [AtomicU64; 6];

/// An end of a connection that lies.
struct Liar<'a> {
    honest: InProcess,
    counts: &'a Counts,
    state: Cell<u64>,
    /// One message in this many is a lie.
    rarity: u64,
    said: RefCell<Vec<Vec<u8>>>,
}

impl<'a> Liar<'a> {
    fn new(honest: InProcess, seed: u64, counts: &'a Counts) -> Self {
        Self {
            honest,
            counts,
            state: Cell::new(((seed << 1) | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            // Some liars say much that is true before they lie.
            rarity: 4 << (seed % 5),
            said: RefCell::default(),
        }
    }

    fn random(&self) -> u64 {
        let mut state = self.state.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.state.set(state);
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&self, limit: usize) -> usize {
        (self.random() % limit.max(1) as u64) as usize
    }

    fn lies(&self, kind: Kind) -> bool {
        let rarity = match kind {
            // There are few chances for these lies.
            Kind::Copy | Kind::Window => 5,
            _ => self.rarity,
        };
        let is_lie = self.random() % rarity == 0;
        if is_lie {
            self.counts[kind as usize].fetch_add(1, Relaxed);
        }
        is_lie
    }

    /// Returns a near number, one at an edge, or any.
    fn other(&self, number: u64) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => number.wrapping_add(1),
            3 => number.wrapping_sub(1),
            4 => number ^ (1 << self.below(64)),
            5 => number << 1,
            6 => number.wrapping_add(self.random() % 65_536),
            _ => self.random() << 16,
        }
    }

    fn change(&self, bytes: &mut [u8]) {
        // Most messages are short, and their begin has the important fields.
        let end = bytes.len().min(48);
        let size = [8, 4, 1][self.below(3)].min(end);
        let at = self.below(end + 1 - size);
        let mut number = [0; 8];
        number[..size].copy_from_slice(&bytes[at..at + size]);
        let other = self.other(u64::from_le_bytes(number)).to_le_bytes();
        bytes[at..at + size].copy_from_slice(&other[..size]);
    }

    fn place(&self, length: usize, remote: i64) -> (usize, i64) {
        if !self.lies(Kind::Copy) {
            return (length, remote);
        }
        match self.below(2) {
            0 => (self.other(length as u64) as usize & 0xff_ffff, remote),
            _ => (length, self.other(remote as u64) as i64),
        }
    }
}

impl Bytes for Liar<'_> {
    type Listener = Nowhere;

    fn send(&self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        let mut said = bytes.to_vec();
        self.said.borrow_mut().push(said.clone());
        if self.lies(Kind::Number) {
            self.change(&mut said);
        } else if self.lies(Kind::Old) {
            let all = self.said.borrow();
            said = all[self.below(all.len())].clone();
        } else if self.lies(Kind::Silence) {
            return Ok(());
        } else if self.lies(Kind::Twice) {
            self.honest.send(&said, deadline)?;
        }
        self.honest.send(&said, deadline)
    }

    fn recv(&self, bytes: &mut [u8], deadline: Instant) -> io::Result<()> {
        self.honest.recv(bytes, deadline)
    }

    fn send_measured(&self, bytes: &[u8], wait: Wait) -> io::Result<()> {
        self.honest.send_measured(bytes, wait)
    }

    fn recv_measured(&self, bytes: &mut [u8], wait: Wait) -> io::Result<()> {
        self.honest.recv_measured(bytes, wait)
    }

    fn listen(&self, backlog: i32) -> io::Result<Nowhere> {
        self.honest.listen(backlog)
    }
}

impl Transport for Liar<'_> {
    /// Registers honestly, but then may return a wrong offset.
    fn register(&self, region: &Arc<Region>, protection: Protection) -> io::Result<i64> {
        let offset = self.honest.register(region, protection)?;
        Ok(match self.lies(Kind::Window) {
            true => self.other(offset as u64) as i64 & 0xff_ffff,
            false => offset,
        })
    }

    fn register_at(
        &self,
        region: &Arc<Region>,
        protection: Protection,
        offset: i64,
    ) -> io::Result<()> {
        self.honest.register_at(region, protection, offset)
    }

    fn unregister(&self, offset: i64, length: usize) -> io::Result<()> {
        self.honest.unregister(offset, length)
    }

    fn write_to(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()> {
        let (length, remote) = self.place(length, remote);
        self.honest.write_to(local, length, remote, how)
    }

    fn read_from(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()> {
        let (length, remote) = self.place(length, remote);
        self.honest.read_from(local, length, remote, how)
    }

    fn mark(&self) -> io::Result<Mark> {
        self.honest.mark()
    }

    fn wait(&self, mark: Mark) -> io::Result<()> {
        self.honest.wait(mark)
    }
}

/// Plays a client. Returns the hash of the file that it got.
fn converse<T: Transport>(session: &Session<T>, sent: &Path, folder: &Path) -> Result<[u8; 32]> {
    session.greet()?;
    client::ping(session, b"ping")?;
    client::put(session, source(sent), b"copy", b"name", &mut ())?;
    let copied = client::get(session, b"given", target(folder, "back"), &mut ())?;
    Ok(copied.own)
}

/// Makes a served folder with a file to get, and a file to put.
fn served() -> (Fixture, Vec<u8>) {
    let fixture = Fixture::new();
    let bytes = content(SIZE);
    fs::write(fixture.beside("sent"), &bytes).unwrap();
    fs::write(fixture.served("given"), &bytes).unwrap();
    fs::create_dir(fixture.beside("folder")).unwrap();
    (fixture, bytes)
}

fn check_counts(counts: &Counts, succeeded: u64) {
    assert!(succeeded > SEEDS / 50, "{succeeded} have come to their end");
    for count in counts {
        assert!(count.load(Relaxed) >= 10, "few lies: {counts:?}");
    }
}

#[test]
fn lying_client_does_not_affect_other_clients() {
    let (fixture, bytes) = served();
    let counts = Counts::default();
    let mut succeeded = 0;
    for seed in 0..SEEDS {
        let result = fixture.serve_within(TIMEOUT, |transport| {
            let session = Session::new(Liar::new(transport, seed, &counts), "server");
            let session = session.with_timeout(TIMEOUT);
            converse(&session, &fixture.beside("sent"), &fixture.beside("folder"))
        });
        succeeded += u64::from(result.is_ok());
        assert_eq!(fs::read(fixture.beside("secret")).unwrap(), b"secret");
        assert!(fs::read(fixture.served("given")).unwrap() == bytes);
        let _ = fs::remove_file(fixture.beside("folder").join("back"));
    }
    check_counts(&counts, succeeded);
    // Nothing is held for the peers that have gone.
    fixture.client(|session| {
        let sent = source(&fixture.beside("sent"));
        client::put(session, sent, b"last", b"name", &mut ()).unwrap();
    });
    assert!(fs::read(fixture.served("last")).unwrap() == bytes);
}

#[test]
fn lying_server_does_not_corrupt_client_files() {
    let (fixture, _) = served();
    let counts = Counts::default();
    let mut succeeded = 0;
    for seed in 0..SEEDS {
        let (here, there) = in_process::pair();
        let folder = fixture.beside("folder");
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                let session = Session::new(Liar::new(there, seed, &counts), "client");
                let session = session.with_timeout(TIMEOUT);
                server::serve(&fixture.service, Origin::Node(1), &session, &|_| {});
            });
            let session = Session::new(here, "server").with_timeout(TIMEOUT);
            converse(&session, &fixture.beside("sent"), &folder)
        });
        let back = folder.join("back");
        match result {
            // The file has the content that the hash stands for.
            Ok(hash) => {
                let found: [u8; 32] = Sha256::digest(fs::read(&back).unwrap()).into();
                assert_eq!(found, hash, "seed {seed}");
                fs::remove_file(&back).unwrap();
                succeeded += 1;
            }
            Err(_) => assert!(!back.exists(), "seed {seed}: a file is left"),
        }
    }
    check_counts(&counts, succeeded);
}
