// SPDX-License-Identifier: GPL-2.0

//! How bytes of a process are copied to a device's memory, and bytes of a ring to a process: as the kernel does, or many
//! of them by loads and stores of words where string instructions are slow. Which of them is measured when the module is loaded, on a processor that does not say that its
//! string instructions are fast. It makes no difference to anything but time.

use super::bindings as own;
use kernel::prelude::*;

/// Measures and decides. May sleep.
pub(crate) fn choose() {
    // SAFETY: This is a context that may sleep, which is all that it takes.
    let by_words = unsafe { own::scif_helper_words_are_faster() };
    set(by_words);
}

fn set(by_words: bool) {
    // SAFETY: Both ways are right at any time, for whoever is in the midst of one, too.
    unsafe { own::scif_helper_set_copies_by_words(by_words) };
}

#[cfg(any(CONFIG_X86_64, CONFIG_ARM64))]
#[kunit_tests(scif_sys_user_copies)]
mod tests {
    use super::*;
    use crate::sys::pin::tests::map_pages;
    use kernel::{
        page::PAGE_SIZE,
        uaccess::{
            UserPtr,
            UserSlice, //
        }, //
    };

    const PAGES: usize = 3;
    const BYTES: usize = PAGES * PAGE_SIZE;

    /// Lengths and places that are whole words, and are not.
    const LENGTHS: [usize; 6] = [1, 511, 512, 513, 1000, 2 * PAGE_SIZE + 65];
    const SHIFTS: [usize; 3] = [0, 1, 60];

    /// Bytes of which no two neighbours are alike.
    fn pattern() -> Result<KVec<u8>> {
        let mut bytes = KVec::with_capacity(BYTES, GFP_KERNEL)?;
        for i in 0..BYTES {
            bytes.push((i * 7 + i / 251) as u8, GFP_KERNEL)?;
        }
        Ok(bytes)
    }

    fn from_process(to: &mut [u8], from: usize) -> bool {
        let from = UserPtr::from_addr(from).as_const_ptr();
        // SAFETY: There is room for that many bytes, in memory that takes any stores.
        unsafe { own::scif_helper_copy_user_to_io(to.as_mut_ptr().cast(), from, to.len()) }
    }

    fn to_process(to: usize, from: &[u8]) -> bool {
        let to = UserPtr::from_addr(to).as_mut_ptr();
        // SAFETY: The bytes are valid.
        unsafe { own::scif_helper_copy_to_user(to, from.as_ptr().cast(), from.len()) }
    }

    /// With either way, and with the one that was measured in the end.
    fn either(check: impl Fn() -> Result) -> Result {
        for by_words in [false, true] {
            set(by_words);
            check()?;
        }
        choose();
        Ok(())
    }

    #[test]
    fn both_ways_copy_the_same() -> Result {
        let pattern = pattern()?;
        let memory = map_pages(PAGES, true)?;
        either(|| {
            for len in LENGTHS {
                for shift in SHIFTS {
                    let there = memory + PAGE_SIZE / 2 + shift;
                    let zeros = KVec::from_elem(0u8, BYTES, GFP_KERNEL)?;
                    assert!(to_process(memory, &zeros));
                    assert!(to_process(there, &pattern[shift..][..len]));

                    // Nothing but these has changed.
                    let mut all = KVec::new();
                    UserSlice::new(UserPtr::from_addr(memory), BYTES)
                        .read_all(&mut all, GFP_KERNEL)?;
                    let begin = PAGE_SIZE / 2 + shift;
                    assert!(all[..begin].iter().all(|byte| *byte == 0));
                    assert!(all[begin..][..len] == pattern[shift..][..len]);
                    assert!(all[begin + len..].iter().all(|byte| *byte == 0));

                    let mut back = KVec::from_elem(1u8, len + 1, GFP_KERNEL)?;
                    assert!(from_process(&mut back[..len], there));
                    assert!(back[..len] == pattern[shift..][..len]);
                    assert_eq!(back[len], 1);
                }
            }
            Ok(())
        })
    }

    #[test]
    fn what_is_not_there_is_not_copied() -> Result {
        let pattern = pattern()?;
        either(|| {
            let read_only = map_pages(1, false)?;
            assert!(!to_process(read_only, &pattern[..PAGE_SIZE]));
            for outside in [usize::MAX - 4096, 1 << 63] {
                let mut bytes = KVec::from_elem(1u8, PAGE_SIZE, GFP_KERNEL)?;
                assert!(!to_process(outside, &pattern[..PAGE_SIZE]));
                assert!(!from_process(&mut bytes, outside));
                assert!(bytes.iter().all(|byte| *byte == 1));
            }
            // The page behind what is there: how much is copied before it is of no account, but no more is.
            let edge = map_pages(2, true)?;
            assert!(to_process(edge, &pattern[..PAGE_SIZE]));
            let from = edge + PAGE_SIZE - 700;
            let mut bytes = KVec::from_elem(1u8, 2 * PAGE_SIZE, GFP_KERNEL)?;
            assert!(!from_process(&mut bytes[..1400], from));
            assert!(bytes[1400..].iter().all(|byte| *byte == 1));
            assert!(from_process(&mut bytes[..700], from));
            assert!(bytes[..700] == pattern[PAGE_SIZE - 700..PAGE_SIZE]);
            // A page that nobody has touched: whoever may not wait does not get it.
            let untouched = map_pages(1, true)?;
            let mut bytes = KVec::from_elem(1u8, PAGE_SIZE, GFP_KERNEL)?;
            assert!(!from_process(&mut bytes, untouched));
            assert!(to_process(untouched, &pattern[..PAGE_SIZE]));
            assert!(from_process(&mut bytes, untouched));
            assert!(bytes[..] == pattern[..PAGE_SIZE]);
            Ok(())
        })
    }
}
