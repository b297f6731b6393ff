// SPDX-License-Identifier: GPL-2.0

//! The calls of a run in one thread, whose results a model predicts.
//!
//! An endpoint is named by its slot in a small table, memory by its offset in the arena
//! (`memory.rs`).

use crate::lines::lines;

/// Largest number of endpoints of a run.
pub const SLOTS: usize = 10;

lines! {
    /// A call with its arguments.
    Call,
    /// Slot of the endpoint on which the call is made.
    slot: usize;

    Open "open" { slot: usize }
    Close "close" { slot: usize }
    Bind "bind" { slot: usize, port: u16 }
    Listen "listen" { slot: usize, backlog: i32 }
    /// Connects to a port of the target node, without waiting.
    Connect "connect" { slot: usize, port: u16 }
    /// Accepts a request, and puts the new endpoint into another slot.
    Accept "accept" { slot: usize, into: usize, flags: i32 }
    Send "send" { slot: usize, len: i32, flags: i32 }
    SendAll "send_all" { slot: usize, len: u64 }
    Receive "receive" { slot: usize, len: i32, flags: i32 }
    Poll "poll" { slot: usize }
    Register "register" { slot: usize, at: u64, len: u64, offset: i64, protection: i32, flags: i32 }
    Unregister "unregister" { slot: usize, offset: i64, len: u64 }
    /// Copies between windows.
    Copy "copy" { slot: usize, write: bool, local: i64, remote: i64, len: u64, flags: i32 }
    /// Copies between memory and windows.
    CopyMemory "copy_memory" { slot: usize, write: bool, at: u64, remote: i64, len: u64, flags: i32 }
    Map "map" { slot: usize, offset: i64, pages: usize, write: bool }
    Mark "mark" { slot: usize, flags: i32 }
    Wait "wait" { slot: usize, mark: i32 }
    Signal "signal" { slot: usize, flags: i32, local: i64, remote: i64, value: u64 }
    /// Makes a call with any number, and an address that can't be read.
    Unknown "unknown" { slot: usize, number: u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::Chooser;
    use crate::choice::UNSHARED;
    use crate::lines::parse;
    use crate::lines::print;
    use crate::model::Model;

    #[test]
    fn printed_calls_parse_to_themselves() {
        let mut chooser = Chooser::new(7, UNSHARED);
        let calls: Vec<Call> = (0..10_000).map(|_| chooser.call(&Model::new(1))).collect();
        assert_eq!(parse::<Call>(&print(&calls)).unwrap(), calls);
    }

    #[test]
    fn parse_error_names_the_invalid_line() {
        let error = parse::<Call>("open slot=1\nclose port=1\n").unwrap_err();
        assert!(format!("{error:#}").contains("line 2"), "{error:#}");
        assert!(parse::<Call>("fly slot=1").is_err());
        assert!(parse::<Call>("open").is_err());
        assert_eq!(parse::<Call>("# nothing\n\n").unwrap(), []);
    }
}
