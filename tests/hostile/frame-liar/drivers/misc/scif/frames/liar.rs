// SPDX-License-Identifier: GPL-2.0

//! Lies in frame rings: the behaviour of a hostile node in the lab.
//!
//! The module itself fills and posts buffers. `frame-liar.patch` calls a function of this file
//! wherever it stores something for its peer. The module's own state stays true, so the node goes
//! on. Debugfs shows how often each kind of lie was told (`/sys/kernel/debug/scif/liar`).
//!
//! # Which lies end a session
//!
//! The peer ends the session when it sees a contradiction. The liar tells one such lie each time
//! that it has sent a number of frames, and the kinds take turns. It tells all other lies all the
//! time. The CPU lies about the bytes of a frame that an engine copies once they have arrived.
//!
//! # Flat mode
//!
//! In flat mode the peer reaches all memory, and security.rst promises nothing. So no lie makes
//! either node write to memory of other users: the liar never withdraws rings that it still uses,
//! names only buffers of its own, or addresses that the peer can't reach, and changes no buffer that
//! was filled before, as the peer may have returned its page to the kernel.

use core::array;

use kernel::{
    fmt,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

use crate::{
    logic::{
        frame_messages::{
            BlockOffer,
            FrameMessage, //
        },
        frame_ring::{
            Descriptor,
            DESCRIPTOR,
            META, //
        },
    },
    module_parameters,
    peer::{
        control::Reservation,
        Peer, //
    },
    sys::reached::Room,
    transport::path::Path, //
};
use kernel::sync::Arc;

/// A kind of lie.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// The number of filled buffers.
    Filled,
    /// The number of posted buffers.
    Posted,
    /// A word of a descriptor.
    Descriptor,
    /// The address of a posted buffer.
    Address,
    /// Messages in the middle of the session: offers, withdrawals and answers.
    Message,
    /// The first offer: a block that can't be reached, or numbers that can't be.
    Offer,
    /// The user's part of a descriptor.
    Meta,
    /// The bytes of a frame.
    Content,
    /// The bytes of a buffer that was filled before.
    Later,
    /// The length of a frame.
    Length,
    /// A count at which the peer is to ring.
    Wish,
    /// Many doorbells without a reason.
    Storm,
}

/// Names of all kinds in their order, and the number of chances of which the liar takes one. Kinds
/// with 0 end the session, and take turns.
const KINDS: [(&str, u64); 12] = [
    ("filled", 0),
    ("posted", 0),
    ("descriptor", 0),
    ("address", 0),
    ("message", 0),
    ("offer", 3),
    ("meta", 12),
    ("content", 12),
    ("later", 12),
    ("length", 32),
    ("wish", 8),
    ("storm", 64),
];

/// Number of kinds that take turns: the first ones.
const TURNS: u32 = 5;

static STATE: Atomic<u64> = Atomic::new(0);
static FRAMES: Atomic<u64> = Atomic::new(0);
static BY_ENGINE: Atomic<u64> = Atomic::new(0);
static OFFERS: Atomic<u64> = Atomic::new(0);
static LIES: [Atomic<u64>; KINDS.len()] = [const { Atomic::new(0) }; KINDS.len()];

/// Frames since the last lie that ends a session, and their number at which the next one is due.
static SINCE: Atomic<u32> = Atomic::new(0);
static DUE: Atomic<u32> = Atomic::new(100);

/// The kind whose turn it is.
static TURN: Atomic<u32> = Atomic::new(0);

/// Ticks without a frame, and the count of frames at the last tick.
static QUIET: Atomic<u32> = Atomic::new(0);
static AT_TICK: Atomic<u64> = Atomic::new(0);

/// Returns the next number of a generator (xorshift).
fn random() -> u64 {
    let mut state = STATE.load(Relaxed);
    if state == 0 {
        state = u64::from(module_parameters::liar_seed.value()) << 1 | 1;
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.store(state, Relaxed);
    state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
}

fn below(limit: usize) -> usize {
    (random() % limit.max(1) as u64) as usize
}

fn one_of<T: Copy>(values: &[T], otherwise: T) -> T {
    values
        .get(below(values.len()))
        .copied()
        .unwrap_or(otherwise)
}

/// Returns another number: a near one, one at an edge, or any.
fn other(number: u64) -> u64 {
    match below(9) {
        0 => 0,
        1 => u64::MAX,
        2 => number.wrapping_add(1),
        3 => number.wrapping_sub(1),
        4 => number ^ 1 << below(32),
        5 => number.wrapping_shl(1),
        6 => number.wrapping_add(random() % 64),
        7 => number.wrapping_sub(random() % 64),
        _ => random(),
    }
}

fn is_flat(path: &dyn Path) -> bool {
    path.mode() == "flat"
}

fn next_turn() {
    TURN.store((TURN.load(Relaxed) + 1) % TURNS, Relaxed);
    SINCE.store(0, Relaxed);
    DUE.store(30 << below(4), Relaxed);
}

/// Returns whether to lie now, and counts the lie.
fn lies(kind: Kind) -> bool {
    let index = kind as usize;
    let rarity = KINDS.get(index).map_or(1, |(_, rarity)| *rarity);
    let is_told = match rarity {
        0 => SINCE.load(Relaxed) >= DUE.load(Relaxed) && TURN.load(Relaxed) == index as u32,
        rarity => random() % rarity == 0,
    };
    if is_told {
        if let Some(count) = LIES.get(index) {
            count.fetch_add(1, Relaxed);
        }
        if rarity == 0 {
            next_turn();
        }
    }
    is_told
}

/// Notes a frame.
fn count() {
    FRAMES.fetch_add(1, Relaxed);
    SINCE.add(1, Relaxed);
    // There was no chance for the kind whose turn it is.
    if SINCE.load(Relaxed) > 4 * DUE.load(Relaxed) {
        next_turn();
    }
}

/// Notes a frame that an engine has copied.
pub(super) fn count_by_engine() {
    BY_ENGINE.fetch_add(1, Relaxed);
}

/// Returns an address that the peer can't reach.
fn nowhere() -> u64 {
    one_of(&[u64::MAX - 4095, u64::MAX - 1, 1 << 62, 1 << 52 | 1], !0)
}

/// Returns the count to store in the place of a true one.
pub(super) fn counter(kind: Kind, count: u32) -> u32 {
    match lies(kind) {
        true => other(count.into()) as u32,
        false => count,
    }
}

/// Returns the address of a buffer to post in the place of a true one.
pub(super) fn address(path: &dyn Path, address: u64) -> u64 {
    match lies(Kind::Address) {
        true if is_flat(path) || below(2) == 0 => nowhere(),
        true => other(address),
        false => address,
    }
}

/// Returns a wish to make before a true one.
pub(super) fn wish(value: u32) -> Option<u32> {
    lies(Kind::Wish).then(|| other(value.into()) as u32)
}

/// Returns how many times to ring without a reason.
pub(super) fn storm() -> usize {
    match lies(Kind::Storm) {
        true => below(256),
        false => 0,
    }
}

/// Returns the user's part: the header of virtio-net.
fn header(meta: [u8; META]) -> [u8; META] {
    if below(2) == 0 {
        return array::from_fn(|_| random() as u8);
    }
    let word = |values: &[u16]| one_of(values, random() as u16).to_le_bytes();
    let [size0, size1] = word(&[0, 1, 7, 8, 536, 1448, 9000, 0xffff]);
    let [start0, start1] = word(&[0, 13, 14, 33, 34, 54, 255, 1000, 4096, 60000, 0xffff]);
    let [place0, place1] = word(&[0, 2, 6, 16, 100, 0xffff]);
    let [flags, kind, len0, len1, ..] = meta;
    let flags = one_of(&[0, 1, 1, 1, 2, 3, 7], flags);
    let kind = one_of(&[0, 1, 1, 3, 4, 4, 5, 5, 0x81, 0x80, 0x20], kind);
    let mut said = meta;
    let words = [
        flags, kind, len0, len1, size0, size1, start0, start1, place0, place1,
    ];
    for (place, byte) in said.iter_mut().zip(words) {
        *place = byte;
    }
    said
}

/// Returns the descriptor to store in the place of a true one.
pub(super) fn descriptor(descriptor: &Descriptor) -> [u8; DESCRIPTOR] {
    let mut said = *descriptor;
    if descriptor.total != 0 {
        count();
        if lies(Kind::Meta) {
            said.meta = header(said.meta);
        }
        if !descriptor.has_more && lies(Kind::Length) {
            said.len = 1 + below(one_of(&[20, 256, 4096], 64)) as u32;
            said.total = said.len;
        }
    }
    if lies(Kind::Descriptor) {
        match below(4) {
            0 => said.len = other(said.len.into()) as u32,
            1 => said.total = other(said.total.into()) as u32,
            2 => said.has_more = !said.has_more,
            _ => {
                said.len = random() as u32;
                said.total = random() as u32;
            }
        }
    }
    said.encode()
}

/// Changes the bytes of a buffer that was filled, before the peer is told of it.
pub(super) fn content(room: &Room<'_>, is_first: bool) {
    if !lies(Kind::Content) {
        return;
    }
    let put = |at: usize, bytes: &[u8]| {
        let _ = room.store(at, bytes);
    };
    let number = (random() as u32).to_be_bytes();
    let [high, low, ..] = number;
    let protocol = one_of(
        &[0_u8, 1, 2, 4, 6, 17, 41, 43, 44, 47, 50, 51, 58, 103, 132],
        255,
    );
    let kind: [u8; 2] = one_of(
        &[
            0x0800_u16, 0x86dd, 0x8100, 0x88a8, 0x0806, 0x8847, 0x88e5, 0x8863, 0x6558, 0x0004,
            0x05dc, 0xffff,
        ],
        low.into(),
    )
    .to_be_bytes();
    match below(10) {
        _ if !is_first => put(below(room.size()), &number),
        0 => {
            for _ in 0..8 {
                put(12 + below(100), &[random() as u8]);
            }
        }
        // The type of the frame; a VLAN in it.
        1 => put(12, &kind),
        2 => {
            put(12, &0x8100_u16.to_be_bytes());
            put(14, &number);
            put(16, &kind);
        }
        // The header of IPv4: its length, that of the packet, the fragment, the protocol.
        3 => put(14, &[one_of(&[0x40, 0x41, 0x44, 0x4f, 0x60, 0x00], low)]),
        4 => put(
            16,
            &one_of(&[0_u16, 1, 19, 20, 0xffff], random() as u16).to_be_bytes(),
        ),
        5 => put(20, &[high, low]),
        6 => put(23, &[protocol]),
        // The headers of UDP and TCP.
        7 => put(34 + below(20), &number),
        // A packet of IPv6 with any next header.
        8 => {
            put(12, &[0x86, 0xdd, 0x60, 0, 0, 0, high, low, protocol, 64]);
            put(54, &[protocol, one_of(&[0, 1, 0xff], low), low, high]);
        }
        _ => {
            let mut at = 14;
            while at < room.size().min(600) {
                put(at, &random().to_be_bytes());
                at += 8;
            }
        }
    }
}

/// Addresses of buffers that a queue has filled.
pub(super) struct Before([u64; 16]);

impl Before {
    pub(super) fn new() -> Self {
        Self([0; 16])
    }

    /// Notes a buffer, and changes one of those that were noted before. All are in the rings of
    /// this session.
    pub(super) fn change(&mut self, path: &dyn Path, address: u64) {
        let place = below(self.0.len());
        let Some(before) = self.0.get_mut(place) else {
            return;
        };
        let changed = core::mem::replace(before, address);
        if changed != 0 && !is_flat(path) && lies(Kind::Later) {
            if let Ok(memory) = path.reach(changed, 1024) {
                for _ in 0..4 {
                    let bytes = (random() as u32).to_ne_bytes();
                    let _ = memory.write(below(one_of(&[64, 1020], 256)), &bytes);
                }
            }
        }
    }
}

/// Returns the offer to make in the place of the true one.
pub(super) fn offer(path: &dyn Path, true_one: BlockOffer) -> BlockOffer {
    OFFERS.fetch_add(1, Relaxed);
    next_turn();
    let mut said = BlockOffer {
        address: true_one.address,
        queues: true_one.queues,
        slots: true_one.slots,
        buffer: true_one.buffer,
    };
    if lies(Kind::Offer) {
        match below(6) {
            0 => said.address = nowhere(),
            1 => said.queues = one_of(&[0, 65], u32::MAX),
            2 => said.slots = one_of(&[0, 1, 31, 33, 8192], u32::MAX),
            3 => said.buffer = one_of(&[0, 1, 4095, 65537], u32::MAX),
            // The peer's rings have other places than this node expects.
            4 if !is_flat(path) => said.slots = 32,
            5 if !is_flat(path) => said.buffer = 65536,
            _ => said.address = nowhere(),
        }
    }
    said
}

/// Sends messages in the middle of a session.
pub(super) fn talk(peer: &Arc<Peer>, offer: BlockOffer) {
    if !lies(Kind::Message) {
        return;
    }
    let say = |message: &FrameMessage| {
        if let Ok(reservation) = Reservation::new(GFP_ATOMIC) {
            peer.send(reservation, message);
        }
    };
    say(&FrameMessage::Ask {
        word: below(4) as u32,
    });
    for _ in 0..=below(8) {
        match below(3) {
            0 if !is_flat(peer.path()) => say(&FrameMessage::Withdraw {}),
            1 if below(4) == 0 => break,
            _ => say(&FrameMessage::Withdrawn {}),
        }
    }
    // The second one, unless the last message before was a Withdraw. Then the peer offers anew,
    // which this node takes for a second offer.
    say(&FrameMessage::Offer { offer });
}

/// Returns whether nothing happens any more, so that the liar begins anew. The caller calls this
/// once each tick.
pub(crate) fn is_stuck(path: &dyn Path) -> bool {
    if path.mode() == "local" {
        return false;
    }
    let frames = FRAMES.load(Relaxed);
    let is_quiet = frames != 0 && AT_TICK.load(Relaxed) == frames;
    AT_TICK.store(frames, Relaxed);
    let quiet = if is_quiet { QUIET.load(Relaxed) + 1 } else { 0 };
    QUIET.store(if quiet > 20 { 0 } else { quiet }, Relaxed);
    quiet > 20
}

/// Writes the counts: a line `name value` for each.
pub(crate) fn show<T>(_: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "frames {}", FRAMES.load(Relaxed))?;
    writeln!(f, "by_engine {}", BY_ENGINE.load(Relaxed))?;
    writeln!(f, "offers {}", OFFERS.load(Relaxed))?;
    for ((name, _), count) in KINDS.iter().zip(&LIES) {
        writeln!(f, "lie_{name} {}", count.load(Relaxed))?;
    }
    Ok(())
}
