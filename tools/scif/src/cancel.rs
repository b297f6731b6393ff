// SPDX-License-Identifier: GPL-2.0

//! Ctrl-C and SIGTERM as a file descriptor, for which every wait also waits.
//!
//! The signal handler writes to a pipe that is never emptied: once cancelled, always cancelled, for
//! every thread. Without [`Cancel::on_signals`] signals keep their usual effect.

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::pipe::PipeFlags;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A cancellation that every wait also waits for.
#[derive(Clone, Debug)]
pub struct Cancel {
    readable: Arc<OwnedFd>,
    /// Kept open: a closed pipe would look cancelled.
    writable: Arc<OwnedFd>,
}

impl Cancel {
    /// Creates a cancellation that only [`Self::cancel`] triggers.
    pub fn new() -> io::Result<Self> {
        let (readable, writable) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self {
            readable: Arc::new(readable),
            writable: Arc::new(writable),
        })
    }

    /// Creates a cancellation that SIGINT, SIGTERM and SIGHUP trigger, instead of ending the
    /// process.
    pub fn on_signals() -> io::Result<Self> {
        let cancel = Self::new()?;
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let writable = cancel.writable.as_fd().try_clone_to_owned()?;
            signal_hook::low_level::pipe::register(signal, writable)?;
        }
        Ok(cancel)
    }

    /// Cancels.
    pub fn cancel(&self) {
        // A full pipe is readable as well, which is all that counts.
        let _ = rustix::io::write(&*self.writable, &[0]);
    }

    /// Returns whether it was cancelled.
    pub fn is_set(&self) -> bool {
        let mut files = [PollFd::new(&*self.readable, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut files, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Cancel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancel_is_seen_by_all_clones() {
        let cancel = Cancel::new().unwrap();
        let other = cancel.clone();
        assert!(!other.is_set());
        cancel.cancel();
        drop(cancel);
        assert!(other.is_set());
        assert!(other.is_set());
    }
}
