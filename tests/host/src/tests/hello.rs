// SPDX-License-Identifier: GPL-2.0

//! The handshake's words: whole ones come back, any other ones do no harm.

use proptest::prelude::*;

use super::config;
use crate::logic::hello::{Hello, NoHello, WORDS};

prop_compose! {
    fn hello()(
        nonce in 1_u32..,
        echo: u32,
        node: u16,
        window: u8,
        page_shift: u8,
        generation: u64,
        control: u64,
        aperture in (any::<u64>(), any::<u64>()),
    ) -> Hello {
        Hello {
            nonce,
            echo,
            node,
            window,
            page_shift,
            generation,
            control,
            aperture_base: aperture.0,
            aperture_len: aperture.1.min(u64::MAX - aperture.0),
        }
    }
}

#[test]
fn empty_scratchpads_are_no_hello() {
    assert_eq!(Hello::decode(&[0; WORDS]), Err(NoHello::Absent));
    // What reads of a device that is gone give.
    assert_eq!(Hello::decode(&[u32::MAX; WORDS]), Err(NoHello::Absent));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn hellos_come_back(hello in hello()) {
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }

    #[test]
    fn any_words_do_no_harm(words: [u32; WORDS]) {
        prop_assert_eq!(Hello::decode(&words), Err(NoHello::Absent));
    }

    /// Half of a new hello over half of an old one is noticed.
    #[test]
    fn torn_updates_are_noticed(old in hello(), new in hello(), written in 1..WORDS) {
        let (old, new) = (old.encode(), new.encode());
        let mut torn = old;
        torn[..written].copy_from_slice(&new[..written]);
        prop_assume!(torn != old && torn != new);
        prop_assert_eq!(Hello::decode(&torn), Err(NoHello::Absent));
    }

    #[test]
    fn one_wrong_bit_is_noticed(hello in hello(), word in 0..WORDS, bit in 0..32_u32) {
        let mut words = hello.encode();
        words[word] ^= 1 << bit;
        prop_assert!(Hello::decode(&words).is_err());
    }
}
