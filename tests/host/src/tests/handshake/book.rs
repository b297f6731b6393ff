// SPDX-License-Identifier: GPL-2.0

//! A side of the bridge, and its book.
//!
//! Each side records the completed actions in its book, without looking into its machine.
//! [`Side::judge`] checks the machine's next action against the book.

use std::collections::{BTreeSet, VecDeque};

use super::new_machine;
use crate::logic::handshake::{
    Action, FIRST_PAUSE, Handshake, LONGEST_PAUSE, Reason, Refused, Seen,
};
use crate::logic::hello::{Hello, NoHello, WORDS};

/// An offer that a side has made, by its book.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) nonce: u32,
    /// The nonce that the side has echoed, or has tried to echo.
    pub(super) echo: Option<u32>,
    /// Whether the nonce was echoed completely.
    pub(super) told: bool,
}

/// A node, and the content of its scratchpads.
pub(super) struct Side {
    pub(super) machine: Handshake,
    pub(super) node: u16,
    pub(super) generation: u64,
    pub(super) present: bool,
    pub(super) link_up: bool,
    /// Whether the link went down and came up again since the last step.
    pub(super) flapped: bool,
    /// Whether the other node has a session by another link.
    pub(super) is_taken: bool,
    /// Words that the other side writes and this side reads.
    pub(super) scratchpads: [u32; WORDS],
    /// Writes to the scratchpads that are in flight.
    pub(super) under_way: VecDeque<(usize, u32)>,
    /// All hellos that the other side has ever written.
    pub(super) history: Vec<[u32; WORDS]>,
    pub(super) ended: Option<Reason>,
    /// Number of steps of this side in this session.
    pub(super) looks: usize,

    // The book:
    pub(super) offer: Option<Offer>,
    /// The nonces of this side and of the peer.
    pub(super) session: Option<(u32, u32)>,
    pub(super) last_ended: Option<u32>,
    /// Nonces of peers with which sessions have begun.
    pub(super) begun: BTreeSet<u32>,
    /// The generation with which a session failed to begin, and the time from which this side may
    /// answer it again.
    pub(super) failed: Option<(u64, u32)>,
    /// Length of the last pause.
    pub(super) pause: u32,
}

impl Side {
    pub(super) fn new(node: u16, generation: u64) -> Self {
        Self {
            machine: new_machine(node),
            node,
            generation,
            present: true,
            link_up: false,
            flapped: false,
            is_taken: false,
            scratchpads: [0; WORDS],
            under_way: VecDeque::new(),
            history: Vec::new(),
            ended: None,
            looks: 0,
            offer: None,
            session: None,
            last_ended: None,
            begun: BTreeSet::new(),
            failed: None,
            pause: 0,
        }
    }

    pub(super) fn hello(&self) -> Result<Hello, NoHello> {
        Hello::decode(&self.scratchpads)
    }

    pub(super) fn connected(&self) -> bool {
        self.present && self.link_up && !self.flapped
    }

    /// Lets words arrive, in the order in which they were written.
    pub(super) fn deliver(&mut self, words: usize) {
        for _ in 0..words {
            let Some((index, word)) = self.under_way.pop_front() else {
                return;
            };
            self.scratchpads[index] = word;
        }
    }

    /// Checks that the machine may return this action. Panics if not.
    pub(super) fn judge(&self, action: &Action, seen: &Seen, offered: &BTreeSet<u32>) {
        match *action {
            Action::Wait => {
                assert!(
                    self.session.is_none() || (self.connected() && seen.ended.is_none()),
                    "a session that is over goes on"
                );
                assert!(
                    self.offer.is_none() || self.connected(),
                    "an offer outlives its link"
                );
            }
            Action::Offer { nonce } => {
                assert!(self.connected() && self.session.is_none());
                assert!(self.offer.is_none(), "an offer is forgotten");
                assert_ne!(nonce, 0);
                assert!(!offered.contains(&nonce), "a nonce is for one offer");
            }
            Action::Echo { nonce, echo } => self.judge_echo(seen, nonce, echo),
            Action::Withdraw { echoed } => {
                let offer = self.offer.expect("nothing is offered");
                assert_eq!(echoed, offer.echo.is_some(), "the peer may write to it");
            }
            Action::Begin { nonce, hello } => self.judge_begin(seen, nonce, &hello),
            Action::End { reason } => self.judge_end(seen, reason),
            Action::Refuse(Refused::Version(version)) => {
                assert_eq!(seen.hello, Err(NoHello::Version(version)));
            }
            Action::Refuse(refused) => {
                let hello = self.judge_peer(seen);
                assert_eq!(objection(seen, &hello), Some(refused));
                let has_echoed = self.offer.is_some_and(|offer| offer.echo.is_some());
                assert!(
                    refused != Refused::Taken(hello.node) || !has_echoed || self.node >= hello.node,
                    "the peer may have begun, and waits for heartbeats"
                );
            }
        }
    }

    fn judge_echo(&self, seen: &Seen, nonce: u32, echo: u32) {
        let offer = self.offer.expect("nothing is offered");
        let hello = self.judge_peer(seen);
        assert_eq!(objection(seen, &hello), None);
        assert_eq!((nonce, echo), (offer.nonce, hello.nonce));
        assert!(
            offer
                .echo
                .is_none_or(|before| before == echo && !offer.told),
            "an offer echoes one nonce, once"
        );
    }

    fn judge_begin(&self, seen: &Seen, nonce: u32, hello: &Hello) {
        let offer = self.offer.expect("nothing is offered");
        assert_eq!(*hello, self.judge_peer(seen));
        assert_eq!(objection(seen, hello), None);
        assert_eq!(nonce, offer.nonce);
        assert_eq!(hello.echo, nonce, "the peer has not seen this side");
        assert!(
            offer.told && offer.echo == Some(hello.nonce),
            "the peer was not told"
        );
        assert!(!self.begun.contains(&hello.nonce), "it has begun before");
    }

    fn judge_end(&self, seen: &Seen, reason: Reason) {
        let (_, peer) = self.session.expect("there is no session");
        let is_true = match reason {
            Reason::DeviceGone => !self.present,
            Reason::LinkDown => !self.link_up || self.flapped,
            Reason::Left => seen.ended == Some(Reason::Left),
            Reason::Failed => seen.ended == Some(Reason::Failed),
            Reason::StartedAnew => seen.hello.is_ok_and(|hello| hello.nonce != peer),
        };
        assert!(is_true, "{reason:?} is no reason");
    }

    /// Checks the conditions of every action that concerns a hello.
    fn judge_peer(&self, seen: &Seen) -> Hello {
        assert!(self.connected());
        let hello = seen.hello.expect("there is no peer");
        assert_ne!(
            Some(hello.nonce),
            self.last_ended,
            "its session has ended, and it may still write"
        );
        assert!(
            self.failed.is_none_or(
                |(generation, until)| generation != hello.generation || seen.now >= until
            ),
            "it can't be served so soon"
        );
        hello
    }

    /// Records an action in the book.
    pub(super) fn record(&mut self, action: &Action, success: bool, now: u32) {
        match *action {
            Action::Wait => {}
            Action::Offer { nonce } => {
                if success {
                    self.offer = Some(Offer {
                        nonce,
                        echo: None,
                        told: false,
                    });
                }
            }
            Action::Echo { echo, .. } => {
                if let Some(offer) = &mut self.offer {
                    offer.echo = Some(echo);
                    offer.told = success;
                }
            }
            Action::Withdraw { .. } => self.offer = None,
            Action::Begin { nonce, hello } => {
                self.offer = None;
                self.begun.insert(hello.nonce);
                if success {
                    self.session = Some((nonce, hello.nonce));
                    self.looks = 0;
                    self.failed = None;
                } else {
                    let again = self
                        .failed
                        .is_some_and(|(failed, _)| failed == hello.generation);
                    self.pause = match again {
                        true => LONGEST_PAUSE.min(2 * self.pause),
                        false => FIRST_PAUSE,
                    };
                    self.failed = Some((hello.generation, now + self.pause));
                }
            }
            Action::End { .. } => {
                self.last_ended = self.session.take().map(|(_, peer)| peer);
                self.ended = None;
            }
            Action::Refuse(_) => {}
        }
    }
}

/// Returns the reason to refuse a peer, if there is one.
fn objection(seen: &Seen, hello: &Hello) -> Option<Refused> {
    if hello.page_shift != 12 {
        Some(Refused::PageSize(hello.page_shift))
    } else if seen.is_taken {
        Some(Refused::Taken(hello.node))
    } else {
        None
    }
}
