// SPDX-License-Identifier: GPL-2.0

//! Names: numbers of 32 bits, in classes, by which a port is found.
//!
//! A port is 16 bits and belongs to whoever comes first; programs that have numbers of their own for
//! what they offer bind those, and others ask the node for the port that has one, as they connect.
//!
//! A name is in the table as long as its [`BoundName`] exists. Each one is charged to the process that has bound
//! it, and an endpoint has one at most, so there are no more of them than open files.
//!
//! Lock: `Names::inner` is a leaf.

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
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

/// The names of this node.
#[pin_data]
pub(crate) struct Names {
    #[pin]
    inner: Mutex<Inner>,
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
    /// No names yet. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let inner = Inner {
            ports: RBTree::new(),
            next: FIRST_DYNAMIC,
        };
        Arc::pin_init(
            pin_init!(Self {
                inner <- new_mutex!(inner, "Names::inner"),
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
