// SPDX-License-Identifier: GPL-2.0

//! The handshake's words: a complete hello decodes to itself, and other words do no harm.

use proptest::prelude::*;

use super::config;
use crate::logic::envelope::VERSION;
use crate::logic::hello::{Hello, Mode, NoHello, WORDS};

prop_compose! {
    fn hello()(
        nonce in 1_u32..,
        echo: u32,
        node: u16,
        windows: u16,
        page_shift: u8,
        generation in 1..=u64::MAX,
        control: u64,
        aperture in (any::<u64>(), any::<u64>()),
        mode: u8,
    ) -> Hello {
        Hello {
            nonce,
            echo,
            node,
            windows,
            page_shift,
            generation,
            control,
            aperture_base: aperture.0,
            aperture_len: aperture.1.min(u64::MAX - aperture.0),
            mode,
        }
    }
}

#[test]
fn blank_or_all_ones_scratchpads_are_no_hello() {
    assert_eq!(Hello::decode(&[0; WORDS]), Err(NoHello::Absent));
    // Reads of a removed device return these values.
    assert_eq!(Hello::decode(&[u32::MAX; WORDS]), Err(NoHello::Absent));
}

/// The words of `Documentation/wire-protocol.rst`.
#[test]
fn hello_words_match_the_documentation() {
    let hello = Hello {
        nonce: 0x1111_1111,
        echo: 0x2222_2222,
        node: 0x3333,
        windows: 0x4444,
        page_shift: 12,
        generation: 0x5555_5555_6666_6666,
        control: 0x7777_7777_8888_8888,
        aperture_base: 0x0999_9999_aaaa_aaaa,
        aperture_len: 0x0bbb_bbbb_cccc_cccc,
        mode: Mode::Arena.number(),
    };
    let words = hello.encode();
    assert_eq!(
        words[..WORDS - 1],
        [
            0x5c1f_0010,
            0x1111_1111,
            0x2222_2222,
            0x0c00_3333,
            0x6666_6666,
            0x5555_5555,
            0x8888_8888,
            0x7777_7777,
            0xaaaa_aaaa,
            0x0999_9999,
            0xcccc_cccc,
            0x0bbb_bbbb,
            0x4444_0002,
            0,
        ]
    );
    let sum = words[..WORDS - 1]
        .iter()
        .fold(0x811c_9dc5, |sum: u32, word| {
            (sum ^ word).wrapping_mul(0x0100_0193).rotate_left(5)
        });
    assert_eq!(words[WORDS - 1], sum);
}

#[test]
fn hello_with_generation_zero_is_refused() {
    let hello = Hello {
        nonce: 1,
        echo: 0,
        node: 1,
        page_shift: 12,
        generation: 0,
        control: 0,
        aperture_base: 0,
        aperture_len: 1 << 20,
        mode: Mode::Flat.number(),
        windows: 1,
    };
    assert_eq!(Hello::decode(&hello.encode()), Err(NoHello::Absent));
    let hello = Hello {
        generation: 1,
        ..hello
    };
    assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
}

#[test]
fn mode_numbers_match_their_names() {
    let names: Vec<_> = (0..=u8::MAX)
        .filter_map(|number| Mode::from_number(number).map(|mode| (number, mode.name())))
        .collect();
    assert_eq!(names, [(1, "flat"), (2, "arena"), (3, "bounce")]);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn encoded_hello_decodes_to_itself(hello in hello()) {
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }

    #[test]
    fn random_words_are_no_hello(words: [u32; WORDS]) {
        prop_assert!(Hello::decode(&words).is_err());
    }

    /// Words after the version are ignored, because another version may have its checksum
    /// elsewhere.
    #[test]
    fn hello_of_another_version_is_recognised(words: [u32; WORDS], version: u16) {
        prop_assume!(version != u16::from(VERSION));
        let mut words = words;
        words[0] = 0x5c1f_0000 | u32::from(version);
        prop_assert_eq!(Hello::decode(&words), Err(NoHello::Version(version)));
    }

    /// A mixture of an old and a new hello is refused.
    #[test]
    fn torn_hello_is_detected(old in hello(), new in hello(), written in 1..WORDS) {
        let (old, new) = (old.encode(), new.encode());
        let mut torn = old;
        torn[..written].copy_from_slice(&new[..written]);
        prop_assume!(torn != old && torn != new);
        prop_assert_eq!(Hello::decode(&torn), Err(NoHello::Absent));
    }

    #[test]
    fn flipped_bit_in_a_hello_is_detected(hello in hello(), word in 0..WORDS, bit in 0..32_u32) {
        let mut words = hello.encode();
        words[word] ^= 1 << bit;
        prop_assert!(Hello::decode(&words).is_err());
    }
}
