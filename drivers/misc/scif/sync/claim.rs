// SPDX-License-Identifier: GPL-2.0

//! How much there is of some things that are bounded, and the right to a part of it.

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

/// How much of `N` things is claimed.
pub(crate) struct Claimed<const N: usize>([Atomic<u64>; N]);

impl<const N: usize> Claimed<N> {
    /// Nothing.
    pub(crate) const fn new() -> Self {
        Self([const { Atomic::new(0) }; N])
    }

    /// How much it is.
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

/// The right to so much; given back when dropped.
pub(crate) struct Claim<T: AsRef<Claimed<N>>, const N: usize> {
    all: Arc<T>,
    amounts: [u64; N],
}

impl<T: AsRef<Claimed<N>>, const N: usize> Claim<T, N> {
    /// None if there would be more than its limit of anything that it has some of.
    pub(crate) fn new(all: &Arc<T>, amounts: [u64; N], limits: [u64; N]) -> Option<Self> {
        let mut fits = true;
        let claimed = (**all).as_ref().0.iter();
        for ((claimed, amount), limit) in claimed.zip(amounts).zip(limits) {
            let before = claimed.fetch_add(amount, Relaxed);
            fits &= amount == 0 || before.saturating_add(amount) <= limit;
        }
        // Gives it back if it is refused.
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
    fn what_is_refused_counts_for_nothing() -> Result {
        let all = Arc::new(Claimed::<2>::new(), GFP_KERNEL)?;
        let first = Claim::new(&all, [1, 10], [2, 15]);
        assert!(first.is_some());
        assert!(Claim::new(&all, [1, 6], [2, 15]).is_none());
        assert!(Claim::new(&all, [1, u64::MAX], [2, 15]).is_none());
        assert_eq!(all.amounts(), [1, 10]);
        // The limit of what it has nothing of does not matter.
        let second = Claim::new(&all, [1, 0], [2, 5]);
        assert!(second.is_some());
        assert!(Claim::new(&all, [1, 0], [2, 15]).is_none());
        drop((first, second));
        assert_eq!(all.amounts(), [0, 0]);
        Ok(())
    }
}
