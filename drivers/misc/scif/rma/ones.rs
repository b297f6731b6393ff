// SPDX-License-Identifier: GPL-2.0

//! A page of all ones, which processes see in place of memory that is lost: what a load from a device
//! returns that is not there.

use crate::sys::shared_memory::{
    Payer,
    SharedMemory,
    User, //
};
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc, //
};

/// See the head of this file. It stays where it is as long as this exists.
pub(crate) struct Ones(SharedMemory);

impl Ones {
    /// A page, which this one pays for. May sleep.
    pub(crate) fn new(payer: Payer<'_>) -> Result<Arc<Self>> {
        let page = SharedMemory::new(PAGE_SIZE, User::Physical, payer)?;
        for offset in (0..PAGE_SIZE).step_by(size_of::<u64>()) {
            page.write_u64(offset, u64::MAX)?;
        }
        Ok(Arc::new(Self(page), GFP_KERNEL_ACCOUNT)?)
    }

    /// The number of its page frame.
    pub(super) fn frame(&self) -> u64 {
        self.0.phys_address() >> PAGE_SHIFT
    }
}

#[kunit_tests(scif_rma_ones)]
mod tests {
    use super::*;

    #[test]
    fn it_is_full_of_ones() -> Result {
        let ones = Ones::new(Payer::Nobody)?;
        for offset in (0..PAGE_SIZE).step_by(size_of::<u64>()) {
            assert_eq!(ones.0.read_u64(offset)?, u64::MAX);
        }
        assert_eq!(ones.frame() << PAGE_SHIFT, ones.0.phys_address());
        Ok(())
    }
}
