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
        envelope::SEQUENCE_OFFSET,
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
    /// The counters of a ring, and where it moves.
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
}

/// Names of all kinds, and how much rarer each of them is, in their order.
const KINDS: [(&str, u64); 15] = [
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

/// How often this side has looked since it has lied in an offer; 0 if it has not.
static LOOKS: Atomic<u32> = Atomic::new(0);

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
const KNOWN: [u8; 23] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 128, 129, 130, 131, 132, 134, 135, 136, 137, 133,
];

/// Those that say that this node does not use something any more.
const LETS_GO: [u8; 9] = [3, 4, 128, 129, 131, 132, 135, 136, 137];

/// Those that end the session if they come again, so that little else would be seen.
const ONCE: [u8; 4] = [2, 13, 130, 137];

fn lets_go(body: &Body) -> bool {
    LETS_GO.contains(&body[0])
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
                put(
                    body,
                    at,
                    &(nowhere() & !0xfff | random() & 0xfff).to_le_bytes(),
                );
            }
            return;
        }
        _ => return,
    };
    let to = nowhere();
    put(body, address, &to.to_le_bytes());
    if to == SINK.load(Relaxed) {
        // No more than the page has room for.
        let size = 64_u32 << below(6);
        put(body, address + 8, &size.to_le_bytes());
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
        if lets_go(&before) || lets_go(body) {
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
        let is_too_much = ONCE.contains(&body[0]) && !one_in(256);
        if body[1] == 0 || !fits || is_too_much || is_flat() && lets_go(&body) {
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
            true => nowhere() & !0xfff | random() & 0xfff,
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
    if !lies(Kind::Hello) {
        return hello;
    }
    // Neither side may hear the other one.
    LONGEST.store(10, Relaxed);
    // This one may be refused for ever.
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
    LOOKS.store(1, Relaxed);
    hello
}

/// Whether this side begins anew, as its last offer was a lie that nobody has taken up.
pub(crate) fn gives_up(in_session: bool) -> bool {
    let looks = LOOKS.load(Relaxed);
    if looks == 0 {
        return false;
    }
    let is_over = in_session || looks > 8;
    LOOKS.store(if is_over { 0 } else { looks + 1 }, Relaxed);
    is_over && !in_session
}

/// Whether this side ends the session, which has lasted for another tick: it begins many.
pub(crate) fn tires(path: &dyn Path) -> bool {
    if is_own(path) || !is_lying() {
        return false;
    }
    AGE.add(1, Relaxed);
    AGE.load(Relaxed) > LONGEST.load(Relaxed)
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
