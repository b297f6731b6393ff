// SPDX-License-Identifier: GPL-2.0

//! The messages about names: one side asks for the port that has a name, the other one answers.
//!
//! A name is a number of 32 bits in a class, which is one, too. Classes do not know of each other;
//! there is none of the number 0. A token stands for a question, means nothing to who answers, and
//! comes back with the answer.

use super::envelope::{
    define_messages,
    ServiceId, //
};

define_messages! {
    /// A question about a name, or the answer to one.
    pub(crate) enum NameMessage of ServiceId::NAMES;

    /// Which port has the name?
    1 Lookup { token: u32, class: u32, name: u32 } if class != 0;

    /// This port has it.
    2 Found { token: u32, port: u16 } if port != 0;

    /// Nobody has it.
    3 NotFound { token: u32 };
}
