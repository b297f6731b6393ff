// SPDX-License-Identifier: GPL-2.0

//! Names: numbers of 32 bits, in classes, by which a port is found.
//!
//! A port is 16 bits and belongs to whoever comes first; programs that have numbers of their own for
//! what they offer bind those, and others look them up at the node. It is a service of peers beside
//! SCIF's, which knows ports as numbers and nothing of endpoints: [`Names`] has the names of this node,
//! [`Lookups`] asks one peer for its.
//!
//! A name is in the table as long as its [`BoundName`] exists. Each one is charged to the process that has bound
//! it, and an endpoint has one at most, so there are no more of them than open files.
//!
//! A question is answered by the control work at once, out of the table, so that nothing is kept for it,
//! however many a peer asks.
//!
//! Lock: `Names::inner` is a leaf.

use crate::{
    logic::{
        envelope::{
            Envelope,
            ServiceId, //
        },
        messages::NameMessage, //
    },
    peer::{
        control::AnnexOf,
        questions::{
            self,
            Questions,
            Reply, //
        },
        service::{
            Attachment,
            Service,
            Violation, //
        },
        Peer, //
    },
    sync::{
        fair_share::FairShares,
        list::{
            List,
            Listed, //
        }, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
};

/// Where names begin that were not asked for: far from the small numbers that programs choose.
const FIRST_DYNAMIC: u32 = 1 << 31;

/// A name, with its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// Not 0.
    pub(crate) class: u32,
    pub(crate) number: u32,
}

struct Inner {
    ports: RBTree<Name, u16>,
    /// Goes round, so that a name that was just freed comes back as late as possible: peers may still
    /// mean the one who had it.
    next: u32,
}

/// The names of this node, and the way to those of others.
#[pin_data]
pub(crate) struct Names {
    #[pin]
    inner: Mutex<Inner>,
    peers: Arc<List<Lookups>>,
}

/// A port has this name until this is dropped.
pub(crate) struct BoundName {
    names: Arc<Names>,
    pub(crate) name: Name,
}

impl Drop for BoundName {
    fn drop(&mut self) {
        let removed = self.names.inner.lock().ports.remove_node(&self.name);
        drop(removed);
    }
}

impl Inner {
    /// A name of the class that nobody has: each is looked at once.
    fn any(&mut self, class: u32) -> Option<Name> {
        let first = self.next;
        loop {
            let number = self.next;
            self.next = number.checked_add(1).unwrap_or(FIRST_DYNAMIC);
            let name = Name { class, number };
            if self.ports.get(&name).is_none() {
                return Some(name);
            }
            if self.next == first {
                return None;
            }
        }
    }
}

impl Names {
    /// No names yet, and no peers. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let inner = Inner {
            ports: RBTree::new(),
            next: FIRST_DYNAMIC,
        };
        let peers = List::new()?;
        Arc::pin_init(
            pin_init!(Self {
                inner <- new_mutex!(inner, "Names::inner"),
                peers,
            }),
            GFP_KERNEL,
        )
    }

    /// Gives a port the name of that number, or any that is free. EADDRINUSE if another one has it;
    /// ENOSPC if all are taken. May sleep.
    pub(crate) fn bind(
        self: &Arc<Self>,
        class: u32,
        number: Option<u32>,
        port: u16,
    ) -> Result<BoundName> {
        // Before the lock, which all processes need: who pays may have to wait.
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut inner = self.inner.lock();
        let name = match number {
            Some(number) => Name { class, number },
            None => inner.any(class).ok_or(ENOSPC)?,
        };
        if inner.ports.get(&name).is_some() {
            // Before what was reserved goes.
            drop(inner);
            return Err(EADDRINUSE);
        }
        inner.ports.insert(node.into_node(name, port));
        drop(inner);
        Ok(BoundName {
            names: self.clone(),
            name,
        })
    }

    /// The port that has a name. May sleep.
    pub(crate) fn port(&self, name: Name) -> Option<u16> {
        self.inner.lock().ports.get(&name).copied()
    }

    /// Calls `f` with each name and its port, in their order, with the lock held: it takes none itself.
    pub(crate) fn try_for_each<E>(
        &self,
        mut f: impl FnMut(&Name, u16) -> Result<(), E>,
    ) -> Result<(), E> {
        let inner = self.inner.lock();
        let mut ports = inner.ports.iter();
        ports.try_for_each(|(name, port)| f(name, *port))
    }

    /// The port that has a name at a peer; see [`Lookups::ask`]. Interruptible.
    pub(crate) fn look_up(&self, peer: &Arc<Peer>, name: Name) -> Result<u16> {
        let lookups = self.peers.find(|lookups| Arc::ptr_eq(&lookups.peer, peer));
        lookups.ok_or(ENODEV)?.ask(name)
    }
}

/// The service by which peers ask.
impl Service for Names {
    fn id(&self) -> ServiceId {
        ServiceId::NAMES
    }

    fn attach(self: ArcBorrow<'_, Self>, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>> {
        let lookups = Lookups::new(peer)?;
        let attached = Attached {
            _listed: self.peers.add(&lookups)?,
            lookups,
            names: self.into(),
        };
        Ok(Arc::new(attached, GFP_KERNEL)?)
    }
}

/// What there is of names with one peer.
struct Attached {
    _listed: Listed<Lookups>,
    lookups: Arc<Lookups>,
    names: Arc<Names>,
}

impl Attachment for Attached {
    fn message(&self, envelope: &Envelope, _annex: &AnnexOf<'_>) -> Result<(), Violation> {
        let questions = &self.lookups.questions;
        match NameMessage::from_envelope(envelope)? {
            NameMessage::Lookup { token, class, name } => {
                let name = Name {
                    class,
                    number: name,
                };
                let port = self.names.port(name).unwrap_or(0);
                self.lookups
                    .peer
                    .answer(&NameMessage::Answer { token, port });
            }
            NameMessage::Answer { token, port: 0 } => questions.answered(token, Err(ENOENT)),
            NameMessage::Answer { token, port } => questions.answered(token, Ok(port)),
        }
        Ok(())
    }

    fn refused(&self) -> Result<(), Violation> {
        // It can be talked to without them. It says so for each question that was under way.
        self.lookups.questions.close(EOPNOTSUPP).for_each(drop);
        Ok(())
    }

    fn lost(&self) {
        self.lookups.questions.close(ENODEV).for_each(drop);
    }
}

/// So many at a time.
const MOST: usize = 256;

/// Questions to one peer: which port has a name there?
///
/// A peer that is lost, or has no such service, ends all of them, and those that come later.
#[pin_data]
struct Lookups {
    peer: Arc<Peer>,
    shares: FairShares,
    #[pin]
    questions: Questions<Reply<Result<u16>>>,
}

impl Lookups {
    /// Nothing was asked yet. May sleep.
    fn new(peer: &Arc<Peer>) -> Result<Arc<Self>> {
        let shares = FairShares::of(MOST)?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                shares,
                questions <- Questions::new(MOST, 0),
            }),
            GFP_KERNEL,
        )
    }

    /// Asks the peer. ENOENT if no port there has the name, EOPNOTSUPP if there are no names there, ENODEV
    /// if the peer is lost, EAGAIN if the caller's user has its share of the questions that are under way. Interruptible;
    /// nothing is left behind.
    fn ask(&self, name: Name) -> Result<u16> {
        let _share = self.shares.take()?.ok_or(EAGAIN)?;
        let post = |token| {
            self.peer.post(&NameMessage::Lookup {
                token,
                class: name.class,
                name: name.number,
            })
        };
        let wait = questions::wait_in_time(&self.peer);
        self.questions.ask(post, wait)?
    }
}

#[kunit_tests(scif_names_table)]
mod tests {
    use super::*;

    const CLASS: u32 = 7;
    const NAME: Name = Name {
        class: CLASS,
        number: 42,
    };

    #[test]
    fn a_name_is_free_when_who_has_it_lets_go() -> Result {
        let table = Names::new()?;
        assert!(table.port(NAME).is_none());
        let bound = table.bind(CLASS, Some(42), 2000)?;
        assert_eq!(table.port(NAME), Some(2000));
        let again = table.bind(CLASS, Some(42), 2001);
        assert!(matches!(again, Err(error) if error == EADDRINUSE));
        drop(bound);
        assert!(table.port(NAME).is_none());
        let again = table.bind(CLASS, Some(42), 2001)?;
        assert_eq!(table.port(NAME), Some(2001));
        drop(again);
        assert!(Arc::into_unique_or_drop(table).is_some());
        Ok(())
    }

    #[test]
    fn classes_do_not_know_of_each_other() -> Result {
        let table = Names::new()?;
        let one = table.bind(CLASS, Some(42), 2000)?;
        let other = table.bind(CLASS + 1, Some(42), 2001)?;
        assert_eq!(table.port(one.name), Some(2000));
        assert_eq!(table.port(other.name), Some(2001));
        Ok(())
    }

    #[test]
    fn any_name_is_one_that_is_free_and_comes_back_late() -> Result {
        let table = Names::new()?;
        let first = table.bind(CLASS, None, 2000)?.name;
        let taken = table.bind(CLASS, Some(first.number + 1), 2001)?;
        let second = table.bind(CLASS, None, 2002)?;
        assert!(second.name != first && second.name != taken.name);
        assert!(second.name.number != 0);
        // They go round, not over.
        table.inner.lock().next = u32::MAX;
        let last = table.bind(CLASS, None, 2003)?;
        assert_eq!(last.name.number, u32::MAX);
        let next = table.bind(CLASS, None, 2004)?;
        assert_eq!(next.name, first);
        Ok(())
    }
}
