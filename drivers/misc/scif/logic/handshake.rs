// SPDX-License-Identifier: GPL-2.0

//! The handshake by which two nodes come to a session, as decisions only.
//!
//! ```text
//! Down ------- Offer -------> Offering --- Echo, then Begin ---> Up
//!  ^                            |                                |
//!  +--------- Withdraw ---------+                                |
//!  +------------------------------- End -------------------------+
//! ```
//!
//! *Offering*: a control block of ours exists and our hello, with a fresh nonce, is in the peer's
//! scratchpads (see `hello.rs`). Once the peer's hello is there, too, our aperture is opened and our
//! hello says the peer's nonce as its echo. When each side has seen its nonce come back, both are
//! *up*.
//!
//! The caller looks at the world, asks [`Handshake::next`], does what it says, reports that with
//! [`Handshake::carried_out`], and begins again, until there is nothing to do or something has
//! failed. Events need not be reported, let alone each of them: an event, and a timer, make the
//! caller look, and what it then finds decides.
//!
//! # What is promised
//!
//! A session begins with a peer whose hello, at this moment, echoes our nonce, and whose nonce we
//! have echoed. As a nonce is for one offer, and an offer echoes one nonce, the two ends of a
//! session belong together. The nonce of the last session is not answered again: the peer may still
//! write to the memory of that session until it shows another one.
//!
//! An offer that was echoed is taken up (`Begin`), or taken back with `Withdraw { echoed: true }`:
//! the peer may have begun its session, and write to our control block. If `Begin` fails, the caller
//! has to do the same as for that; the peer is answered again after a pause, which gets longer each time.
//!
//! A peer whose node is there already, by another link, is refused as long as it is: so of several links to
//! one node one is used, and when that is lost the next one takes its place. The two sides may have begun by different
//! links, and each have refused the other's. Then the side with the lower id takes back what it has echoed: the peer,
//! which may have begun there, finds another offer, ends that session, and takes up the link of the lower side.
//!
//! Scratchpads may hold anything: what was not written completely, what was written long ago, or
//! what a hostile peer likes. It may show a nonce that was never its own, so the properties above
//! hold for peers that keep to the protocol, and the caller checks all that a hello leads to.
//!
//! What is not here: memory, apertures, scratchpads, doorbells, timers, and the log.

use super::hello::{
    Hello,
    NoHello, //
};

/// The world at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The device is there.
    pub(crate) present: bool,
    pub(crate) link_up: bool,
    /// What the scratchpads hold.
    pub(crate) hello: Result<Hello, NoHello>,
    /// The node that it names is there by another link, or is this one.
    pub(crate) is_taken: bool,
    /// Why the session has ended by itself, if there is one and it has: its peer has left, or it has failed.
    pub(crate) ended: Option<Reason>,
    /// A random number, for an offer.
    pub(crate) fresh_nonce: u32,
    /// In ticks.
    pub(crate) now: u32,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing, until something changes.
    Wait,
    /// Make a control block, choose an aperture, say hello with this nonce and echo 0.
    Offer { nonce: u32 },
    /// Open the aperture, say hello again with the echo.
    Echo { nonce: u32, echo: u32 },
    /// Drop our offer. If it was echoed the peer may write to its block: keep that, and close the
    /// aperture.
    Withdraw { echoed: bool },
    /// Both have seen each other: make the session.
    Begin { nonce: u32, hello: Hello },
    /// End the session.
    End { reason: Reason },
    /// The peer can't be served: nothing, until something changes. This is to be said, once.
    Refuse(Refused),
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    DeviceGone,
    LinkDown,
    /// The peer has said farewell.
    Left,
    /// Something went wrong.
    Failed,
    StartedAnew,
}

impl Reason {
    /// For the log.
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

/// Why a peer can't be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It speaks this version of the protocol.
    Version(u16),
    /// Its pages have another size, of so many address bits.
    PageSize(u8),
    /// The node with this id is there by another link, or is this one.
    Taken(u16),
}

/// Ticks until a peer is answered with which a session could not be made, for the first time. Each time it takes
/// twice as long, up to the longest.
pub(crate) const FIRST_PAUSE: u32 = 10;
pub(crate) const LONGEST_PAUSE: u32 = 640;

/// A peer with which a session could not be made.
#[derive(Clone, Copy)]
struct Failed {
    generation: u64,
    /// In ticks.
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
        /// The nonce that the peer may have seen as our echo.
        echo: u32,
        /// All of the hello with that echo was written, and the aperture is open.
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
/// `stale` is the peer's nonce of the last session that has ended, or 0. With the peer in `failed` no session could be
/// made, and the link was not seen to be down since.
pub(crate) struct Handshake {
    page_shift: u8,
    /// The id of this node.
    node: u16,
    state: State,
    stale: u32,
    failed: Option<Failed>,
}

impl Handshake {
    /// Of the node with this id, with pages of so many address bits.
    pub(crate) fn new(page_shift: u8, node: u16) -> Self {
        Self {
            page_shift,
            node,
            state: State::Down,
            stale: 0,
            failed: None,
        }
    }

    /// What to do next.
    ///
    /// Asked again without [`Self::carried_out`] in between, it gives the same answer to the same
    /// question. The only thing it changes is with whom it remembers to have made no session: a link
    /// that is down makes it forget.
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

    /// Whether a hello is left over from the last session, or of a peer with which there could be none a short while ago.
    fn is_resting(&self, hello: &Hello, now: u32) -> bool {
        let has_failed = self.failed.is_some_and(|failed| {
            failed.generation == hello.generation && now.wrapping_sub(failed.since) < failed.pause
        });
        hello.nonce == self.stale || has_failed
    }

    /// What to do about a hello while there is an offer.
    fn answer(&self, seen: &Seen, hello: &Hello, (nonce, echo, told): (u32, u32, bool)) -> Action {
        if let Some(refused) = self.objection(seen, hello) {
            let is_taken = matches!(refused, Refused::Taken(_));
            if is_taken && echo != 0 && self.node < hello.node {
                // The peer may have begun here, and would wait for signs of life.
                return Action::Withdraw { echoed: true };
            }
            return Action::Refuse(refused);
        }
        // Our block may hold words of the peer's former life. This is asked before the echo is
        // looked at: of two sides that both echo a former nonce of the other, each would wait for
        // the other to begin anew.
        if echo != 0 && echo != hello.nonce {
            return Action::Withdraw { echoed: true };
        }
        // In answer to an offer of ours that is no more: the peer will make a new one when it sees
        // that we have.
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

    /// What stands against a session with this peer.
    fn objection(&self, seen: &Seen, hello: &Hello) -> Option<Refused> {
        if hello.page_shift != self.page_shift {
            Some(Refused::PageSize(hello.page_shift))
        } else if seen.is_taken {
            Some(Refused::Taken(hello.node))
        } else {
            None
        }
    }

    /// The action was carried out, or has failed, at this tick. An `End` and a `Withdraw` can't fail.
    ///
    /// After a `Begin` that failed the generation of the peer is not answered for a while, or until the link was
    /// down. An `Echo` that failed may have got through in part, and is tried again.
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

    /// The peer's nonce: that of the session, or the one that our offer echoes.
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

    /// The nonce of our offer or our session.
    pub(crate) fn own_nonce(&self) -> Option<u32> {
        match self.state {
            State::Down => None,
            State::Offering { nonce, .. } | State::Up { nonce, .. } => Some(nonce),
        }
    }
}
