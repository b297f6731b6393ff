// SPDX-License-Identifier: GPL-2.0

//! The exchange of hellos through the registers of a bridge, one part at a time.
//!
//! Each side writes registers that the other side reads. Register 0 is the header of the other
//! registers, and also this side's acknowledgement:
//!
//! ```text
//! bits  0-5   number of the part that is shown, or 0 if none is
//! bits  6-11  number of the other side's part that was taken last, or 0
//! bits 12-15  index of the part in the words
//! bits 24-27  number of registers, modulo 16
//! bits 28-31  5, to tell a header from other contents
//! ```
//!
//! The words of a part are written first, then its header. Once the other side has acknowledged its
//! number, the next part is shown, with the next number. If there are enough registers, all words
//! are one part.
//!
//! Until there is a session, all parts are shown again after a while: a part may have been lost, or
//! the other side may have started over. A side may put together words of two hellos, if one is
//! shown before the other was taken. The checksum of a hello detects that.
//!
//! This file does not access registers (`transport/ntb/mailbox.rs`), and does not interpret hellos.

use super::hello::{
    MAGIC,
    WORDS, //
};

/// Minimum number of registers: a header, and one word.
pub(crate) const LEAST_REGISTERS: usize = 2;

/// Maximum number of registers used: a header, and all words.
pub(crate) const MOST_REGISTERS: usize = WORDS + 1;

/// Ticks without an answer after which all parts are shown again.
pub(crate) const PATIENCE_TICKS: u32 = 10;

const NUMBER_BITS: u32 = 6;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
const TAG: u32 = 5;

/// The registers that two sides share.
pub(crate) trait Registers {
    /// Returns the value that the other side wrote last into its register of this index.
    fn read(&mut self, index: usize) -> u32;

    /// Writes a register for the other side. Returns false if the value is not accepted now, and
    /// the caller has to try again.
    fn write(&mut self, index: usize, value: u32) -> bool;
}

/// The fields of register 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    shown: u32,
    taken: u32,
    part: usize,
}

impl Header {
    fn encode(self, registers: usize) -> u32 {
        (self.shown & NUMBER_MASK)
            | ((self.taken & NUMBER_MASK) << NUMBER_BITS)
            | ((self.part as u32 & 0xf) << 12)
            | ((registers as u32 & 0xf) << 24)
            | (TAG << 28)
    }

    /// Returns `None` if the value is no header, or one for another number of registers.
    fn decode(value: u32, registers: usize) -> Option<Self> {
        if value >> 28 != TAG || (value >> 24) & 0xf != registers as u32 & 0xf {
            return None;
        }
        Some(Self {
            shown: value & NUMBER_MASK,
            taken: (value >> NUMBER_BITS) & NUMBER_MASK,
            part: ((value >> 12) & 0xf) as usize,
        })
    }
}

/// Returns the number after this one; 0 means "none".
fn after(number: u32) -> u32 {
    (number % NUMBER_MASK).wrapping_add(1)
}

/// The progress of the part to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The words have to be written, if there are any, and then the header.
    Write,
    /// The part is visible to the other side.
    Shown,
    /// The last part was taken.
    Done,
}

/// One side of the exchange of hellos, one part at a time.
///
/// # Invariants
///
/// `registers` is in [`LEAST_REGISTERS`]`..=`[`MOST_REGISTERS`]; `number` is not 0 and has
/// [`NUMBER_BITS`].
pub(crate) struct Parts {
    registers: usize,
    own: Option<[u32; WORDS]>,
    part: usize,
    number: u32,
    step: Step,
    /// Tick at which a part was shown or acknowledged last.
    since: u32,
    /// Number of the other side's part that was taken last.
    taken: u32,
    /// Whether the other side still has to be told of that number.
    unanswered: bool,
    heard: [u32; WORDS],
}

impl Parts {
    /// Creates a side with this number of registers. The numbers of parts begin at `random`.
    pub(crate) fn new(registers: usize, random: u32) -> Self {
        // INVARIANT: `clamp` and `after` keep both in range.
        Self {
            registers: registers.clamp(LEAST_REGISTERS, MOST_REGISTERS),
            own: None,
            part: 0,
            number: after(random & NUMBER_MASK),
            step: Step::Write,
            since: 0,
            taken: 0,
            unanswered: false,
            heard: [0; WORDS],
        }
    }

    /// Returns the number of words of a part.
    fn part_len(&self) -> usize {
        self.registers.saturating_sub(1)
    }

    /// Sets the words to show from now on.
    pub(crate) fn say(&mut self, words: &[u32; WORDS], now: u32) {
        self.own = Some(*words);
        self.show_part(0, now);
    }

    fn show_part(&mut self, part: usize, now: u32) {
        self.since = now;
        self.part = part;
        self.number = after(self.number);
        self.step = Step::Write;
    }

    /// Forgets the words of the other side. The part that it shows still counts as taken: other
    /// words may stand under that header by now.
    pub(crate) fn forget(&mut self) {
        self.heard = [0; WORDS];
    }

    /// Returns the words of the other side, as far as they have come.
    pub(crate) fn heard(&self) -> &[u32; WORDS] {
        &self.heard
    }

    /// Returns whether a part has to be shown or acknowledged: the caller then has to call
    /// [`Self::exchange`] after a while.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unanswered || self.step != Step::Done
    }

    /// Takes the part that the other side shows, and shows a part if possible. `now` counts ticks.
    /// `in_session` says that the other side has all words that it needs. Returns whether something
    /// was written that the other side has to read.
    pub(crate) fn exchange(
        &mut self,
        registers: &mut impl Registers,
        now: u32,
        in_session: bool,
    ) -> bool {
        self.take(registers, now);
        let is_heard = in_session && self.step == Step::Done;
        if !is_heard && now.wrapping_sub(self.since) >= PATIENCE_TICKS {
            self.show_part(0, now);
        }
        self.show(registers, now)
    }

    fn take(&mut self, registers: &mut impl Registers, now: u32) {
        let first = registers.read(0);
        let Some(header) = Header::decode(first, self.registers) else {
            self.forget();
            // Up to version 13, the first word of a hello lay here if there were enough registers.
            if first >> 16 == MAGIC {
                self.heard[0] = first;
            }
            return;
        };
        if self.step == Step::Shown && header.taken == self.number {
            self.go_on(now);
        }
        if header.shown == 0 || header.shown == self.taken {
            return;
        }
        let mut words = [0; WORDS];
        let len = self.part_len();
        for (index, word) in words.iter_mut().take(len).enumerate() {
            *word = registers.read(index.saturating_add(1));
        }
        let again = Header::decode(registers.read(0), self.registers);
        if again.map(|again| (again.shown, again.part)) != Some((header.shown, header.part)) {
            // The part is being written. The doorbell for it is still to come.
            return;
        }
        let start = header.part.saturating_mul(len);
        for (heard, word) in self.heard.iter_mut().skip(start).zip(words).take(len) {
            *heard = word;
        }
        self.taken = header.shown;
        self.unanswered = true;
    }

    /// Shows the next part, as the present one was taken.
    fn go_on(&mut self, now: u32) {
        let next = self.part.saturating_add(1);
        if next.saturating_mul(self.part_len()) < WORDS {
            self.show_part(next, now);
        } else {
            self.since = now;
            self.step = Step::Done;
        }
    }

    /// Writes the part and the acknowledgement, as far as the registers accept them. Returns
    /// whether the header was accepted.
    fn show(&mut self, registers: &mut impl Registers, now: u32) -> bool {
        let mut told = false;
        if self.step == Step::Write
            && self.write_words(registers)
            && self.write_header(registers, self.number)
        {
            self.step = Step::Shown;
            self.since = now;
            told = true;
        }
        if self.unanswered {
            let shown = match self.step {
                Step::Write => 0,
                Step::Shown | Step::Done => self.number,
            };
            told |= self.write_header(registers, shown);
        }
        told
    }

    /// Writes the words of the part. Returns whether there are any, and all were accepted.
    fn write_words(&self, registers: &mut impl Registers) -> bool {
        let Some(own) = &self.own else { return false };
        let start = self.part.saturating_mul(self.part_len());
        let words = own.iter().skip(start).copied();
        let padded = words.chain(core::iter::repeat(0));
        (1..self.registers)
            .zip(padded)
            .all(|(index, word)| registers.write(index, word))
    }

    /// Writes the header. Returns whether it was accepted.
    fn write_header(&mut self, registers: &mut impl Registers, shown: u32) -> bool {
        let header = Header {
            shown,
            taken: self.taken,
            part: self.part,
        };
        let taken = registers.write(0, header.encode(self.registers));
        if taken {
            self.unanswered = false;
        }
        taken
    }
}
