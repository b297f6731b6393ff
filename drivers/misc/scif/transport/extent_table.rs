// SPDX-License-Identifier: GPL-2.0

//! Tables of extents that own their memory: how a device or a peer names some pages.

use crate::logic::extents::{
    Entry,
    Extent,
    Extents, //
};
use kernel::prelude::*;

/// See the head of this file.
pub(crate) type ExtentTable = Extents<KVVec<Entry>>;

/// Collects addresses and lengths, in order, into a table; those that touch are joined. EINVAL if
/// they make none. May sleep.
pub(crate) fn collect(extents: impl Iterator<Item = (u64, u64)>) -> Result<ExtentTable> {
    let mut table: KVVec<Entry> = KVVec::new();
    for (address, len) in extents {
        let extent = Extent::new(address, len).ok_or(EINVAL)?;
        let entry = match table.as_mut_slice().last_mut() {
            None => Entry::first(extent),
            Some(last) => {
                if let Some(joined) = last.extent.join(extent) {
                    last.extent = joined;
                    continue;
                }
                last.after(extent).ok_or(EINVAL)?
            }
        };
        table.push(entry, GFP_KERNEL_ACCOUNT)?;
    }
    Extents::new(table).map_err(|_| EINVAL)
}
