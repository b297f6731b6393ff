// SPDX-License-Identifier: GPL-2.0

//! Tracepoints for `trace-cmd`, `perf` and BPF.
//!
//! `trace.h` defines the events, and `trace_fields.h` their arguments. While an event is disabled,
//! it costs one branch that is patched into the code: its arguments are not even computed.
//!
//! [`kernel::tracepoint::declare_trace`] only knows tracepoints in the kernel's own bindings. These
//! are in the bindings of the module.
//! Context: any.
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

/// A peer and the link to it.
///
/// # Invariants
///
/// The texts of `raw` live for `'a`.
pub(crate) struct Link<'a> {
    raw: own::scif_trace_link,
    _texts: PhantomData<&'a str>,
}

impl<'a> Link<'a> {
    /// Describes a peer. `link` is the transport's name of the link; it is empty where only the
    /// node is known. `said` is how the peer's memory is reached, or why the peer is gone.
    pub(crate) fn new(link: &'a CStr, node: u16, generation: u64, said: &'a str) -> Self {
        let link = link.to_bytes();
        // INVARIANT: Both texts live for `'a`.
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

/// Returns the `result` of an event: 0 or a negative error number.
pub(crate) fn errno<T>(result: &Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.to_errno(),
    }
}

/// Defines a function for each tracepoint. It takes a closure that computes the arguments, which
/// runs only if the event is enabled.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident$(<$life:lifetime>)?($fields:ty as $raw:ident) = $tracepoint:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name$(<$life>)?(fields: impl FnOnce() -> $fields) {
            #[cfg(CONFIG_TRACEPOINTS)]
            ::kernel::macros::paste! {
                // SAFETY: The key belongs to a tracepoint that C has defined.
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
                    // SAFETY: The arguments, with the texts in them, are valid during the call.
                    unsafe { own::[< rust_do_trace_ $tracepoint >](raw) };
                }
            }
            #[cfg(not(CONFIG_TRACEPOINTS))]
            let _ = fields;
        }
    )*};
}

events! {
    /// Traces the request for a connection.
    connect(Connection as scif_trace_connection) = scif_connect;
    /// Traces the arrival of the answer at the requester.
    connect_done(Connection as scif_trace_connection) = scif_connect_done;
    /// Traces the acceptance of a request.
    accept(Connection as scif_trace_connection) = scif_accept;
    /// Traces the close of this end.
    close(Connection as scif_trace_connection) = scif_close;
    /// Traces the close of the other end.
    peer_closed(Connection as scif_trace_connection) = scif_peer_closed;
    /// Traces the loss of the other end's node.
    lost(Connection as scif_trace_connection) = scif_lost;
    /// Traces the end of a call that sends.
    send(Message as scif_trace_message) = scif_send;
    /// Traces the end of a call that receives.
    receive(Message as scif_trace_message) = scif_receive;
    /// Traces a registration of memory, also if it failed.
    register(Window as scif_trace_window) = scif_register;
    /// Traces an unregistration of memory, also if it failed.
    unregister(Window as scif_trace_window) = scif_unregister;
    /// Traces the begin of a transfer.
    rma_submit(Transfer as scif_trace_rma) = scif_rma_submit;
    /// Traces the completion of a transfer.
    rma_complete(TransferEnd as scif_trace_rma_end) = scif_rma_complete;
    /// Traces the request for a mark.
    fence_mark(Fence as scif_trace_fence) = scif_fence_mark;
    /// Traces the begin of a wait for a mark.
    fence_wait(Fence as scif_trace_fence) = scif_fence_wait;
    /// Traces the end of a wait for a mark.
    fence_wait_done(Fence as scif_trace_fence) = scif_fence_wait_done;
    /// Traces the request for a signal.
    fence_signal(Signal as scif_trace_signal) = scif_fence_signal;
    /// Traces the completion of the transfers before a signal.
    fence_signal_done(SignalEnd as scif_trace_signal_end) = scif_fence_signal_done;
    /// Traces the arrival of a node.
    link_up<'a>(Link<'a> as scif_trace_link) = scif_link_up;
    /// Traces the end of a node's session.
    link_down<'a>(Link<'a> as scif_trace_link) = scif_link_down;
    /// Traces the loss of a node, whose link goes down soon.
    node_lost<'a>(Link<'a> as scif_trace_link) = scif_node_lost;
}
