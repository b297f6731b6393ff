// SPDX-License-Identifier: GPL-2.0

//! The loopback transport: this node as its own peer.
//!
//! There is one session as long as the module is loaded, and a new one if that has failed. The
//! direct map of all RAM is the aperture, and a doorbell is a function call. Both ends of the
//! control rings lie in one block: a message is read where it was posted. So the whole interface
//! works on a machine without any device, through the same code.
//!
//! Locks: `state` has the position of `NtbLink::inner` in the lock order. `session` is a leaf,
//! taken in any context.

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
        fate::Fated,
        pages::Pages,
        reached::{
            self,
            flush_writes,
            OwnMemory,
            Reached, //
        },
        shared_memory::{
            MemoryUser,
            Payer,
            SharedMemory, //
        },
        timer::{
            PeriodicTimer,
            Running,
            Tick, //
        },
    },
};
use kernel::{
    fmt, impl_has_work, new_mutex, new_spinlock_irq, new_work, pr_info_once,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex,
        SpinLockIrq, //
    },
    time::Delta,
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Name of the link.
const NAME: &CStr = c"loopback";

/// The doorbells as bits. No device limits their number.
const DOORBELLS: u64 = u32::MAX as u64;

/// The nonce of the session, which has no meaning without a handshake.
const NONCE: u32 = 1;

/// The loopback transport. Dropping it ends its session.
pub(crate) struct Loopback {
    home: Arc<Home>,
    _listed: Listed<dyn Link>,
}

/// The owner of the session, which creates a new one when it has failed.
#[pin_data]
struct Home {
    sink: Arc<dyn Sink>,
    queues: Arc<WorkQueues>,
    log: LogBudget,
    #[pin]
    state: Mutex<State>,
    #[pin]
    work: Work<Self>,
}

struct State {
    /// The path of the present session.
    path: Option<Arc<LoopbackPath>>,
    /// The timer that retries while no session could be created.
    again: Option<Running<Home>>,
    /// Set once the transport ends, so that no session is created any more.
    is_over: bool,
}

/// The path from this node to itself.
#[pin_data]
struct LoopbackPath {
    home: Arc<Home>,
    /// An empty list: there are no engines on this path.
    engines: Routes,
    /// The session until its end.
    #[pin]
    session: SpinLockIrq<Option<Arc<dyn Session>>>,
}

impl_has_work! {
    impl HasWork<Self> for Home { self.work }
}

impl WorkItem for Home {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.renew();
    }
}

/// The timer ticks as long as there is no memory for the session. Each tick tries again.
impl Tick for Home {
    const PERIOD: Delta = Delta::from_secs(1);

    fn tick(this: ArcBorrow<'_, Self>) {
        Self::schedule(this);
    }
}

impl Loopback {
    /// Creates the transport and its first session.
    /// Context: may sleep.
    pub(crate) fn start(
        sink: &Arc<dyn Sink>,
        queues: &Arc<WorkQueues>,
        links: &Arc<Links>,
    ) -> Result<Self> {
        let state = State {
            path: None,
            again: None,
            is_over: false,
        };
        let home = Arc::pin_init(
            pin_init!(Home {
                sink: sink.clone(),
                queues: queues.clone(),
                log: LogBudget::new(),
                state <- new_mutex!(state, "Home::state"),
                work <- new_work!("Home::work"),
            }),
            GFP_KERNEL,
        )?;
        let link: Arc<dyn Link> = home.clone();
        let listed = links.add(&link)?;
        let path = home.begin()?;
        home.state.lock().path = Some(path);
        // The session may have failed already.
        Home::schedule(home.as_arc_borrow());
        // From here on a drop of this value ends the session.
        Ok(Self {
            home,
            _listed: listed,
        })
    }
}

impl Home {
    /// Queues [`Self::renew`].
    /// Context: any.
    fn schedule(this: ArcBorrow<'_, Self>) {
        // An error means that the work is queued already.
        let _ = this.queues.link.enqueue(Arc::from(this));
    }

    /// Creates a session.
    /// Context: may sleep.
    fn begin(self: &Arc<Self>) -> Result<Arc<LoopbackPath>> {
        let path = Arc::pin_init(
            pin_init!(LoopbackPath {
                home: self.clone(),
                engines: Routes::none(),
                session <- new_spinlock_irq!(None, "LoopbackPath::session"),
            }),
            GFP_KERNEL,
        )?;
        let block = SharedMemory::new(LARGEST.size(), &MemoryUser::Physical, Payer::None)?;
        let peer_block = block.bus_address();
        let introduction = Introduction {
            link: NAME,
            node: None,
            generation: self.sink.generation(),
            own_nonce: NONCE,
            peer_nonce: NONCE,
            block: Arc::new(block, GFP_KERNEL)?,
            geometry: LARGEST,
            peer_block,
            peer_geometry: LARGEST,
        };
        let session = self.sink.online(path.clone(), introduction)?;
        *path.session.lock() = Some(session.clone());
        // Handles messages that were posted before `session` was set.
        session
            .as_arc_borrow()
            .doorbells(doorbell::bit(doorbell::CONTROL));
        Ok(path)
    }

    /// Ends a session that has failed, and creates another one, now or when there is memory.
    /// Context: link work, may sleep.
    fn renew(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if let Some(path) = state.path.take_if(|path| path.has_failed()) {
            path.end();
        }
        if state.is_over || state.path.is_some() {
            return;
        }
        state.path = self.begin().ok();
        if state.path.is_some() {
            state.again = None;
            // The session may have failed already.
            Self::schedule(self.as_arc_borrow());
        } else if state.again.is_none() {
            // If there is no memory for the timer either, the next scheduled work tries again.
            state.again = PeriodicTimer::start(self.clone()).ok();
        }
    }
}

impl LoopbackPath {
    fn has_failed(&self) -> bool {
        let session = self.session.lock();
        session
            .as_ref()
            .is_none_or(|session| session.ended().is_some())
    }

    /// Ends the session. Afterwards no thread writes to its memory.
    /// Context: may sleep.
    fn end(&self) {
        let Some(session) = self.session.lock().take() else {
            return;
        };
        session.going();
        session.tear_down();
        session.unreachable();
        self.home.queues.control.flush();
        self.home.queues.work.flush();
        session.forget();
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let (path, timer) = {
            let mut state = self.home.state.lock();
            state.is_over = true;
            (state.path.take(), state.again.take())
        };
        drop(timer);
        if let Some(path) = path {
            path.end();
        }
        // Work that is queued holds a reference to `home`.
        self.home.queues.link.flush();
    }
}

impl Link for Home {
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("loopback ")?;
        // A thread that takes a session down holds the lock all the time, and waits for others. So
        // this does not wait for the lock.
        let state = self.state.try_lock();
        match state.as_ref().map(|state| &state.path) {
            Some(Some(path)) => {
                let engines = path.engines.len();
                write!(f, "up - {} {} {engines}", path.mode(), path.reachable())?;
            }
            Some(None) => f.write_str("down - - - -")?,
            None => f.write_str("changing - - - -")?,
        }
        writeln!(f, " {:#x} - - - - - -", DOORBELLS)
    }
}

impl Path for LoopbackPath {
    fn mode(&self) -> &'static str {
        "local"
    }

    fn doorbells(&self) -> u64 {
        DOORBELLS
    }

    fn ring(&self, doorbell: u32) {
        flush_writes();
        let session = self.session.lock().clone();
        if let Some(session) = session {
            session.as_arc_borrow().doorbells(doorbell::bit(doorbell));
        }
    }

    fn may_log(&self) -> bool {
        self.home.log.admits(NAME)
    }

    fn session_failed(self: ArcBorrow<'_, Self>) {
        Home::schedule(self.home.as_arc_borrow());
    }

    fn reach(&self, address: u64, len: u64) -> Result<Reached<'_>> {
        OwnMemory.reach(address, len)
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
        SharedMemory::new(len, &MemoryUser::Physical, payer)
    }

    fn export(&self, pages: &Arc<Pages>, _access: Access) -> Result<Export> {
        if pages.are_of_device() {
            // There is no aperture that a program could map, and no engine.
            pr_info_once!(
                "memory of a device can't be registered on a connection within this node (EOPNOTSUPP)\n"
            );
            return Err(EOPNOTSUPP);
        }
        Ok(Export::Physical(Fated::new(pages.clone(), None)))
    }
}
