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
//! Locks: `Names::inner`, `Names::peers` and `Lookups::table` are leaves.

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
        service::{
            Attachment,
            Service,
            Violation, //
        },
        Peer, //
    },
    sys::wait::{
        new_wait_queue,
        WaitQueue, //
    }, //
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
    #[pin]
    peers: Mutex<KVec<Arc<Lookups>>>,
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
        Arc::pin_init(
            pin_init!(Self {
                inner <- new_mutex!(inner, "Names::inner"),
                peers <- new_mutex!(KVec::new(), "Names::peers"),
            }),
            GFP_KERNEL,
        )
    }

    /// The service by which peers ask.
    pub(crate) fn service(self: &Arc<Self>) -> Result<Arc<dyn Service>> {
        Ok(Arc::new(NameService(self.clone()), GFP_KERNEL)?)
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

    /// Calls `f` with each name and its port, in their order, without the lock. May sleep.
    pub(crate) fn for_each(&self, mut f: impl FnMut(Name, u16)) {
        let mut next = Some(Name {
            class: 0,
            number: 0,
        });
        while let Some(from) = next {
            let found = {
                let inner = self.inner.lock();
                let cursor = inner.ports.cursor_lower_bound(&from);
                cursor.map(|cursor| {
                    let (name, port) = cursor.current();
                    (*name, *port)
                })
            };
            let Some((name, port)) = found else { return };
            f(name, port);
            next = match name.number.checked_add(1) {
                Some(number) => Some(Name { number, ..name }),
                None => name
                    .class
                    .checked_add(1)
                    .map(|class| Name { class, number: 0 }),
            };
        }
    }

    /// The port that has a name at a peer; see [`Lookups::ask`]. Interruptible.
    pub(crate) fn look_up(&self, peer: &Arc<Peer>, name: Name) -> Result<u16> {
        let peers = self.peers.lock();
        let mut all = peers.iter();
        let found = all.find(|lookups| Arc::ptr_eq(&lookups.peer, peer));
        let lookups = found.cloned().ok_or(ENODEV)?;
        drop(peers);
        lookups.ask(name)
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
        let mut peers = self.names.peers.lock();
        peers.retain(|other| !Arc::ptr_eq(other, &self.lookups));
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
                let answer = match self.names.port(name) {
                    Some(port) => NameMessage::Found { token, port },
                    None => NameMessage::NotFound { token },
                };
                self.lookups.peer.answer(&answer);
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
}

/// So many at a time.
const MOST: usize = 256;

/// A peer that has not answered for so long will not: it only has to look into a table. So long a question
/// waits to be sent, too.
const LIMIT: Delta = Delta::from_secs(120);

/// A question that was asked.
struct Asked {
    token: u32,
    /// The port, or that there is none, once the peer has said so.
    answer: Option<Result<u16>>,
}

struct Table {
    /// With room for [`MOST`].
    asked: KVec<Asked>,
    next_token: u32,
    /// No more answers will come, for this reason.
    closed: Option<Error>,
}

/// Questions to one peer: which port has a name there?
///
/// A question is an entry of a table under a token, from before it is sent until its process has taken the
/// answer, or does not wait any more. There are few at a time: the next one waits for room. A late answer finds
/// no entry, and is ignored.
///
/// A peer that is lost, or has no such service, ends all of them, and those that come later. One that
/// sends signs of life but no answer is lost as well, after a time.
#[pin_data]
struct Lookups {
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
        let mut table = self.lookups.table.lock();
        table.asked.retain(|asked| asked.token != self.token);
        drop(table);
        self.lookups.waiters.wake_all();
    }
}

impl Table {
    fn find(&mut self, token: u32) -> Option<&mut Asked> {
        self.asked.iter_mut().find(|asked| asked.token == token)
    }

    /// Puts a question into the table: its token, or why not. None if there are too many.
    fn add(&mut self) -> Option<Result<u32>> {
        if let Some(error) = self.closed {
            return Some(Err(error));
        }
        // There are fewer of them than numbers.
        while self.find(self.next_token).is_some() {
            self.next_token = self.next_token.wrapping_add(1);
        }
        let token = self.next_token;
        let asked = Asked {
            token,
            answer: None,
        };
        self.asked.push_within_capacity(asked).ok()?;
        self.next_token = token.wrapping_add(1);
        Some(Ok(token))
    }

    /// None as long as there is no answer.
    fn answer(&mut self, token: u32) -> Option<Result<u16>> {
        let answer = self.find(token).and_then(|asked| asked.answer);
        answer.or_else(|| self.closed.map(Err))
    }
}

impl Lookups {
    /// Nothing was asked yet. May sleep.
    fn new(peer: &Arc<Peer>) -> Result<Arc<Self>> {
        let asked = KVec::with_capacity(MOST, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                table <- new_spinlock!(
                    Table {
                        asked,
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

    /// Asks the peer. ENOENT if nobody there has the name, EOPNOTSUPP if there are no names there, ENODEV
    /// if it is lost, or takes no messages. Interruptible; nothing is left behind.
    fn ask(&self, name: Name) -> Result<u16> {
        let token = self.waiters.wait(|| self.table.lock().add())??;
        let question = Question {
            lookups: self,
            token,
        };
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
        if let Some(asked) = self.table.lock().find(token) {
            asked.answer = Some(port.ok_or(ENOENT));
        }
        self.waiters.wake_all();
    }

    /// No answers will come any more: ends all questions, for good.
    fn close(&self, error: Error) {
        self.table.lock().closed = Some(error);
        self.waiters.wake_all();
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
