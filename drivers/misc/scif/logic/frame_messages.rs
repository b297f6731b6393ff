// SPDX-License-Identifier: GPL-2.0

//! The messages by which two nodes join their frame rings (`frame_ring.rs`).
//!
//! Each side offers its block. As soon as a side has made an offer and has the other's, the rings
//! are joined. Both then use as many queues and slots as the smaller offer has.
//!
//! A side that ends withdraws its offer: it writes to the other side no more. The other side ends
//! its use, too, and says so. Then each may make a new offer.

use super::{
    envelope::{
        define_messages,
        structure_field,
        ServiceId, //
    },
    frame_ring::Geometry,
};

structure_field! {
    /// The block of the sender of the message, and its geometry.
    pub(crate) struct BlockOffer {
        /// Bus address of the block.
        address: u64,
        queues: u32,
        slots: u32,
        /// Size of the buffers that the sender posts.
        buffer: u32,
    } if |offer| Geometry::new(offer.queues, offer.slots, offer.buffer).is_some()
}

define_messages! {
    /// A message about the frame rings of the network service.
    pub(crate) enum FrameMessage of ServiceId::NET;

    /// Offers the sender's block.
    1 Offer { offer: BlockOffer };

    /// The sender uses the receiver's block no more, and wants the receiver to leave its own alone.
    2 Withdraw {};

    /// The sender uses the receiver's block no more, which the receiver has withdrawn. It is no
    /// answer, which could overtake an offer that was sent before.
    3 Withdrawn {};

    /// The sender's user asks something of the receiver's, while the rings are joined. Only the users
    /// understand the word, which replaces the one before. At first it is 0.
    4 Ask { word: u32 };
}
