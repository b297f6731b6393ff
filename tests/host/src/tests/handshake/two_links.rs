// SPDX-License-Identifier: GPL-2.0

//! Two nodes with two bridges between them, on which nothing goes wrong. The nodes agree on one
//! bridge.

use super::{fit_hello, new_machine};
use crate::logic::handshake::{Action, Handshake, Seen};
use crate::logic::hello::{Hello, NoHello};

/// The state of a node at one of the links.
struct End {
    machine: Handshake,
    /// The last hello of the node.
    hello: Result<Hello, NoHello>,
}

struct World {
    /// The ends, by node and then by link.
    ends: [[End; 2]; 2],
    nonces: u32,
}

const NODES: [u16; 2] = [5, 7];

impl World {
    fn new() -> Self {
        let end = |node| End {
            machine: new_machine(node),
            hello: Err(NoHello::Absent),
        };
        Self {
            ends: NODES.map(|node| [end(node), end(node)]),
            nonces: 0,
        }
    }

    /// Does one step of a node at a link, which succeeds.
    fn look(&mut self, node: usize, link: usize) -> Action {
        self.nonces += 1;
        let seen = Seen {
            present: true,
            link_up: true,
            hello: self.ends[1 - node][link].hello,
            is_taken: self.ends[node][1 - link].machine.is_up(),
            ended: None,
            fresh_nonce: self.nonces,
            now: self.nonces,
        };
        let end = &mut self.ends[node][link];
        let action = end.machine.next(&seen);
        end.machine.carried_out(&action, true, seen.now);
        let said = match action {
            Action::Offer { nonce } => Some((nonce, 0)),
            Action::Echo { nonce, echo } => Some((nonce, echo)),
            _ => None,
        };
        if let Some((nonce, echo)) = said {
            end.hello = Ok(Hello {
                nonce,
                echo,
                node: NODES[node],
                ..fit_hello()
            });
        }
        action
    }

    fn is_up(&self, link: usize) -> bool {
        let [first, second] = [&self.ends[0][link].machine, &self.ends[1][link].machine];
        first.is_up() && second.is_up() && first.own_nonce() == second.peer_nonce()
    }
}

/// Each node has begun a session by the link that the other one refuses. Neither has to wait for a
/// missing heartbeat.
#[test]
fn nodes_begun_on_different_links_agree_on_one() {
    for lower in 0..2 {
        let mut world = World::new();
        // All ends offer, then all echo.
        for _ in 0..2 {
            for (node, link) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                world.look(node, link);
            }
        }
        assert!(matches!(world.look(0, lower), Action::Begin { .. }));
        assert!(matches!(world.look(1, 1 - lower), Action::Begin { .. }));
        for _ in 0..8 {
            for (node, link) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                world.look(node, link);
            }
        }
        assert!(world.is_up(lower), "the link of the lower id is kept");
        for node in &world.ends {
            assert!(!node[1 - lower].machine.is_up());
        }
        // No further action follows.
        for (node, link) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let action = world.look(node, link);
            assert!(matches!(action, Action::Wait | Action::Refuse(_)));
        }
    }
}
