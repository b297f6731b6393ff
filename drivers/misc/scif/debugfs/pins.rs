// SPDX-License-Identifier: GPL-2.0

//! `pins`: a line for each process of which pages are pinned and charged. It may have ended.

use crate::sys::ledger::Ledger;
use kernel::{
    fmt,
    page::PAGE_SIZE, //
};

pub(super) fn show(ledger: &Ledger, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "pid uid name pages bytes")?;
    let mut result = Ok(());
    ledger.for_each(|account| {
        let (process, pages) = (&account.process, account.pages);
        if result.is_ok() {
            result = writeln!(
                f,
                "{} {} {} {pages} {}",
                process.pid,
                process.uid,
                process.name(),
                pages.saturating_mul(PAGE_SIZE)
            );
        }
    });
    result
}
