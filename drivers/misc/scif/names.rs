// SPDX-License-Identifier: GPL-2.0

//! Names: 32-bit numbers, in classes, by which a port is found.
//!
//! A port has 16 bits, and belongs to the first endpoint that binds it. A program that has numbers
//! of its own for its services binds these as names. On connecting, another program asks the node
//! for the port of a name.
//!
//! A name is in the table as long as its [`BoundName`] exists. It is charged to the process that
//! has bound it. An endpoint has at most one name, so there are no more names than open files.
//!
//! Lock: `ports` is a spinlock, held for the lookup of one name: all users and the control work
//! need it.

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

/// First number for names without a requested number, far from the small numbers that programs
/// choose.
const FIRST_DYNAMIC: u32 = 1 << 31;

/// A name, with its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    /// Class of the number; not 0.
    pub(crate) class: u32,
    pub(crate) number: u32,
}

/// The names of this node.
#[pin_data]
pub(crate) struct Names {
    #[pin]
    ports: SpinLock<RBTree<Name, u16>>,
    /// The next number to try. It wraps around, so that a name that was just freed is reused as
    /// late as possible: peers may still mean the old owner.
    next: Atomic<u32>,
}

/// A name that belongs to a port until this is dropped.
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
    /// Creates an empty table.
    /// Context: may sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                ports <- new_spinlock!(RBTree::new(), "Names::ports"),
                next: Atomic::new(FIRST_DYNAMIC),
            }),
            GFP_KERNEL,
        )
    }

    /// Gives a port the name with this number, or any free name.
    ///
    /// # Errors
    ///
    /// - `EADDRINUSE`: another port has the name.
    /// - `ENOSPC`: no free name was found.
    ///
    /// Context: may sleep.
    pub(crate) fn bind(
        self: &Arc<Self>,
        class: u32,
        number: Option<u32>,
        port: u16,
    ) -> Result<BoundName> {
        // Allocates before the lock, which all processes need: the payer of the memory may have to
        // wait.
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

    /// Returns the port of a name.
    /// Context: may sleep.
    pub(crate) fn port(&self, name: Name) -> Option<u16> {
        self.ports.lock().get(&name).copied()
    }

    /// Iterates over the names and their ports in order, without the lock between them. A name that
    /// is added or removed meanwhile may be missed.
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

#[kunit_tests(scif_names)]
mod tests {
    use super::*;

    const CLASS: u32 = 7;
    const NAME: Name = Name {
        class: CLASS,
        number: 42,
    };

    #[test]
    fn name_is_free_after_its_binding_is_dropped() -> Result {
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
    fn same_number_in_another_class_is_another_name() -> Result {
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
    fn chosen_name_is_free_and_reused_after_wraparound() -> Result {
        let table = Names::new()?;
        let first = table.bind(CLASS, None, 2000)?.name;
        let taken = table.bind(CLASS, Some(first.number + 1), 2001)?;
        let second = table.bind(CLASS, None, 2002)?;
        assert!(second.name != first && second.name != taken.name);
        assert!(second.name.number != 0);
        // The numbers wrap around to the first dynamic one, not to 0.
        table.next.store(u32::MAX, Relaxed);
        let last = table.bind(CLASS, None, 2003)?;
        assert_eq!(last.name.number, u32::MAX);
        let next = table.bind(CLASS, None, 2004)?;
        assert_eq!(next.name, first);
        Ok(())
    }
}
