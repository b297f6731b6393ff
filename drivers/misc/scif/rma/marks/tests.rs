// SPDX-License-Identifier: GPL-2.0

//! What the tests of fences need of marks.

use super::{
    Due,
    Marks, //
};
use kernel::{
    prelude::*,
    sync::ArcBorrow, //
};

impl Marks {
    /// Has `ask` ask for a signal, and calls `f` when another one has taken that and has not given it yet.
    pub(crate) fn while_one_is_given(
        self: ArcBorrow<'_, Self>,
        ask: impl FnOnce() -> Result,
        f: impl FnOnce() -> Result,
    ) -> Result {
        let number = self.begin(false)?;
        ask()?;
        self.numbers.lock().end(number, false, false);
        let Some(Due::Signal(sequence, signal, asker)) = self.take_due(false, true) else {
            return Err(EINVAL);
        };
        f()?;
        self.give(sequence, signal, asker);
        while let Some(Due::Signal(sequence, signal, asker)) = self.take_due(true, true) {
            self.give(sequence, signal, asker);
        }
        Ok(())
    }
}
