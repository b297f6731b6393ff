// SPDX-License-Identifier: GPL-2.0

//! The handshake by which two nodes start a session, as decisions only.
//!
//! ```text
//! Down ------- Offer -------> Offering --- Echo, then Begin ---> Up
//!  ^                            |                                |
//!  +--------- Withdraw ---------+                                |
//!  +------------------------------- End -------------------------+
//! ```
//!
//! *Offering*: this side's control block exists, and its hello, with a fresh nonce, is in the
//! peer's scratchpads (see `hello.rs`). Once the peer's hello is there, too, this side opens its
//! aperture and repeats its hello with the peer's nonce as the echo. When each side has seen its
//! own nonce echoed, both are *up*.
//!
//! The caller fills in [`Seen`], asks [`Handshake::next`], carries out the action, and reports that
//! with [`Handshake::carried_out`]. It repeats this until there is nothing to do or an action has
//! failed. It need not report events: an event or a timer makes the caller check the state again,
//! and the state decides.
//!
//! # Guarantees
//!
//! A session begins only with a peer whose hello, at this moment, echoes this side's nonce, and
//! whose nonce this side has echoed. A nonce belongs to one offer, and an offer echoes one nonce,
//! so the two ends of a session belong together. The nonce of the last session is not answered
//! again: the peer may still write to the memory of that session until it shows another nonce.
//!
//! An offer that was echoed is accepted (`Begin`), or taken back with `Withdraw { echoed: true }`.
//! In the latter case the peer may have begun its session, and may write to this side's control
//! block. If `Begin` fails, the caller has to treat the offer like one that was withdrawn. The peer
//! is answered again after a pause, which gets longer each time.
//!
//! A peer whose node is already connected by another link is refused as long as it is connected. So
//! of several links to one node one is used, and when it is lost the next one takes its place. The
//! two sides may have begun by different links, and each have refused the other's. Then the side
//! with the lower id takes back what it has echoed. The peer, which may have begun there, finds
//! another offer, ends its session, and uses the link of the lower side.
//!
//! Scratchpads may hold anything: a partial hello, an old one, or a forged one of a hostile peer. A
//! hostile peer may show a nonce that was never its own. So the guarantees hold for peers that keep
//! to the protocol, and the caller checks all that follows from a hello.
//!
//! This file does not touch memory, apertures, scratchpads, doorbells, timers or the log.

use super::hello::{
    Hello,
    NoHello, //
};

/// The state of the link, as the caller sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Whether the device is present.
    pub(crate) present: bool,
    pub(crate) link_up: bool,
    /// The contents of the scratchpads.
    pub(crate) hello: Result<Hello, NoHello>,
    /// Whether the node in the hello is this one, or is connected by another link.
    pub(crate) is_taken: bool,
    /// The reason if there is a session that has ended by itself: its peer has left, or it has
    /// failed.
    pub(crate) ended: Option<Reason>,
    /// A random number for the nonce of an offer.
    pub(crate) fresh_nonce: u32,
    /// The time in ticks.
    pub(crate) now: u32,
}

/// The action that the caller has to carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Wait until something changes.
    Wait,
    /// Allocate a control block, choose an aperture, and say hello with this nonce and echo 0.
    Offer { nonce: u32 },
    /// Open the aperture, and say hello again with the echo.
    Echo { nonce: u32, echo: u32 },
    /// Drop this side's offer. If it was echoed, the peer may write to its block: keep the block,
    /// and close the aperture.
    Withdraw { echoed: bool },
    /// Create the session, as both sides have seen each other's echo.
    Begin { nonce: u32, hello: Hello },
    /// End the session.
    End { reason: Reason },
    /// Log once why the peer can't be served, and wait until something changes.
    Refuse(Refused),
}

/// The reason why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    DeviceGone,
    LinkDown,
    /// The peer has said farewell.
    Left,
    /// An error has occurred.
    Failed,
    StartedAnew,
}

impl Reason {
    /// Returns the reason in words, for the log.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::DeviceGone => "this side takes the link down",
            Self::LinkDown => "the link is down",
            Self::Left => "it has left",
            Self::Failed => "the session has failed",
            Self::StartedAnew => "it has started anew",
        }
    }
}

/// The reason why a peer can't be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The peer speaks this other version of the protocol.
    Version(u16),
    /// The peer's pages have another size, given as the number of address bits.
    PageSize(u8),
    /// The node with this id is this one, or is connected by another link.
    Taken(u16),
}

/// Ticks until a peer is answered again after a session with it could not be created for the first
/// time. Each further time the pause doubles, up to [`LONGEST_PAUSE`].
pub(crate) const FIRST_PAUSE: u32 = 10;
pub(crate) const LONGEST_PAUSE: u32 = 640;

/// A peer with which a session could not be created.
#[derive(Clone, Copy)]
struct Failed {
    generation: u64,
    /// Time of the failure, in ticks.
    since: u32,
    pause: u32,
}

/// # Invariants
///
/// Nonces are not 0. An `echo` is 0 until the echo was carried out or has been tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down,
    Offering {
        nonce: u32,
        /// The nonce that the peer may have seen as this side's echo.
        echo: u32,
        /// Whether the hello with that echo was written completely, and the aperture is open.
        told: bool,
    },
    Up {
        nonce: u32,
        peer: u32,
    },
}

/// One side of the handshake with a peer.
///
/// # Invariants
///
/// `stale` is the peer's nonce of the last session that has ended, or 0. If `failed` is set, no
/// session could be created with this peer, and the link was not seen down since.
pub(crate) struct Handshake {
    page_shift: u8,
    /// The id of this node.
    node: u16,
    state: State,
    stale: u32,
    failed: Option<Failed>,
}

impl Handshake {
    /// Creates the handshake of a node. `page_shift` is the number of address bits of its pages.
    pub(crate) fn new(page_shift: u8, node: u16) -> Self {
        Self {
            page_shift,
            node,
            state: State::Down,
            stale: 0,
            failed: None,
        }
    }

    /// Returns the next action.
    ///
    /// If [`Self::carried_out`] is not called in between, it returns the same action for the same
    /// `seen`. It changes only one thing: it forgets the peer of a failed session when the link is
    /// down.
    pub(crate) fn next(&mut self, seen: &Seen) -> Action {
        let connected = seen.present && seen.link_up;
        if !connected {
            self.failed = None;
        }
        match self.state {
            State::Up { peer, .. } => match Self::why_over(seen, peer) {
                Some(reason) => Action::End { reason },
                None => Action::Wait,
            },
            State::Down if connected => Action::Offer {
                // Zero means "none".
                nonce: seen.fresh_nonce.max(1),
            },
            State::Down => Action::Wait,
            State::Offering { echo, .. } if !connected => Action::Withdraw { echoed: echo != 0 },
            State::Offering { nonce, echo, told } => match seen.hello {
                Ok(hello) if self.is_resting(&hello, seen.now) => Action::Wait,
                Ok(hello) => self.answer(seen, &hello, (nonce, echo, told)),
                Err(NoHello::Version(version)) => Action::Refuse(Refused::Version(version)),
                Err(NoHello::Absent) => Action::Wait,
            },
        }
    }

    fn why_over(seen: &Seen, peer: u32) -> Option<Reason> {
        if !seen.present {
            return Some(Reason::DeviceGone);
        }
        if !seen.link_up {
            return Some(Reason::LinkDown);
        }
        match (seen.ended, seen.hello) {
            (Some(reason), _) => Some(reason),
            (None, Ok(hello)) if hello.nonce != peer => Some(Reason::StartedAnew),
            (None, _) => None,
        }
    }

    /// Returns whether a hello is left over from the last session, or the pause of its peer is not
    /// over.
    fn is_resting(&self, hello: &Hello, now: u32) -> bool {
        let has_failed = self.failed.is_some_and(|failed| {
            failed.generation == hello.generation && now.wrapping_sub(failed.since) < failed.pause
        });
        hello.nonce == self.stale || has_failed
    }

    /// Returns the reaction to a hello while there is an offer.
    fn answer(&self, seen: &Seen, hello: &Hello, (nonce, echo, told): (u32, u32, bool)) -> Action {
        if let Some(refused) = self.objection(seen, hello) {
            let is_taken = matches!(refused, Refused::Taken(_));
            if is_taken && echo != 0 && self.node < hello.node {
                // The peer may have begun a session on this link, and would wait for heartbeats.
                return Action::Withdraw { echoed: true };
            }
            return Action::Refuse(refused);
        }
        // This side's block may hold words that the peer wrote under its former nonce. This check
        // comes before that of the peer's echo. If each side echoed a former nonce of the other,
        // each would wait for the other to start over.
        if echo != 0 && echo != hello.nonce {
            return Action::Withdraw { echoed: true };
        }
        // The peer echoes an offer that this side has withdrawn. It makes a new offer when it sees
        // the present one.
        if hello.echo != 0 && hello.echo != nonce {
            return Action::Wait;
        }
        if !told {
            return Action::Echo {
                nonce,
                echo: hello.nonce,
            };
        }
        if hello.echo != nonce {
            return Action::Wait;
        }
        Action::Begin {
            nonce,
            hello: *hello,
        }
    }

    /// Returns why a session with this peer is impossible, if it is.
    fn objection(&self, seen: &Seen, hello: &Hello) -> Option<Refused> {
        if hello.page_shift != self.page_shift {
            Some(Refused::PageSize(hello.page_shift))
        } else if seen.is_taken {
            Some(Refused::Taken(hello.node))
        } else {
            None
        }
    }

    /// Records that the action was carried out, or has failed, at this tick. An `End` and a
    /// `Withdraw` can't fail.
    ///
    /// After a failed `Begin`, the peer's generation is not answered during a pause, or until the
    /// link was down. A failed `Echo` may have been written in part, and is tried again.
    pub(crate) fn carried_out(&mut self, action: &Action, success: bool, now: u32) {
        match *action {
            Action::Offer { nonce } if success => {
                self.state = State::Offering {
                    nonce,
                    echo: 0,
                    told: false,
                };
            }
            Action::Wait | Action::Offer { .. } | Action::Refuse(_) => {}
            Action::Echo { nonce, echo } => {
                self.state = State::Offering {
                    nonce,
                    echo,
                    told: success,
                };
            }
            Action::Withdraw { .. } => self.state = State::Down,
            Action::Begin { nonce, hello } if success => {
                self.failed = None;
                self.state = State::Up {
                    nonce,
                    peer: hello.nonce,
                };
            }
            Action::Begin { hello, .. } => {
                self.state = State::Down;
                let before = self
                    .failed
                    .filter(|failed| failed.generation == hello.generation);
                let twice = |failed: Failed| failed.pause.saturating_mul(2).min(LONGEST_PAUSE);
                self.failed = Some(Failed {
                    generation: hello.generation,
                    since: now,
                    pause: before.map_or(FIRST_PAUSE, twice),
                });
            }
            Action::End { .. } => {
                if let State::Up { peer, .. } = self.state {
                    self.stale = peer;
                }
                self.state = State::Down;
            }
        }
    }

    /// Returns the peer's nonce of the session, or the nonce that this side's offer echoes.
    pub(crate) fn peer_nonce(&self) -> Option<u32> {
        match self.state {
            State::Down | State::Offering { echo: 0, .. } => None,
            State::Offering { echo, .. } => Some(echo),
            State::Up { peer, .. } => Some(peer),
        }
    }
}

#[cfg(test)]
impl Handshake {
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    /// Returns the nonce of this side's offer or session.
    pub(crate) fn own_nonce(&self) -> Option<u32> {
        match self.state {
            State::Down => None,
            State::Offering { nonce, .. } | State::Up { nonce, .. } => Some(nonce),
        }
    }
}
