// SPDX-License-Identifier: GPL-2.0

//! Lies to the peer: what a hostile node does in the lab.
//!
//! The module itself speaks all protocols, so nobody has to write them down for a second time. `liar.patch` calls a
//! function of this file wherever the module stores something for its peer. Each function gets what is true, and
//! returns what is said. What the module believes itself stays true, so the node goes on, session after session.
//!
//! Parameters of the module say how often it lies, and about what. The seed makes the sequence
//! of decisions; which message meets which of them depends on the processors. Debugfs shows the counts
//! (`/sys/kernel/debug/scif/liar`).
//!
//! # Which lie is told
//!
//! Most of what goes on is in sessions that last. So a lie that ends one, as the peer sees the contradiction, is not
//! told before the session has lasted for a while, and then one of them: the kind that was told least of all
//! that could have been. The other kinds are told all the time. This side forgives what its peer answers to lies.
//!
//! In two of three sessions it sends messages again without end. In the others programs get more done.
//!
//! # What is not said in flat mode
//!
//! There a peer reaches all memory, and nothing is promised. So a lie must not have either node write to memory that
//! belongs to somebody else: the peer is never told that this node has let go of what it still uses, and addresses of
//! this node's memory are replaced by those that the peer can't reach, or by those of two pages that nobody uses. In arena
//! and bounce mode all of it is said.

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
        Payer,
        SharedMemory,
        User, //
    },
    transport::path::Path, //
};

/// What it lies about; the bit of each in `liar_kinds`.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A control message that can be, but is not true.
    Message,
    /// The words of an annex.
    Annex,
    /// A control message is not sent.
    Drop,
    /// Some are sent again, of this session or of one before, changed or not.
    Replay,
    /// A sign of life.
    Beat,
    /// Doorbells that ring for nothing, many times.
    Storm,
    /// Doorbells that do not ring.
    Silence,
    /// What is wished for of a ring, and by which doorbell.
    Wish,
    /// For what a slot for staging is.
    Slot,
    /// The marks of news: missing, wrong, or many.
    News,
    /// No farewell at the end.
    Leave,
    /// A word of the mailbox.
    Mailbox,
    /// The hello.
    Hello,
    /// A control message that can't be, or contradicts what was said before.
    Contradiction,
    /// The number that makes a slot of the control ring valid.
    Sequence,
    /// How many messages were taken out.
    Consumed,
    /// The counters of a ring, and where it moves.
    Ring,
    /// The number of a slot for staging, or its check.
    Torn,
    /// How many slots were emptied, or of how many that is to be told.
    Credit,
    /// A farewell that comes too early.
    Farewell,
}

/// Names of all kinds in their order, and of how many chances one is taken. Those of 0 end the session.
const KINDS: [(&str, u64); 20] = [
    ("message", 4),
    ("annex", 2),
    ("drop", 128),
    ("replay", 1),
    ("beat", 4),
    ("storm", 64),
    ("silence", 256),
    ("wish", 128),
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

/// Whether the peer reaches all memory.
static IS_FLAT: Atomic<bool> = Atomic::new(true);

/// Ticks of the session that there is, after how many a lie may end it, and after how many this side does.
static AGE: Atomic<u32> = Atomic::new(0);
static DUE: Atomic<u32> = Atomic::new(0);
static LONGEST: Atomic<u32> = Atomic::new(0);

/// Ticks that the peer has to end a session after a lie that should do that, or for some kind of lie to get a chance.
const GRACE: u32 = 5;

/// Whether this session is one in which messages come again without end.
static FLOODS: Atomic<bool> = Atomic::new(false);

/// Ticks of all sessions.
static TICKS: Atomic<u64> = Atomic::new(0);

/// Ticks in which nothing was said, after how many this side ends the session, and what was said by the last tick.
static QUIET: Atomic<u32> = Atomic::new(0);
static PATIENCE: Atomic<u32> = Atomic::new(0);
static SAID_BY_TICK: Atomic<u64> = Atomic::new(0);

/// How often this side looks before it gives up its offer; 0 if it does not.
static LOOKS: Atomic<u32> = Atomic::new(0);

/// What was said by the last offer, and the generation that this one shows; 0 for the true one.
static SAID_BY_OFFER: Atomic<u64> = Atomic::new(0);
static GENERATION: Atomic<u64> = Atomic::new(0);

/// The bus address of two pages that nobody uses, in flat mode; 0 before there is one.
static SINK: Atomic<u64> = Atomic::new(0);

/// The next number of a generator (xorshift). Two callers at once may get the same.
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

/// What was said, by messages, bytes of connections and slots.
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

/// Whether the session may end by this lie, of which the peer notices that it is one.
fn is_due(index: usize) -> bool {
    let age = AGE.load(Relaxed);
    let due = DUE.load(Relaxed);
    let mut others = (0..KINDS.len())
        .filter(|other| ends_session(*other) && is_asked_for(*other) && chances(*other) != 0);
    if age < due + GRACE {
        return age >= due && others.all(|other| told(other) >= told(index));
    }
    // No chance has come for the kind whose turn it was: another one is as good, if it is not the most frequent one.
    let (count, sum) = others.fold((0, 0), |(count, sum), other| (count + 1, sum + told(other)));
    count * told(index) <= sum
}

/// Whether to lie now, if that can be told afterwards.
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

/// A lie of this kind is told.
fn tell(kind: Kind) {
    let index = kind as usize;
    if let Some(count) = LIES.get(index) {
        count.fetch_add(1, Relaxed);
    }
    if ends_session(index) {
        ends_soon(GRACE);
    }
}

/// The session is of no use any more: no other lie ends it, and this side does, after so many ticks.
fn ends_soon(ticks: u32) {
    DUE.store(u32::MAX - GRACE, Relaxed);
    LONGEST.store(AGE.load(Relaxed) + ticks, Relaxed);
}

/// Whether to lie now.
fn lies(kind: Kind) -> bool {
    let is_wanted = wants(kind);
    if is_wanted {
        tell(kind);
    }
    is_wanted
}

/// Whether it leads to this node itself, to which nobody lies.
fn is_own(path: &dyn Path) -> bool {
    path.mode() == "local"
}

fn is_flat() -> bool {
    IS_FLAT.load(Relaxed)
}

/// Another number: a near one, one at an edge, or any.
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

/// An address that the peer can't use, or uses without harm.
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

/// A packed extent of the same kind, in the place of this one.
fn extent_nowhere(packed: u64) -> u64 {
    let pages = if one_in(2) { packed } else { random() } & 0xf_ffff;
    let sink = SINK.load(Relaxed);
    if sink != 0 && pages < 2 && one_in(2) {
        return sink >> PAGE_SHIFT << 20 | pages;
    }
    // Above the memory that any machine has.
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

/// Messages that were sent, or should have been. Torn ones are as good.
static HISTORY: [Atomic<u64>; WORDS * REMEMBERED] = [const { Atomic::new(0) }; WORDS * REMEMBERED];

/// Kinds of messages that there are.
const KNOWN: [u8; 22] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 128, 129, 130, 131, 132, 134, 135, 136, 137,
];

/// Those of SCIF that say that this node does not use something any more. A request that is cancelled while it is
/// queued uses nothing yet.
const LETS_GO: [u8; 8] = [4, 128, 129, 131, 132, 135, 136, 137];

/// Those of SCIF that contradict what was said before if they come again, or are not true.
const ONCE: [u8; 6] = [2, 6, 7, 13, 130, 137];

/// Whether the peer most likely ends the session when such a message comes by this ring, though nothing is the reason for
/// it.
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

/// Whether honest programs get nothing done if this comes too often: somebody waits for what follows a request that is
/// accepted, and of what ends connections some is for those that there are.
fn is_costly(body: &Body) -> bool {
    is_of_scif(body) && [1, 4, 128, 129].contains(&body[0])
}

/// By which ring a message goes.
fn lane_of(body: &Body) -> Lane {
    if body[0] < 128 {
        Lane::Requests
    } else {
        Lane::Answers
    }
}

/// Whether this must be true in flat mode: what lets go, and extents, as an annex may be that of another message.
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

/// Sees to it that the peer does not use an address in it; or ends the session for it, unless that is over.
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
            // None in the annex, which may be that of another one.
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
        // No more than the pages have room for.
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
        // As another one has it.
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

/// Whether the session may end by this message. Those that are rare, and say most, have their turn.
fn is_last(body: &Body) -> bool {
    (ONCE.contains(&body[0]) || one_in(32)) && wants(Kind::Contradiction)
}

/// Changes a message that is sent by this ring, if a lie is to be told by it.
fn lie_by(body: &mut Body, lane: Lane) {
    let is_over = is_last(body);
    if !is_over && !wants(Kind::Message) {
        return;
    }
    // Some changes make the other kind of lie.
    for _ in 0..8 {
        let mut said = *body;
        change(&mut said, is_over);
        // The ring of a request is looked at when that is accepted; in flat mode it is harmless.
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

/// What is sent in the place of a control message; nothing if it is kept back.
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
    // Those who sent it are to come to something.
    if one_in(8) || DUE.load(Relaxed) <= AGE.load(Relaxed) {
        lie_by(&mut body, lane);
    }
    Some(body)
}

// ----- what lies in the slots of the peer's rings ---------------------------------------------------

/// The slots of a ring, at most.
const SLOTS_OF_RING: usize = 256;

/// What this side has stored in the slots of one peer, for each ring; and the path to that peer.
static THERE: [Atomic<u64>; 2 * SLOTS_OF_RING * WORDS] =
    [const { Atomic::new(0) }; 2 * SLOTS_OF_RING * WORDS];
static WHOSE: [Atomic<u64>; 2] = [const { Atomic::new(0) }; 2];

/// Where the words of a slot begin.
fn place_of(lane: Lane, slot: u64) -> usize {
    (lane as usize * SLOTS_OF_RING + slot as usize % SLOTS_OF_RING) * WORDS
}

/// What was stored there.
fn lies_there(lane: Lane, slot: u64) -> Option<Body> {
    let words = THERE.get(place_of(lane, slot)..)?.get(..WORDS)?;
    let mut body = [0; SEQUENCE_OFFSET];
    for (index, word) in words.iter().enumerate() {
        put(&mut body, index * 8, &word.load(Relaxed).to_le_bytes());
    }
    Some(body)
}

/// The words that have to be stored so that the slot has the message of that number, with their places: on many bridges
/// each store traps, and most of the messages that come again are there already.
pub(crate) fn to_store(
    path: &dyn Path,
    lane: Lane,
    (slot, number): (u32, u64),
    body: &Body,
) -> [Option<(usize, u64)>; WORDS] {
    let id = core::ptr::from_ref(path).cast::<()>().addr() as u64;
    let whose = WHOSE.get(lane as usize);
    if let Some(whose) = whose.filter(|_| number == 1 && !is_own(path)) {
        whose.store(id, Relaxed);
    }
    let is_known = whose.is_some_and(|whose| whose.load(Relaxed) == id);
    let first = place_of(lane, slot.into());
    array::from_fn(|index| {
        let (at, word) = (index * 8, number_at(body, index * 8));
        let there = THERE.get(first + index).filter(|_| is_known);
        let before = there.map(|there| there.xchg(word, Relaxed));
        // In the first round there is nothing.
        let is_there = number > SLOTS_OF_RING as u64 && before == Some(word);
        (!is_there).then_some((at, word))
    })
}

// ----- more messages ---------------------------------------------------------------------------------

/// One more message for that slot of a ring, which the module did not want to send; none if none is found.
pub(crate) fn replay(lane: Lane, slot: u64) -> Option<Body> {
    for round in 0..16 {
        let mut body = match lies_there(lane, slot) {
            // A store or two are enough for it.
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

/// What was wrong with a message of the peer, which may be the answer to a lie: nothing.
pub(crate) fn forgive<E>(_: Result<(), E>) -> Result<(), E> {
    Ok(())
}

/// So many more messages are sent at once.
pub(crate) fn burst(path: &dyn Path) -> usize {
    let is_wanted = FLOODS.load(Relaxed) && is_asked_for(Kind::Replay as usize);
    if is_own(path) || said() == 0 || !is_wanted {
        0
    } else {
        below(16)
    }
}

/// What is put into an annex of so many bytes.
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

/// A number that is said.
pub(crate) fn number(kind: Kind, number: u64) -> u64 {
    if lies(kind) {
        other(number)
    } else {
        number
    }
}

/// A number that is said to a peer by such a path.
pub(crate) fn number_to(path: &dyn Path, kind: Kind, true_one: u64) -> u64 {
    if is_own(path) {
        true_one
    } else {
        number(kind, true_one)
    }
}

/// A counter of a ring that is said.
pub(crate) fn counter(path: &dyn Path, count: u32) -> u32 {
    if is_own(path) {
        return count;
    }
    STREAMED.fetch_add(1, Relaxed);
    number(Kind::Ring, count.into()) as u32
}

/// What is wished for of a ring, or the doorbell for that.
pub(crate) fn wish(path: &dyn Path, true_one: u32) -> u32 {
    number_to(path, Kind::Wish, true_one.into()) as u32
}

/// Where the ring moves, if that is said though it is not so.
pub(crate) fn moves(path: &dyn Path, produced: u32) -> Option<u64> {
    let is_said = !is_own(path) && one_in(4) && lies(Kind::Ring);
    is_said.then(|| other(1 << 32 | u64::from(produced)))
}

/// The header of a slot.
pub(crate) fn header<const N: usize>(mut header: [u8; N]) -> [u8; N] {
    SLOTS.fetch_add(1, Relaxed);
    let is_torn = lies(Kind::Torn);
    if !is_torn && !lies(Kind::Slot) {
        return header;
    }
    // The sequence, or what lies behind it.
    let at = if is_torn { 0 } else { 8 * (1 + below(4)) };
    let said = other(number_at(&header, at));
    put(&mut header, at, &said.to_le_bytes());
    // Else the check says it.
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

/// How often a doorbell rings, and whether others do, too.
pub(crate) fn rings() -> (usize, bool) {
    if lies(Kind::Silence) {
        (0, false)
    } else if lies(Kind::Storm) {
        (below(64), true)
    } else {
        (1, false)
    }
}

/// The mark of a slot and that of its group, each with its place, in the order in which they are stored.
pub(crate) fn mark(path: &dyn Path, slot: usize, group: usize) -> [(usize, u8); 2] {
    let marks = [(slot, 1), (group, 1)];
    if is_own(path) || !lies(Kind::News) {
        return marks;
    }
    match below(6) {
        // Taken away.
        0 => [(slot, 0), (group, 0)],
        // The mark of a group in which nothing is marked, and one in a group that is not.
        1 => [(slot, 0), (group, 1)],
        2 => [(slot, 1), (group, 0)],
        // Too early.
        3 => [(group, 1), (slot, 1)],
        // Of another one of the group.
        4 => [(slot ^ 1 + below(63), 1), (group, 1)],
        _ => [(slot, random() as u8), (group, random() as u8)],
    }
}

/// So many more marks are stored at once.
pub(crate) fn more_marks(path: &dyn Path) -> usize {
    if is_own(path) || said() == 0 || !lies(Kind::News) {
        0
    } else {
        1 << below(10)
    }
}

/// One of them, of so many bytes of marks, with its place.
pub(crate) fn any_mark(size: usize) -> (usize, u8) {
    // Groups are few, and nothing is found without theirs.
    let at = if one_in(4) { below(64) } else { below(size) };
    let mark = if one_in(16) { 0 } else { random() as u8 };
    (at.min(size.saturating_sub(1)), mark)
}

// ----- the handshake -------------------------------------------------------------------------------

fn make_sink() {
    if SINK.load(Relaxed) == 0 {
        if let Ok(memory) = SharedMemory::new(2 * PAGE_SIZE, &User::Physical, Payer::Nobody) {
            SINK.store(memory.bus_address(), Relaxed);
            // The peer may use it for ever.
            core::mem::forget(memory);
        }
    }
}

/// The hello that is said in the place of a true one.
pub(crate) fn hello(mut hello: Hello) -> Hello {
    let is_flat = hello.mode == Mode::Flat.number();
    IS_FLAT.store(is_flat, Relaxed);
    if is_flat {
        make_sink();
    }
    OFFERS.fetch_add(1, Relaxed);
    AGE.store(0, Relaxed);
    // As many short sessions as long ones.
    let due = 1 << below(6);
    DUE.store(due, Relaxed);
    LONGEST.store(due + 4 * GRACE, Relaxed);
    FLOODS.store(!one_in(3), Relaxed);
    QUIET.store(0, Relaxed);
    // Now and then for longer: what the peer does then is of interest, too.
    PATIENCE.store(if one_in(16) { 50 } else { 10 }, Relaxed);
    LOOKS.store(40, Relaxed);
    if hello.echo == 0 {
        // If the last offer has come to nothing the peer may not answer this generation, for a minute in the end.
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
    // Neither side may hear the other one.
    ends_soon(GRACE);
    // This one may not be answered for a while.
    hello.generation = random() | 1;
    match below(10) {
        0 => hello.echo = other(hello.echo.into()) as u32,
        1..=3 => hello.node = random() as u16,
        4 => hello.page_shift = other(hello.page_shift.into()) as u8,
        5 => {
            hello.control = match is_flat {
                // At the end of all.
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

/// A word for a register of the mailbox.
pub(crate) fn register(word: u32) -> u32 {
    let said = number(Kind::Mailbox, word.into()) as u32;
    if said != word {
        // As after another hello; and once the peer has taken it, this side shows the true word to nobody.
        ends_soon(GRACE);
        LOOKS.store(20, Relaxed);
    }
    said
}

/// Whether this side begins anew, as nobody takes up its offer.
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

/// Whether this side ends the session, which has lasted for another tick: it begins many.
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

/// Whether this side looks at the control ring again at once, though nobody has rung: to say more.
pub(crate) fn goes_on(path: &dyn Path) -> bool {
    !is_own(path) && FLOODS.load(Relaxed) && !one_in(64)
}

/// Whether this side says farewell and goes on.
pub(crate) fn leaves_early(path: &dyn Path) -> bool {
    !is_flat() && !is_own(path) && lies(Kind::Farewell)
}

/// Whether this side does not say farewell, though it writes nothing any more.
pub(crate) fn leaves_silently(path: &dyn Path) -> bool {
    !is_own(path) && lies(Kind::Leave)
}

// ----- what it has done ----------------------------------------------------------------------------

/// Shows the counts: a line `name value` for each.
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
