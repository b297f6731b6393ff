// SPDX-License-Identifier: LGPL-2.1

//! The layout of a ring in memory. The peer writes all of it.
//!
//! ```text
//!    0  produced     bytes that the peer has put into this ring, ever
//!   64  consumed     bytes that the peer has taken out of *its* ring, ever, as far as it has said
//!  128  room wanted  the peer wants a bell when we have said that we have taken so many out of this ring
//!  132  data wanted  the peer wants a bell when we have put so many into *its* ring
//!  192  closed       not 0: the peer has left
//! 4096  data
//! ```
//!
//! The words that are written with each message lie apart from the rest: a cache line that both
//! nodes touch costs each of them a round trip to the other.

/// A word of a header; its value is the offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    Produced = 0,
    Consumed = 64,
    RoomWanted = 128,
    DataWanted = 132,
    Closed = 192,
}

/// The offset of the data.
pub const DATA: usize = 4096;
