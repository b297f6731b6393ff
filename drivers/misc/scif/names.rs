// SPDX-License-Identifier: GPL-2.0

//! Names: numbers of 32 bits, in classes, by which a port is found.
//!
//! A port is 16 bits and belongs to whoever comes first; programs that have numbers of their own for
//! what they offer bind those, and others look them up at the node. It is a service of peers beside
//! SCIF's, which knows ports as numbers and nothing of endpoints: `table.rs` has the names of this node,
//! [`Lookups`] asks one peer for its.
//!
//! A question is answered by the control work at once, out of the table, so that nothing is kept for it,
//! however many a peer asks.
//!
//! Locks: `Names::peers` and `Lookups::table` are leaves.

pub(crate) mod table;

use crate::{
    logic::{
        envelope::{
            Envelope,
            ServiceId, //
        },
        messages::NameMessage, //
    },
    peer::{
        attachment::{
            Attachment,
            Violation, //
        },
        control::AnnexOf,
        service::Service,
        Peer, //
    },
    sys::wait::{
        new_wait_queue,
        WaitQueue, //
    },
};
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
    time::Delta, //
};
use table::{
    Name,
    NameTable, //
};

/// The names of this node, and the way to those of others.
#[pin_data]
pub(crate) struct Names {
    pub(crate) table: Arc<NameTable>,
    #[pin]
    peers: Mutex<KVec<Arc<Lookups>>>,
}

impl Names {
    /// No names yet, and no peers. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let table = NameTable::new()?;
        Arc::pin_init(
            pin_init!(Self {
                table,
                peers <- new_mutex!(KVec::new(), "Names::peers"),
            }),
            GFP_KERNEL,
        )
    }

    /// The service by which peers ask.
    pub(crate) fn service(self: &Arc<Self>) -> Result<Arc<dyn Service>> {
        Ok(Arc::new(NameService(self.clone()), GFP_KERNEL)?)
    }

    /// The port that has a name at a peer; see [`Lookups::ask`]. Interruptible.
    pub(crate) fn look_up(&self, peer: &Arc<Peer>, name: Name) -> Result<u16> {
        let lookups = {
            let peers = self.peers.lock();
            let mut all = peers.iter();
            all.find(|lookups| Arc::ptr_eq(lookups.peer(), peer))
                .cloned()
        };
        lookups.ok_or(ENODEV)?.ask(name)
    }

    fn remove(&self, lookups: &Arc<Lookups>) {
        let removed = {
            let mut peers = self.peers.lock();
            let position = peers.iter().position(|other| Arc::ptr_eq(other, lookups));
            position.and_then(|position| peers.remove(position).ok())
        };
        drop(removed);
    }
}

struct NameService(Arc<Names>);

impl Service for NameService {
    fn id(&self) -> ServiceId {
        ServiceId::NAMES
    }

    fn attach(&self, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>> {
        let attached = Attached {
            lookups: Lookups::new(peer)?,
            names: self.0.clone(),
        };
        // From here on dropping it takes it off the list.
        let attached = Arc::new(attached, GFP_KERNEL)?;
        let mut peers = self.0.peers.lock();
        let added = peers.push(attached.lookups.clone(), GFP_KERNEL);
        drop(peers);
        added?;
        Ok(attached)
    }
}

/// In the list until this is dropped.
struct Attached {
    lookups: Arc<Lookups>,
    names: Arc<Names>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.names.remove(&self.lookups);
    }
}

impl Attachment for Attached {
    fn message(&self, envelope: &Envelope, _annex: &AnnexOf<'_>) -> Result<(), Violation> {
        match NameMessage::from_envelope(envelope)? {
            NameMessage::Lookup { token, class, name } => {
                let name = Name {
                    class,
                    number: name,
                };
                let answer = match self.names.table.port(name) {
                    Some(port) => NameMessage::Found { token, port },
                    None => NameMessage::NotFound { token },
                };
                // An answer that can't be sent is of no concern: the peer is lost then.
                let _ = self.lookups.peer().post(&answer);
            }
            NameMessage::Found { token, port } => self.lookups.answered(token, Some(port)),
            NameMessage::NotFound { token } => self.lookups.answered(token, None),
        }
        Ok(())
    }

    fn refused(&self) -> Result<(), Violation> {
        // It can be talked to without them. It says so for each question that was under way.
        self.lookups.close(EOPNOTSUPP);
        Ok(())
    }

    fn lost(&self) {
        self.lookups.close(ENODEV);
    }

    fn drained(&self) {}

    fn unreachable(&self) {}

    fn forget(&self) {}
}

/// So many at a time.
const MOST: usize = 256;

/// A peer that has not answered for so long will not: it only has to look into a table. So long a question
/// waits to be sent, too.
const LIMIT: Delta = Delta::from_secs(120);

enum Asked {
    Waiting,
    /// There may be no such port.
    Answered(Option<u16>),
}

struct Table {
    asked: RBTree<u32, Asked>,
    count: usize,
    next_token: u32,
    /// No more answers will come, for this reason.
    closed: Option<Error>,
}

/// Questions to one peer: which port has a name there?
///
/// A question is an entry of a table under a token, from before it is sent until who asks has taken the
/// answer, or does not wait any more. It is charged to who asks, and there are few at a time: the next
/// one waits for room. A late answer finds no entry, and is ignored.
///
/// A peer that is lost, or has no such service, ends all of them, and those that come later. One that
/// sends signs of life but no answer is lost as well, after a time.
#[pin_data]
pub(crate) struct Lookups {
    peer: Arc<Peer>,
    #[pin]
    table: SpinLock<Table>,
    /// Woken when an answer comes, or there is room for another question.
    #[pin]
    waiters: WaitQueue,
}

/// A question has its place in the table until this is dropped.
struct Question<'a> {
    lookups: &'a Lookups,
    token: u32,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let removed = {
            let mut table = self.lookups.table.lock();
            let removed = table.asked.remove_node(&self.token);
            if removed.is_some() {
                table.count -= 1;
            }
            removed
        };
        drop(removed);
        self.lookups.waiters.wake_all();
    }
}

impl Table {
    /// Puts a question into the table, for which there is a place in memory: its token, or why not.
    /// None if there are too many.
    fn add(
        &mut self,
        place: &mut Option<RBTreeNodeReservation<u32, Asked>>,
    ) -> Option<Result<u32>> {
        if let Some(error) = self.closed {
            return Some(Err(error));
        }
        if self.count >= MOST {
            return None;
        }
        // There are fewer of them than numbers.
        while self.asked.get(&self.next_token).is_some() {
            self.next_token = self.next_token.wrapping_add(1);
        }
        let token = self.next_token;
        self.next_token = token.wrapping_add(1);
        self.asked
            .insert(place.take()?.into_node(token, Asked::Waiting));
        self.count += 1;
        Some(Ok(token))
    }

    /// None as long as there is no answer.
    fn answer(&self, token: u32) -> Option<Result<u16>> {
        match self.asked.get(&token) {
            Some(Asked::Answered(port)) => Some(port.ok_or(ENOENT)),
            _ => self.closed.map(Err),
        }
    }
}

impl Lookups {
    /// Nothing was asked yet. May sleep.
    fn new(peer: &Arc<Peer>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                table <- new_spinlock!(
                    Table {
                        asked: RBTree::new(),
                        count: 0,
                        next_token: 0,
                        closed: None,
                    },
                    "Lookups::table"
                ),
                waiters <- new_wait_queue!("scif::Lookups::waiters"),
            }),
            GFP_KERNEL,
        )
    }

    /// The peer.
    fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// Asks the peer. ENOENT if nobody there has the name, EOPNOTSUPP if there are no names there, ENODEV
    /// if it is lost, or takes no messages. Interruptible; nothing is left behind.
    fn ask(&self, name: Name) -> Result<u16> {
        let mut place = Some(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?);
        let token = self
            .waiters
            .wait(|| self.table.lock().add(&mut place))
            .and_then(|added| added)?;
        let question = Question {
            lookups: self,
            token,
        };
        if !self.peer.wait_for_bulk_room_within(LIMIT)? {
            // Others may have said so much to it, which is not its fault.
            return Err(ENODEV);
        }
        self.peer.post(&NameMessage::Lookup {
            token,
            class: name.class,
            name: name.number,
        })?;
        let answer = self
            .waiters
            .wait_timeout(LIMIT, || self.table.lock().answer(question.token))?;
        answer.unwrap_or_else(|| {
            self.peer.fail("it does not say who has a name");
            Err(ENODEV)
        })
    }

    /// The peer has answered. Called by the control work.
    fn answered(&self, token: u32, port: Option<u16>) {
        if let Some(asked) = self.table.lock().asked.get_mut(&token) {
            *asked = Asked::Answered(port);
        }
        self.waiters.wake_all();
    }

    /// No answers will come any more: ends all questions, for good.
    fn close(&self, error: Error) {
        self.table.lock().closed = Some(error);
        self.waiters.wake_all();
    }
}
