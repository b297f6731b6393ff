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
//! Lock: `members` stands above all other locks of the module, and is held for all of that.

use super::link::NtbLink;
use crate::{
    sys::{
        ntb::{
            Hardware,
            NtbDevice, //
        },
        power::Power,
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
    transport::engine::Engines,
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    time::Delta,
};

/// How long transfers may go on when the links are to rest.
const TRANSFERS_MILLISECONDS: u32 = 300;

/// How long to wait for peers to let go.
const FAREWELL_MILLISECONDS: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Nobody wakes it: for short sleeps.
    #[pin]
    sleep: WaitQueue,
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
                sleep <- new_wait_queue!("scif::Roster::sleep"),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes a link, which comes up now, or later if all rest. May sleep.
    pub(super) fn add(&self, link: &Arc<NtbLink>) -> Result {
        let mut members = self.members.lock();
        members.list.reserve(1, GFP_KERNEL)?;
        let device = match members.state {
            State::Awake => {
                link.open()?;
                None
            }
            State::Asleep | State::Over => link.leave(),
        };
        let link = link.clone();
        Ok(members.list.push(Member { link, device }, GFP_KERNEL)?)
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
        self.wait(FAREWELL_MILLISECONDS, || !link.waits_for_farewell());
        device
    }

    /// Waits until `is_done` says so, for a while.
    fn wait(&self, milliseconds: u32, is_done: impl Fn() -> bool) {
        for _ in 0..milliseconds / 10 {
            if is_done() {
                return;
            }
            let _ = self
                .sleep
                .wait_uninterruptible_timeout(Delta::from_millis(10), || None::<()>);
        }
    }

    /// Has all links rest. May sleep.
    fn rest(&self, members: &mut Members) {
        let list = &mut members.list;
        for member in list.iter_mut().filter(|member| member.device.is_none()) {
            member.device = member.link.leave();
        }
        self.wait(TRANSFERS_MILLISECONDS, || {
            list.iter().all(|member| member.link.has_ended())
        });
        // Ends what is still under way.
        self.engines.give_back();
        for member in &*list {
            member.link.flush_steps();
        }
        self.wait(FAREWELL_MILLISECONDS, || {
            list.iter().all(|member| !member.link.waits_for_farewell())
        });
        for member in &*list {
            if let Some(device) = &member.device {
                member.link.withdraw(device);
            }
            member.link.release_unreachable();
        }
    }
}

impl Power for Roster {
    fn sleeps(&self) {
        let mut members = self.members.lock();
        if members.state == State::Awake {
            members.state = State::Asleep;
            pr_info!("all links are taken down: this machine goes to sleep\n");
            self.rest(&mut members);
        }
    }

    fn woke(&self, was_off: bool) {
        let mut hardware: KVec<Hardware> = KVec::new();
        let mut members = self.members.lock();
        if members.state != State::Asleep {
            return;
        }
        members.state = State::Awake;
        self.engines.ask_again();
        for Member { link, device } in &mut members.list {
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
            if let Err(error) = hardware.rebind() {
                pr_err!(
                    "the driver of a bridge was not bound anew after sleep: {:?}\n",
                    error
                );
            }
        }
    }

    fn ends(&self) {
        let mut members = self.members.lock();
        let was_awake = members.state == State::Awake;
        members.state = State::Over;
        if was_awake {
            pr_info!("all links are taken down: this machine reboots or stops\n");
            self.rest(&mut members);
        }
    }
}
