// SPDX-License-Identifier: GPL-2.0

//! The links of all devices, and whether they may be up.
//!
//! A link *rests* after its session was ended in order, as when its device is removed: the peer has
//! been told, no thread uses anything of the session, and the windows are closed. The roster then
//! keeps the device, so the link finds none. The link starts over when it gets the device back. All
//! links rest while the machine sleeps, because no device works then. They also rest from a reboot
//! on: the peer must not write to the memory of the next system.
//!
//! If a device was without power, its bridge driver does not know, as it has no callbacks for that.
//! So the driver is unbound and bound again, and a new link replaces the old one.
//!
//! # Bounds
//!
//! Transfers have [`TRANSFERS_MILLISECONDS`] to complete before engines are stopped. All peers
//! together have [`FAREWELL_MILLISECONDS`] to answer.
//!
//! # How a link is taken down
//!
//! [`NtbLink::leave`] takes the device away from the link. The link's work then ends the session.
//! When the peer has had time to release memory, [`NtbLink::withdraw`] follows.
//!
//! Lock: `members` stands above all other locks of the module, and is held for all of that.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

use super::{
    link::NtbLink,
    path::OutboundWindow, //
};
use crate::{
    sync::list::Listed,
    sys::{
        notifiers::Event,
        ntb::{
            rebind,
            NtbDevice, //
        },
        timer::PeriodicTimer, //
    },
    transport::{
        engine::Engines,
        links::Link, //
    },
};

/// Maximum time for transfers in flight when the links are to rest.
const TRANSFERS_MILLISECONDS: u32 = 300;

/// Maximum time for peers to release memory and say farewell.
const FAREWELL_MILLISECONDS: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Awake,
    Asleep,
    /// The machine reboots or stops.
    Over,
}

struct Member {
    link: Arc<NtbLink>,
    /// The device, while the link rests.
    device: Option<Arc<NtbDevice>>,
    _listed: Listed<dyn Link>,
}

struct Members {
    state: State,
    list: KVec<Member>,
}

/// The links of all devices, and their common state.
#[pin_data]
pub(super) struct Roster {
    engines: Arc<Engines>,
    #[pin]
    members: Mutex<Members>,
}

impl Roster {
    /// Creates a roster without links. Its links may be up.
    /// Context: may sleep.
    pub(super) fn new(engines: &Arc<Engines>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                engines: engines.clone(),
                members <- new_mutex!(
                    Members {
                        state: State::Awake,
                        list: KVec::new(),
                    },
                    "Roster::members"
                ),
            }),
            GFP_KERNEL,
        )
    }

    /// Adds a link, which comes up now, or later if all links rest.
    /// Context: may sleep.
    pub(super) fn add(&self, link: &Arc<NtbLink>) -> Result {
        let mut members = self.members.lock();
        members.list.reserve(1, GFP_KERNEL)?;
        let shown: Arc<dyn Link> = link.clone();
        let listed = link.context.links.add(&shown)?;
        let device = match members.state {
            State::Awake => {
                link.open()?;
                None
            }
            State::Asleep | State::Over => link.leave(),
        };
        let member = Member {
            link: link.clone(),
            device,
            _listed: listed,
        };
        Ok(members.list.push(member, GFP_KERNEL)?)
    }

    /// Ends a link for good, and waits for its peer's farewell. Returns the device.
    /// Context: may sleep.
    pub(super) fn remove(&self, link: &Arc<NtbLink>) -> Option<Arc<NtbDevice>> {
        let mut members = self.members.lock();
        let list = &mut members.list;
        let position = list
            .iter()
            .position(|member| Arc::ptr_eq(&member.link, link));
        let member = position.and_then(|position| list.remove(position).ok());
        if let Some(device) = member.and_then(|member| member.device) {
            return Some(device);
        }
        let device = link.leave();
        link.flush_steps();
        wait(FAREWELL_MILLISECONDS, || !link.waits_for_farewell());
        device
    }

    /// Makes all links rest.
    /// Context: may sleep.
    fn rest(&self, members: &mut Members) {
        let list = &mut members.list;
        for member in list.iter_mut().filter(|member| member.device.is_none()) {
            member.device = member.link.leave();
        }
        wait(TRANSFERS_MILLISECONDS, || {
            list.iter().all(|member| member.link.has_ended())
        });
        // Fails the transfers that are still in flight.
        self.engines.give_back();
        for member in &*list {
            member.link.flush_steps();
        }
        wait(FAREWELL_MILLISECONDS, || {
            list.iter().all(|member| !member.link.waits_for_farewell())
        });
        for member in &*list {
            if let Some(device) = &member.device {
                member.link.withdraw(device);
            }
            member.link.release_unreachable();
        }
    }

    /// Handles an event of the system.
    /// Context: may sleep.
    pub(super) fn told(&self, event: Event<'_>) {
        match event {
            Event::Sleeps => self.rest_as(State::Asleep, "this machine goes to sleep"),
            Event::Woke { was_off } => self.wake(was_off),
            Event::Ends => self.rest_as(State::Over, "this machine reboots or stops"),
            Event::ModuleGone { .. } | Event::Unbinds => (),
        }
    }

    fn rest_as(&self, state: State, reason: &str) {
        let mut members = self.members.lock();
        let was_awake = members.state == State::Awake;
        members.state = members.state.max(state);
        if was_awake {
            pr_info!("all links are taken down: {}\n", reason);
            self.rest(&mut members);
        }
    }

    /// Lets the links come up again. If devices `was_off`, their drivers are bound again instead.
    fn wake(&self, was_off: bool) {
        let mut hardware = KVec::new();
        let mut members = self.members.lock();
        if members.state != State::Asleep {
            return;
        }
        members.state = State::Awake;
        self.engines.ask_again();
        for Member { link, device, .. } in &mut members.list {
            let Some(resting) = &*device else { continue };
            // The device stays with its member: the rebind below removes the link, and takes the
            // device from there.
            if was_off && hardware.push(resting.hardware(), GFP_KERNEL).is_ok() {
                continue;
            }
            if let Some(device) = device.take() {
                link.resume(device);
            }
        }
        drop(members);
        for hardware in &hardware {
            if let Err(error) = rebind(hardware) {
                pr_err!(
                    "binding the driver of a bridge again after sleep has failed: {:?}; unbind and bind that driver\n",
                    error
                );
            }
        }
    }
}

/// Waits until `is_done` returns true, or the time is over.
fn wait(milliseconds: u32, is_done: impl Fn() -> bool) {
    for _ in 0..milliseconds / 10 {
        if is_done() {
            return;
        }
        fsleep(Delta::from_millis(10));
    }
}

impl NtbLink {
    /// Lets the link come up.
    /// Context: may sleep.
    pub(super) fn open(self: &Arc<Self>) -> Result {
        let device = self.device().ok_or(ENODEV)?;
        self.prepare(&device)?;
        self.listen(&device)
    }

    /// Prepares the device for a new session.
    fn prepare(&self, device: &NtbDevice) -> Result {
        let own = self.register.own_bits();
        // An earlier driver, or the hardware by itself, may have left windows open.
        close_windows(device);
        device.db_set_mask(device.db_valid_mask())?;
        device.db_clear(own)?;
        device.db_clear_mask(own)?;
        self.inner.lock().mailbox.open(device)
    }

    /// Enables the link, and starts to exchange hellos. `self.device` is set.
    fn listen(self: &Arc<Self>, device: &NtbDevice) -> Result {
        match device.link_enable() {
            Ok(()) => (),
            // The secondary side of AMD's bridge can't enable the link; it waits for the other
            // side.
            Err(EINVAL) if device.port_number() == Ok(1) => (),
            Err(error) => return Err(error),
        }
        *self.timer.lock() = Some(PeriodicTimer::start(self.clone())?);
        Self::schedule(self.as_arc_borrow());
        Ok(())
    }

    /// Gives a resting link its device back, and lets it come up.
    /// Context: may sleep.
    pub(super) fn resume(self: &Arc<Self>, device: Arc<NtbDevice>) {
        // Prepares the device first: as soon as the link finds it, an event may begin a session.
        let prepared = self.prepare(&device);
        let none = self.device.lock().replace(device.clone());
        drop(none);
        if let Err(error) = prepared.and_then(|()| self.listen(&device)) {
            pr_err!(
                "{}: the link does not come up after sleep: {:?}; unbind and bind the driver of the bridge\n",
                &*self.name,
                error
            );
        }
    }

    /// Takes the device away from the link, which then ends its session. Returns the device.
    /// Context: may sleep.
    pub(super) fn leave(self: &Arc<Self>) -> Option<Arc<NtbDevice>> {
        let timer = self.timer.lock().take();
        drop(timer);
        let device = self.device.lock().take();
        if let Some(device) = &device {
            // The link clears no doorbell from here on, so a doorbell that rings must not interrupt
            // again and again.
            let _ = device.db_set_mask(self.register.own_bits());
            let _ = device.msg_set_mask(device.msg_inbits());
        }
        Self::schedule(self.as_arc_borrow());
        device
    }

    /// Takes back all that the peer was given. `device` has been taken away from the link before.
    /// Context: may sleep.
    pub(super) fn withdraw(&self, device: &NtbDevice) {
        self.inner.lock().mailbox.close(device);
        let _ = device.db_set_mask(self.register.own_bits());
        close_windows(device);
        let _ = device.link_disable();
    }
}

/// Closes the windows in both directions, as far as this side controls them.
fn close_windows(device: &NtbDevice) {
    if let Ok(count) = device.mw_count() {
        for window in 0..count {
            let _ = device.clear_translation(window);
        }
    }
    OutboundWindow::close_all(device);
}
