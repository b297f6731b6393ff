// SPDX-License-Identifier: GPL-2.0

//! The interface for user space: `/dev/scif`.
//!
//! Each file is an [`Endpoint`]. The files below parse the arguments of the ioctls and write the
//! results back. `call.rs` has the numbers and layouts of `linux/scif_ioctl.h` and of the MIC
//! library. `compat.rs` has those of 32-bit processes, and `services.rs` those of
//! `linux/scif_services.h`. The flags are in `arguments.rs`, and the calls themselves in
//! `endpoint.rs`.

#[cfg(CONFIG_COMPAT)]
mod compat;

mod call;
mod services;

use crate::{
    endpoint::{
        connection::Traffic,
        scif::Scif,
        Endpoint, //
    },
    sys::{
        chardev::{
            self,
            is_last_descriptor,
            nonblocking,
            DeviceFile,
            FileOperations,
            PollContext, //
        },
        published::{
            Publication,
            Published, //
        }, //
    }, //
};
use call::{
    native_pointer,
    perform,
    perform_mic, //
};
use kernel::{
    fmt,
    fs::File,
    mm::virt::VmaNew,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// State of SCIF for files that are opened.
static SCIF: Published<Scif> = Published::new();

/// The devices of this interface. The drop removes them.
pub(crate) struct Devices {
    // Dropped in this order.
    _devices: chardev::Devices<Endpoint>,
    _published: Publication<Scif>,
}

impl Devices {
    /// Registers the devices. Files may be opened before this returns.
    /// Context: may sleep.
    pub(crate) fn register(scif: &Arc<Scif>) -> Result<Self> {
        let published = SCIF.publish(scif.clone());
        let paths: &[_] = match scif.mic_compat {
            true => &[c"mic!scif", c"scif"],
            false => &[c"scif"],
        };
        Ok(Self {
            _devices: chardev::Devices::register(c"scif", paths)?,
            _published: published,
        })
    }
}

impl DeviceFile for Endpoint {
    fn open() -> Result<Arc<Self>> {
        Self::new(&SCIF.get()?)
    }
}

impl FileOperations for Endpoint {
    fn release(this: Arc<Self>) {
        this.release();
    }

    fn flush(this: ArcBorrow<'_, Self>, file: &File, table: usize) -> Result {
        this.flush(table, || is_last_descriptor(file, table));
        Ok(())
    }

    #[inline]
    fn ioctl(this: ArcBorrow<'_, Self>, file: &File, cmd: u32, arg: usize) -> Result<isize> {
        match perform(&this, cmd, arg, native_pointer, nonblocking(file)) {
            Err(ENOTTY) if this.scif.mic_compat => perform_mic(&this, cmd, arg, nonblocking(file)),
            result => result,
        }
    }

    #[cfg(CONFIG_COMPAT)]
    fn compat_ioctl(this: ArcBorrow<'_, Self>, file: &File, cmd: u32, arg: usize) -> Result<isize> {
        compat::perform(&this, cmd, arg, nonblocking(file))
    }

    fn poll<'file>(&'file self, context: &PollContext<'file>) -> u32 {
        context.wait_on(&self.waiters);
        self.poll_state()
    }

    fn mmap(this: ArcBorrow<'_, Self>, vma: &VmaNew) -> Result {
        this.map(vma)
    }

    /// Writes the part of `/proc/PID/fdinfo/FD` that is about a file, for a reader that may inspect
    /// that process. Each fact has one line, `scif-NAME:<tab>VALUE`. New facts come at the end.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = self.facts();
        writeln!(f, "scif-state:\t{}", facts.state)?;
        if let Some(port) = facts.own_port {
            writeln!(f, "scif-own:\t{}:{port}", self.scif.nodes.own_id())?;
        }
        if let (Some(peer), Some(channel)) = (facts.peer, facts.channel) {
            writeln!(f, "scif-peer:\t{}:{}", peer.node, peer.port)?;
            writeln!(f, "scif-channel:\t{channel:#x}")?;
        }
        if let Some(opener) = &facts.opener {
            writeln!(f, "scif-pid:\t{}", opener.pid_for_reader())?;
        }
        writeln!(f, "scif-queued:\t{}", facts.queued)?;
        for (name, number) in facts.traffic.iter().flat_map(Traffic::fields) {
            writeln!(f, "scif-{name}:\t{number}")?;
        }
        Ok(())
    }
}
