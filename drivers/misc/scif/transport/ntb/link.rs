// SPDX-License-Identifier: GPL-2.0

//! The link to the node behind one NTB device.
//!
//! What happens next is decided by a state machine, `logic/handshake.rs`, from what there is to see;
//! what it decides is done here, in one place, [`NtbLink::step`], which runs as work. Events only
//! schedule it. What begins and ends a session is in `sessions.rs`.
//!
//! The states are those of the machine: *down*; *offering*, with a control block and our hello, with
//! a fresh nonce, in the mailbox; *up*, with a session.
//!
//! Lock order: `inner`, then anything in the session; `device` and `current` are taken in
//! interrupts, `current` before everything in the session that is.

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

/// What a look at the state of the world may lead to at once: more than from the end of one session
/// to the next.
const MAX_ACTIONS: usize = 8;

/// See the head of this file.
#[pin_data]
pub(super) struct NtbLink {
    pub(super) context: Context,
    /// The roster that it is on.
    pub(super) roster: Arc<Roster>,
    /// Of the device.
    pub(super) name: CString,
    log: LogBudget,
    node: u16,
    /// The doorbells of the device.
    pub(super) register: DoorbellRegister,
    /// None while the link rests, and once the device is being removed.
    #[pin]
    pub(super) device: SpinLockIrq<Option<Arc<NtbDevice>>>,
    #[pin]
    pub(super) inner: Mutex<Inner>,
    /// The session that there is, for interrupts.
    #[pin]
    pub(super) current: SpinLockIrq<Option<Arc<dyn Session>>>,
    #[pin]
    pub(super) timer: Mutex<Option<Running<NtbLink>>>,
    /// What keeps the peer to what it is given.
    pub(super) guard: Guard,
    /// How often the link was seen to be down. Counted in the event itself: a link that is up again before the work
    /// has its turn has lost what crossed it.
    downs: Atomic<u32>,
    /// Doorbells were masked, as they did not stop to ring.
    pub(super) masked: Atomic<bool>,
    /// How often the timer has ticked.
    pub(super) ticks: Atomic<u32>,
    /// The mailbox has to be looked at after a while.
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
    /// The link of a device, which is down. May sleep.
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
        let device = Arc::new(device, GFP_KERNEL)?;
        let handshake = Handshake::new(PAGE_SHIFT as u8, node);
        Arc::pin_init(
            pin_init!(Self {
                context,
                roster,
                name,
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

    /// Whether the peer may reach memory that was taken back.
    fn is_exposed(&self) -> bool {
        self.guard == Guard::None
    }

    /// The device; none while the link rests, and once the device is being removed.
    pub(super) fn device(&self) -> Option<Arc<NtbDevice>> {
        self.device.lock().clone()
    }

    /// Whether something may be said in the log that the peer has caused. Any context.
    pub(super) fn may_log(&self) -> bool {
        self.log.admits(&self.name)
    }

    /// Says why there is no session, once, until there is one or the link was down.
    pub(super) fn report(&self, inner: &mut Inner, say: impl FnOnce()) {
        if !core::mem::replace(&mut inner.reported, true) && self.may_log() {
            say();
        }
    }

    /// Runs [`Self::step`] soon. Any context.
    pub(super) fn schedule(this: ArcBorrow<'_, Self>) {
        // An error says that it is pending already.
        let _ = this.context.queues.link.enqueue(Arc::from(this));
    }

    /// Has been scheduled for the last time: looks once more, and returns when all is done.
    pub(super) fn flush_steps(self: &Arc<Self>) {
        self.context.queues.link.flush();
        self.step();
    }

    /// Whether there is no session any more, and nobody is ending one. Waits for nobody.
    pub(super) fn has_ended(&self) -> bool {
        self.inner
            .try_lock()
            .is_some_and(|inner| inner.up.is_none())
    }

    /// Whether there is a session to which the peer has not said farewell.
    pub(super) fn waits_for_farewell(&self) -> bool {
        self.inner.lock().grace.waits_for_farewell()
    }

    /// Lets go of what the peer could still have written to, once its windows are closed, if that keeps it
    /// out. May sleep.
    pub(super) fn release_unreachable(&self) {
        if !self.is_exposed() {
            self.inner.lock().grace.release();
        }
    }

    /// Lets go of all that the peer could still have written to. May sleep.
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
        // Their items wait for no peer.
        self.context.queues.work.flush();
        self.context.queues.control.flush();
        let aperture = self.inner.lock().aperture.take();
        if abandoned {
            pr_warn!(
                "{}: its peer was not heard to have let go, and nothing keeps it out: the memory that it may still write to is lost\n",
                &*self.name
            );
            core::mem::forget(aperture);
        } else if let Some(aperture) = aperture {
            aperture.behind.close();
        }
    }

    /// Looks at the state of the world and does what has to be done. Link work only.
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
        // Others want the queue, too: a peer that changes its mind all the time must not have it all.
        Self::schedule(self.as_arc_borrow());
    }

    /// Lifts the mask from doorbells that did not stop to ring; what has rung since then interrupts now.
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

    /// Engines may have come since the session began.
    fn look_for_engines(&self, inner: &Inner) {
        if let Some(up) = inner
            .up
            .as_ref()
            .filter(|_| self.context.engines.are_missing())
        {
            up.path.add_engines(&self.context.engines, &self.name);
        }
    }

    /// How often the link was seen to be down. Any context.
    pub(super) fn downs(&self) -> u32 {
        self.downs.load(Acquire)
    }

    /// The link has changed: if it is down now, that is noted, and nobody begins to use the session's path any more. Any
    /// context.
    pub(super) fn note_change(&self) {
        let device = self.device.lock();
        if device.as_ref().is_none_or(|device| device.link_is_up()) {
            return;
        }
        drop(device);
        self.note_down();
    }

    /// The link is down. Any context.
    pub(super) fn note_down(&self) {
        self.downs.fetch_add(1, Full);
        if let Some(session) = &*self.current.lock() {
            session.going();
        }
    }

    fn look(&self, inner: &mut Inner, device: Option<&NtbDevice>) -> Seen {
        let is_up = device.is_some_and(|device| device.link_is_up());
        // A link that rests is not down: there is a farewell, unless `NtbPath::is_down` finds otherwise.
        if device.is_some() && !is_up {
            self.downs.fetch_add(1, Full);
        }
        let downs = self.downs();
        // Also a link that has come up again was down.
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

    /// In ticks.
    fn now(&self) -> u32 {
        self.ticks.load(Relaxed)
    }

    // ----- the handshake: each returns whether it was done ------------------------------------------

    /// Chooses an aperture and says hello, to nobody in particular.
    fn offer(&self, inner: &mut Inner, device: Option<&NtbDevice>, nonce: u32) -> bool {
        let Some(device) = device else { return false };
        if inner.grace.make_room().is_err() {
            self.report(inner, || {
                pr_err!(
                    "{}: no room to keep what the peer may still write to; unbind and bind the driver of the device\n",
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
            let block = aperture.behind.share(len, Payer::Nobody);
            inner.aperture = Some(aperture);
            let block = block?.with_fate(Some(Fate::new()?));
            inner.block = Some(Arc::new(block, GFP_KERNEL).map_err(Error::from)?);
            Ok(self.say_hello(inner, device, nonce, 0)?)
        });
        match offered {
            Ok(()) => true,
            // The link went down again meanwhile, which will be announced as well.
            Err(_) if !device.link_is_up() => false,
            Err(Unsuitable::Device(ENOTCONN)) => false,
            Err(reason) => {
                inner.make_room();
                self.report(inner, || pr_err!("{}: {}\n", &*self.name, reason));
                false
            }
        }
    }

    /// Opens the aperture for a peer and tells it that we have seen it.
    fn echo(&self, inner: &mut Inner, device: Option<&NtbDevice>, nonce: u32, echo: u32) -> bool {
        let (Some(device), Some(aperture), Some(_)) = (device, &mut inner.aperture, &inner.block)
        else {
            return false;
        };
        // A peer with another nonce has let go of whatever was before.
        inner.grace.release_others(echo);
        if let Err(error) = aperture.open(device) {
            self.report(inner, || {
                pr_err!(
                    "{}: the device does not take the aperture: {:?}; if its windows have changed, unbind and bind its driver\n",
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
