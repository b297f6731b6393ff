// SPDX-License-Identifier: GPL-2.0

//! The links of all devices, and whether they may be up.
//!
//! A link *rests* when its session was ended in order, as when its device is removed: the peer has been
//! told, nothing that belongs to the session is in use, the windows are closed. The device is kept here
//! then, so that the link finds none, and begins anew when it gets it back. All links rest while the
//! machine sleeps, because no device works then, and from a reboot on: whatever runs on this machine
//! next must not be written to.
//!
//! Where devices have been without power the drivers of bridges know nothing of it: they have no
//! callbacks for that. So the driver is bound anew then, and the link goes and another one comes.
//!
//! # Bounds
//!
//! Transfers have [`TRANSFERS_MILLISECONDS`] to end before engines are stopped, and all peers together
//! [`FAREWELL_MILLISECONDS`] to answer.
//!
//! # How a link is taken down
//!
//! [`NtbLink::leave`] has the link find no device, upon which it ends the session that there is, as work;
//! [`NtbLink::withdraw`] follows when the peer has had time to let go.
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

/// How long transfers may go on when the links are to rest.
const TRANSFERS_MILLISECONDS: u32 = 300;

/// How long to wait for peers to let go.
const FAREWELL_MILLISECONDS: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Awake,
    Asleep,
    /// The machine comes to its end.
    Over,
}

struct Member {
    link: Arc<NtbLink>,
    /// While it rests.
    device: Option<Arc<NtbDevice>>,
    _listed: Listed<dyn Link>,
}

struct Members {
    state: State,
    list: KVec<Member>,
}

/// See the head of this file.
#[pin_data]
pub(super) struct Roster {
    engines: Arc<Engines>,
    #[pin]
    members: Mutex<Members>,
}

impl Roster {
    /// Without links, which may be up. May sleep.
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

    /// Takes a link, which comes up now, or later if all rest. May sleep.
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

    /// Ends a link for good, and waits for its peer to let go. Returns its device. May sleep.
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

    /// Has all links rest. May sleep.
    fn rest(&self, members: &mut Members) {
        let list = &mut members.list;
        for member in list.iter_mut().filter(|member| member.device.is_none()) {
            member.device = member.link.leave();
        }
        wait(TRANSFERS_MILLISECONDS, || {
            list.iter().all(|member| member.link.has_ended())
        });
        // Ends what is still under way.
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

    /// Tells what the kernel has told. May sleep.
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

    /// Has the links come up again. Where devices `was_off`, their drivers begin anew.
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
            // Its link keeps the device: it goes with it.
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
                    "the driver of a bridge was not bound anew after sleep: {:?}\n",
                    error
                );
            }
        }
    }
}

/// Waits until `is_done` says so, for a while.
fn wait(milliseconds: u32, is_done: impl Fn() -> bool) {
    for _ in 0..milliseconds / 10 {
        if is_done() {
            return;
        }
        fsleep(Delta::from_millis(10));
    }
}

impl NtbLink {
    /// Lets the link come up. May sleep.
    pub(super) fn open(self: &Arc<Self>) -> Result {
        let device = self.device().ok_or(ENODEV)?;
        self.prepare(&device)?;
        self.listen(&device)
    }

    /// Has the device as one that no session uses.
    fn prepare(&self, device: &NtbDevice) -> Result {
        let own = self.register.own_bits();
        // A driver before this one, or the hardware by itself, may have left some open.
        close_windows(device);
        device.db_set_mask(device.db_valid_mask())?;
        device.db_clear(own)?;
        device.db_clear_mask(own)?;
        self.inner.lock().mailbox.open(device)
    }

    /// Begins to talk to the peer, by a device that the link finds.
    fn listen(self: &Arc<Self>, device: &NtbDevice) -> Result {
        match device.link_enable() {
            Ok(()) => (),
            // The secondary side of AMD's can only wait for the other one.
            Err(EINVAL) if device.port_number() == Ok(1) => (),
            Err(error) => return Err(error),
        }
        *self.timer.lock() = Some(PeriodicTimer::start(self.clone())?);
        Self::schedule(self.as_arc_borrow());
        Ok(())
    }

    /// Gives it the device back with which it rested, and lets it come up. May sleep.
    pub(super) fn resume(self: &Arc<Self>, device: Arc<NtbDevice>) {
        // First: as soon as the link finds the device, an event may begin a session.
        let prepared = self.prepare(&device);
        let none = self.device.lock().replace(device.clone());
        drop(none);
        if let Err(error) = prepared.and_then(|()| self.listen(&device)) {
            pr_err!(
                "{}: it does not come up after sleep: {:?}; unbind and bind the driver of the device\n",
                &*self.name,
                error
            );
        }
    }

    /// Has the link find no device, so that it ends what there is; returns the device. May sleep.
    pub(super) fn leave(self: &Arc<Self>) -> Option<Arc<NtbDevice>> {
        let timer = self.timer.lock().take();
        drop(timer);
        let device = self.device.lock().take();
        if let Some(device) = &device {
            // The link clears no doorbell from here on: one that rings must not interrupt again and again.
            let _ = device.db_set_mask(self.register.own_bits());
            let _ = device.msg_set_mask(device.msg_inbits());
        }
        Self::schedule(self.as_arc_borrow());
        device
    }

    /// Takes back what the peer was given, by a device that the link does not find any more. May sleep.
    pub(super) fn withdraw(&self, device: &NtbDevice) {
        self.inner.lock().mailbox.close(device);
        let _ = device.db_set_mask(self.register.own_bits());
        close_windows(device);
        let _ = device.link_disable();
    }
}

/// Lets the peer in nowhere, and this side into the peer, as far as that is for this side.
fn close_windows(device: &NtbDevice) {
    if let Ok(count) = device.mw_count() {
        for window in 0..count {
            let _ = device.clear_translation(window);
        }
    }
    OutboundWindow::close_all(device);
}
