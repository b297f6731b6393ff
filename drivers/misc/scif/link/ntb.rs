// SPDX-License-Identifier: GPL-2.0

//! The link to the node behind an NTB device.
//!
//! All decisions are made in one place, [`NtbLink::step`], which runs as work and looks at the
//! state of the world; events only schedule it. The states:
//!
//! ```text
//! Down ------ link up ------> Offering --- the peer echoes our nonce ---> Up
//!  ^                            |  ^                                       |
//!  +------- link down ----------+  +--- lost, left, failed, link down -----+
//! ```
//!
//! *Offering*: our control block exists and our hello, with a fresh nonce, is in the peer's
//! scratchpads; see `logic/hello.rs` for the handshake. *Up*: there is a session.
//!
//! # Memory that the peer may still write to
//!
//! A peer that seems lost may only be slow. The control block and rings of a session that ended, or
//! of an offer that was echoed, are kept until the peer has said farewell or has come back with
//! another nonce, or the device goes. Windows are not: user memory is unpinned when its node is
//! lost, after the translation of the aperture was taken away, which stops the writes of a peer
//! that comes to life again (where the hardware can do that). The aperture is opened again only for
//! a peer that shows a fresh nonce.
//!
//! # Signs of life
//!
//! Both sides count up a word in the other's memory, driven by a timer. A word that stands still
//! for `heartbeat_timeout` milliseconds ends the session.
//!
//! Lock order: `state`, then anything in the session; `device` and `current` are taken in
//! interrupts, `current` before everything in the session that is.

use crate::{
    control::{
        self,
        ControlRing, //
    },
    logic::hello::{
        Hello,
        NoHello,
        WORDS, //
    },
    node::Fabric,
    session::{
        PeerIdentity,
        Session, //
    },
    sys::{
        direct_map, dma_map,
        iomap::IoMapping,
        ntb::{
            Client,
            NtbDevice, //
        },
        random,
        shared_memory::SharedMemory,
        timer::{
            PeriodicTimer,
            Tick, //
        },
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
    transport::{
        EngineAperture,
        NtbTransport,
        Transport,
        BELL_CONTROL,
        BELL_DATA,
        BELL_HELLO, //
    },
};
use kernel::{
    impl_has_work, new_mutex, new_spinlock_irq, new_work,
    page::PAGE_SHIFT,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
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

/// The only peer of the devices that are supported so far.
const PEER: u32 = 0;

/// Between two signs of life, and two looks at the scratchpads while there is no session.
const TICK_MILLISECONDS: u32 = 100;

/// How long a driver that is being unbound waits for the peer to let go.
const FAREWELL_MILLISECONDS: u32 = 1000;

/// The aperture over our memory, as the peer gets it.
#[derive(Clone, Copy)]
struct Aperture {
    window: u32,
    base: u64,
    len: u64,
    /// The size of the memory window.
    whole: u64,
}

/// Our half of a handshake.
struct Offer {
    nonce: u32,
    /// The peer's nonce that we have echoed, or 0.
    echo: u32,
    block: Arc<SharedMemory>,
}

/// Memory that the peer may still write to.
enum Grave {
    Session(Arc<Session>),
    Offer(#[expect(dead_code)] Arc<SharedMemory>),
}

enum State {
    Down,
    Offering(Offer),
    Up(Arc<Session>),
}

struct Inner {
    state: State,
    aperture: Option<Aperture>,
    graves: KVec<Grave>,
    /// The peer's nonce of a session that has ended.
    stale_nonce: u32,
    /// The generation of a peer with which there can be no session, or 0.
    rejected: u64,
    /// So that a reason is logged once.
    complained: bool,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct NtbLink {
    fabric: Arc<Fabric>,
    pub(crate) name: CString,
    node: u16,
    /// The bells of the device, as bits.
    bells: u64,
    /// Gone once the device is being removed.
    #[pin]
    device: SpinLockIrq<Option<Arc<NtbDevice>>>,
    #[pin]
    inner: Mutex<Inner>,
    /// The session of `State::Up`, for interrupts.
    #[pin]
    current: SpinLockIrq<Option<Arc<Session>>>,
    #[pin]
    timer: Mutex<Option<PeriodicTimer<NtbLink>>>,
    beat: Atomic<u64>,
    last_peer_beat: Atomic<u64>,
    silent_ticks: Atomic<u32>,
    #[pin]
    patience: WaitQueue,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for NtbLink { self.work }
}

impl WorkItem for NtbLink {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.step();
    }
}

impl Client for NtbLink {
    type Context = Arc<Fabric>;

    fn probe(fabric: &Arc<Fabric>, device: NtbDevice) -> Result<Arc<Self>> {
        let fabric = fabric.clone();
        let name = device.name()?;
        let bells = device.db_valid_mask();
        let needed = 1u64 << BELL_CONTROL | 1 << BELL_HELLO | 1 << BELL_DATA;
        if bells & needed != needed || (device.spad_count() as usize) < WORDS {
            pr_warn!(
                "{}: it takes a device with {} scratchpads and 3 doorbells\n",
                &*name,
                WORDS
            );
            return Err(ENODEV);
        }
        let port = device.port_number().unwrap_or(0);
        let node = fabric.own_id_or(port as u16);
        let device = Arc::new(device, GFP_KERNEL)?;
        pr_info!("{}: this is node {} (NTB port {})\n", &*name, node, port);
        Arc::pin_init(
            pin_init!(Self {
                fabric,
                name,
                node,
                bells,
                device <- new_spinlock_irq!(Some(device), "NtbLink::device"),
                inner <- new_mutex!(
                    Inner {
                        state: State::Down,
                        aperture: None,
                        graves: KVec::new(),
                        stale_nonce: 0,
                        rejected: 0,
                        complained: false,
                    },
                    "NtbLink::inner"
                ),
                current <- new_spinlock_irq!(None, "NtbLink::current"),
                timer <- new_mutex!(None, "NtbLink::timer"),
                beat: Atomic::new(0),
                last_peer_beat: Atomic::new(0),
                silent_ticks: Atomic::new(0),
                patience <- new_wait_queue!("scif::NtbLink::patience"),
                work <- new_work!("NtbLink::work"),
            }),
            GFP_KERNEL,
        )
    }

    fn start(this: ArcBorrow<'_, Self>) -> Result {
        let link: Arc<Self> = this.into();
        let device = link.device().ok_or(ENODEV)?;
        device.db_clear(link.bells)?;
        device.db_clear_mask(link.bells)?;
        device.link_enable()?;
        let timer =
            PeriodicTimer::start(link.clone(), Delta::from_millis(TICK_MILLISECONDS.into()))?;
        *link.timer.lock() = Some(timer);
        Self::schedule(&link);
        Ok(())
    }

    fn remove(this: Arc<Self>) {
        let timer = this.timer.lock().take();
        drop(timer);
        let device = this.device();
        // From now on `step` finds no device, and ends what there is.
        let own = this.device.lock().take();
        drop(own);
        this.fabric.link_queue.flush();
        this.step();
        let Some(device) = device else { return };
        this.wait_for_farewell();
        this.withdraw(&device);
        let mut inner = this.inner.lock();
        inner.bury_all();
        inner.state = State::Down;
        drop(inner);
        this.fabric.completion_queue.flush();
        this.fabric.control_queue.flush();
        pr_info!("{}: gone\n", &*this.name);
    }

    fn link_event(this: ArcBorrow<'_, Self>) {
        Self::schedule(&this.into());
    }

    fn db_event(this: ArcBorrow<'_, Self>, vector: u32) {
        let rung = {
            let device = this.device.lock();
            let Some(device) = &*device else { return };
            let mut rung = device.db_vector_mask(vector) & this.bells;
            if rung == 0 {
                return;
            }
            if !rung.is_power_of_two() {
                // Several bells share the vector: only the device knows which it was.
                rung &= device.db_read();
            }
            // Cleared first: what comes after this raises another interrupt.
            let _ = device.db_clear(rung);
            rung
        };
        if rung & 1 << BELL_HELLO != 0 {
            Self::schedule(&this.into());
        }
        let current = this.current.lock();
        let Some(session) = &*current else { return };
        let mut left = rung & !(1 << BELL_HELLO);
        while left != 0 {
            Session::bell_rang(session, left.trailing_zeros());
            left &= left - 1;
        }
    }
}

impl Tick for NtbLink {
    fn tick(this: ArcBorrow<'_, Self>) {
        let current = this.current.lock();
        let Some(session) = &*current else {
            drop(current);
            // Bells are lost while a driver is not loaded; looking now and then does not hurt.
            Self::schedule(&this.into());
            return;
        };
        let beat = this.beat.fetch_add(1, Relaxed) + 1;
        session.beat(beat);
        if session.peer_left() || session.has_failed() {
            Self::schedule(&this.into());
            return;
        }
        let peer_beat = session.control.peer_beat();
        if this.last_peer_beat.xchg(peer_beat, Relaxed) != peer_beat {
            this.silent_ticks.store(0, Relaxed);
            return;
        }
        let silent = this.silent_ticks.fetch_add(1, Relaxed) + 1;
        if silent.saturating_mul(TICK_MILLISECONDS) >= this.fabric.settings.heartbeat_timeout {
            session.fail("no sign of life");
        }
    }
}

impl Inner {
    /// Lets go of all memory that the peer could have written to.
    fn bury_all(&mut self) {
        for grave in self.graves.drain_all() {
            if let Grave::Session(session) = grave {
                session.release_windows();
                session.bury();
            }
        }
    }

    fn keep(&mut self, grave: Grave) {
        if self.graves.reserve(1, GFP_KERNEL).is_err() {
            // Better lost than written to by a peer when it belongs to somebody else.
            core::mem::forget(grave);
            return;
        }
        let _ = self.graves.push_within_capacity(grave);
    }

    /// Says something once, until something else happens.
    fn complain(&mut self, say: impl FnOnce()) {
        if !self.complained {
            self.complained = true;
            say();
        }
    }
}

impl NtbLink {
    fn device(&self) -> Option<Arc<NtbDevice>> {
        self.device.lock().clone()
    }

    /// Runs [`Self::step`] soon. Any context.
    pub(crate) fn schedule(this: &Arc<Self>) {
        // An error says that it is pending already.
        let _ = this.fabric.link_queue.enqueue(this.clone());
    }

    /// Looks at the state of the world and does what has to be done. Link work only.
    fn step(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let device = self.device();
        let link_is_up = device
            .as_ref()
            .is_some_and(|device| device.link_is_up(PEER));

        // What has ended, ends.
        if let State::Up(session) = &inner.state {
            let session = session.clone();
            let reason = if device.is_none() {
                Some("the device is being removed")
            } else if !link_is_up {
                Some("the link is down")
            } else if session.peer_left() {
                Some("it has left")
            } else if session.has_failed() {
                Some("the session has failed")
            } else if self.has_come_back(device.as_deref(), &session) {
                Some("it has started anew")
            } else {
                None
            };
            let Some(reason) = reason else { return };
            self.end_session(&mut inner, &session, reason);
        }
        let Some(device) = device.clone().filter(|_| link_is_up) else {
            inner.rejected = 0;
            if let State::Offering(offer) = core::mem::replace(&mut inner.state, State::Down) {
                inner.retire(offer, device.as_deref());
            }
            return;
        };

        if let State::Down = inner.state {
            match self.make_offer(&mut inner, &device) {
                Ok(offer) => inner.state = State::Offering(offer),
                // The link went down again meanwhile, which will be announced as well.
                Err(error) if error == ENOTCONN || !device.link_is_up(PEER) => return,
                Err(error) => {
                    inner
                        .complain(|| pr_err!("{}: can't offer a link: {:?}\n", &*self.name, error));
                    return;
                }
            }
        }
        self.look_for_peer(&mut inner, &device);
    }

    // ----- the handshake -----------------------------------------------------------------------

    /// Chooses an aperture and says hello, to nobody in particular.
    fn make_offer(&self, inner: &mut Inner, device: &NtbDevice) -> Result<Offer> {
        let aperture = self.choose_aperture(inner, device)?;
        inner.aperture = Some(aperture);
        let offer = Offer {
            // Not zero, which means "none".
            nonce: (random::number() as u32).max(1),
            echo: 0,
            block: control::new_block(Some(&device.dma_device()))?,
        };
        self.say_hello(device, &offer, &aperture)?;
        Ok(offer)
    }

    /// Chooses a memory window that can lead to all of our memory.
    fn choose_aperture(&self, inner: &mut Inner, device: &NtbDevice) -> Result<Aperture> {
        if dma_map::has_iommu(&device.dma_device()) && !self.fabric.settings.allow_flat {
            inner.complain(|| {
                pr_err!(
                    "{}: behind an IOMMU only flat mode is there so far, which lets the peer reach all memory; load with allow_flat=1 to accept that\n",
                    &*self.name
                )
            });
            return Err(EPERM);
        }
        let needed = direct_map::end_of_memory();
        let mut largest = 0;
        for window in 0..device.mw_count(PEER)? {
            let align = device.mw_align(PEER, window)?;
            largest = largest.max(align.max_size);
            if align.max_size >= needed {
                let len = needed
                    .checked_next_multiple_of(align.size.max(1))
                    .unwrap_or(align.max_size);
                return Ok(Aperture {
                    window,
                    base: 0,
                    len: len.min(align.max_size),
                    whole: align.max_size,
                });
            }
        }
        inner.complain(|| {
            pr_err!(
                "{}: no memory window covers the {} MiB of this machine (the largest has {} MiB), and smaller ones can't be used yet\n",
                &*self.name,
                needed >> 20,
                largest >> 20
            )
        });
        Err(ENOSPC)
    }

    /// Lets the peer in. Not before it has shown a fresh nonce: it has then let go of all memory
    /// that it was told of in an earlier session.
    fn open_aperture(&self, device: &NtbDevice, aperture: &mut Aperture) -> Result {
        let Aperture {
            window, base, len, ..
        } = *aperture;
        if device.set_translation(PEER, window, base, len).is_ok() {
            return Ok(());
        }
        // Some hardware takes nothing but the whole window.
        device.set_translation(PEER, window, base, aperture.whole)?;
        aperture.len = aperture.whole;
        Ok(())
    }

    fn say_hello(&self, device: &NtbDevice, offer: &Offer, aperture: &Aperture) -> Result {
        let hello = Hello {
            nonce: offer.nonce,
            echo: offer.echo,
            node: self.node,
            window: aperture.window as u8,
            page_shift: PAGE_SHIFT as u8,
            generation: self.fabric.generation,
            control: offer.block.bus_address(),
            aperture_base: aperture.base,
            aperture_len: aperture.len,
        };
        for (index, word) in hello.encode().into_iter().enumerate() {
            device.peer_spad_write(PEER, index as u32, word)?;
        }
        device.peer_db_set(1 << BELL_HELLO)
    }

    fn read_hello(&self, device: &NtbDevice) -> Result<Hello, NoHello> {
        let mut words = [0; WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = device.spad_read(index as u32);
        }
        Hello::decode(&words)
    }

    /// Whether the peer has begun another session than the one that we have.
    fn has_come_back(&self, device: Option<&NtbDevice>, session: &Session) -> bool {
        device
            .and_then(|device| self.read_hello(device).ok())
            .is_some_and(|hello| hello.nonce != session.peer.nonce)
    }

    /// Takes the handshake as far as it goes.
    fn look_for_peer(self: &Arc<Self>, inner: &mut Inner, device: &Arc<NtbDevice>) {
        let hello = match self.read_hello(device) {
            Ok(hello) => hello,
            Err(NoHello::Absent) => return,
            Err(NoHello::Version(version)) => {
                inner.complain(|| {
                    pr_err!(
                        "{}: the peer speaks version {} of the protocol, this side {}\n",
                        &*self.name,
                        version & 0xff,
                        crate::logic::wire::VERSION
                    )
                });
                return;
            }
        };
        // A stale hello, one of a peer that can't be served, and one in answer to an offer of ours
        // that is no more: the peer will make a new one when it sees that we have.
        if hello.nonce == inner.stale_nonce || hello.generation == inner.rejected {
            return;
        }
        let State::Offering(offer) = &inner.state else {
            return;
        };
        if usize::from(hello.page_shift) != PAGE_SHIFT {
            inner.rejected = hello.generation;
            pr_err!(
                "{}: no session with node {}: its pages have 2^{} bytes, those of this side 2^{}\n",
                &*self.name,
                hello.node,
                hello.page_shift,
                PAGE_SHIFT
            );
            return;
        }
        if hello.echo != 0 && hello.echo != offer.nonce {
            return;
        }
        if offer.echo != 0 && offer.echo != hello.nonce {
            // Our block may hold words of the peer's former life: begin anew.
            if let State::Offering(offer) = core::mem::replace(&mut inner.state, State::Down) {
                inner.retire(offer, Some(device));
            }
            Self::schedule(self);
            return;
        }
        if offer.echo == 0 && self.echo(inner, device, &hello).is_err() {
            return;
        }
        let State::Offering(offer) = &inner.state else {
            return;
        };
        if hello.echo != offer.nonce {
            return;
        }
        if let State::Offering(offer) = core::mem::replace(&mut inner.state, State::Down) {
            let block = offer.block.clone();
            if let Err(error) = self.begin_session(inner, device, offer, &hello) {
                // The peer has begun its session, and writes to our block.
                inner.close_aperture(Some(device));
                inner.keep(Grave::Offer(block));
                inner.rejected = hello.generation;
                let reason = if error == EEXIST {
                    "its node id is taken by another; set node_id= on one of them"
                } else if error == EFAULT {
                    "its control block can't be reached"
                } else if error == ENOMEM {
                    "there is not enough memory"
                } else {
                    "its aperture can't be used"
                };
                pr_err!(
                    "{}: no session with node {}: {} ({:?})\n",
                    &*self.name,
                    hello.node,
                    reason,
                    error
                );
            }
        }
    }

    /// Opens the aperture for a peer and tells it that we have seen it.
    fn echo(&self, inner: &mut Inner, device: &NtbDevice, hello: &Hello) -> Result {
        let (State::Offering(offer), Some(aperture)) = (&mut inner.state, &mut inner.aperture)
        else {
            return Err(EINVAL);
        };
        let opened = self.open_aperture(device, aperture);
        if let Err(error) = opened {
            inner.complain(|| {
                pr_err!(
                    "{}: the device does not take the aperture: {:?}\n",
                    &*self.name,
                    error
                )
            });
            return Err(error);
        }
        offer.echo = hello.nonce;
        self.say_hello(device, offer, aperture)
    }

    // ----- sessions ----------------------------------------------------------------------------

    fn begin_session(
        self: &Arc<Self>,
        inner: &mut Inner,
        device: &Arc<NtbDevice>,
        offer: Offer,
        hello: &Hello,
    ) -> Result {
        // A peer with a new nonce has let go of whatever was before.
        inner.bury_all();
        let (physical, size) = device.peer_mw(hello.window.into())?;
        let len = size.min(hello.aperture_len);
        let aperture = IoMapping::write_combined(physical, len)?;
        let engine = self.fabric.engine().and_then(|engine| {
            let mapping = engine
                .channel
                .map_peer(physical, usize::try_from(len).ok()?)
                .ok()?;
            Some(EngineAperture { mapping, engine })
        });
        let has_engine = engine.is_some();
        let transport = Transport::Ntb(NtbTransport {
            export_device: device.dma_device(),
            aperture,
            engine,
            base: hello.aperture_base,
            bells: self.bells,
        });
        if hello.control % 8 != 0 || !transport.reaches(hello.control, control::BLOCK_SIZE as u64) {
            return Err(EFAULT);
        }
        let session = Session::new(
            &self.fabric,
            PeerIdentity {
                node: hello.node,
                generation: hello.generation,
                nonce: hello.nonce,
            },
            offer.nonce,
            transport,
            Some(device.clone()),
            Some(self.clone()),
            ControlRing::new(offer.block, hello.control)?,
        )?;
        if let Err(error) = self.fabric.node_online(&self.name, &session) {
            // Tells the peer, which has begun its session, that this one is over.
            session.tear_down();
            inner.keep(Grave::Session(session));
            return Err(error);
        }
        self.last_peer_beat.store(0, Relaxed);
        self.silent_ticks.store(0, Relaxed);
        inner.state = State::Up(session.clone());
        inner.complained = false;
        let transfers = match has_engine {
            true => "transfers by DMA engine",
            false => "no DMA engine: transfers by CPU",
        };
        pr_info!(
            "node {} is online through {}: flat aperture of {} MiB, {}\n",
            hello.node,
            &*self.name,
            len >> 20,
            transfers
        );
        let none = self.current.lock().replace(session.clone());
        drop(none);
        // The peer may have been here first.
        session.schedule_control();
        Ok(())
    }

    fn end_session(&self, inner: &mut Inner, session: &Arc<Session>, reason: &str) {
        let current = self.current.lock().take();
        drop(current);
        inner.state = State::Down;
        inner.stale_nonce = session.peer.nonce;
        self.fabric.node_lost(session);
        pr_info!("node {} is offline: {}\n", session.peer.node, reason);
        // A driver that is being unbound gives the peer the time to let go first.
        let fenced = inner.close_aperture(self.device().as_deref());
        session.tear_down();
        if session.peer_left() {
            session.release_windows();
            session.bury();
            return;
        }
        if fenced {
            session.release_windows();
        }
        inner.keep(Grave::Session(session.clone()));
    }

    /// Waits for the peers of ended sessions to let go, for a while.
    fn wait_for_farewell(&self) {
        for _ in 0..FAREWELL_MILLISECONDS / 10 {
            let waiting = self
                .inner
                .lock()
                .graves
                .iter()
                .any(|grave| matches!(grave, Grave::Session(session) if !session.peer_left()));
            if !waiting {
                return;
            }
            let _ = self
                .patience
                .wait_uninterruptible_timeout(Delta::from_millis(10), || None::<()>);
        }
    }

    /// Takes back what the peer was given.
    fn withdraw(&self, device: &NtbDevice) {
        let _ = device.peer_spad_write(PEER, 0, 0);
        let _ = device.db_set_mask(self.bells);
        if let Ok(count) = device.mw_count(PEER) {
            for window in 0..count {
                let _ = device.clear_translation(PEER, window);
            }
        }
        let _ = device.link_disable();
    }
}

impl Inner {
    /// An offer is not needed any more; one that was echoed may have been taken up by the peer.
    fn retire(&mut self, offer: Offer, device: Option<&NtbDevice>) {
        if offer.echo != 0 {
            self.close_aperture(device);
            self.keep(Grave::Offer(offer.block));
        }
    }

    /// Lets the peer in no more: from here on one that is merely slow writes nowhere, if the
    /// hardware can do that. Says whether it is so.
    fn close_aperture(&mut self, device: Option<&NtbDevice>) -> bool {
        match (device, self.aperture.take()) {
            (Some(device), Some(aperture)) => {
                device.clear_translation(PEER, aperture.window).is_ok()
            }
            _ => false,
        }
    }
}
