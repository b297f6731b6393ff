// SPDX-License-Identifier: GPL-2.0

//! This node as its own peer.
//!
//! It has one session as long as the module is loaded. The direct map of all RAM is the aperture, a
//! doorbell is a function call, and the two ends of the control rings lie in one block: what is posted is
//! what is taken. So the whole interface works on a machine without any device, and through the same
//! code.
//!
//! Lock: `session` is a leaf, taken in any context.

use super::{
    doorbell,
    engine::Routes,
    links::{
        Link,
        Links, //
    },
    path::{
        Export,
        Path, //
    },
    sink::{
        Introduction,
        Session,
        Sink, //
    },
};
use crate::{
    logic::control_block::LARGEST,
    sync::{
        list::Listed,
        log_budget::LogBudget,
        work_queues::WorkQueues, //
    },
    sys::{
        arena::Access,
        pages::Pages,
        reached::{
            self,
            flush_writes,
            Reached, //
        },
        shared_memory::{
            Payer,
            SharedMemory,
            User, //
        },
    },
};
use kernel::{
    fmt, impl_has_work, new_spinlock_irq, new_work, pr_info_once,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SpinLockIrq, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// What the link is called.
const NAME: &CStr = c"loopback";

/// The session's nonce: there is no handshake in which it would mean something.
const NONCE: u32 = 1;

/// The loopback transport; its session ends when this is dropped.
pub(crate) struct Loopback {
    path: Arc<LoopbackPath>,
    _listed: Listed<dyn Link>,
}

/// See the head of this file.
#[pin_data]
struct LoopbackPath {
    queues: Arc<WorkQueues>,
    log: LogBudget,
    /// None.
    engines: Routes,
    /// As long as it is not over.
    #[pin]
    session: SpinLockIrq<Option<Arc<dyn Session>>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for LoopbackPath { self.work }
}

impl WorkItem for LoopbackPath {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let failed = match &*this.session.lock() {
            Some(session) => session.ended().is_some(),
            None => false,
        };
        if failed {
            // Nobody is left who could write to it.
            if let Some(session) = this.end() {
                session.forget();
            }
        }
    }
}

impl Loopback {
    /// Introduces this node to itself. May sleep.
    pub(crate) fn start(
        sink: &Arc<dyn Sink>,
        queues: &Arc<WorkQueues>,
        links: &Arc<Links>,
    ) -> Result<Self> {
        let path = Arc::pin_init(
            pin_init!(LoopbackPath {
                queues: queues.clone(),
                log: LogBudget::new(),
                engines: Routes::none(),
                session <- new_spinlock_irq!(None, "LoopbackPath::session"),
                work <- new_work!("LoopbackPath::work"),
            }),
            GFP_KERNEL,
        )?;
        let block = SharedMemory::new(LARGEST.size(), &User::Physical, Payer::Nobody)?;
        let peer_block = block.bus_address();
        let who = Introduction {
            link: NAME,
            node: None,
            generation: sink.generation(),
            own_nonce: NONCE,
            peer_nonce: NONCE,
            block: Arc::new(block, GFP_KERNEL)?,
            geometry: LARGEST,
            peer_block,
            peer_geometry: LARGEST,
        };
        let link: Arc<dyn Link> = path.clone();
        let listed = links.add(&link)?;
        let session = sink.online(path.clone(), who)?;
        *path.session.lock() = Some(session.clone());
        // What was said, and what has failed, before it was there.
        session.as_arc_borrow().doorbell(doorbell::CONTROL);
        path.as_arc_borrow().session_failed();
        // From here on dropping it ends the session.
        Ok(Self {
            path,
            _listed: listed,
        })
    }
}

impl LoopbackPath {
    /// Ends the session, if it has not ended. May sleep.
    fn end(&self) -> Option<Arc<dyn Session>> {
        let session = self.session.lock().take()?;
        session.going();
        session.tear_down();
        session.unreachable();
        Some(session)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let session = self.path.end();
        let queues = &self.path.queues;
        queues.link.flush();
        queues.control.flush();
        queues.work.flush();
        if let Some(session) = session {
            session.forget();
        }
    }
}

impl Link for LoopbackPath {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_up = self.session.lock().is_some();
        f.write_str("loopback ")?;
        if is_up {
            let engines = self.engines.len();
            write!(f, "up - {} {} {engines}", self.mode(), self.reachable())?;
        } else {
            f.write_str("down - - - -")?;
        }
        writeln!(f, " {:#x} - - - - - -", self.doorbells())
    }
}

impl Path for LoopbackPath {
    fn mode(&self) -> &'static str {
        "local"
    }

    fn doorbells(&self) -> u64 {
        u64::from(u32::MAX)
    }

    fn ring(&self, doorbell: u32) {
        flush_writes();
        let session = self.session.lock().clone();
        if let Some(session) = session {
            session.as_arc_borrow().doorbell(doorbell);
        }
    }

    fn may_log(&self) -> bool {
        self.log.admits(NAME)
    }

    fn session_failed(self: ArcBorrow<'_, Self>) {
        // An error says that the work is pending already.
        let _ = self.queues.link.enqueue(Arc::from(self));
    }

    fn reach(&self, address: u64, len: u64) -> Result<Reached<'_>> {
        Reached::in_ram(address, len)
    }

    fn reachable(&self) -> u64 {
        reached::end_of_memory()
    }

    fn first_reachable(&self) -> u64 {
        0
    }

    fn engines(&self) -> &Routes {
        &self.engines
    }

    fn share(&self, len: usize, payer: Payer<'_>) -> Result<SharedMemory> {
        SharedMemory::new(len, &User::Physical, payer)
    }

    fn export(&self, pages: &Arc<Pages>, _access: Access) -> Result<Export> {
        if pages.are_of_device() {
            // There is no aperture that a program could map, and no engine.
            pr_info_once!("memory of a device can't be registered with this node itself\n");
            return Err(EOPNOTSUPP);
        }
        Ok(Export::Physical(pages.clone()))
    }
}
