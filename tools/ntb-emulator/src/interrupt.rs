// SPDX-License-Identifier: GPL-2.0
//! The MSI or MSI-X vectors of one function.
//!
//! QEMU hands over an event descriptor per vector. Whenever the guest enables one more vector, QEMU
//! takes all of them back for a moment. An interrupt raised while a vector has no descriptor is
//! latched, and fires when the vector gets one: none is ever lost.
//!
//! QEMU handles masking by the guest; a masked vector keeps its descriptor.

use std::fs::File;
use std::io::Error;
use std::io::ErrorKind;
use std::io::Result;
use std::io::Write;

use parking_lot::Mutex;
use vfio_bindings::bindings::vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
use vfio_bindings::bindings::vfio::VFIO_IRQ_SET_DATA_EVENTFD;
use vfio_bindings::bindings::vfio::VFIO_IRQ_SET_DATA_NONE;
use vfio_bindings::bindings::vfio::VFIO_PCI_MSI_IRQ_INDEX;
use vfio_bindings::bindings::vfio::VFIO_PCI_MSIX_IRQ_INDEX;

#[derive(Default)]
struct Vector {
    event: Option<File>,
    latched: bool,
}

impl Vector {
    fn raise(&mut self) {
        self.latched = true;
        self.deliver();
    }

    fn deliver(&mut self) {
        if !self.latched {
            return;
        }
        if let Some(event) = &mut self.event {
            match event.write_all(&1u64.to_ne_bytes()) {
                Ok(()) => self.latched = false,
                // The counter is full: the guest has an interrupt waiting anyway.
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.latched = false,
                Err(error) => log::warn!("cannot signal an interrupt: {error}"),
            }
        }
    }
}

/// The vectors.
pub struct Interrupts {
    index: u32,
    vectors: Mutex<Vec<Vector>>,
}

impl Interrupts {
    /// Creates `count` vectors of MSI-X without descriptors.
    pub fn msix(count: usize) -> Self {
        Self::new(VFIO_PCI_MSIX_IRQ_INDEX, count)
    }

    /// Creates the vector of MSI, without a descriptor.
    pub fn msi() -> Self {
        Self::new(VFIO_PCI_MSI_IRQ_INDEX, 1)
    }

    fn new(index: u32, count: usize) -> Self {
        Self {
            index,
            vectors: Mutex::new((0..count).map(|_| Vector::default()).collect()),
        }
    }

    /// Returns the index of the vectors in VFIO.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the number of vectors.
    pub fn count(&self) -> usize {
        self.vectors.lock().len()
    }

    /// Raises a vector, now or as soon as it has a descriptor. A vector that does not exist is
    /// ignored, as a guest can ask for it.
    pub fn raise(&self, vector: usize) {
        if let Some(vector) = self.vectors.lock().get_mut(vector) {
            vector.raise();
        }
    }

    /// Executes a SET_IRQS for the vectors.
    pub fn set(&self, flags: u32, start: u32, count: u32, events: Vec<File>) -> Result<()> {
        let mut vectors = self.vectors.lock();
        if flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Ok(());
        }
        if count == 0 {
            // QEMU switches all vectors off. Latched interrupts stay: the descriptors come back in
            // a moment.
            vectors.iter_mut().for_each(|vector| vector.event = None);
            return Ok(());
        }
        let range = (start as usize)
            .checked_add(count as usize)
            .and_then(|end| vectors.get_mut(start as usize..end))
            .ok_or_else(|| {
                invalid(format!(
                    "no vectors {start} to {start}+{count} to set events of"
                ))
            })?;
        if flags & VFIO_IRQ_SET_DATA_NONE != 0 {
            range.iter_mut().for_each(Vector::raise);
        } else if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            if events.is_empty() {
                range.iter_mut().for_each(|vector| vector.event = None);
            } else if events.len() == range.len() {
                for (vector, event) in range.iter_mut().zip(events) {
                    vector.event = Some(event);
                    vector.deliver();
                }
            } else {
                let given = events.len();
                return Err(invalid(format!("{given} events for {count} vectors")));
            }
        }
        Ok(())
    }

    /// Forgets latched interrupts, after a reset of the function.
    pub fn reset(&self) {
        let mut vectors = self.vectors.lock();
        vectors.iter_mut().for_each(|vector| vector.latched = false);
    }

    /// Forgets everything, after QEMU has gone.
    pub fn clear(&self) {
        let mut vectors = self.vectors.lock();
        vectors
            .iter_mut()
            .for_each(|vector| *vector = Vector::default());
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use rustix::event::EventfdFlags;
    use rustix::event::eventfd;

    use super::*;

    const EVENTS: u32 = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;

    fn event() -> (File, File) {
        let fd: OwnedFd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let file = File::from(fd);
        (file.try_clone().unwrap(), file)
    }

    fn count(event: &mut File) -> u64 {
        let mut data = [0; 8];
        match event.read_exact(&mut data) {
            Ok(()) => u64::from_ne_bytes(data),
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn interrupt_raised_without_a_vector_fires_when_it_returns() {
        let interrupts = Interrupts::msix(2);
        let (ours, mut theirs) = event();
        interrupts.set(EVENTS, 1, 1, vec![ours]).unwrap();
        interrupts.raise(1);
        assert_eq!(count(&mut theirs), 1);
        // All vectors are off, raised in between, and on again.
        interrupts
            .set(
                VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_NONE,
                0,
                0,
                vec![],
            )
            .unwrap();
        interrupts.raise(1);
        assert_eq!(count(&mut theirs), 0);
        let again = theirs.try_clone().unwrap();
        interrupts.set(EVENTS, 1, 1, vec![again]).unwrap();
        assert_eq!(count(&mut theirs), 1);
        // The latched interrupt fires only once.
        let again = theirs.try_clone().unwrap();
        interrupts.set(EVENTS, 1, 1, vec![again]).unwrap();
        assert_eq!(count(&mut theirs), 0);
    }

    #[test]
    fn setting_vectors_without_events_removes_them() {
        let interrupts = Interrupts::msix(4);
        let (ours, mut theirs) = event();
        interrupts.set(EVENTS, 2, 1, vec![ours]).unwrap();
        interrupts.set(EVENTS, 1, 3, vec![]).unwrap();
        interrupts.raise(2);
        assert_eq!(count(&mut theirs), 0);
    }

    #[test]
    fn reset_clears_latched_interrupts() {
        let interrupts = Interrupts::msix(1);
        interrupts.raise(0);
        interrupts.reset();
        let (ours, mut theirs) = event();
        interrupts.set(EVENTS, 0, 1, vec![ours]).unwrap();
        assert_eq!(count(&mut theirs), 0);
    }

    #[test]
    fn invalid_vector_ranges_are_refused() {
        let interrupts = Interrupts::msix(2);
        assert!(interrupts.set(EVENTS, 1, 2, vec![]).is_err());
        assert!(interrupts.set(EVENTS, u32::MAX, u32::MAX, vec![]).is_err());
        assert!(interrupts.set(EVENTS, 0, 2, vec![event().0]).is_err());
        interrupts.raise(7);
        // A full counter is no error.
        let (ours, mut theirs) = event();
        theirs.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        interrupts.set(EVENTS, 0, 1, vec![ours]).unwrap();
        interrupts.raise(0);
        assert_eq!(count(&mut theirs), u64::MAX - 1);
        interrupts.raise(0);
        assert_eq!(count(&mut theirs), 1);
    }
}
