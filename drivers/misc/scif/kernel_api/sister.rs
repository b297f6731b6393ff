// SPDX-License-Identifier: GPL-2.0

//! Frame rings for the sister modules of this one **in the same kernel tree**, such as `scif_net`.
//!
//! As for [`client`](super::client), there is no stable interface between Rust modules: a sister is
//! compiled against the metadata of this crate.
//!
//! A sister implements [`Driver`] and [`Client`], and holds a [`Registration`]. It then gets the
//! [`Queue`]s with each peer that has the same sister loaded.

pub use crate::frames::{
    Client,
    CopyTarget,
    Driver,
    FrameEngine,
    GivenPage,
    Landed,
    Payload,
    PeerInfo,
    Queue,
    Received,
    Receiving,
    Room,
    Sending,
    FEWEST_SLOTS,
    MOST_BYTES,
    MOST_SLOTS, //
};

use crate::{
    frames::FrameService,
    logic::envelope::ServiceId,
    node::Arrivals,
    sys::published::{
        Publication,
        Published, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The digest of the sources from which the compiler made this crate.
const BUILD: &str = env!("SCIF_BUILD");

/// The maker of peers, for sisters.
static ARRIVALS: Published<Arrivals> = Published::new();

/// The door for sisters, which is open until this is dropped.
pub(crate) struct Sisters(#[expect(dead_code)] Publication<Arrivals>);

impl Sisters {
    /// Opens the door.
    pub(crate) fn new(arrivals: &Arc<Arrivals>) -> Self {
        Self(ARRIVALS.publish(arrivals.clone()))
    }
}

/// The registration of a network driver. The drop ends all its links, and removes its clients.
pub struct Registration {
    arrivals: Arc<Arrivals>,
    service: Arc<FrameService>,
}

impl Registration {
    /// Registers a driver, which is told of all peers, with at most `queues` queues for each.
    ///
    /// # Errors
    ///
    /// - EEXIST: there is such a driver.
    /// - ENODEV: SCIF has not been initialised.
    /// - ENOEXEC: the sister was built against the metadata of another scif.ko.
    ///
    /// Context: may sleep.
    // The compiler puts this function into the sister, with the digest in the metadata.
    #[inline(always)]
    pub fn new(driver: Arc<dyn Driver>, queues: u32) -> Result<Self> {
        Self::of_build(BUILD, driver, queues)
    }

    /// Registers a driver of a sister that was built against the metadata of `build`.
    #[inline(never)]
    fn of_build(build: &str, driver: Arc<dyn Driver>, queues: u32) -> Result<Self> {
        // The layouts of types differ between builds, and nothing else compares them.
        if build != BUILD {
            pr_err!(
                "refusing a module that was built with another scif.ko (sources {build}, not {BUILD})\n"
            );
            return Err(ENOEXEC);
        }
        let arrivals = ARRIVALS.get()?;
        let service = FrameService::new(driver, queues)?;
        arrivals.add_service(service.clone())?;
        Ok(Self { arrivals, service })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.arrivals.remove_service(ServiceId::NET);
        self.service.end();
    }
}
