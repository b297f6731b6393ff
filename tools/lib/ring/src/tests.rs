// SPDX-License-Identifier: LGPL-2.1

//! Both directions of two ends over memory that both have, with bells that ring in this process.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::area::Area;
use crate::bells::Bells;
use crate::bells::What;
use crate::counters::Size;
use crate::header::Word;
use crate::receiver::Receiver;
use crate::sender::Areas;
use crate::sender::Sender;

/// No test waits longer for anything.
const HANG: Duration = Duration::from_secs(60);

/// What has rung for one end.
#[derive(Default)]
struct Rung {
    bells: Mutex<VecDeque<What>>,
    changed: Condvar,
}

struct TestBells {
    own: Arc<Rung>,
    peer: Arc<Rung>,
    over: AtomicI32,
    rings: AtomicUsize,
}

impl Bells for TestBells {
    fn ring(&self, what: What) {
        self.rings.fetch_add(1, Ordering::Relaxed);
        self.peer.bells.lock().unwrap().push_back(what);
        self.peer.changed.notify_all();
    }

    fn wait(&self, what: What) -> Result<(), Errno> {
        let bells = self.own.bells.lock().unwrap();
        let (mut bells, timeout) = (self.own.changed)
            .wait_timeout_while(bells, HANG, |bells| !bells.contains(&what))
            .unwrap();
        assert!(!timeout.timed_out(), "nobody has rung for {what:?}");
        bells.retain(|rung| *rung != what);
        Ok(())
    }

    fn check(&self) -> Result<(), Errno> {
        match self.over.load(Ordering::Relaxed) {
            0 => Ok(()),
            error => Err(Errno::from_raw_os_error(error)),
        }
    }

    fn look(&self) {}

    fn end(&self, why: Errno) -> Errno {
        self.over.store(why.raw_os_error(), Ordering::Relaxed);
        why
    }
}

struct End {
    areas: Areas,
    sender: Sender,
    receiver: Receiver,
    bells: TestBells,
}

impl End {
    fn send(&self, bytes: &[u8], block: bool) -> Result<usize, Errno> {
        self.sender.send(&self.areas, &self.bells, bytes, block)
    }

    fn recv(&self, bytes: &mut [u8], block: bool) -> Result<usize, Errno> {
        self.receiver.recv(&self.areas, &self.bells, bytes, block)
    }

    /// A word that the peer would have written.
    fn is_told(&self, word: Word, value: u32) {
        self.areas.own.store(word, value);
    }
}

/// Two ends, with rings of these sizes.
fn ends(sizes: [usize; 2]) -> [End; 2] {
    let memory = rustix::fs::memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
    let sizes = sizes.map(Size::for_bytes);
    let data = sizes.map(|size| size.bytes() as usize);
    let lens = data.map(Area::len_for);
    rustix::fs::ftruncate(&memory, (lens[0] + lens[1]) as u64).unwrap();
    let offsets = [0, lens[0] as i64];
    let area = |which: usize| Area::of_peer(memory.as_fd(), offsets[which], data[which]).unwrap();
    let rung = [Arc::new(Rung::default()), Arc::new(Rung::default())];
    [(0, 1), (1, 0)].map(|(own, peer)| End {
        areas: Areas {
            own: area(own),
            peer: area(peer),
        },
        sender: Sender::new(sizes[peer]),
        receiver: Receiver::new(sizes[own]),
        bells: TestBells {
            own: rung[own].clone(),
            peer: rung[peer].clone(),
            over: AtomicI32::new(0),
            rings: AtomicUsize::new(0),
        },
    })
}

/// Numbers that look like chance.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

fn byte_at(at: usize) -> u8 {
    (at.wrapping_mul(2654435761) >> 13) as u8
}

/// Sends so many bytes of the pattern, in messages of any size, which may not wait now and then.
fn send_all(end: &End, total: usize, seed: u64) {
    let mut numbers = Numbers(seed);
    let mut sent = 0;
    while sent < total {
        let len = (1 + numbers.below(6000)).min(total - sent);
        let bytes: Vec<u8> = (sent..sent + len).map(byte_at).collect();
        let block = numbers.below(4) != 0;
        let count = end.send(&bytes, block).unwrap();
        assert!(!block || count == len);
        sent += count;
    }
}

fn recv_all(end: &End, total: usize, seed: u64) {
    let mut numbers = Numbers(seed);
    let mut received = 0;
    while received < total {
        let len = (1 + numbers.below(9000)).min(total - received);
        let mut bytes = vec![0; len];
        let block = numbers.below(4) != 0;
        let count = end.recv(&mut bytes, block).unwrap();
        assert!(!block || count == len);
        for (index, byte) in bytes.iter().take(count).enumerate() {
            assert_eq!(
                *byte,
                byte_at(received + index),
                "byte {}",
                received + index
            );
        }
        received += count;
    }
}

#[test]
fn bytes_arrive_both_ways_at_once_and_all_who_sleep_wake_up() {
    for seed in 0..20 {
        let [one, other] = ends([4096, 8192]);
        thread::scope(|scope| {
            for (from, to) in [(&one, &other), (&other, &one)] {
                scope.spawn(move || send_all(from, 400_000, seed));
                scope.spawn(move || recv_all(to, 400_000, seed + 100));
            }
        });
    }
}

#[test]
fn nobody_rings_for_who_is_awake() {
    let [one, other] = ends([4096, 4096]);
    let mut bytes = [0; 64];
    for _ in 0..1000 {
        assert_eq!(one.send(&[7; 64], false), Ok(64));
        assert_eq!(other.recv(&mut bytes, false), Ok(64));
    }
    assert_eq!(one.bells.rings.load(Ordering::Relaxed), 0);
    assert_eq!(other.bells.rings.load(Ordering::Relaxed), 0);
}

#[test]
fn who_asks_is_rung_for_once() {
    let [one, other] = ends([4096, 4096]);
    assert_eq!(
        other.receiver.is_ready(&other.areas, &other.bells),
        Ok(false)
    );
    one.send(b"a", false).unwrap();
    one.send(b"b", false).unwrap();
    assert_eq!(one.bells.rings.load(Ordering::Relaxed), 1);
    assert_eq!(
        other.receiver.is_ready(&other.areas, &other.bells),
        Ok(true)
    );
    // And for room.
    while one.send(&[0; 512], false).unwrap() > 0 {}
    assert_eq!(one.sender.is_ready(&one.areas, &one.bells), Ok(false));
    other.recv(&mut [0; 1], false).unwrap();
    assert_eq!(other.bells.rings.load(Ordering::Relaxed), 1);
    assert_eq!(one.sender.is_ready(&one.areas, &one.bells), Ok(true));
}

#[test]
fn a_full_ring_holds_what_it_is_for_and_an_empty_one_nothing() {
    let [one, other] = ends([4096, 8192]);
    assert_eq!(one.send(&[1; 10_000], false), Ok(8192));
    assert_eq!(one.send(&[1; 1], false), Ok(0));
    let mut bytes = [0; 10_000];
    assert_eq!(other.recv(&mut bytes, false), Ok(8192));
    assert_eq!(other.recv(&mut bytes, false), Ok(0));
    assert_eq!(one.send(&[1; 10_000], false), Ok(8192));
}

#[test]
fn who_finds_nothing_gives_all_the_room_back() {
    let mut bytes = [0; 100];
    for ask in [false, true] {
        let [one, other] = ends([4096, 8192]);
        let finds_nothing = |bytes: &mut [u8]| match ask {
            true => other.receiver.is_ready(&other.areas, &other.bells) == Ok(false),
            false => other.recv(bytes, false) == Ok(0),
        };
        assert_eq!(one.send(&[1; 100], false), Ok(100));
        assert_eq!(other.recv(&mut bytes, false), Ok(100));
        // It is not said for so little, before somebody looks in vain.
        assert_eq!(one.send(&[1; 8192], false), Ok(8092));
        assert_eq!(other.recv(&mut [0; 8092], false), Ok(8092));
        assert!(finds_nothing(&mut bytes));
        assert_eq!(one.send(&[1; 100], false), Ok(100));
        assert_eq!(other.recv(&mut bytes, false), Ok(100));
        assert!(finds_nothing(&mut bytes));
        assert_eq!(one.send(&[1; 8192], false), Ok(8192));
    }
}

#[test]
fn what_was_sent_before_the_end_is_received() {
    let [one, other] = ends([4096, 4096]);
    one.send(b"last", false).unwrap();
    other.is_told(Word::Closed, 1);
    let mut bytes = [0; 8];
    assert_eq!(other.recv(&mut bytes, true), Ok(4));
    assert_eq!(other.recv(&mut bytes, true), Err(Errno::CONNRESET));
    assert_eq!(other.send(b"x", true), Err(Errno::CONNRESET));
}

#[test]
fn a_peer_that_lies_ends_it() {
    let [one, _] = ends([4096, 4096]);
    one.is_told(Word::Produced, 4097);
    assert_eq!(one.recv(&mut [0; 8], true), Err(Errno::PROTO));
    let [one, _] = ends([4096, 4096]);
    one.send(b"abc", false).unwrap();
    one.is_told(Word::Consumed, 4);
    assert_eq!(one.send(&[0; 5000], true), Err(Errno::PROTO));
    assert_eq!(one.send(b"x", true), Err(Errno::PROTO));
    // Whatever it wishes for, it is only rung for.
    let [one, other] = ends([4096, 4096]);
    for wanted in [0, 1, 3, 4, u32::MAX] {
        one.is_told(Word::DataWanted, wanted);
        one.is_told(Word::RoomWanted, wanted);
        one.send(b"abc", false).unwrap();
        assert_eq!(other.recv(&mut [0; 8], false), Ok(3));
    }
}
