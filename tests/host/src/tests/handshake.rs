// SPDX-License-Identifier: GPL-2.0

//! The handshake: one machine step by step, and two machines on two sides of a bridge
//! (`bridge.rs`).

use std::collections::BTreeSet;

use crate::logic::handshake::{
    Action, FIRST_PAUSE, Handshake, LONGEST_PAUSE, Reason, Refused, Seen,
};
use crate::logic::hello::{Hello, Mode, NoHello};

mod book;
mod bridge;
mod two_links;

const PAGE_SHIFT: u8 = 12;

fn fit_hello() -> Hello {
    Hello {
        nonce: 1,
        echo: 0,
        node: 7,
        windows: 1,
        page_shift: PAGE_SHIFT,
        generation: 70,
        control: 0x1000,
        aperture_base: 0,
        aperture_len: 1 << 30,
        mode: Mode::Flat.number(),
    }
}

fn new_machine(node: u16) -> Handshake {
    Handshake::new(PAGE_SHIFT, node)
}

#[derive(Clone, Copy, Debug)]
enum Unfit {
    PageSize,
}

impl Unfit {
    fn apply(self, hello: &mut Hello) {
        match self {
            Self::PageSize => hello.page_shift = 14,
        }
    }
}

/// A machine with its link up, and the last hello that it has seen.
struct Bench {
    machine: Handshake,
    seen: Seen,
}

impl Bench {
    /// Makes the machine of a node with a higher id than the peer's.
    fn new() -> Self {
        Self {
            machine: new_machine(fit_hello().node + 1),
            seen: Seen {
                present: true,
                link_up: true,
                hello: Err(NoHello::Absent),
                is_taken: false,
                ended: None,
                fresh_nonce: 11,
                now: 0,
            },
        }
    }

    /// Makes a machine that has offered nonce 11.
    fn offering() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.step(true), Action::Offer { nonce: 11 });
        bench
    }

    /// Makes a machine that has a session of nonces 11 and 1.
    fn up() -> Self {
        let mut bench = Self::offering();
        bench.show(fit_hello());
        assert_eq!(bench.step(true), Action::Echo { nonce: 11, echo: 1 });
        let hello = Hello {
            echo: 11,
            ..fit_hello()
        };
        bench.show(hello);
        assert_eq!(bench.step(true), Action::Begin { nonce: 11, hello });
        assert!(bench.machine.is_up());
        bench
    }

    fn show(&mut self, hello: Hello) {
        self.seen.hello = Ok(hello);
    }

    fn step(&mut self, success: bool) -> Action {
        let action = self.machine.next(&self.seen);
        self.machine.carried_out(&action, success, self.seen.now);
        action
    }
}

#[test]
fn offered_nonce_is_never_zero() {
    let mut bench = Bench::new();
    bench.seen.fresh_nonce = 0;
    assert!(matches!(bench.step(true), Action::Offer { nonce } if nonce != 0));
}

#[test]
fn failed_offer_is_repeated_with_a_new_nonce() {
    let mut bench = Bench::new();
    assert_eq!(bench.step(false), Action::Offer { nonce: 11 });
    assert_eq!(bench.machine.own_nonce(), None);
    bench.seen.fresh_nonce = 12;
    assert_eq!(bench.step(true), Action::Offer { nonce: 12 });
    assert_eq!(bench.step(true), Action::Wait);
}

#[test]
fn failed_echo_is_repeated_or_withdrawn() {
    let mut bench = Bench::offering();
    bench.show(fit_hello());
    assert_eq!(bench.step(false), Action::Echo { nonce: 11, echo: 1 });
    assert_eq!(bench.step(false), Action::Echo { nonce: 11, echo: 1 });
    // The peer may have seen the first offer.
    bench.show(Hello {
        nonce: 2,
        ..fit_hello()
    });
    assert_eq!(bench.step(true), Action::Withdraw { echoed: true });
}

#[test]
fn session_end_names_its_cause() {
    type Change = fn(&mut Seen);
    let changes: [(Reason, Change); 5] = [
        (Reason::DeviceGone, |seen| seen.present = false),
        (Reason::LinkDown, |seen| seen.link_up = false),
        (Reason::Left, |seen| seen.ended = Some(Reason::Left)),
        (Reason::Failed, |seen| seen.ended = Some(Reason::Failed)),
        (Reason::StartedAnew, |seen| {
            seen.hello = Ok(Hello {
                nonce: 2,
                ..fit_hello()
            });
        }),
    ];
    let mut texts = BTreeSet::new();
    for (reason, change) in changes {
        let mut bench = Bench::up();
        assert_eq!(bench.step(true), Action::Wait);
        change(&mut bench.seen);
        assert_eq!(bench.step(true), Action::End { reason });
        assert!(!bench.machine.is_up());
        assert!(texts.insert(reason.text()));
    }
}

/// If both sides echo a former nonce of the other one, they do not wait for each other.
#[test]
fn echo_of_an_old_offer_makes_the_node_withdraw() {
    let mut bench = Bench::offering();
    bench.show(fit_hello());
    assert_eq!(bench.step(true), Action::Echo { nonce: 11, echo: 1 });
    bench.show(Hello {
        nonce: 2,
        echo: 10,
        ..fit_hello()
    });
    assert_eq!(bench.step(true), Action::Withdraw { echoed: true });
    bench.seen.fresh_nonce = 12;
    assert_eq!(bench.step(true), Action::Offer { nonce: 12 });
    // The peer will see the new offer, and make an offer itself.
    assert_eq!(bench.step(true), Action::Wait);
}

/// If there are several reasons, the machine returns the first one.
#[test]
fn device_loss_is_reported_before_other_reasons() {
    let mut bench = Bench::up();
    bench.seen.present = false;
    bench.seen.link_up = false;
    bench.seen.ended = Some(Reason::Left);
    let reason = Reason::DeviceGone;
    assert_eq!(bench.step(true), Action::End { reason });
    assert_eq!(bench.step(true), Action::Wait);
}

/// Returns hellos that differ from a fit hello, and the reasons for which they are refused.
fn unfit_hellos() -> Vec<(Hello, Refused)> {
    [(Unfit::PageSize, Refused::PageSize(14))]
        .into_iter()
        .map(|(unfit, refused)| {
            let mut hello = fit_hello();
            unfit.apply(&mut hello);
            (hello, refused)
        })
        .collect()
}

#[test]
fn unfit_peer_is_refused_until_its_hello_changes() {
    for (hello, refused) in unfit_hellos() {
        let mut bench = Bench::offering();
        bench.show(hello);
        assert_eq!(bench.step(true), Action::Refuse(refused));
        assert_eq!(bench.step(true), Action::Refuse(refused));
        // The peer has restarted with the same fault.
        let again = Hello {
            nonce: 3,
            generation: 71,
            ..hello
        };
        bench.show(again);
        assert_eq!(bench.step(true), Action::Refuse(refused));
        // The peer has restarted without the fault.
        bench.show(Hello {
            nonce: 4,
            generation: 72,
            ..fit_hello()
        });
        assert_eq!(bench.step(true), Action::Echo { nonce: 11, echo: 4 });
    }
}

#[test]
fn other_version_is_refused_until_it_changes() {
    let mut bench = Bench::offering();
    for version in [1, 3, 1] {
        bench.seen.hello = Err(NoHello::Version(version));
        assert_eq!(bench.step(true), Action::Refuse(Refused::Version(version)));
    }
    bench.show(fit_hello());
    assert_eq!(bench.step(true), Action::Echo { nonce: 11, echo: 1 });
    bench.seen.hello = Err(NoHello::Version(1));
    assert_eq!(bench.step(true), Action::Refuse(Refused::Version(1)));
}

impl Bench {
    /// Offers nonce `own`, and reaches a `Begin` with a peer of nonce `peer`, which fails.
    fn fail_to_begin(&mut self, own: u32, peer: u32) {
        self.seen.fresh_nonce = own;
        assert_eq!(self.step(true), Action::Offer { nonce: own });
        let hello = Hello {
            nonce: peer,
            ..fit_hello()
        };
        self.show(hello);
        let echo = Action::Echo {
            nonce: own,
            echo: peer,
        };
        assert_eq!(self.step(true), echo);
        let hello = Hello { echo: own, ..hello };
        self.show(hello);
        let begin = Action::Begin { nonce: own, hello };
        assert_eq!(self.step(false), begin);
        assert!(!self.machine.is_up());
    }

    /// Returns whether the machine answers a peer that now shows this nonce.
    fn answers(&mut self, nonce: u32) -> bool {
        self.show(Hello {
            nonce,
            ..fit_hello()
        });
        matches!(self.machine.next(&self.seen), Action::Echo { .. })
    }
}

#[test]
fn failed_session_setup_is_retried_with_growing_pauses() {
    let mut bench = Bench::new();
    // The ticks may wrap.
    bench.seen.now = u32::MAX - 5;
    let mut pause = FIRST_PAUSE;
    for round in 0..10 {
        bench.fail_to_begin(100 + round, 200 + round);
        // The next offer exists, but the peer does not answer it yet.
        bench.seen.fresh_nonce = 300 + round;
        assert!(matches!(bench.step(true), Action::Offer { .. }));
        bench.seen.now = bench.seen.now.wrapping_add(pause - 1);
        assert!(!bench.answers(400 + round), "pause {round}");
        bench.seen.now = bench.seen.now.wrapping_add(1);
        assert!(bench.answers(400 + round), "pause {round}");
        pause = LONGEST_PAUSE.min(2 * pause);
        // The machine withdraws the offer, and remembers the failure of the peer.
        bench
            .machine
            .carried_out(&Action::Withdraw { echoed: false }, true, 0);
    }
    assert_eq!(pause, LONGEST_PAUSE);
}

#[test]
fn restarted_peer_or_link_is_tried_without_a_pause() {
    let mut bench = Bench::new();
    bench.fail_to_begin(11, 1);
    bench.seen.fresh_nonce = 12;
    assert_eq!(bench.step(true), Action::Offer { nonce: 12 });
    assert!(!bench.answers(2));
    bench.show(Hello {
        nonce: 3,
        generation: 71,
        ..fit_hello()
    });
    assert!(matches!(
        bench.machine.next(&bench.seen),
        Action::Echo { .. }
    ));
    bench.seen.link_up = false;
    assert_eq!(bench.step(true), Action::Withdraw { echoed: false });
    bench.seen.link_up = true;
    assert_eq!(bench.step(true), Action::Offer { nonce: 12 });
    assert!(bench.answers(2));
}

/// The other link takes over when the first one is lost.
#[test]
fn node_online_by_another_link_is_refused_until_it_is_gone() {
    let refused = Action::Refuse(Refused::Taken(fit_hello().node));
    let mut bench = Bench::offering();
    bench.seen.is_taken = true;
    bench.show(fit_hello());
    assert_eq!(bench.step(true), refused);
    bench.seen.is_taken = false;
    assert_eq!(bench.step(true), Action::Echo { nonce: 11, echo: 1 });
    // The peer came by the other link meanwhile, and disappears again.
    let hello = Hello {
        echo: 11,
        ..fit_hello()
    };
    bench.show(hello);
    bench.seen.is_taken = true;
    assert_eq!(bench.step(true), refused);
    bench.seen.is_taken = false;
    assert_eq!(bench.step(true), Action::Begin { nonce: 11, hello });
    // `is_taken` does not affect an existing session.
    bench.seen.is_taken = true;
    assert_eq!(bench.step(true), Action::Wait);
}

/// The peer may have begun a session by this link, and wait for heartbeats.
#[test]
fn lower_node_withdraws_its_echo_if_the_peer_is_taken() {
    let node = fit_hello().node;
    for own in [node - 1, node, node + 1] {
        let mut bench = Bench::new();
        bench.machine = new_machine(own);
        assert_eq!(bench.step(true), Action::Offer { nonce: 11 });
        bench.show(fit_hello());
        // This side has echoed nothing, so the peer can't have begun a session.
        bench.seen.is_taken = true;
        let refused = Action::Refuse(Refused::Taken(node));
        assert_eq!(bench.step(true), refused);
        bench.seen.is_taken = false;
        assert_eq!(bench.step(true), Action::Echo { nonce: 11, echo: 1 });
        bench.seen.is_taken = true;
        if own < node {
            assert_eq!(bench.step(true), Action::Withdraw { echoed: true });
            bench.seen.fresh_nonce = 12;
            assert_eq!(bench.step(true), Action::Offer { nonce: 12 });
        }
        assert_eq!(bench.step(true), refused);
        assert_eq!(bench.step(true), refused);
    }
}

#[test]
fn hello_of_the_ended_session_is_not_answered() {
    let mut bench = Bench::up();
    bench.seen.ended = Some(Reason::Failed);
    assert!(matches!(bench.step(true), Action::End { .. }));
    bench.seen.ended = None;
    bench.seen.fresh_nonce = 12;
    assert_eq!(bench.step(true), Action::Offer { nonce: 12 });
    for echo in [0, 12] {
        bench.show(Hello {
            echo,
            ..fit_hello()
        });
        assert_eq!(bench.step(true), Action::Wait);
    }
}
