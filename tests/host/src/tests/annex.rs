// SPDX-License-Identifier: GPL-2.0

//! Annexes: decoding returns the encoded words, and an annex takes no more than it has room for.

use proptest::prelude::*;

use super::config;
use crate::logic::control_block::{ANNEX_SIZE, ANNEX_WORDS, Annex};

fn annex(words: &[u64]) -> Annex {
    let mut annex = Annex::new();
    assert!(words.iter().all(|word| annex.push(*word)));
    annex
}

#[test]
fn annex_words_are_little_endian() {
    let annex = annex(&[0x0102_0304_0506_0708, 1]);
    assert_eq!(
        annex.as_bytes(),
        [8, 7, 6, 5, 4, 3, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    );
}

#[test]
fn full_annex_refuses_another_word() {
    let mut full = annex(&[3; ANNEX_WORDS - 1]);
    assert!(full.push(4) && !full.push(5));
    assert_eq!(
        (full.count(), full.as_bytes().len()),
        (ANNEX_WORDS, ANNEX_SIZE)
    );
    assert_eq!(full.words().last(), Some(4));
}

#[test]
fn annex_has_no_room_for_too_many_words() {
    let mut annex = annex(&[1]);
    for words in [ANNEX_WORDS + 1, usize::MAX, usize::MAX / 8 + 2] {
        assert!(annex.room_for(words).is_none());
    }
    assert_eq!(
        annex.room_for(ANNEX_WORDS).map(|room| room.len()),
        Some(ANNEX_SIZE)
    );
    assert_eq!(annex.room_for(0).map(|room| room.len()), Some(0));
    assert_eq!(annex.count(), 0);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn copied_annex_has_the_same_words(
        words in prop::collection::vec(any::<u64>(), 0..=ANNEX_WORDS),
    ) {
        let here = annex(&words);
        prop_assert_eq!(here.count(), words.len());
        let mut there = annex(&[7; 5]);
        there
            .room_for(words.len())
            .expect("as many as there can be")
            .copy_from_slice(here.as_bytes());
        prop_assert_eq!(there.words().collect::<Vec<_>>(), words);
    }
}
