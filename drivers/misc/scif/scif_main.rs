// SPDX-License-Identifier: GPL-2.0

//! SCIF: connections and one-sided memory access between hosts joined by PCIe NTBs.

use kernel::{
    fs::File,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

mod sys;

module! {
    type: ScifModule,
    name: "scif",
    authors: ["The SCIF for Linux authors"],
    description: "Symmetric Communications Interface over PCIe NTB",
    license: "GPL",
}

/// An open `/dev/scif`.
struct Endpoint;

impl sys::chardev::FileOperations for Endpoint {
    fn open(_file: &File) -> Result<Arc<Self>> {
        Ok(Arc::new(Self, GFP_KERNEL)?)
    }

    fn release(_this: Arc<Self>, _file: &File) {}

    fn ioctl(_this: ArcBorrow<'_, Self>, _file: &File, _cmd: u32, _arg: usize) -> Result<isize> {
        Err(ENOTTY)
    }

    fn poll<'file>(&'file self, _context: &sys::chardev::PollContext<'file>) -> u32 {
        sys::chardev::poll_events::ERR
    }
}

struct ScifModule {
    _device: Pin<KBox<sys::chardev::Device<Endpoint>>>,
}

impl kernel::Module for ScifModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _device: sys::chardev::Device::register(c"scif", 0o666)?,
        })
    }
}
