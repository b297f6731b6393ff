// SPDX-License-Identifier: GPL-2.0

//! Lies to the peer: the behaviour of a hostile node in the lab.
//!
//! The module itself speaks all protocols, so this file does not write them down for a second time.
//! `liar.patch` calls a function of this file wherever the module stores something for its peer.
//! Each function gets the true value, and returns the value that is stored. The module's own state
//! stays true, so the node goes on, session after session.
//!
//! Module parameters set how often the module lies, and about what. The seed makes the sequence of
//! decisions. Which message meets which decision depends on the timing of the CPUs. Debugfs shows
//! the counts (`/sys/kernel/debug/scif/liar`).
//!
//! # Which lie the liar tells
//!
//! Most of the traffic is in sessions that last. Some lies end a session, as the peer sees the
//! contradiction. The liar tells such a lie only after the session has lasted for a while. Then it
//! tells one of them: the kind told least often among those that had a chance. It tells the other
//! kinds all the time. The liar accepts whatever its peer answers to lies.
//!
//! In two of three sessions the liar repeats messages without end. In the other sessions programs
//! get more done.
//!
//! # Which lies the liar does not tell in flat mode
//!
//! In flat mode a peer reaches all memory, and security.rst promises nothing. So a lie must not
//! make either node write to memory of other users:
//! - The liar never tells the peer that this node has released memory that this node still uses.
//! - The liar replaces addresses of this node's memory. The replacements are addresses that the
//!   peer can't reach, or the addresses of two pages that this node does not use.
//!
//! In arena and bounce mode the liar tells all lies.

use core::array;

use kernel::{
    fmt,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

use crate::{
    logic::{
        control_block::Lane,
        envelope::{
            Envelope,
            ServiceId,
            SEQUENCE_OFFSET, //
        },
        hello::{
            Hello,
            Mode, //
        },
        messages::Message,
    },
    module_parameters,
    sys::shared_memory::{
        MemoryUser,
        Payer,
        SharedMemory, //
    },
    transport::path::Path, //
};

/// A kind of lie. Its number is its bit in `liar_kinds`.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A control message that is well formed, but not true.
    Message,
    /// The words of an annex.
    Annex,
    /// A control message that the liar does not send.
    Drop,
    /// Messages of this session or of one before that the liar sends again, changed or not.
    Replay,
    /// The heartbeat.
    Beat,
    /// Many doorbells without a reason.
    Storm,
    /// Doorbells that do not ring.
    Silence,
    /// The threshold or the doorbell of a ring's wake-up request.
    WakeRequest,
    /// The purpose of a bounce slot.
    Slot,
    /// The marks that tell the peer which channels have news: missing, wrong, or many.
    News,
    /// A missing farewell at the end of a session.
    Leave,
    /// A word of the mailbox.
    Mailbox,
    /// A field of the hello.
    Hello,
    /// A control message that is malformed, or contradicts an earlier one.
    Contradiction,
    /// The sequence number that makes a slot of the control ring valid.
    Sequence,
    /// The number of control messages that the liar has consumed.
    Consumed,
    /// The counters of a ring, or the place to which the ring moves.
    Ring,
    /// The sequence number of a bounce slot, or its checksum.
    Torn,
    /// The number of bounce slots that the liar has emptied, or the number at which it asks for a
    /// wake-up.
    Credit,
    /// A farewell in the middle of a session.
    Farewell,
}

/// Names of all kinds in their order, and the number of chances of which the liar takes one. Kinds
/// with 0 end the session.
const KINDS: [(&str, u64); 20] = [
    ("message", 4),
    ("annex", 2),
    ("drop", 128),
    ("replay", 1),
    ("beat", 4),
    ("storm", 64),
    ("silence", 256),
    ("wakeup", 128),
    ("slot", 8),
    ("news", 256),
    ("leave", 2),
    ("mailbox", 192),
    ("hello", 16),
    ("contradiction", 0),
    ("sequence", 0),
    ("consumed", 0),
    ("ring", 0),
    ("torn", 0),
    ("credit", 0),
    ("farewell", 0),
];

static STATE: Atomic<u64> = Atomic::new(0);
static MESSAGES: Atomic<u64> = Atomic::new(0);
static SLOTS: Atomic<u64> = Atomic::new(0);
static STREAMED: Atomic<u64> = Atomic::new(0);
static OFFERS: Atomic<u64> = Atomic::new(0);
static CHANCES: [Atomic<u64>; KINDS.len()] = [const { Atomic::new(0) }; KINDS.len()];
static LIES: [Atomic<u64>; KINDS.len()] = [const { Atomic::new(0) }; KINDS.len()];

/// Whether the peer reaches all memory (flat mode).
static IS_FLAT: Atomic<bool> = Atomic::new(true);

/// Age of the present session in ticks, the age from which a lie may end it, and the age at which
/// the liar ends it.
static AGE: Atomic<u32> = Atomic::new(0);
static DUE: Atomic<u32> = Atomic::new(0);
static LONGEST: Atomic<u32> = Atomic::new(0);

/// Ticks that the peer has to end a session after a lie that should end it. Also the ticks that a
/// kind of lie has to get a chance.
const GRACE: u32 = 5;

/// Whether the liar repeats messages without end in this session.
static FLOODS: Atomic<bool> = Atomic::new(false);

/// Ticks of all sessions.
static TICKS: Atomic<u64> = Atomic::new(0);

/// Ticks in which the liar sent nothing, the number of them after which the liar ends the session,
/// and the count of messages at the last tick.
static QUIET: Atomic<u32> = Atomic::new(0);
static PATIENCE: Atomic<u32> = Atomic::new(0);
static SAID_BY_TICK: Atomic<u64> = Atomic::new(0);

/// Polls of the link until the liar gives up its offer, or 0 if it does not give it up.
static LOOKS: Atomic<u32> = Atomic::new(0);

/// The count of messages at the last offer, and the generation that this offer shows. Generation 0
/// stands for the true one.
static SAID_BY_OFFER: Atomic<u64> = Atomic::new(0);
static GENERATION: Atomic<u64> = Atomic::new(0);

/// Bus address of two pages that this node does not use, in flat mode. It is 0 before they are
/// allocated.
static SINK: Atomic<u64> = Atomic::new(0);

/// Returns the next number of a generator (xorshift). Two concurrent callers may get the same
/// number.
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

fn one_in(number: u64) -> bool {
    random() % number.max(1) == 0
}

/// Returns the number of messages, stores of ring counters and slots so far.
fn said() -> u64 {
    MESSAGES.load(Relaxed) + STREAMED.load(Relaxed) + SLOTS.load(Relaxed)
}

fn chances(index: usize) -> u64 {
    CHANCES.get(index).map_or(0, |count| count.load(Relaxed))
}

fn told(index: usize) -> u64 {
    LIES.get(index).map_or(0, |count| count.load(Relaxed))
}

fn is_asked_for(index: usize) -> bool {
    module_parameters::liar_kinds.value() & 1 << index != 0
}

fn ends_session(index: usize) -> bool {
    KINDS.get(index).is_some_and(|(_, rarity)| *rarity == 0)
}

/// Returns whether the session may end by this kind of lie, which the peer notices.
fn is_due(index: usize) -> bool {
    let age = AGE.load(Relaxed);
    let due = DUE.load(Relaxed);
    let mut others = (0..KINDS.len())
        .filter(|other| ends_session(*other) && is_asked_for(*other) && chances(*other) != 0);
    if age < due + GRACE {
        return age >= due && others.all(|other| told(other) >= told(index));
    }
    // The kind whose turn it was has had no chance. Another kind serves, too, if it was not told
    // more often than the average.
    let (count, sum) = others.fold((0, 0), |(count, sum), other| (count + 1, sum + told(other)));
    count * told(index) <= sum
}

/// Returns whether to lie now, and counts the chance. If the caller finds a lie, it calls [`tell`].
fn wants(kind: Kind) -> bool {
    let index = kind as usize;
    let (Some((_, rarity)), Some(count)) = (KINDS.get(index), CHANCES.get(index)) else {
        return false;
    };
    count.fetch_add(1, Relaxed);
    is_asked_for(index)
        && match u64::from(module_parameters::liar_rate.value()) * rarity {
            0 => is_due(index),
            rarity => one_in(rarity),
        }
}

/// Counts a lie of this kind, and ends the session soon if the kind ends sessions.
fn tell(kind: Kind) {
    let index = kind as usize;
    if let Some(count) = LIES.get(index) {
        count.fetch_add(1, Relaxed);
    }
    if ends_session(index) {
        ends_soon(GRACE);
    }
}

/// Marks the session as useless: no other lie ends it, and the liar ends it after `ticks` ticks.
fn ends_soon(ticks: u32) {
    DUE.store(u32::MAX - GRACE, Relaxed);
    LONGEST.store(AGE.load(Relaxed) + ticks, Relaxed);
}

/// Returns whether to lie now, and counts the lie.
fn lies(kind: Kind) -> bool {
    let is_wanted = wants(kind);
    if is_wanted {
        tell(kind);
    }
    is_wanted
}

/// Returns whether the path leads to this node itself, to which the liar does not lie.
fn is_own(path: &dyn Path) -> bool {
    path.mode() == "local"
}

fn is_flat() -> bool {
    IS_FLAT.load(Relaxed)
}

/// Returns another number: a near one, one at an edge, or any.
fn other(number: u64) -> u64 {
    match below(10) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => number.wrapping_add(1),
        4 => number.wrapping_sub(1),
        5 => number ^ 1 << below(64),
        6 => number.wrapping_shl(1),
        7 => number.wrapping_add(random() % 64),
        8 => 1 << 63,
        _ => random(),
    }
}

/// Returns an address that the peer can't use, or can use without harm.
fn nowhere() -> u64 {
    let sink = SINK.load(Relaxed);
    match below(6) {
        0 => u64::MAX - random() % 4096,
        1 => 1 << 46,
        2 => 1 << 62 | random(),
        3 if sink != 0 => sink | 1,
        4 if sink != 0 => sink,
        _ => u64::MAX & !0xfff,
    }
}

/// Returns a harmless packed extent of the same kind as `packed`.
fn extent_nowhere(packed: u64) -> u64 {
    let pages = if one_in(2) { packed } else { random() } & 0xf_ffff;
    let sink = SINK.load(Relaxed);
    if sink != 0 && pages < 2 && one_in(2) {
        return sink >> PAGE_SHIFT << 20 | pages;
    }
    // The address is above the memory that any machine has.
    1 << 54 | random() << 20 | pages
}

fn number_at(body: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    if let Some(found) = body.get(at..at + 8) {
        bytes.copy_from_slice(found);
    }
    u64::from_le_bytes(bytes)
}

fn put(body: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = body.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

// ----- control messages --------------------------------------------------------------------------

type Body = [u8; SEQUENCE_OFFSET];

const WORDS: usize = SEQUENCE_OFFSET / 8;
const REMEMBERED: usize = 64;

/// Messages that the module has sent, or the liar has dropped. Messages torn by concurrent writers
/// serve as well.
static HISTORY: [Atomic<u64>; WORDS * REMEMBERED] = [const { Atomic::new(0) }; WORDS * REMEMBERED];

/// Numbers of all kinds of messages.
const KNOWN: [u8; 22] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 128, 129, 130, 131, 132, 134, 135, 136, 137,
];

/// SCIF messages by which a node says that it no longer uses something. A request that is cancelled
/// while it is queued uses nothing yet.
const LETS_GO: [u8; 8] = [4, 128, 129, 131, 132, 135, 136, 137];

/// SCIF messages that contradict earlier ones if they are repeated or not true.
const ONCE: [u8; 6] = [2, 6, 7, 13, 130, 137];

/// Returns whether the peer most likely ends the session if the unchanged module sends no such
/// message by this ring.
fn is_contradiction(body: &Body, lane: Lane) -> bool {
    let Ok(envelope) = Envelope::decode(body) else {
        return true;
    };
    if envelope.lane() != lane {
        return true;
    }
    match envelope.service {
        ServiceId::PEER => true,
        ServiceId::SCIF => ONCE.contains(&body[0]) || Message::from_envelope(&envelope).is_err(),
        _ => false,
    }
}

fn is_of_scif(body: &Body) -> bool {
    ServiceId(u16::from_le_bytes([body[2], body[3]])) == ServiceId::SCIF
}

fn is_connect(body: &Body) -> bool {
    is_of_scif(body) && body[0] == 1
}

/// Returns whether many repetitions of this message keep honest programs from getting anything
/// done.
///
/// An accepted connection request makes a program wait for what follows it. A message that ends
/// connections may hit one of the present connections.
fn is_costly(body: &Body) -> bool {
    is_of_scif(body) && [1, 4, 128, 129].contains(&body[0])
}

/// Returns the ring by which a message goes.
fn lane_of(body: &Body) -> Lane {
    if body[0] < 128 {
        Lane::Requests
    } else {
        Lane::Answers
    }
}

/// Returns whether this message must be true in flat mode. Such messages release memory, or carry
/// extents whose annex may be that of another message.
fn is_harmful(body: &Body) -> bool {
    is_of_scif(body) && (LETS_GO.contains(&body[0]) || body[0] == 7)
}

fn remember(body: &Body) {
    let first = below(REMEMBERED) * WORDS;
    for index in 0..WORDS {
        if let Some(place) = HISTORY.get(first + index) {
            place.store(number_at(body, index * 8), Relaxed);
        }
    }
}

fn remembered() -> Body {
    let first = below(REMEMBERED) * WORDS;
    let mut body = [0; SEQUENCE_OFFSET];
    for index in 0..WORDS {
        let word = HISTORY.get(first + index);
        let word = word.map_or(0, |word| word.load(Relaxed));
        put(&mut body, index * 8, &word.to_le_bytes());
    }
    body
}

/// Replaces an address in the message by a harmless one.
///
/// Unless the session is over (`is_over`), the peer can use the new address, so that it does not
/// end the session.
fn defuse(body: &mut Body, is_over: bool) {
    // Connect and Accept; RingOffer, StagingOffer and StagingTaken; WindowOffer.
    let address = match body[0] {
        1 | 2 => 16,
        13 | 130 | 137 => 8,
        6 => {
            for at in [40, 48] {
                let said = extent_nowhere(number_at(body, at));
                put(body, at, &said.to_le_bytes());
            }
            // Leaves no extents for the annex, which may be that of another message.
            let extents = number_at(body, 32) as u32;
            put(body, 32, &extents.min(2).to_le_bytes());
            return;
        }
        _ => return,
    };
    let sink = SINK.load(Relaxed);
    let to = if is_over || sink == 0 {
        nowhere()
    } else {
        sink
    };
    put(body, address, &to.to_le_bytes());
    if to == sink {
        // Limits the size to the room of the two pages.
        let (size, each) = match body[0] {
            13 => (1_u32 << below(3), Some(1024_u32)),
            _ => (64 << below(6), None),
        };
        put(body, address + 8, &size.to_le_bytes());
        if let Some(each) = each {
            put(body, address + 12, &each.to_le_bytes());
        }
    }
}

fn change(body: &mut Body, is_over: bool) {
    let before = *body;
    match below(16) {
        0 => body[0] = KNOWN[below(KNOWN.len())],
        1 => put(
            body,
            4,
            &(other(number_at(&before, 4)) as u32).to_le_bytes(),
        ),
        // Takes the field from another message.
        3 => put(body, 4, &remembered()[4..8]),
        4 => {
            let at = 8 + 8 * below(6);
            put(body, at, &number_at(&remembered(), at).to_le_bytes());
        }
        2 if one_in(16) => body[below(4)] = random() as u8,
        5..=9 => {
            let at = 8 + 4 * below(12);
            put(
                body,
                at,
                &(other(number_at(&before, at) & 0xffff_ffff) as u32).to_le_bytes(),
            );
        }
        _ => {
            let at = 8 + 8 * below(6);
            put(body, at, &other(number_at(&before, at)).to_le_bytes());
        }
    }
    if is_flat() {
        if is_harmful(&before) || is_harmful(body) {
            *body = before;
        } else {
            defuse(body, is_over);
        }
    }
}

/// Returns whether the session may end by this message. Rare messages that carry most have
/// precedence.
fn is_last(body: &Body) -> bool {
    (ONCE.contains(&body[0]) || one_in(32)) && wants(Kind::Contradiction)
}

/// Changes a message for this ring, if it is time for a lie.
fn lie_by(body: &mut Body, lane: Lane) {
    let is_over = is_last(body);
    if !is_over && !wants(Kind::Message) {
        return;
    }
    // Retries, as some changes make the other kind of lie.
    for _ in 0..8 {
        let mut said = *body;
        change(&mut said, is_over);
        // The peer checks the ring of a request when it accepts the request. In flat mode the ring
        // is harmless.
        let is_other_ring = is_connect(body) && !is_flat() && said[16..] != body[16..];
        let is_end = is_contradiction(&said, lane) || is_other_ring;
        if said != *body && is_end == is_over {
            *body = said;
            tell(if is_over {
                Kind::Contradiction
            } else {
                Kind::Message
            });
            return;
        }
    }
}

/// Returns the message to send in the place of a control message, or `None` to drop it.
pub(crate) fn message(path: &dyn Path, body: &Body) -> Option<Body> {
    let mut body = *body;
    if is_own(path) {
        return Some(body);
    }
    MESSAGES.fetch_add(1, Relaxed);
    remember(&body);
    if lies(Kind::Drop) {
        return None;
    }
    let lane = lane_of(&body);
    // Most messages stay true, so that the programs that caused them make progress.
    if one_in(8) || DUE.load(Relaxed) <= AGE.load(Relaxed) {
        lie_by(&mut body, lane);
    }
    Some(body)
}

// ----- slots of the peer's rings -----------------------------------------------------------------

/// Largest number of slots of a ring.
const SLOTS_OF_RING: usize = 256;

/// The words that the liar has stored in the slots of one peer's rings, and for each ring the
/// address of the path to that peer.
static THERE: [Atomic<u64>; 2 * SLOTS_OF_RING * WORDS] =
    [const { Atomic::new(0) }; 2 * SLOTS_OF_RING * WORDS];
static PEERS: [Atomic<u64>; 2] = [const { Atomic::new(0) }; 2];

/// Returns the index of the first word of a slot.
fn place_of(lane: Lane, slot: u64) -> usize {
    (lane as usize * SLOTS_OF_RING + slot as usize % SLOTS_OF_RING) * WORDS
}

/// Returns the message that lies in this slot.
fn lies_there(lane: Lane, slot: u64) -> Option<Body> {
    let words = THERE.get(place_of(lane, slot)..)?.get(..WORDS)?;
    let mut body = [0; SEQUENCE_OFFSET];
    for (index, word) in words.iter().enumerate() {
        put(&mut body, index * 8, &word.load(Relaxed).to_le_bytes());
    }
    Some(body)
}

/// Returns the words to store so that the slot holds the message of that number, with their
/// offsets.
///
/// Words that the slot holds already are left out. On many bridges each store traps, and most
/// repeated messages are in their slot already.
pub(crate) fn to_store(
    path: &dyn Path,
    lane: Lane,
    (slot, number): (u32, u64),
    body: &Body,
) -> [Option<(usize, u64)>; WORDS] {
    let id = core::ptr::from_ref(path).cast::<()>().addr() as u64;
    let peer = PEERS.get(lane as usize);
    if let Some(peer) = peer.filter(|_| number == 1 && !is_own(path)) {
        peer.store(id, Relaxed);
    }
    let is_known = peer.is_some_and(|peer| peer.load(Relaxed) == id);
    let first = place_of(lane, slot.into());
    array::from_fn(|index| {
        let (at, word) = (index * 8, number_at(body, index * 8));
        let there = THERE.get(first + index).filter(|_| is_known);
        let before = there.map(|there| there.xchg(word, Relaxed));
        // In the first round the slots are empty.
        let is_there = number > SLOTS_OF_RING as u64 && before == Some(word);
        (!is_there).then_some((at, word))
    })
}

// ----- more messages ---------------------------------------------------------------------------------

/// Returns an additional message for that slot of a ring, or `None` if none is found.
pub(crate) fn replay(lane: Lane, slot: u64) -> Option<Body> {
    for round in 0..16 {
        let mut body = match lies_there(lane, slot) {
            // The message of this slot takes only a store or two.
            Some(body) if round == 0 && !one_in(8) => body,
            _ => remembered(),
        };
        let is_too_much = is_costly(&body) && !one_in(64);
        if body[1] == 0 || is_too_much || is_flat() && is_harmful(&body) {
            continue;
        }
        let is_over = is_contradiction(&body, lane);
        if !is_over {
            lie_by(&mut body, lane);
        } else if one_in(32) && wants(Kind::Contradiction) {
            tell(Kind::Contradiction);
        } else {
            continue;
        }
        if is_flat() {
            defuse(&mut body, is_over);
        }
        MESSAGES.fetch_add(1, Relaxed);
        tell(Kind::Replay);
        return Some(body);
    }
    None
}

/// Ignores an error of a message from the peer, which may be the answer to a lie.
pub(crate) fn forgive<E>(_: Result<(), E>) -> Result<(), E> {
    Ok(())
}

/// Returns the number of additional messages to send now.
pub(crate) fn burst(path: &dyn Path) -> usize {
    let is_wanted = FLOODS.load(Relaxed) && is_asked_for(Kind::Replay as usize);
    if is_own(path) || said() == 0 || !is_wanted {
        0
    } else {
        below(16)
    }
}

/// Returns the bytes to store in the annex in the place of `words`.
pub(crate) fn annex(path: &dyn Path, words: &[u8]) -> [u8; 512] {
    let mut said = [0; 512];
    put(&mut said, 0, words);
    if !is_own(path) && lies(Kind::Annex) {
        let at = 8 * below(words.len() / 8);
        let word = match is_flat() {
            true => extent_nowhere(number_at(&said, at)),
            false => other(number_at(&said, at)),
        };
        put(&mut said, at, &word.to_le_bytes());
    }
    said
}

// ----- numbers -------------------------------------------------------------------------------------

/// Returns the number to store in the place of a true one.
pub(crate) fn number(kind: Kind, number: u64) -> u64 {
    if lies(kind) {
        other(number)
    } else {
        number
    }
}

/// Returns the number to store for a peer at the end of this path.
pub(crate) fn number_to(path: &dyn Path, kind: Kind, true_one: u64) -> u64 {
    if is_own(path) {
        true_one
    } else {
        number(kind, true_one)
    }
}

/// Returns the value to store in a counter of a ring.
pub(crate) fn counter(path: &dyn Path, count: u32) -> u32 {
    if is_own(path) {
        return count;
    }
    STREAMED.fetch_add(1, Relaxed);
    number(Kind::Ring, count.into()) as u32
}

/// Returns the threshold or the doorbell to store in a wake-up request of a ring.
pub(crate) fn wake_request(path: &dyn Path, true_one: u32) -> u32 {
    number_to(path, Kind::WakeRequest, true_one.into()) as u32
}

/// Returns the word of a false move of the ring, or `None` for no move.
pub(crate) fn moves(path: &dyn Path, produced: u32) -> Option<u64> {
    let is_said = !is_own(path) && one_in(4) && lies(Kind::Ring);
    is_said.then(|| other(1 << 32 | u64::from(produced)))
}

/// Returns the header to store in a bounce slot.
pub(crate) fn header<const N: usize>(mut header: [u8; N]) -> [u8; N] {
    SLOTS.fetch_add(1, Relaxed);
    let is_torn = lies(Kind::Torn);
    if !is_torn && !lies(Kind::Slot) {
        return header;
    }
    // A torn header has a wrong sequence number or checksum. Other lies change a field after the
    // sequence number.
    let at = if is_torn { 0 } else { 8 * (1 + below(4)) };
    let said = other(number_at(&header, at));
    put(&mut header, at, &said.to_le_bytes());
    // Without a new checksum the old one would reveal the change.
    if !is_torn || one_in(2) {
        let words = array::from_fn::<u64, 7, _>(|index| number_at(&header, index * 8));
        let check = words
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |check: u64, word| {
                (check ^ word)
                    .wrapping_mul(0x0100_0000_01b3)
                    .rotate_left(29)
            });
        put(&mut header, 56, &check.to_le_bytes());
    }
    header
}

// ----- doorbells -----------------------------------------------------------------------------------

/// Returns how many times to ring a doorbell, and whether to ring the others, too.
pub(crate) fn rings() -> (usize, bool) {
    if lies(Kind::Silence) {
        (0, false)
    } else if lies(Kind::Storm) {
        (below(64), true)
    } else {
        (1, false)
    }
}

/// Returns the mark of a slot and that of its group, each with its place, in the order in which the
/// caller stores them.
pub(crate) fn mark(path: &dyn Path, slot: usize, group: usize) -> [(usize, u8); 2] {
    let marks = [(slot, 1), (group, 1)];
    if is_own(path) || !lies(Kind::News) {
        return marks;
    }
    match below(6) {
        // Both marks are removed.
        0 => [(slot, 0), (group, 0)],
        // The first pair marks a group without a marked slot. The second marks a slot in an
        // unmarked group.
        1 => [(slot, 0), (group, 1)],
        2 => [(slot, 1), (group, 0)],
        // The mark of the group is stored before that of the slot.
        3 => [(group, 1), (slot, 1)],
        // Another slot of the group is marked.
        4 => [(slot ^ 1 + below(63), 1), (group, 1)],
        _ => [(slot, random() as u8), (group, random() as u8)],
    }
}

/// Returns the number of additional marks to store now.
pub(crate) fn more_marks(path: &dyn Path) -> usize {
    if is_own(path) || said() == 0 || !lies(Kind::News) {
        0
    } else {
        1 << below(10)
    }
}

/// Returns one additional mark and its place among `size` bytes of marks.
pub(crate) fn any_mark(size: usize) -> (usize, u8) {
    // Aims at the marks of groups often. They are few, and the peer finds no slot without its
    // group's mark.
    let at = if one_in(4) { below(64) } else { below(size) };
    let mark = if one_in(16) { 0 } else { random() as u8 };
    (at.min(size.saturating_sub(1)), mark)
}

// ----- the handshake -------------------------------------------------------------------------------

fn make_sink() {
    if SINK.load(Relaxed) == 0 {
        if let Ok(memory) = SharedMemory::new(2 * PAGE_SIZE, &MemoryUser::Physical, Payer::None) {
            SINK.store(memory.bus_address(), Relaxed);
            // The peer may use the memory for ever.
            core::mem::forget(memory);
        }
    }
}

/// Returns the hello to send in the place of a true one.
pub(crate) fn hello(mut hello: Hello) -> Hello {
    let is_flat = hello.mode == Mode::Flat.number();
    IS_FLAT.store(is_flat, Relaxed);
    if is_flat {
        make_sink();
    }
    OFFERS.fetch_add(1, Relaxed);
    AGE.store(0, Relaxed);
    // Short sessions are as frequent as long ones.
    let due = 1 << below(6);
    DUE.store(due, Relaxed);
    LONGEST.store(due + 4 * GRACE, Relaxed);
    FLOODS.store(!one_in(3), Relaxed);
    QUIET.store(0, Relaxed);
    // Now and then the liar is patient, as a test of how the peer behaves in a quiet session.
    PATIENCE.store(if one_in(16) { 50 } else { 10 }, Relaxed);
    LOOKS.store(40, Relaxed);
    if hello.echo == 0 {
        // If the last offer led to nothing, the peer may not answer this generation for up to a
        // minute. So the liar shows another generation.
        let said = said();
        let is_vain = said != 0 && SAID_BY_OFFER.load(Relaxed) == said;
        SAID_BY_OFFER.store(said, Relaxed);
        GENERATION.store(if is_vain { random() | 1 } else { 0 }, Relaxed);
    }
    let shown = GENERATION.load(Relaxed);
    if shown != 0 {
        hello.generation = shown;
    }
    if !lies(Kind::Hello) {
        return hello;
    }
    // Neither side may notice the other one.
    ends_soon(GRACE);
    // The peer may not answer the old generation for a while.
    hello.generation = random() | 1;
    match below(10) {
        0 => hello.echo = other(hello.echo.into()) as u32,
        1..=3 => hello.node = random() as u16,
        4 => hello.page_shift = other(hello.page_shift.into()) as u8,
        5 => {
            hello.control = match is_flat {
                // The control block is at the end of the aperture.
                _ if one_in(4) => hello
                    .aperture_base
                    .wrapping_add(hello.aperture_len)
                    .wrapping_sub(64),
                true => nowhere() | 1,
                false => hello
                    .aperture_base
                    .wrapping_add(random() % hello.aperture_len.max(1)),
            };
        }
        6 => hello.aperture_base = 1 << 63 | random() << PAGE_SHIFT,
        7 if !is_flat => hello.aperture_len = other(hello.aperture_len),
        7 => hello.aperture_len = (below(PAGE_SIZE)) as u64,
        8 => hello.mode = other(hello.mode.into()) as u8,
        _ => hello.windows = other(hello.windows.into()) as u16,
    }
    LOOKS.store(8, Relaxed);
    hello
}

/// Returns the word to store in a register of the mailbox.
pub(crate) fn register(word: u32) -> u32 {
    let said = number(Kind::Mailbox, word.into()) as u32;
    if said != word {
        // The peer reads the word as one of another hello. Once the peer has taken it, the liar
        // never shows the true word again.
        ends_soon(GRACE);
        LOOKS.store(20, Relaxed);
    }
    said
}

/// Returns whether the liar begins anew, as the peer does not take up its offer.
pub(crate) fn gives_up(in_session: bool) -> bool {
    let looks = LOOKS.load(Relaxed);
    let left = if in_session {
        0
    } else {
        looks.saturating_sub(1)
    };
    LOOKS.store(left, Relaxed);
    looks == 1 && !in_session
}

/// Returns whether the liar ends the session. The caller calls this once each tick.
pub(crate) fn tires(path: &dyn Path) -> bool {
    if is_own(path) {
        return false;
    }
    let said = said();
    let is_quiet = said != 0 && SAID_BY_TICK.load(Relaxed) == said;
    SAID_BY_TICK.store(said, Relaxed);
    let quiet = if is_quiet { QUIET.load(Relaxed) + 1 } else { 0 };
    QUIET.store(quiet, Relaxed);
    AGE.add(1, Relaxed);
    TICKS.add(1, Relaxed);
    AGE.load(Relaxed) > LONGEST.load(Relaxed) || quiet > PATIENCE.load(Relaxed)
}

/// Returns whether the liar polls the control ring again at once, without a doorbell, to send more
/// messages.
pub(crate) fn goes_on(path: &dyn Path) -> bool {
    !is_own(path) && FLOODS.load(Relaxed) && !one_in(64)
}

/// Returns whether the liar says farewell and goes on.
pub(crate) fn leaves_early(path: &dyn Path) -> bool {
    !is_flat() && !is_own(path) && lies(Kind::Farewell)
}

/// Returns whether the liar stays silent at the end of a session instead of saying farewell.
pub(crate) fn leaves_silently(path: &dyn Path) -> bool {
    !is_own(path) && lies(Kind::Leave)
}

// ----- counts ------------------------------------------------------------------------------------

/// Writes the counts: a line `name value` for each.
pub(crate) fn show<T>(_: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "said {}", said())?;
    writeln!(f, "messages {}", MESSAGES.load(Relaxed))?;
    writeln!(f, "streamed {}", STREAMED.load(Relaxed))?;
    writeln!(f, "slots {}", SLOTS.load(Relaxed))?;
    writeln!(f, "offers {}", OFFERS.load(Relaxed))?;
    writeln!(f, "ticks {}", TICKS.load(Relaxed))?;
    for (index, (name, _)) in KINDS.iter().enumerate() {
        writeln!(f, "lie_{name} {}", told(index))?;
        writeln!(f, "chances_{name} {}", chances(index))?;
    }
    Ok(())
}
