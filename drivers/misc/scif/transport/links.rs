// SPDX-License-Identifier: GPL-2.0

//! The links that there are, for people: also those on which nobody answers.
//!
//! Lock: `list` is a leaf; links are asked without it.

use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    },
};

/// What there is to see of a link.
pub(crate) struct Facts {
    /// As in [`Introduction`](super::sink::Introduction).
    pub(crate) name: CString,
    /// `down`, `offering`, `up`; or `changing`, which may take a while.
    pub(crate) state: &'static str,
    /// What is there while it is up.
    pub(crate) up: Option<Up>,
    /// What the peer is offered, or has.
    pub(crate) own: Option<Own>,
    /// The doorbells of this side, as bits.
    pub(crate) doorbells: u64,
}

/// What there is to see of a link with a peer.
#[derive(Clone, Copy)]
pub(crate) struct Up {
    /// None if it is this node itself.
    pub(crate) node: Option<u16>,
    /// How its memory is reached, in a word for users.
    pub(crate) mode: &'static str,
    /// Bytes of it that can be reached.
    pub(crate) aperture: u64,
    /// Engines that copy.
    pub(crate) engines: usize,
}

/// What there is to see of the aperture over this node's memory.
#[derive(Clone, Copy)]
pub(crate) struct Own {
    /// How it leads there, in a word for users.
    pub(crate) mode: &'static str,
    /// Bytes of it.
    pub(crate) aperture: u64,
    /// Of these, how many registered memory has, and how many rings have; none where nothing has to be
    /// given a place.
    pub(crate) taken: Option<(u64, u64)>,
    /// Whether the peer reaches what is given to it and nothing else.
    pub(crate) is_guarded: bool,
    /// Why it is in this mode.
    pub(crate) reason: &'static str,
}

/// A link, as it is listed.
pub(crate) trait Link: Send + Sync {
    /// What there is to see. May sleep, but waits for nobody.
    fn look(&self) -> Result<Facts>;
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Links {
    #[pin]
    list: Mutex<KVec<Arc<dyn Link>>>,
}

impl Links {
    /// None yet. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new(), "Links::list"),
            }),
            GFP_KERNEL,
        )
    }

    /// Lists one. May sleep.
    pub(super) fn add(&self, link: Arc<dyn Link>) -> Result {
        Ok(self.list.lock().push(link, GFP_KERNEL)?)
    }

    /// Takes one off the list. May sleep.
    pub(super) fn remove<T: Link>(&self, link: &Arc<T>) {
        let is_other =
            |other: &mut Arc<_>| !core::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(link));
        // The caller has a reference, so the last one does not go with the lock held.
        self.list.lock().retain(is_other);
    }

    /// Calls `f` with what there is to see of each. May sleep.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Facts)) {
        for index in 0.. {
            let link = self.list.lock().get(index).cloned();
            let Some(link) = link else { return };
            if let Ok(facts) = link.look() {
                f(&facts);
            }
        }
    }
}
