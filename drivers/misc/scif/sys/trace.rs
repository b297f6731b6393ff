// SPDX-License-Identifier: GPL-2.0

//! Tracepoints: what `trace-cmd`, `perf` and BPF can be told of.
//!
//! The events are defined in `trace.h`, and what they are told in `trace_fields.h`. An event that
//! nobody has switched on costs a branch that is patched into the code: what it would be told is not
//! even put together. Any context.
//!
//! [`kernel::tracepoint::declare_trace`] only knows tracepoints of the kernel's own bindings; these are
//! in those of the module.
//!
//! C header: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h)

use core::{
    borrow::Borrow,
    marker::PhantomData, //
};

use kernel::prelude::*;

use super::bindings as own;

pub(crate) use own::{
    scif_trace_connection as Connection,
    scif_trace_fence as Fence,
    scif_trace_message as Message,
    scif_trace_rma as Transfer,
    scif_trace_rma_end as TransferEnd,
    scif_trace_signal as Signal,
    scif_trace_signal_end as SignalEnd,
    scif_trace_window as Window, //
};

/// A peer, and the way to it.
///
/// # Invariants
///
/// The texts of `raw` live for `'a`.
pub(crate) struct Link<'a> {
    raw: own::scif_trace_link,
    _texts: PhantomData<&'a str>,
}

impl<'a> Link<'a> {
    /// `link` is the transport's name of the way; empty where only the node is known. `said` is how
    /// the peer's memory is reached, or why it is gone.
    pub(crate) fn new(link: &'a CStr, node: u16, generation: u64, said: &'a str) -> Self {
        let link = link.to_bytes();
        // INVARIANT: Both live for `'a`.
        Self {
            raw: own::scif_trace_link {
                link: link.as_ptr().cast(),
                link_len: link.len(),
                node,
                generation,
                said: said.as_ptr().cast(),
                said_len: said.len(),
            },
            _texts: PhantomData,
        }
    }
}

impl Borrow<own::scif_trace_link> for Link<'_> {
    fn borrow(&self) -> &own::scif_trace_link {
        &self.raw
    }
}

/// What the `result` of an event says.
pub(crate) fn errno<T>(result: &Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.to_errno(),
    }
}

/// Makes a function for each tracepoint, which takes a closure that says what the event is told; it
/// runs if somebody wants to know.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident$(<$life:lifetime>)?($fields:ty as $raw:ident) = $tracepoint:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name$(<$life>)?(fields: impl FnOnce() -> $fields) {
            #[cfg(CONFIG_TRACEPOINTS)]
            ::kernel::macros::paste! {
                // SAFETY: The key is that of a tracepoint, which C has defined.
                let is_on = unsafe {
                    ::kernel::jump_label::static_branch_unlikely!(
                        own::[< __tracepoint_ $tracepoint >],
                        ::kernel::bindings::tracepoint,
                        key
                    )
                };
                if is_on {
                    let fields = fields();
                    let raw: &own::$raw = fields.borrow();
                    // SAFETY: What is passed is valid during the call, with the texts that are in it.
                    unsafe { own::[< rust_do_trace_ $tracepoint >](raw) };
                }
            }
            #[cfg(not(CONFIG_TRACEPOINTS))]
            let _ = fields;
        }
    )*};
}

events! {
    /// A connection is asked for.
    connect(Connection as scif_trace_connection) = scif_connect;
    /// The answer has come to whoever has asked.
    connect_done(Connection as scif_trace_connection) = scif_connect_done;
    /// A request was accepted.
    accept(Connection as scif_trace_connection) = scif_accept;
    /// This end is closed.
    close(Connection as scif_trace_connection) = scif_close;
    /// The other end is closed.
    peer_closed(Connection as scif_trace_connection) = scif_peer_closed;
    /// The other end's node is lost.
    lost(Connection as scif_trace_connection) = scif_lost;
    /// A call that sends is over.
    send(Message as scif_trace_message) = scif_send;
    /// A call that receives is over.
    receive(Message as scif_trace_message) = scif_receive;
    /// Memory was registered, or could not be.
    register(Window as scif_trace_window) = scif_register;
    /// Memory was unregistered, or could not be.
    unregister(Window as scif_trace_window) = scif_unregister;
    /// A transfer begins.
    rma_submit(Transfer as scif_trace_rma) = scif_rma_submit;
    /// A transfer has ended.
    rma_complete(TransferEnd as scif_trace_rma_end) = scif_rma_complete;
    /// A mark was asked for.
    fence_mark(Fence as scif_trace_fence) = scif_fence_mark;
    /// Somebody begins to wait for a mark.
    fence_wait(Fence as scif_trace_fence) = scif_fence_wait;
    /// Somebody has waited for a mark.
    fence_wait_done(Fence as scif_trace_fence) = scif_fence_wait_done;
    /// A signal was asked for.
    fence_signal(Signal as scif_trace_signal) = scif_fence_signal;
    /// The transfers before a signal have ended.
    fence_signal_done(SignalEnd as scif_trace_signal_end) = scif_fence_signal_done;
    /// A node is there.
    link_up<'a>(Link<'a> as scif_trace_link) = scif_link_up;
    /// A node is there no more.
    link_down<'a>(Link<'a> as scif_trace_link) = scif_link_down;
    /// A node counts as lost; its link goes down soon.
    node_lost<'a>(Link<'a> as scif_trace_link) = scif_node_lost;
}
