// SPDX-License-Identifier: LGPL-2.1

//! Both directions between two ends in memory that both share, with bells that ring in this
//! process.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

use crate::area::Area;
use crate::bells::Bells;
use crate::bells::Event;
use crate::bells::StreamBells;
use crate::counters::Size;
use crate::direction::Areas;
use crate::endpoint::Stream;
use crate::header::Word;
use crate::receiver::Receiver;
use crate::sender::Sender;

/// The longest time that a test waits.
const HANG: Duration = Duration::from_secs(60);

/// Bytes in flight to one end: so few that bells are dropped all the time.
const FEW: usize = 3;

/// The bytes that were sent to one end of a connection.
#[derive(Default)]
struct Arrived {
    bytes: Mutex<VecDeque<u8>>,
    changed: Condvar,
}

struct TestStream {
    own: Arc<Arrived>,
    peer: Arc<Arrived>,
    sent: Arc<AtomicUsize>,
}

impl Stream for TestStream {
    fn send(&self, bytes: &[u8], block: bool) -> Result<usize, Errno> {
        assert!(!block && bytes.len() == 1);
        self.sent.fetch_add(1, Ordering::Relaxed);
        let mut arrived = self.peer.bytes.lock().unwrap();
        if arrived.len() == FEW {
            return Ok(0);
        }
        arrived.extend(bytes);
        self.peer.changed.notify_all();
        Ok(1)
    }

    fn recv(&self, bytes: &mut [u8], block: bool) -> Result<usize, Errno> {
        let arrived = self.own.bytes.lock().unwrap();
        let (mut arrived, timeout) = (self.own.changed)
            .wait_timeout_while(arrived, HANG, |arrived| block && arrived.is_empty())
            .unwrap();
        assert!(!timeout.timed_out(), "no doorbell came");
        let count = bytes.len().min(arrived.len());
        for (to, byte) in bytes.iter_mut().zip(arrived.drain(..count)) {
            *to = byte;
        }
        Ok(count)
    }

    fn is_over(&self) -> bool {
        false
    }
}

struct End {
    areas: Areas,
    sender: Sender,
    receiver: Receiver,
    bells: StreamBells<TestStream>,
    rings: Arc<AtomicUsize>,
}

impl End {
    fn send(&self, bytes: &[u8], block: bool) -> Result<usize, Errno> {
        self.sender.send(&self.areas, &self.bells, bytes, block)
    }

    fn recv(&self, bytes: &mut [u8], block: bool) -> Result<usize, Errno> {
        self.receiver.recv(&self.areas, &self.bells, bytes, block)
    }

    fn can_send(&self) -> bool {
        (self.sender.is_ready(&self.areas, &self.bells)).unwrap()
    }

    fn can_recv(&self) -> bool {
        (self.receiver.is_ready(&self.areas, &self.bells)).unwrap()
    }

    /// A word that the peer would have written.
    fn is_told(&self, word: Word, value: u32) {
        self.areas.own.store(word, value);
    }

    fn rings(&self) -> usize {
        self.rings.load(Ordering::Relaxed)
    }
}

/// Two ends, with rings of these sizes, all of whose counters are at `count`.
fn ends_at(count: u32, sizes: [usize; 2]) -> [End; 2] {
    let memory = rustix::fs::memfd_create("ring", MemfdFlags::CLOEXEC).unwrap();
    let sizes = sizes.map(Size::for_bytes);
    let data = sizes.map(|size| size.bytes() as usize);
    let lens = data.map(Area::len_for);
    rustix::fs::ftruncate(&memory, (lens[0] + lens[1]) as u64).unwrap();
    let offsets = [0, lens[0] as i64];
    let area = |which: usize| {
        let area = Area::of_peer(memory.as_fd(), offsets[which], data[which]).unwrap();
        for word in [
            Word::Produced,
            Word::Consumed,
            Word::RoomWanted,
            Word::DataWanted,
        ] {
            area.store(word, count);
        }
        area
    };
    let arrived = [Arc::new(Arrived::default()), Arc::new(Arrived::default())];
    [(0, 1), (1, 0)].map(|(own, peer)| {
        let rings = Arc::new(AtomicUsize::new(0));
        End {
            areas: Areas {
                own: area(own),
                peer: area(peer),
            },
            sender: Sender::starting_at(sizes[peer], count),
            receiver: Receiver::starting_at(sizes[own], count),
            bells: StreamBells::new(TestStream {
                own: arrived[own].clone(),
                peer: arrived[peer].clone(),
                sent: rings.clone(),
            }),
            rings,
        }
    })
}

fn ends(sizes: [usize; 2]) -> [End; 2] {
    ends_at(0, sizes)
}

/// Numbers that look random.
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

/// Sends so many bytes of the pattern, in messages of any size; some of them may not wait.
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
fn concurrent_streams_both_ways_arrive_and_wake_all_sleepers() {
    for seed in 0..20 {
        // Half of the rings wrap around.
        let start = [0, u32::MAX - 200_000][seed as usize % 2];
        let [one, other] = ends_at(start, [4096, 8192]);
        thread::scope(|scope| {
            for (from, to) in [(&one, &other), (&other, &one)] {
                scope.spawn(move || send_all(from, 400_000, seed));
                scope.spawn(move || recv_all(to, 400_000, seed + 100));
            }
        });
    }
}

/// One of the two ends never waits. The only bells are for the other one, which waits for nearly
/// every message.
#[test]
fn blocking_side_is_woken_by_a_peer_that_never_blocks() {
    const TOTAL: usize = 10_000_000;
    const MOST: usize = 2000;
    for (sender_waits, message) in [(true, MOST), (true, 100), (false, MOST), (false, 100)] {
        let [one, other] = ends([4096, 4096]);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut sent = 0;
                while sent < TOTAL {
                    let len = message.min(TOTAL - sent);
                    sent += one.send(&[1; MOST][..len], sender_waits).unwrap();
                }
            });
            let mut received = 0;
            while received < TOTAL {
                let mut bytes = [0; MOST];
                let len = message.min(TOTAL - received);
                received += other.recv(&mut bytes[..len], !sender_waits).unwrap();
            }
        });
    }
}

#[test]
fn no_doorbell_rings_for_an_awake_peer() {
    let [one, other] = ends([4096, 4096]);
    let mut bytes = [0; 64];
    for _ in 0..1000 {
        assert_eq!(one.send(&[7; 64], false), Ok(64));
        assert_eq!(other.recv(&mut bytes, false), Ok(64));
    }
    assert_eq!(one.rings(), 0);
    assert_eq!(other.rings(), 0);
}

#[test]
fn wake_request_is_rung_once() {
    let [one, other] = ends([4096, 4096]);
    assert!(!other.can_recv());
    one.send(b"a", false).unwrap();
    one.send(b"b", false).unwrap();
    assert_eq!(one.rings(), 1);
    assert!(other.can_recv());
    // And for room.
    while one.send(&[0; 512], false).unwrap() > 0 {}
    assert!(!one.can_send());
    other.recv(&mut [0; 1], false).unwrap();
    assert_eq!(other.rings(), 1);
    assert!(one.can_send());
}

/// The bell for one of the two waiters finds no room, as the bells for the other waiter were never
/// read.
#[test]
fn waiter_wakes_up_after_its_doorbell_was_dropped() {
    for event in [Event::Room, Event::Data] {
        let [one, other] = ends([4096, 4096]);
        for _ in 0..FEW {
            other.bells.ring(match event {
                Event::Room => Event::Data,
                Event::Data => Event::Room,
            });
        }
        other.bells.ring(event);
        assert_eq!(one.bells.wait(event), Ok(()));
    }
}

/// The waiter that sleeps in the kernel tells the other waiter of the bells that it reads.
#[test]
fn waiter_passes_on_doorbells_for_the_other_waiter() {
    let [one, other] = ends([4096, 4096]);
    thread::scope(|scope| {
        for event in [Event::Room, Event::Data] {
            let bells = &one.bells;
            scope.spawn(move || assert_eq!(bells.wait(event), Ok(())));
        }
        other.bells.ring(Event::Data);
    });
}

#[test]
fn invalid_doorbell_byte_ends_the_connection() {
    let [one, other] = ends([4096, 4096]);
    one.bells.take();
    assert_eq!(one.bells.check(), Ok(()));
    other.bells.leave();
    one.bells.take();
    assert_eq!(one.bells.check(), Ok(()));
    one.bells.wait(Event::Data).unwrap();
    let stream = TestStream {
        own: Arc::default(),
        peer: Arc::new(Arrived::default()),
        sent: Arc::default(),
    };
    stream.own.bytes.lock().unwrap().push_back(b'X');
    let bells = StreamBells::new(stream);
    assert_eq!(bells.wait(Event::Room), Err(Errno::PROTO));
}

#[test]
fn ring_holds_exactly_its_size() {
    let [one, other] = ends([4096, 8192]);
    assert_eq!(one.send(&[1; 10_000], false), Ok(8192));
    assert_eq!(one.send(&[1; 1], false), Ok(0));
    let mut bytes = [0; 10_000];
    assert_eq!(other.recv(&mut bytes, false), Ok(8192));
    assert_eq!(other.recv(&mut bytes, false), Ok(0));
    assert_eq!(one.send(&[1; 10_000], false), Ok(8192));
}

#[test]
fn empty_receive_returns_all_room_to_the_sender() {
    let mut bytes = [0; 100];
    for ask in [false, true] {
        let [one, other] = ends([4096, 8192]);
        let finds_nothing = |bytes: &mut [u8]| match ask {
            true => !other.can_recv(),
            false => other.recv(bytes, false) == Ok(0),
        };
        assert_eq!(one.send(&[1; 100], false), Ok(100));
        assert_eq!(other.recv(&mut bytes, false), Ok(100));
        // The receiver has not reported the room of these 100 bytes yet. It reports so little room
        // only when a call finds the ring empty.
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
fn bytes_sent_before_close_are_received() {
    let [one, other] = ends([4096, 4096]);
    one.send(b"last", false).unwrap();
    other.is_told(Word::Closed, 1);
    let mut bytes = [0; 8];
    assert_eq!(other.recv(&mut bytes, true), Ok(4));
    assert_eq!(other.recv(&mut bytes, true), Err(Errno::CONNRESET));
    assert_eq!(other.send(b"x", true), Err(Errno::CONNRESET));
}

#[test]
fn contradictory_counters_of_a_peer_end_the_connection() {
    let [one, _] = ends([4096, 4096]);
    one.is_told(Word::Produced, 4097);
    assert_eq!(one.recv(&mut [0; 8], true), Err(Errno::PROTO));
    let [one, _] = ends([4096, 4096]);
    one.send(b"abc", false).unwrap();
    one.is_told(Word::Consumed, 4);
    assert_eq!(one.send(&[0; 5000], true), Err(Errno::PROTO));
    assert_eq!(one.send(b"x", true), Err(Errno::PROTO));
    // Whatever the peer requests, it only gets bells.
    let [one, other] = ends([4096, 4096]);
    for wanted in [0, 1, 3, 4, u32::MAX] {
        one.is_told(Word::DataWanted, wanted);
        one.is_told(Word::RoomWanted, wanted);
        one.send(b"abc", false).unwrap();
        assert_eq!(other.recv(&mut [0; 8], false), Ok(3));
    }
}
