// SPDX-License-Identifier: GPL-2.0

//! Tests of messages that a peer should not send. Impossible messages end the relation to the peer,
//! and late ones are ignored.

use super::bed::{
    hears,
    receive,
    Bed,
    Pair, //
};
use crate::{
    endpoint::Endpoint,
    logic::{
        control_block::Annex,
        envelope::{
            ChannelId,
            Envelope,
            Enveloped,
            FIELDS, //
        },
        messages::{
            Destination,
            Grant,
            Message,
            Offer,
            RingAddress,
            Status,
            WindowId,
            EXTENTS_IN_ANNEX,
            EXTENTS_IN_OFFER, //
        },
    },
    peer::Peer,
};
use kernel::{
    page::PAGE_SHIFT,
    prelude::*, //
};

/// An envelope that is sent as it is, however wrong.
struct Raw(Envelope);

impl Enveloped for Raw {
    fn envelope(&self) -> Envelope {
        self.0
    }
}

/// Id of a channel that does not exist.
const MISSING: ChannelId = ChannelId(0x7777_0777);
const WINDOW: WindowId = WindowId(0x7777);
const RING: RingAddress = RingAddress {
    address: 4096,
    size: 4096,
    doorbell: 2,
    limit: 4096,
};

const NOTHING: Grant = Grant {
    from: 0,
    len: 0,
    windows: 0,
    extents: 0,
};

/// Returns the id of an end of a connection.
fn id_of(endpoint: &Endpoint) -> Result<ChannelId> {
    Ok(ChannelId(endpoint.facts().channel.ok_or(EINVAL)?))
}

/// Returns the message with another content.
fn altered(message: Message, alter: impl FnOnce(&mut Envelope)) -> Raw {
    let mut envelope = message.envelope();
    alter(&mut envelope);
    Raw(envelope)
}

/// Checks that the posted message ends the relation. The connections end with it, and nothing is
/// left.
fn check_lost(post: impl FnOnce(&Peer, ChannelId) -> Result) -> Result {
    let bed = Bed::new()?;
    let Pair { near, far } = bed.pair()?;
    let peer = bed.peer()?;
    post(&peer, id_of(&near)?)?;
    bed.settle();
    let is_over = peer.is_over();
    drop(peer);
    let results = (
        receive(&near, &mut [0], true),
        receive(&far, &mut [0], true),
    );
    drop((near, far));
    bed.end()?;
    assert!(is_over);
    assert_eq!(results, (Err(ECONNRESET), Err(ECONNRESET)));
    Ok(())
}

#[kunit_tests(scif_endpoint_messages)]
mod cases {
    use super::*;

    #[test]
    fn invalid_message_ends_the_session() -> Result {
        let first = Message::CloseDone { target: MISSING };
        check_lost(|peer, _| peer.post(&altered(first, |envelope| envelope.kind = 0)))?;
        check_lost(|peer, _| peer.post(&altered(first, |envelope| envelope.kind = 200)))?;
        // Sends a message about no channel, and one with an unknown code.
        check_lost(|peer, _| peer.post(&altered(first, |it| it.target = ChannelId::NONE)))?;
        check_lost(|peer, target| {
            let refuse = Message::Refuse {
                target,
                reason: Status::Refused,
            };
            peer.post(&altered(refuse, |envelope| {
                envelope.fields = [0xff; FIELDS]
            }))
        })
    }

    #[test]
    fn extents_of_an_unoffered_window_end_the_session() -> Result {
        check_lost(|peer, target| {
            peer.post(&Message::WindowExtents {
                target,
                window: WINDOW,
                count: 1,
            })
        })
    }

    #[test]
    fn unrequested_accept_message_ends_the_session() -> Result {
        let accept = |target| Message::Accept {
            target,
            source: MISSING,
            port: 1,
            ring: RING,
        };
        check_lost(|peer, _| peer.post(&accept(MISSING)))?;
        check_lost(|peer, target| peer.post(&accept(target)))
    }

    #[test]
    fn unrequested_ring_offer_ends_the_session() -> Result {
        for size in [0, 4096] {
            check_lost(|peer, target| {
                peer.post(&Message::RingOffer {
                    target,
                    address: 4096,
                    size,
                })
            })?;
        }
        Ok(())
    }

    #[test]
    fn offer_of_an_empty_window_ends_the_session() -> Result {
        check_lost(|peer, target| {
            peer.post(&Message::WindowOffer {
                target,
                offer: Offer {
                    window: WINDOW,
                    protection: 1,
                    offset: 0,
                    len: 0,
                    extents: 1,
                    wants_answer: false,
                },
                first: [0; EXTENTS_IN_OFFER],
            })
        })
    }

    /// Page at 16 MiB as an extent: there is memory.
    const PAGE: u64 = 0x1000 << 20;

    /// Returns an offer of a window with so many pages, in so many extents.
    fn offer(target: ChannelId, pages: u64, extents: u32, first: [u64; 2]) -> Message {
        Message::WindowOffer {
            target,
            offer: Offer {
                window: WINDOW,
                protection: 1,
                offset: 0,
                len: pages << PAGE_SHIFT,
                extents,
                wants_answer: false,
            },
            first,
        }
    }

    fn annex(words: &[u64]) -> Annex {
        let mut annex = Annex::new();
        for word in words {
            annex.push(*word);
        }
        annex
    }

    #[test]
    fn extents_not_matching_the_window_size_end_the_session() -> Result {
        check_lost(|peer, target| peer.post(&offer(target, 2, 1, [PAGE, 0])))?;
        // The wrong extent is in the annex of the offer, and then in the annex of the message that
        // follows.
        check_lost(|peer, target| {
            peer.post_with(
                &offer(target, 4, 4, [PAGE, PAGE]),
                &annex(&[PAGE, PAGE | 1]),
            )
        })?;
        check_lost(|peer, target| {
            let message = offer(target, 70, 67, [PAGE, PAGE]);
            peer.post_with(&message, &annex(&[PAGE; EXTENTS_IN_ANNEX]))?;
            let more = Message::WindowExtents {
                target,
                window: WINDOW,
                count: 1,
            };
            peer.post_with(&more, &annex(&[PAGE]))
        })
    }

    #[test]
    fn more_extents_than_offered_end_the_session() -> Result {
        check_lost(|peer, target| {
            let message = offer(target, 68, 67, [PAGE, PAGE]);
            peer.post_with(&message, &annex(&[PAGE; EXTENTS_IN_ANNEX]))?;
            let more = Message::WindowExtents {
                target,
                window: WINDOW,
                count: 2,
            };
            peer.post_with(&more, &annex(&[PAGE, PAGE]))
        })
    }

    #[test]
    fn second_offer_before_all_extents_ends_the_session() -> Result {
        let half = |target| offer(target, 70, 67, [PAGE, PAGE]);
        check_lost(|peer, target| {
            peer.post_with(&half(target), &annex(&[PAGE; EXTENTS_IN_ANNEX]))?;
            peer.post_with(&half(target), &annex(&[PAGE; EXTENTS_IN_ANNEX]))
        })
    }

    #[test]
    fn message_for_a_closed_connection_is_ignored() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let peer = bed.peer()?;
        let target = MISSING;
        for message in [
            Message::Refuse {
                target,
                reason: Status::Refused,
            },
            Message::Cancel {
                source: MISSING,
                to: Destination::of_port(1),
            },
            Message::Close {
                target,
                source: MISSING,
            },
            Message::CloseDone { target },
            Message::RingWanted { target },
            Message::RingOffer {
                target,
                address: 4096,
                size: 4096,
            },
            Message::WindowAnswer {
                target,
                window: WINDOW,
                status: Status::Done,
                grant: NOTHING,
            },
            Message::WindowRevoke {
                target,
                window: WINDOW,
                offset: 0,
            },
            Message::WindowReleased { window: WINDOW },
            Message::MarkRequest { target, token: 1 },
            Message::FenceAnswer {
                target,
                token: 1,
                status: Status::Done,
                sequence: 0,
            },
        ] {
            peer.post(&message)?;
        }
        bed.settle();
        assert!(!peer.is_over());
        drop(peer);
        assert!(hears(&far, &near)? && hears(&near, &far)?);
        drop((near, far));
        bed.end()
    }

    #[test]
    fn cancel_removes_the_request_from_the_named_listener_only() -> Result {
        let bed = Bed::new()?;
        let ((listener, to), (other, elsewhere)) = (bed.listen(1)?, bed.listen(1)?);
        let near = bed.request(to)?;
        let peer = bed.peer()?;
        let source = id_of(&near)?;
        // The peer searches no other listener than the one named: there may be many.
        for (port, queued) in [(elsewhere.port, 1), (to.port, 0)] {
            let to = Destination::of_port(port);
            peer.post(&Message::Cancel { source, to })?;
            bed.settle();
            assert_eq!(listener.facts().queued, queued);
        }
        assert!(!peer.is_over());
        drop(peer);
        assert_eq!(near.connect(to, false), Err(ECONNREFUSED));
        drop((listener, other, near));
        bed.end()
    }

    #[test]
    fn unexpected_answers_are_ignored() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let (peer, target) = (bed.peer()?, id_of(&near)?);
        for message in [
            Message::Refuse {
                target,
                reason: Status::Refused,
            },
            Message::CloseDone { target },
            Message::CloseDone { target },
            Message::WindowAnswer {
                target,
                window: WINDOW,
                status: Status::Done,
                grant: NOTHING,
            },
            Message::WindowRevokeDone {
                target,
                window: WINDOW,
                released: true,
            },
            Message::WindowRevoke {
                target,
                window: WINDOW,
                offset: 0,
            },
            Message::FenceAnswer {
                target,
                token: 99,
                status: Status::TransferFailed,
                sequence: 7,
            },
        ] {
            peer.post(&message)?;
        }
        bed.settle();
        assert!(!peer.is_over());
        drop(peer);
        assert_eq!(near.facts().state, "connected");
        assert!(hears(&far, &near)? && hears(&near, &far)?);
        drop((near, far));
        bed.end()
    }
}
