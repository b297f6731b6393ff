// SPDX-License-Identifier: GPL-2.0

//! Names: numbers of 32 bits, in classes, by which a port is found.
//!
//! A port is 16 bits and belongs to whoever comes first; programs that have numbers of their own for
//! what they offer bind those, and others ask the node for the port that has one, as they connect.
//!
//! A name is in the table as long as its [`BoundName`] exists. Each one is charged to the process that has bound
//! it, and an endpoint has one at most, so there are no more of them than open files.
//!
//! Lock: `ports` is a spinlock, held for a look at one name: all users and the control work need it.

use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
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

/// The names of this node.
#[pin_data]
pub(crate) struct Names {
    #[pin]
    ports: SpinLock<RBTree<Name, u16>>,
    /// Goes round, so that a name that was just freed comes back as late as possible: peers may still
    /// mean the one who had it.
    next: Atomic<u32>,
}

/// A port has this name until this is dropped.
pub(crate) struct BoundName {
    names: Arc<Names>,
    pub(crate) name: Name,
}

impl Drop for BoundName {
    fn drop(&mut self) {
        let removed = self.names.ports.lock().remove_node(&self.name);
        drop(removed);
    }
}

impl Names {
    /// No names yet. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                ports <- new_spinlock!(RBTree::new(), "Names::ports"),
                next: Atomic::new(FIRST_DYNAMIC),
            }),
            GFP_KERNEL,
        )
    }

    /// Gives a port the name of that number, or any that is free. EADDRINUSE if another one has it;
    /// ENOSPC if no one is found that is free. May sleep.
    pub(crate) fn bind(
        self: &Arc<Self>,
        class: u32,
        number: Option<u32>,
        port: u16,
    ) -> Result<BoundName> {
        // Before the lock, which all processes need: who pays may have to wait.
        let node = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        for _ in FIRST_DYNAMIC..=u32::MAX {
            let any = || self.next.fetch_add(1, Relaxed) | FIRST_DYNAMIC;
            let name = Name {
                class,
                number: number.unwrap_or_else(any),
            };
            let mut ports = self.ports.lock();
            if ports.get(&name).is_none() {
                ports.insert(node.into_node(name, port));
                drop(ports);
                return Ok(BoundName {
                    names: self.clone(),
                    name,
                });
            }
            drop(ports);
            if number.is_some() {
                return Err(EADDRINUSE);
            }
        }
        Err(ENOSPC)
    }

    /// The port that has a name. May sleep.
    pub(crate) fn port(&self, name: Name) -> Option<u16> {
        self.ports.lock().get(&name).copied()
    }

    /// Walks over the names and their ports, in order and without the lock: what comes and goes meanwhile may be seen or
    /// not.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Name, u16)> + '_ {
        let mut next = Some(0_u64);
        core::iter::from_fn(move || {
            let (class, number) = ((next? >> 32) as u32, next? as u32);
            let ports = self.ports.lock();
            let cursor = ports.cursor_lower_bound(&Name { class, number })?;
            let (&name, &port) = cursor.current();
            next = (u64::from(name.class) << 32 | u64::from(name.number)).checked_add(1);
            Some((name, port))
        })
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
        let last = table.bind(u32::MAX, Some(u32::MAX), 2002)?;
        let all = [(one.name, 2000), (other.name, 2001), (last.name, 2002)];
        assert!(table.iter().eq(all));
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
        table.next.store(u32::MAX, Relaxed);
        let last = table.bind(CLASS, None, 2003)?;
        assert_eq!(last.name.number, u32::MAX);
        let next = table.bind(CLASS, None, 2004)?;
        assert_eq!(next.name, first);
        Ok(())
    }
}
