// SPDX-License-Identifier: GPL-2.0

//! Bounded amounts of several resources, and the right to a part of them.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// The claimed amounts of `N` resources.
pub(crate) struct Claimed<const N: usize>([Atomic<u64>; N]);

impl<const N: usize> Claimed<N> {
    /// Creates the amounts with nothing claimed.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(0) }; N])
    }

    /// Returns the claimed amounts.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn amounts(&self) -> [u64; N] {
        self.0.each_ref().map(|claimed| claimed.load(Relaxed))
    }
}

impl<const N: usize> AsRef<Self> for Claimed<N> {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// The right to some amounts, which is given back when it is dropped.
pub(crate) struct Claim<T: AsRef<Claimed<N>>, const N: usize> {
    all: Arc<T>,
    amounts: [u64; N],
}

impl<T: AsRef<Claimed<N>>, const N: usize> Claim<T, N> {
    /// Claims `amounts`. `None` if a claimed amount would exceed its limit; an amount of 0 has
    /// none.
    pub(crate) fn new(all: &Arc<T>, amounts: [u64; N], limits: [u64; N]) -> Option<Self> {
        let mut fits = true;
        let claimed = (**all).as_ref().0.iter();
        for ((claimed, amount), limit) in claimed.zip(amounts).zip(limits) {
            let before = claimed.fetch_add(amount, Relaxed);
            fits &= amount == 0 || before.saturating_add(amount) <= limit;
        }
        // A refused claim is dropped below, which gives the amounts back.
        let this = Self {
            all: all.clone(),
            amounts,
        };
        fits.then_some(this)
    }
}

impl<T: AsRef<Claimed<N>>, const N: usize> Drop for Claim<T, N> {
    fn drop(&mut self) {
        let claimed = (*self.all).as_ref().0.iter();
        for (claimed, amount) in claimed.zip(self.amounts) {
            claimed.fetch_sub(amount, Relaxed);
        }
    }
}

#[kunit_tests(scif_sync_claim)]
mod tests {
    use super::*;

    #[test]
    fn refused_claim_is_not_counted() -> Result {
        let all = Arc::new(Claimed::<2>::new(), GFP_KERNEL)?;
        let first = Claim::new(&all, [1, 10], [2, 15]);
        assert!(first.is_some());
        assert!(Claim::new(&all, [1, 6], [2, 15]).is_none());
        assert!(Claim::new(&all, [1, u64::MAX], [2, 15]).is_none());
        assert_eq!(all.amounts(), [1, 10]);
        // The limit of a resource does not matter if none of it is claimed.
        let second = Claim::new(&all, [1, 0], [2, 5]);
        assert!(second.is_some());
        assert!(Claim::new(&all, [1, 0], [2, 15]).is_none());
        drop((first, second));
        assert_eq!(all.amounts(), [0, 0]);
        Ok(())
    }
}
