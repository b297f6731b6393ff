// SPDX-License-Identifier: GPL-2.0

//! The words of a hello through fewer registers than it has, a part at a time.
//!
//! Each side writes registers that the other one reads. Register 0 is the header of what the others
//! hold, and at the same time what this side answers:
//!
//! ```text
//! bits  0-5   number of the part that is shown, or 0: nothing is
//! bits  6-11  number of the part of the other side that was taken last, or 0
//! bits 12-15  which part of the words it is
//! bits 24-27  how many registers there are
//! bits 28-31  5, so that it is not taken for something else
//! ```
//!
//! The words of a part are written first, then its header. Once its number comes back as taken the
//! next part is shown, with the next number. What was shown and not taken is withdrawn (number 0)
//! before other words are written over it, so who finds the same header before and after has read
//! the words that belong to it. Who begins anew may find a header that it had answered in its former
//! life, over words of the next part.
//!
//! All is shown again after a while, until a session makes it needless: something may have been lost, or the
//! other side has begun anew. A side may put together words of two hellos; the checksum of a hello tells.
//!
//! What is not here: what the registers are (`transport/ntb/mailbox.rs`), and hellos.

use super::hello::WORDS;

/// As many as this are needed: a header, and a word. From [`WORDS`] on parts are needless.
pub(crate) const LEAST_REGISTERS: usize = 2;

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
    /// There is nothing to be shown, or all of it was taken.
    Done,
    /// What was shown before has to go first.
    Withdraw,
    /// The registers from this one on have to be written, the header last.
    Write(usize),
    /// It can be seen.
    Shown,
}

/// What [`Parts::exchange`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exchanged {
    /// Something was written that the other side should look at.
    pub(crate) told: bool,
    /// Something is left to be done, or to be answered: it is to be called again after a while.
    pub(crate) unsettled: bool,
}

/// One side of the exchange of hellos, a part at a time.
///
/// # Invariants
///
/// `registers` is in [`LEAST_REGISTERS`]`..`[`WORDS`]; `number` is not 0 and has [`NUMBER_BITS`].
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
            registers: registers.clamp(LEAST_REGISTERS, WORDS.saturating_sub(1)),
            own: None,
            part: 0,
            number: after(random & NUMBER_MASK),
            // What an earlier life has shown.
            step: Step::Withdraw,
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

    fn is_last_part(&self) -> bool {
        self.part.saturating_add(1).saturating_mul(self.part_len()) >= WORDS
    }

    /// From now on these are the words to be shown.
    pub(crate) fn say(&mut self, words: &[u32; WORDS], now: u32) {
        self.own = Some(*words);
        self.begin(now);
    }

    /// Shows all from the first part on.
    fn begin(&mut self, now: u32) {
        self.since = now;
        self.part = 0;
        // After a withdrawal that did not get through there is another one.
        let was_seen = !matches!(self.step, Step::Done);
        self.number = after(self.number);
        self.step = if was_seen {
            Step::Withdraw
        } else {
            Step::Write(1)
        };
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

    /// Takes what there is and shows what can be shown. `now` counts ticks; `in_session` says that
    /// the other side has heard all that it has to.
    pub(crate) fn exchange(
        &mut self,
        registers: &mut impl Registers,
        now: u32,
        in_session: bool,
    ) -> Exchanged {
        self.take(registers, now);
        let is_settled = |this: &Self| this.own.is_none() || in_session && this.step == Step::Done;
        if !is_settled(self) && now.wrapping_sub(self.since) >= PATIENCE_TICKS {
            self.begin(now);
        }
        let told = self.show(registers, now);
        Exchanged {
            told,
            unsettled: self.unanswered || !is_settled(self),
        }
    }

    fn take(&mut self, registers: &mut impl Registers, now: u32) {
        let Some(header) = Header::decode(registers.read(0), self.registers) else {
            self.forget();
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
        self.since = now;
        if self.is_last_part() {
            self.step = Step::Done;
            return;
        }
        self.part = self.part.saturating_add(1);
        self.number = after(self.number);
        self.step = Step::Write(1);
    }

    fn header(&self, shown: u32) -> u32 {
        let header = Header {
            shown,
            taken: self.taken,
            part: self.part,
        };
        header.encode(self.registers)
    }

    /// Writes what is to be written, as far as it is taken. Says whether the header was.
    fn show(&mut self, registers: &mut impl Registers, now: u32) -> bool {
        let mut told = false;
        if self.step == Step::Withdraw {
            if !self.write_header(registers, 0) {
                return false;
            }
            told = true;
            self.step = match self.own {
                Some(_) => Step::Write(1),
                None => Step::Done,
            };
        }
        if let Step::Write(first) = self.step {
            if let Some(next) = self.write_words(registers, first) {
                self.step = Step::Write(next);
            } else if self.write_header(registers, self.number) {
                self.step = Step::Shown;
                self.since = now;
                told = true;
            } else {
                self.step = Step::Write(self.registers);
            }
        }
        if self.unanswered {
            let shown = match self.step {
                Step::Shown => self.number,
                _ => 0,
            };
            told |= self.write_header(registers, shown);
        }
        told
    }

    /// Writes the words of the part, from this register on; the first one that is not taken, if there
    /// is one.
    fn write_words(&self, registers: &mut impl Registers, first: usize) -> Option<usize> {
        let start = self.part.saturating_mul(self.part_len());
        let words = self.own.as_ref().map_or(&[][..], |own| own);
        let words = words.get(start..).unwrap_or(&[]).iter();
        let padded = words.copied().chain(core::iter::repeat(0));
        (1..self.registers)
            .zip(padded)
            .skip(first.saturating_sub(1))
            .find(|(index, word)| !registers.write(*index, *word))
            .map(|(index, _)| index)
    }

    /// Says whether it is taken.
    fn write_header(&mut self, registers: &mut impl Registers, shown: u32) -> bool {
        let taken = registers.write(0, self.header(shown));
        if taken {
            self.unanswered = false;
        }
        taken
    }
}
