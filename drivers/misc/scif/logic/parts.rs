// SPDX-License-Identifier: GPL-2.0

//! The words of a hello through the registers of a bridge, a part at a time.
//!
//! Each side writes registers that the other one reads. Register 0 is the header of what the others
//! hold, and at the same time what this side answers:
//!
//! ```text
//! bits  0-5   number of the part that is shown, or 0: nothing is
//! bits  6-11  number of the part of the other side that was taken last, or 0
//! bits 12-15  which part of the words it is
//! bits 24-27  how many registers there are, modulo 16
//! bits 28-31  5, so that it is not taken for something else
//! ```
//!
//! The words of a part are written first, then its header. Once its number comes back as taken the
//! next part is shown, with the next number. Where there are registers enough, all words are one part.
//!
//! All is shown again after a while, until a session makes it needless: something may have been lost, or
//! the other side may have begun anew. A side may put together words of two hellos, if one is shown before
//! the other was taken; the checksum of a hello tells.
//!
//! What is not here: what the registers are (`transport/ntb/mailbox.rs`), and hellos.

use super::hello::{
    MAGIC,
    WORDS, //
};

/// As many as this are needed: a header, and a word.
pub(crate) const LEAST_REGISTERS: usize = 2;

/// More than this are not used: a header, and all words.
pub(crate) const MOST_REGISTERS: usize = WORDS + 1;

/// After so many ticks of no answer all is shown again.
pub(crate) const PATIENCE_TICKS: u32 = 10;

const NUMBER_BITS: u32 = 6;
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
const TAG: u32 = 5;

/// Registers that two sides share.
pub(crate) trait Registers {
    /// What the other side has written into its register of this index, last.
    fn read(&mut self, index: usize) -> u32;

    /// Writes one for the other side. `false`: it is not taken now, and is to be tried again.
    fn write(&mut self, index: usize, value: u32) -> bool;
}

/// What register 0 says.
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

    /// `None` where there is no header, or one for another number of registers.
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

/// The number after this one; 0 means "none".
fn after(number: u32) -> u32 {
    (number % NUMBER_MASK).wrapping_add(1)
}

/// How far the part that is to be shown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Its words are to be written, if there are any, and then the header.
    Write,
    /// It can be seen.
    Shown,
    /// It was the last one, and was taken.
    Done,
}

/// One side of the exchange of hellos, a part at a time.
///
/// # Invariants
///
/// `registers` is in [`LEAST_REGISTERS`]`..=`[`MOST_REGISTERS`]; `number` is not 0 and has [`NUMBER_BITS`].
pub(crate) struct Parts {
    registers: usize,
    own: Option<[u32; WORDS]>,
    part: usize,
    number: u32,
    step: Step,
    /// When something was shown or answered last.
    since: u32,
    /// The number that was taken last.
    taken: u32,
    /// The other side was not told of that.
    unanswered: bool,
    heard: [u32; WORDS],
}

impl Parts {
    /// Through so many registers. `random`: where the numbers begin.
    pub(crate) fn new(registers: usize, random: u32) -> Self {
        // INVARIANT: Both are made to fit.
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

    /// Words of a part.
    fn part_len(&self) -> usize {
        self.registers.saturating_sub(1)
    }

    /// From now on these are the words to be shown.
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

    /// What the other side has said does not count any more. What it shows was taken all the same: under
    /// that header there may be other words by now.
    pub(crate) fn forget(&mut self) {
        self.heard = [0; WORDS];
    }

    /// What the other side has said, as far as it has come.
    pub(crate) fn heard(&self) -> &[u32; WORDS] {
        &self.heard
    }

    /// Whether something is left to be done, or to be answered: then [`Self::exchange`] is to be called after a while.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unanswered || self.step != Step::Done
    }

    /// Takes what there is and shows what can be shown. `now` counts ticks; `in_session` says that
    /// the other side has heard all that it has to. Returns whether something was written that the other side should
    /// look at.
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
            // Up to version 13 the first word of a hello lay here where there were registers enough.
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
            // It is being written; its bell is to come.
            return;
        }
        let start = header.part.saturating_mul(len);
        for (heard, word) in self.heard.iter_mut().skip(start).zip(words).take(len) {
            *heard = word;
        }
        self.taken = header.shown;
        self.unanswered = true;
    }

    /// What is shown was taken.
    fn go_on(&mut self, now: u32) {
        let next = self.part.saturating_add(1);
        if next.saturating_mul(self.part_len()) < WORDS {
            self.show_part(next, now);
        } else {
            self.since = now;
            self.step = Step::Done;
        }
    }

    /// Writes what is to be written, as far as it is taken. Says whether the header was.
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

    /// Writes the words of the part. Says whether there are any, and all are taken.
    fn write_words(&self, registers: &mut impl Registers) -> bool {
        let Some(own) = &self.own else { return false };
        let start = self.part.saturating_mul(self.part_len());
        let words = own.iter().skip(start).copied();
        let padded = words.chain(core::iter::repeat(0));
        (1..self.registers)
            .zip(padded)
            .all(|(index, word)| registers.write(index, word))
    }

    /// Says whether it is taken.
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
