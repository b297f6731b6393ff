// SPDX-License-Identifier: GPL-2.0

//! Lies to the peer: what a hostile node does in the lab.
//!
//! The module itself speaks all protocols, so nobody has to write them down for a second time. `liar.patch` calls a
//! function of this file wherever the module stores something for its peer. Each function gets what is true, and
//! returns what is said. What the module believes itself stays true, so the node goes on, session after session.
//!
//! Parameters of the module say how often it lies, about what, and when it becomes honest. The seed makes the sequence
//! of decisions; which message meets which of them depends on the processors. Debugfs shows the counts
//! (`/sys/kernel/debug/scif/liar`).
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
            ServiceId,
            SEQUENCE_OFFSET, //
        },
        hello::{
            Hello,
            Mode, //
        },
    },
    module_parameters,
    sys::shared_memory::{
        Payer,
        SharedMemory,
        User, //
    },
    transport::path::Path, //
};

/// What it lies about; the bit of each in `liar_kinds`, and how much rarer it is than others.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// The fields, kind, service, target or version of a control message.
    Message,
    /// The words of an annex.
    Annex,
    /// A control message is not sent, or later.
    Drop,
    /// Some are sent again, of this session or of one before, changed or not.
    Replay,
    /// The number that makes a slot of the control ring valid.
    Sequence,
    /// How many messages were taken out.
    Consumed,
    /// A sign of life.
    Beat,
    /// Doorbells that ring for nothing, many times.
    Storm,
    /// Doorbells that do not ring.
    Silence,
    /// The counters of a ring, where it moves, and what is wished for.
    Ring,
    /// The header of a slot for staging.
    Slot,
    /// How many slots were emptied.
    Credit,
    /// The hello.
    Hello,
    /// A word of the mailbox.
    Mailbox,
    /// The farewell: too early, never, or another one.
    Farewell,
    /// The marks of news: missing, wrong, or many.
    News,
}

/// Names of all kinds, and how much rarer each of them is, in their order.
const KINDS: [(&str, u64); 16] = [
    ("message", 4),
    ("annex", 4),
    ("drop", 4),
    ("replay", 1),
    ("sequence", 64),
    ("consumed", 64),
    ("beat", 1),
    ("storm", 8),
    ("silence", 8),
    ("ring", 4),
    ("slot", 4),
    ("credit", 8),
    ("hello", 1),
    ("mailbox", 16),
    ("farewell", 4),
    ("news", 8),
];

static STATE: Atomic<u64> = Atomic::new(0);
static MESSAGES: Atomic<u64> = Atomic::new(0);
static SLOTS: Atomic<u64> = Atomic::new(0);
static STREAMED: Atomic<u64> = Atomic::new(0);
static OFFERS: Atomic<u64> = Atomic::new(0);
static LIES: [Atomic<u64>; KINDS.len()] = [const { Atomic::new(0) }; KINDS.len()];

/// Whether the peer reaches all memory.
static IS_FLAT: Atomic<bool> = Atomic::new(true);

/// Ticks of the session that there is, and after how many this side ends it.
static AGE: Atomic<u32> = Atomic::new(0);
static LONGEST: Atomic<u32> = Atomic::new(0);

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

/// Whether it has not become honest.
fn is_lying() -> bool {
    said() < u64::from(module_parameters::liar_messages.value())
}

/// Whether to lie now.
fn lies(kind: Kind) -> bool {
    let index = kind as usize;
    let (Some((_, rarity)), Some(count)) = (KINDS.get(index), LIES.get(index)) else {
        return false;
    };
    let is_wanted = module_parameters::liar_kinds.value() & 1 << index != 0
        && is_lying()
        && one_in(u64::from(module_parameters::liar_rate.value()) * rarity);
    if is_wanted {
        count.fetch_add(1, Relaxed);
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

/// Those that mostly end the session if they come again, so that little else would be seen.
const ONCE: [u8; 6] = [2, 6, 7, 13, 130, 137];

/// Whether this must be true in flat mode: what lets go, and extents, as an annex may be that of another message.
fn is_harmful(body: &Body) -> bool {
    ServiceId(u16::from_le_bytes([body[2], body[3]])) == ServiceId::SCIF
        && (LETS_GO.contains(&body[0]) || body[0] == 7)
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

/// Sees to it that the peer does not use an address in it.
fn defuse(body: &mut Body) {
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
    let to = nowhere();
    put(body, address, &to.to_le_bytes());
    if to == SINK.load(Relaxed) {
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

fn change(body: &mut Body) {
    let before = *body;
    match below(16) {
        0 => body[0] = KNOWN[below(KNOWN.len())],
        1 => put(
            body,
            4,
            &(other(number_at(&before, 4)) as u32).to_le_bytes(),
        ),
        2 if one_in(16) => body[below(4)] = random() as u8,
        3..=8 => {
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
            defuse(body);
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
    if lies(Kind::Message) {
        change(&mut body);
    }
    Some(body)
}

/// One more message for a ring, which the module did not want to send; none if none is found.
pub(crate) fn replay(lane: Lane) -> Option<Body> {
    for _ in 0..16 {
        let mut body = remembered();
        let is_answer = body[0] >= 128;
        let fits = is_answer == (lane == Lane::Answers) || one_in(1024);
        let is_too_much = ONCE.contains(&body[0]) && !one_in(64);
        if body[1] == 0 || !fits || is_too_much || is_flat() && is_harmful(&body) {
            continue;
        }
        if lies(Kind::Message) {
            change(&mut body);
        }
        if is_flat() {
            defuse(&mut body);
        }
        MESSAGES.fetch_add(1, Relaxed);
        if let Some(count) = LIES.get(Kind::Replay as usize) {
            count.fetch_add(1, Relaxed);
        }
        return Some(body);
    }
    None
}

/// So many more messages are sent at once.
pub(crate) fn burst(path: &dyn Path) -> usize {
    let is_wanted = module_parameters::liar_kinds.value() & 1 << Kind::Replay as u32 != 0;
    if is_own(path) || said() == 0 || !is_wanted || !is_lying() {
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

/// Where the ring moves, if that is said though it is not so.
pub(crate) fn moves(path: &dyn Path, produced: u32) -> Option<u64> {
    let is_said = !is_own(path) && one_in(16) && lies(Kind::Ring);
    is_said.then(|| other(1 << 32 | u64::from(produced)))
}

/// The header of a slot.
pub(crate) fn header<const N: usize>(mut header: [u8; N]) -> [u8; N] {
    SLOTS.fetch_add(1, Relaxed);
    if lies(Kind::Slot) {
        let at = 8 * below(N / 8);
        let said = other(number_at(&header, at));
        put(&mut header, at, &said.to_le_bytes());
        // Else the check says it.
        if N == 64 && !one_in(4) {
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
        1 << below(14)
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
    LONGEST.store(100, Relaxed);
    QUIET.store(0, Relaxed);
    // Now and then for longer: what the peer does then is of interest, too.
    PATIENCE.store(if one_in(16) { 50 } else { 10 }, Relaxed);
    if !is_lying() {
        LOOKS.store(0, Relaxed);
        return hello;
    }
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
    LONGEST.store(10, Relaxed);
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
        LONGEST.store(AGE.load(Relaxed) + 10, Relaxed);
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
    if is_own(path) || !is_lying() {
        return false;
    }
    let said = said();
    let is_quiet = said != 0 && SAID_BY_TICK.load(Relaxed) == said;
    SAID_BY_TICK.store(said, Relaxed);
    let quiet = if is_quiet { QUIET.load(Relaxed) + 1 } else { 0 };
    QUIET.store(quiet, Relaxed);
    AGE.add(1, Relaxed);
    AGE.load(Relaxed) > LONGEST.load(Relaxed) || quiet > PATIENCE.load(Relaxed)
}

/// Whether this side looks at the control ring again at once, though nobody has rung: to say more.
pub(crate) fn goes_on(path: &dyn Path) -> bool {
    !is_own(path) && is_lying() && !one_in(8)
}

/// Whether this side says farewell and goes on.
pub(crate) fn leaves_early(path: &dyn Path) -> bool {
    !is_flat() && !is_own(path) && one_in(16) && lies(Kind::Farewell)
}

/// Whether this side does not say farewell, though it writes nothing any more.
pub(crate) fn leaves_silently(path: &dyn Path) -> bool {
    !is_own(path) && lies(Kind::Farewell)
}

// ----- what it has done ----------------------------------------------------------------------------

/// Shows the counts: a line `name value` for each.
pub(crate) fn show<T>(_: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "said {}", said())?;
    writeln!(f, "messages {}", MESSAGES.load(Relaxed))?;
    writeln!(f, "streamed {}", STREAMED.load(Relaxed))?;
    writeln!(f, "slots {}", SLOTS.load(Relaxed))?;
    writeln!(f, "offers {}", OFFERS.load(Relaxed))?;
    for ((name, _), count) in KINDS.iter().zip(&LIES) {
        writeln!(f, "lie_{name} {}", count.load(Relaxed))?;
    }
    Ok(())
}
