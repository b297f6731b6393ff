// SPDX-License-Identifier: GPL-2.0

//! The link to the node behind one NTB device.
//!
//! A state machine, `logic/handshake.rs`, decides the next action from the state of device and
//! peer. This file carries it out, in one place, [`NtbLink::step`], which runs as work. Events only
//! queue this work. `sessions.rs` begins and ends sessions.
//!
//! The states are those of the machine: *down*; *offering*, with a control block, and this side's
//! hello with a fresh nonce in the mailbox; *up*, with a session.
//!
//! Lock order: `inner`, then any lock of the session. `device` and `current` are taken in
//! interrupts. `current` comes before all locks of the current session.

use super::{
    aperture::{
        Aperture,
        Unsuitable, //
    },
    client::Shared,
    mailbox::Mailbox,
    reports,
    roster::Roster,
    state::{
        GraceList,
        Inner, //
    },
    Context, //
};
use crate::{
    logic::{
        control_block::ControlGeometry,
        doorbells::DoorbellRegister,
        handshake::{
            Action,
            Handshake,
            Seen, //
        },
        hello::{
            Hello,
            NoHello, //
        },
    },
    sync::log_budget::LogBudget,
    sys::{
        dma_map::Guard,
        fate::Fate,
        ntb::NtbDevice,
        random,
        shared_memory::Payer,
        timer::Running, //
    },
    transport::sink::Session,
};
use kernel::{
    impl_has_work, new_mutex, new_spinlock_irq, new_work,
    page::PAGE_SHIFT,
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        Mutex,
        SpinLockIrq, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Maximum number of actions of one [`NtbLink::step`]. It suffices from the end of one session to
/// the begin of the next.
const MAX_ACTIONS: usize = 8;

/// The link to the node behind one NTB device.
#[pin_data]
pub(super) struct NtbLink {
    pub(super) context: Context,
    /// The roster that lists this link.
    pub(super) roster: Arc<Roster>,
    /// Name of the device.
    pub(super) name: CString,
    /// Name of the link, as users see it.
    pub(super) shown_name: CString,
    log: LogBudget,
    node: u16,
    /// The doorbells of the device.
    pub(super) register: DoorbellRegister,
    /// The device. `None` while the link rests, and once the device is being removed.
    #[pin]
    pub(super) device: SpinLockIrq<Option<Arc<NtbDevice>>>,
    #[pin]
    pub(super) inner: Mutex<Inner>,
    /// The present session, for use in interrupts.
    #[pin]
    pub(super) current: SpinLockIrq<Option<Arc<dyn Session>>>,
    #[pin]
    pub(super) timer: Mutex<Option<Running<NtbLink>>>,
    /// The guard that restricts the peer's access to this node.
    pub(super) guard: Guard,
    /// Number of times that the link was seen down. Counted in the event itself: even if the link
    /// is up again before the work runs, data in flight was lost.
    downs: Atomic<u32>,
    /// Set if doorbells were masked because they did not stop ringing.
    pub(super) masked: Atomic<bool>,
    /// Number of ticks of the timer.
    pub(super) ticks: Atomic<u32>,
    /// Set if the mailbox has to be polled.
    pub(super) unsettled: Atomic<bool>,
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

impl NtbLink {
    /// Creates the link of a device, in state down.
    /// Context: may sleep.
    pub(super) fn new(
        shared: &Shared,
        device: NtbDevice,
        node: u16,
        register: DoorbellRegister,
        mailbox: Mailbox,
        guard: Guard,
    ) -> Result<Arc<Self>> {
        let Shared { context, roster } = shared.clone();
        let name = CString::try_from(device.name())?;
        let shown_name = CString::try_from_fmt(fmt!("ntb:{}", &*name))?;
        let device = Arc::new(device, GFP_KERNEL)?;
        let handshake = Handshake::new(PAGE_SHIFT as u8, node);
        Arc::pin_init(
            pin_init!(Self {
                context,
                roster,
                name,
                shown_name,
                log: LogBudget::new(),
                node,
                register,
                device <- new_spinlock_irq!(Some(device), "NtbLink::device"),
                inner <- new_mutex!(
                    Inner {
                        handshake,
                        mailbox,
                        block: None,
                        aperture: None,
                        up: None,
                        grace: GraceList::new(),
                        downs: 0,
                        reported: false,
                    },
                    "NtbLink::inner"
                ),
                current <- new_spinlock_irq!(None, "NtbLink::current"),
                timer <- new_mutex!(None, "NtbLink::timer"),
                guard,
                downs: Atomic::new(0),
                masked: Atomic::new(false),
                ticks: Atomic::new(0),
                unsettled: Atomic::new(false),
                work <- new_work!("NtbLink::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns whether the peer may reach memory that was taken back.
    fn is_exposed(&self) -> bool {
        self.guard == Guard::None
    }

    /// Returns the device. `None` while the link rests, and once the device is being removed.
    pub(super) fn device(&self) -> Option<Arc<NtbDevice>> {
        self.device.lock().clone()
    }

    /// Returns whether a log line may be written that the peer has caused.
    /// Context: any.
    pub(super) fn may_log(&self) -> bool {
        self.log.admits(&self.name)
    }

    /// Logs why there is no session. Does so only once until there is a session, or the link was
    /// down.
    pub(super) fn report(&self, inner: &mut Inner, say: impl FnOnce()) {
        if !core::mem::replace(&mut inner.reported, true) && self.may_log() {
            say();
        }
    }

    /// Queues [`Self::step`].
    /// Context: any.
    pub(super) fn schedule(this: ArcBorrow<'_, Self>) {
        // An error means that the work is queued already.
        let _ = this.context.queues.link.enqueue(Arc::from(this));
    }

    /// Waits for queued steps, and runs a last one. The caller makes sure that no event queues
    /// another step.
    pub(super) fn flush_steps(self: &Arc<Self>) {
        self.context.queues.link.flush();
        self.step();
    }

    /// Returns whether there is no session, and no thread is ending one. Does not wait for the
    /// lock.
    pub(super) fn has_ended(&self) -> bool {
        self.inner
            .try_lock()
            .is_some_and(|inner| inner.up.is_none())
    }

    /// Returns whether there is a session whose peer has not said farewell.
    pub(super) fn waits_for_farewell(&self) -> bool {
        self.inner.lock().grace.waits_for_farewell()
    }

    /// Releases memory to which the peer could still have written, if closed windows now keep the
    /// peer out.
    /// Context: may sleep.
    pub(super) fn release_unreachable(&self) {
        if !self.is_exposed() {
            self.inner.lock().grace.release();
        }
    }

    /// Releases all that the peer could still have written to. Memory of a peer that nothing keeps
    /// out is leaked.
    /// Context: may sleep.
    pub(super) fn release_kept(&self) {
        let abandoned = {
            let mut inner = self.inner.lock();
            if self.is_exposed() {
                inner.grace.abandon()
            } else {
                inner.grace.release();
                false
            }
        };
        // The work items on these queues wait for no peer.
        self.context.queues.work.flush();
        self.context.queues.control.flush();
        let aperture = self.inner.lock().aperture.take();
        if abandoned {
            pr_warn!(
                "{}: the peer has not released this node's memory, and nothing keeps it out: the memory that it may still write to is never freed\n",
                &*self.name
            );
            core::mem::forget(aperture);
        } else if let Some(aperture) = aperture {
            aperture.behind.close();
        }
    }

    /// Compares the state of device and peer with the state machine, and carries out the actions
    /// that are due.
    /// Context: link work, may sleep.
    fn step(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        self.listen_again();
        self.look_for_engines(&inner);
        for _ in 0..MAX_ACTIONS {
            let device = self.device();
            let seen = self.look(&mut inner, device.as_deref());
            self.unsettled.store(inner.mailbox.is_unsettled(), Relaxed);
            let action = inner.handshake.next(&seen);
            let success = match &action {
                Action::Wait => return,
                Action::Offer { nonce } => self.offer(&mut inner, device.as_deref(), *nonce),
                Action::Echo { nonce, echo } => {
                    self.echo(&mut inner, device.as_deref(), *nonce, *echo)
                }
                Action::Withdraw { echoed } => {
                    inner.drop_offer(*echoed, device.as_deref());
                    true
                }
                Action::Begin { nonce, hello } => {
                    self.begin(&mut inner, device.as_ref(), *nonce, hello)
                }
                Action::End { reason } => {
                    self.end(&mut inner, device.as_deref(), *reason);
                    true
                }
                Action::Refuse(refused) => {
                    self.report(&mut inner, || reports::refused(&self.name, *refused));
                    return;
                }
            };
            inner.handshake.carried_out(&action, success, seen.now);
            if !success {
                // The next event or tick tries again.
                return;
            }
        }
        // Gives the queue to other links, so that a peer that changes its mind all the time can't
        // take all of it.
        Self::schedule(self.as_arc_borrow());
    }

    /// Unmasks the doorbells that did not stop ringing. Those that rang meanwhile raise an
    /// interrupt now.
    fn listen_again(&self) {
        if !self.masked.xchg(false, Relaxed) {
            return;
        }
        if let Some(device) = &*self.device.lock() {
            if device.db_clear_mask(self.register.own_bits()).is_err() {
                // The next tick tries again.
                self.masked.store(true, Relaxed);
            }
        }
    }

    /// Adds engines that have come since the session began, and unmaps the peer's memory from those
    /// that have stopped.
    fn look_for_engines(&self, inner: &Inner) {
        let Some(up) = &inner.up else {
            return;
        };
        up.path.unmap_stopped_engines();
        if self.context.engines.are_missing() {
            up.path.add_engines(&self.context.engines, &self.name);
        }
    }

    /// Returns how often the link was seen down.
    /// Context: any.
    pub(super) fn downs(&self) -> u32 {
        self.downs.load(Acquire)
    }

    /// Handles a change of the link. If the link is down, notes that, and no caller begins to use
    /// the session's path any more.
    /// Context: any.
    pub(super) fn note_change(&self) {
        let device = self.device.lock();
        if device.as_ref().is_none_or(|device| device.link_is_up()) {
            return;
        }
        drop(device);
        self.note_down();
    }

    /// Notes that the link is down.
    /// Context: any.
    pub(super) fn note_down(&self) {
        self.downs.fetch_add(1, Full);
        if let Some(session) = &*self.current.lock() {
            session.going();
        }
    }

    fn look(&self, inner: &mut Inner, device: Option<&NtbDevice>) -> Seen {
        let is_up = device.is_some_and(|device| device.link_is_up());
        // A link that rests does not count as down: there is a farewell, unless `NtbPath::is_down`
        // finds otherwise.
        if device.is_some() && !is_up {
            self.downs.fetch_add(1, Full);
        }
        let downs = self.downs();
        // A link that has gone down and come up again counts as down, too.
        let link_up = core::mem::replace(&mut inner.downs, downs) == downs && is_up;
        let hello = match device.filter(|_| link_up) {
            Some(device) => {
                let in_session = inner.up.is_some();
                inner.mailbox.read(device, self.now(), in_session)
            }
            None => {
                inner.mailbox.forget(device);
                inner.reported = false;
                Err(NoHello::Absent)
            }
        };
        Seen {
            present: device.is_some(),
            link_up,
            hello,
            is_taken: inner.up.is_none()
                && hello.is_ok_and(|hello| self.context.sink.is_taken(hello.node)),
            ended: inner.up.as_ref().and_then(|up| up.session.ended()),
            // Not zero, which means "none".
            fresh_nonce: (random() as u32).max(1),
            now: self.now(),
        }
    }

    /// Returns the time in ticks.
    fn now(&self) -> u32 {
        self.ticks.load(Relaxed)
    }

    // ----- actions of the handshake: each returns whether it was carried out ----------------------

    /// Chooses an aperture and says hello, before any peer is known.
    fn offer(&self, inner: &mut Inner, device: Option<&NtbDevice>, nonce: u32) -> bool {
        let Some(device) = device else { return false };
        if inner.grace.make_room().is_err() {
            self.report(inner, || {
                pr_err!(
                    "{}: no session: no room to keep more memory that the peer may still write to; unbind and bind the driver of the bridge\n",
                    &*self.name
                )
            });
            return false;
        }
        let offered = match &inner.aperture {
            Some(aperture) if aperture.behind.keeps_out() => Ok(aperture.clone()),
            _ => Aperture::choose(device, self.context.policy),
        };
        let offered = offered.and_then(|aperture| {
            let len = ControlGeometry::for_aperture(aperture.len).size();
            let block = aperture.behind.share(len, Payer::None);
            inner.aperture = Some(aperture);
            let block = block?.with_fate(Some(Fate::new()?));
            inner.block = Some(Arc::new(block, GFP_KERNEL).map_err(Error::from)?);
            Ok(self.say_hello(inner, device, nonce, 0)?)
        });
        match offered {
            Ok(()) => true,
            // The link went down again meanwhile, of which another event will tell.
            Err(_) if !device.link_is_up() => false,
            Err(Unsuitable::Device(ENOTCONN)) => false,
            Err(reason) => {
                inner.make_room();
                self.report(inner, || pr_err!("{}: {}\n", &*self.name, reason));
                false
            }
        }
    }

    /// Opens the aperture for a peer, and echoes its nonce.
    fn echo(&self, inner: &mut Inner, device: Option<&NtbDevice>, nonce: u32, echo: u32) -> bool {
        let (Some(device), Some(aperture), Some(_)) = (device, &mut inner.aperture, &inner.block)
        else {
            return false;
        };
        // A peer with another nonce has released all memory of earlier sessions.
        inner.grace.release_others(echo);
        if let Err(error) = aperture.open(device) {
            self.report(inner, || {
                pr_err!(
                    "{}: no session: the driver of the bridge refuses the aperture: {:?}; if its windows have changed, unbind and bind the driver\n",
                    &*self.name,
                    error
                )
            });
            return false;
        }
        self.say_hello(inner, device, nonce, echo).is_ok()
    }

    fn say_hello(&self, inner: &mut Inner, device: &NtbDevice, nonce: u32, echo: u32) -> Result {
        let (Some(aperture), Some(block)) = (&inner.aperture, &inner.block) else {
            return Err(EINVAL);
        };
        let hello = Hello {
            nonce,
            echo,
            node: self.node,
            page_shift: PAGE_SHIFT as u8,
            generation: self.context.sink.generation(),
            control: block.bus_address(),
            aperture_base: aperture.base,
            aperture_len: aperture.len,
            mode: aperture.behind.mode().number(),
            windows: aperture.windows.bits(),
        };
        inner.mailbox.write(device, self.now(), &hello)
    }
}
