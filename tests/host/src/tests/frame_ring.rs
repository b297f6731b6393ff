// SPDX-License-Identifier: GPL-2.0
//! `logic/frame_ring.rs` and `logic/frame_messages.rs`.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::config;
use crate::logic::envelope::Enveloped;
use crate::logic::frame_messages::{BlockOffer, FrameMessage};
use crate::logic::frame_ring::{
    Corrupt, DESCRIPTOR, Descriptor, FILLED, FRAME_WISH, Frame, Geometry, META, POSTED, ROOM_WISH,
    arrived, free,
};

fn geometry() -> impl Strategy<Value = Geometry> {
    (1_u32..=64, 5_u32..=12, 4096_u32..=65536).prop_map(|(queues, slots, buffer)| {
        Geometry::new(queues, 1 << slots, buffer).expect("all are in range")
    })
}

fn descriptor() -> impl Strategy<Value = Descriptor> {
    (
        any::<u32>(),
        any::<bool>(),
        any::<u32>(),
        any::<[u8; META]>(),
    )
        .prop_map(|(len, has_more, total, meta)| Descriptor {
            len,
            has_more,
            total,
            meta,
        })
}

/// Returns the descriptors of an honest sender for a frame of this length.
fn descriptors(geometry: Geometry, total: u32) -> Vec<Descriptor> {
    let count = geometry.buffers_of(total);
    (0..count)
        .map(|place| {
            let before = place * geometry.buffer();
            Descriptor {
                len: (total - before).min(geometry.buffer()),
                has_more: place + 1 < count,
                total: if place == 0 { total } else { 0 },
                meta: [0; META],
            }
        })
        .collect()
}

/// Takes a frame of these descriptors. Returns its length, and the number of its buffers.
fn take(
    geometry: Geometry,
    descriptors: &[Descriptor],
    most: u32,
) -> Result<Option<(u32, usize)>, Corrupt> {
    let Some(first) = descriptors.first() else {
        return Ok(None);
    };
    let mut frame = Frame::begin(geometry, first, most)?;
    for (place, descriptor) in descriptors.iter().enumerate() {
        if frame.add(descriptor)? {
            return Ok(Some((frame.total(), place + 1)));
        }
    }
    Ok(None)
}

/// An honest sender and an honest receiver, and the memory between them.
struct Ends {
    geometry: Geometry,
    /// The receiver's counts: buffers that it has posted, told the sender of, and taken.
    posted: u32,
    told: u32,
    taken: u32,
    /// The sender's counts.
    filled: u32,
    published: u32,
    slots: Vec<Option<[u8; DESCRIPTOR]>>,
    /// Whether each slot has the address of a buffer that is not filled.
    is_posted: Vec<bool>,
    sent: VecDeque<u32>,
}

impl Ends {
    fn new(geometry: Geometry, start: u32) -> Self {
        let slots = geometry.slots() as usize;
        Self {
            geometry,
            posted: start,
            told: start,
            taken: start,
            filled: start,
            published: start,
            slots: vec![None; slots],
            is_posted: vec![false; slots],
            sent: VecDeque::new(),
        }
    }

    fn post(&mut self, most: u32) {
        let left = self.geometry.slots() - self.posted.wrapping_sub(self.taken);
        for _ in 0..most.min(left) {
            let slot = self.geometry.index(self.posted);
            assert!(
                !self.is_posted[slot],
                "an address is replaced before its use"
            );
            self.is_posted[slot] = true;
            self.posted = self.posted.wrapping_add(1);
        }
    }

    fn tell(&mut self) {
        self.told = self.posted;
    }

    fn send(&mut self, len: u32) {
        let room = free(self.geometry, self.told, self.filled).expect("the receiver is honest");
        if self.geometry.buffers_of(len) > room {
            return;
        }
        for descriptor in descriptors(self.geometry, len) {
            let slot = self.geometry.index(self.filled);
            assert!(self.is_posted[slot], "a buffer is filled twice");
            self.is_posted[slot] = false;
            let before = self.slots[slot].replace(descriptor.encode());
            assert!(
                before.is_none(),
                "a descriptor is replaced before it is read"
            );
            self.filled = self.filled.wrapping_add(1);
        }
        self.sent.push_back(len);
    }

    fn publish(&mut self) {
        self.published = self.filled;
    }

    /// Takes the next frame, which is the one that was sent first.
    fn receive(&mut self) -> Result<(), TestCaseError> {
        let count = arrived(self.published, self.told, self.taken).expect("the sender is honest");
        let there: Vec<_> = (0..count)
            .map(|place| self.geometry.index(self.taken.wrapping_add(place)))
            .map(|slot| Descriptor::decode(&self.slots[slot].expect("it was filled")))
            .collect();
        let frame = take(self.geometry, &there, 65600).expect("the sender is honest");
        prop_assert_eq!(frame.is_some(), count != 0);
        if let Some((total, buffers)) = frame {
            prop_assert_eq!(Some(total), self.sent.pop_front());
            for _ in 0..buffers {
                self.slots[self.geometry.index(self.taken)] = None;
                self.taken = self.taken.wrapping_add(1);
            }
        }
        Ok(())
    }
}

#[test]
fn descriptor_bytes_match_the_protocol() {
    let bytes = Descriptor {
        len: 0x0102_0304,
        has_more: true,
        total: 0x0506_0708,
        meta: core::array::from_fn(|at| at as u8),
    }
    .encode();
    assert_eq!(bytes[..4], [4, 3, 2, 1]);
    assert_eq!(bytes[4..8], [1, 0, 0, 0]);
    assert_eq!(bytes[8..12], [8, 7, 6, 5]);
    assert_eq!(bytes[12..16], [0; 4]);
    assert_eq!(
        bytes[16..],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    );
}

#[test]
fn frame_geometry_out_of_range_is_refused() {
    assert!(Geometry::new(1, 32, 4096).is_some());
    assert!(Geometry::new(64, 4096, 65536).is_some());
    for (queues, slots, buffer) in [
        (0, 256, 4096),
        (65, 256, 4096),
        (1, 16, 4096),
        (1, 100, 4096),
        (1, 8192, 4096),
        (1, 256, 0),
        (1, 256, 4095),
        (1, 256, 65537),
        (u32::MAX, u32::MAX, u32::MAX),
    ] {
        assert_eq!(Geometry::new(queues, slots, buffer), None);
    }
}

#[test]
fn frame_of_no_bytes_or_too_many_is_refused() {
    let geometry = Geometry::new(1, 32, 4096).expect("all are in range");
    for total in [0, 4097, u32::MAX] {
        let first = Descriptor {
            len: total.min(4096),
            has_more: total > 4096,
            total,
            meta: [0; META],
        };
        assert_eq!(take(geometry, &[first], 4096), Err(Corrupt));
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn descriptor_survives_encoding(descriptor in descriptor()) {
        prop_assert_eq!(Descriptor::decode(&descriptor.encode()), descriptor);
    }

    #[test]
    fn parts_of_a_frame_block_do_not_overlap(geometry in geometry(), number in any::<u32>()) {
        let words = [POSTED, FILLED, FRAME_WISH, ROOM_WISH];
        let address = geometry.address(number);
        let slot = geometry.descriptor(number);
        prop_assert!(words.iter().all(|word| word + 4 <= geometry.address(0)));
        prop_assert!(address % 8 == 0 && slot % 8 == 0);
        prop_assert!(address + 8 <= geometry.descriptor(0));
        prop_assert!(slot + DESCRIPTOR <= geometry.queue_size());
        let next = number.wrapping_add(1);
        prop_assert_ne!(geometry.index(number), geometry.index(next));
        prop_assert_eq!(geometry.index(number), geometry.index(number.wrapping_add(geometry.slots())));
        let last = geometry.queues() - 1;
        prop_assert!(geometry.queue(last) + geometry.queue_size() <= geometry.size());
    }

    #[test]
    fn honest_frame_is_taken_as_a_whole(geometry in geometry(), total in 1_u32..=65600) {
        let descriptors = descriptors(geometry, total);
        let taken = take(geometry, &descriptors, 65600);
        prop_assert_eq!(taken, Ok(Some((total, descriptors.len()))));
    }

    /// A frame that is taken has as many bytes as its buffers say, none of which is exceeded.
    #[test]
    fn taken_frame_lies_in_its_buffers(
        geometry in geometry(),
        total in 1_u32..=65600,
        changed in any::<prop::sample::Index>(),
        other in descriptor(),
    ) {
        let mut descriptors = descriptors(geometry, total);
        let place = changed.index(descriptors.len());
        descriptors[place] = other;
        if let Ok(Some((total, count))) = take(geometry, &descriptors, 65600) {
            let taken = &descriptors[..count];
            prop_assert!(taken.iter().all(|each| each.len <= geometry.buffer()));
            prop_assert_eq!(taken.iter().map(|each| each.len).sum::<u32>(), total);
        }
    }

    #[test]
    fn contradicting_counters_are_refused(
        geometry in geometry(),
        ours in any::<u32>(),
        theirs in any::<u32>(),
        posted in 0_u32..=4096,
    ) {
        match free(geometry, theirs, ours) {
            Ok(count) => prop_assert!(count <= geometry.slots()),
            Err(Corrupt) => prop_assert!(theirs.wrapping_sub(ours) > geometry.slots()),
        }
        let posted = ours.wrapping_add(posted.min(geometry.slots()));
        match arrived(theirs, posted, ours) {
            Ok(count) => prop_assert!(count <= posted.wrapping_sub(ours)),
            Err(Corrupt) => prop_assert!(theirs.wrapping_sub(ours) > posted.wrapping_sub(ours)),
        }
    }

    /// A sender and a receiver that keep the rules agree on each frame, also when counters wrap,
    /// whatever each has seen of the other by then.
    #[test]
    fn frames_arrive_in_order_while_counters_wrap(
        start in prop_oneof![u32::MAX - 5000..=u32::MAX, any::<u32>()],
        slots in 5_u32..=12,
        own in 4096_u32..=65536,
        steps in prop::collection::vec((0_u8..5, 1_u32..=65600, 1_u32..=4096), 1..300),
    ) {
        let geometry = Geometry::new(1, 1 << slots, own).expect("all are in range");
        let mut ends = Ends::new(geometry, start);
        for (step, len, count) in steps {
            match step {
                0 => ends.post(count),
                1 => ends.tell(),
                2 => ends.send(len),
                3 => ends.publish(),
                _ => ends.receive()?,
            }
        }
        // All frames arrive, and there is room for any other one.
        ends.publish();
        while !ends.sent.is_empty() {
            ends.receive()?;
        }
        ends.post(u32::MAX);
        ends.tell();
        let room = free(geometry, ends.told, ends.filled);
        prop_assert_eq!(room, Ok(geometry.slots()));
        prop_assert!(geometry.buffers_of(65600) <= geometry.slots() / 2 + 1);
    }

    /// A receiver that takes whatever lies in its memory finds an error, or a frame of buffers that
    /// it has posted. So does a sender with the count of posted buffers.
    #[test]
    fn hostile_words_lead_to_no_buffer_that_was_not_posted(
        geometry in geometry(),
        start in prop_oneof![u32::MAX - 5000..=u32::MAX, any::<u32>()],
        posted in 0_u32..=4096,
        moves in prop::collection::vec((any::<u32>(), any::<bool>()), 1..20),
        words in prop::collection::vec(any::<[u8; DESCRIPTOR]>(), 32),
        honest in prop::collection::vec(any::<bool>(), 32),
    ) {
        let posted = start.wrapping_add(posted.min(geometry.slots()));
        let mut taken = start;
        for (filled, is_near) in moves {
            let filled = if is_near { taken.wrapping_add(filled % 64) } else { filled };
            let Ok(count) = arrived(filled, posted, taken) else {
                prop_assert!(filled.wrapping_sub(taken) > posted.wrapping_sub(taken));
                continue;
            };
            let there = (0..count).map(|place| {
                let number = taken.wrapping_add(place);
                let index = geometry.index(number);
                assert!(index < geometry.slots() as usize && number.wrapping_sub(start) < posted.wrapping_sub(start));
                match honest[index % 32] {
                    true => Descriptor { len: 60, has_more: false, total: 60, meta: [0; META] },
                    false => Descriptor::decode(&words[index % 32]),
                }
            });
            if let Ok(Some((total, buffers))) = take(geometry, &there.collect::<Vec<_>>(), 65600) {
                prop_assert!(buffers as u32 <= count && total <= 65600);
                taken = taken.wrapping_add(buffers as u32);
            }
        }
    }

    /// A buffer whose descriptor is any bytes never counts for more bytes than it has.
    #[test]
    fn frame_of_any_descriptors_stays_in_its_buffers(
        geometry in geometry(),
        most in 1_u32..=65600,
        slots in prop::collection::vec(any::<[u8; DESCRIPTOR]>(), 1..20),
        lens in prop::collection::vec(prop_oneof![Just(4096_u32), 0_u32..=65600], 20),
        total in 0_u32..=70000,
    ) {
        // Random words are refused at once. With the words of a frame some are taken.
        let descriptors = slots.iter().zip(lens).enumerate().map(|(place, (slot, len))| {
            let said = Descriptor::decode(slot);
            Descriptor { len, total: if place == 0 { total } else { said.total }, ..said }
        });
        let descriptors: Vec<_> = descriptors.collect();
        if let Ok(Some((total, count))) = take(geometry, &descriptors, most) {
            prop_assert!(total <= most);
            prop_assert_eq!(count as u32, geometry.buffers_of(total));
            prop_assert!(descriptors[..count].iter().all(|each| each.len <= geometry.buffer()));
        }
    }

    #[test]
    fn offer_of_a_frame_block_survives_its_envelope(
        geometry in geometry(),
        address in any::<u64>(),
    ) {
        let offer = BlockOffer {
            address,
            queues: geometry.queues(),
            slots: geometry.slots(),
            buffer: geometry.buffer(),
        };
        let message = FrameMessage::Offer { offer };
        prop_assert_eq!(FrameMessage::from_envelope(&message.envelope()), Ok(message));
        let bad = FrameMessage::Offer { offer: BlockOffer { slots: offer.slots + 1, ..offer } };
        prop_assert!(FrameMessage::from_envelope(&bad.envelope()).is_err());
    }
}
