// SPDX-License-Identifier: GPL-2.0

//! Tests of connections, from the request to the close.

use super::{
    bed::{
        hears,
        receive,
        Bed,
        Pair,
        NODE, //
    },
    waiting::{
        Call,
        Waiting, //
    },
};
use crate::{
    arguments::PortId,
    endpoint::Endpoint,
    names::Name,
    peer::tests::toy::Holding,
    sys::{
        chardev::poll_events,
        tests::become_process, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

#[kunit_tests(scif_endpoint_connections)]
mod cases {
    use super::*;

    #[test]
    fn connected_endpoints_know_each_others_port_ids() -> Result {
        let bed = Bed::new()?;
        let (listener, to) = bed.listen(1)?;
        assert_eq!(listener.poll_state(), 0);
        let near = bed.request(to)?;
        let (from, far) = listener.accept_endpoint(true)?;
        let ports = near.connect(to, false)?;
        assert!(ports.own == from.port && from.node == NODE && ports.own != to.port);
        assert_eq!(ports.peer, to.port);
        let (facts, other) = (near.facts(), far.facts());
        assert_eq!((facts.state, other.state), ("connected", "connected"));
        assert!(facts.peer == Some(to) && facts.own_port == Some(from.port));
        assert!(other.peer == Some(from) && other.own_port == Some(to.port));
        assert!(hears(&far, &near)? && hears(&near, &far)?);
        assert_eq!(bed.scif().counts(None).connections, 2);
        drop((listener, near, far));
        bed.end()
    }

    #[test]
    fn refused_endpoint_can_connect_again() -> Result {
        let bed = Bed::new()?;
        let (closed, to) = bed.listen(1)?;
        closed.close();
        let endpoint = bed.open()?;
        assert_eq!(endpoint.connect(to, false), Err(ECONNREFUSED));
        assert_eq!(endpoint.facts().state, "bound");
        let own = endpoint.facts().own_port;
        let (listener, to) = bed.listen(1)?;
        assert_eq!(endpoint.connect(to, true), Err(EINPROGRESS));
        let (from, far) = listener.accept_endpoint(true)?;
        endpoint.connect(to, false)?;
        assert_eq!(Some(from.port), own);
        assert!(hears(&far, &endpoint)?);
        drop((closed, listener, endpoint, far));
        bed.end()
    }

    #[test]
    fn connect_beyond_the_backlog_is_refused() -> Result {
        let bed = Bed::new()?;
        let (listener, to) = bed.listen(2)?;
        let (first, second) = (bed.request(to)?, bed.request(to)?);
        assert_eq!(bed.open()?.connect(to, false), Err(ECONNREFUSED));
        assert_eq!(listener.facts().queued, 2);
        assert!(listener.poll_state() & poll_events::IN != 0);
        // The listener accepts requests in the order in which they came.
        for near in [first, second] {
            let (from, _far) = listener.accept_endpoint(false)?;
            assert_eq!(near.connect(to, false)?.own, from.port);
        }
        assert!(matches!(listener.accept_endpoint(false), Err(EAGAIN)));
        drop(listener);
        bed.end()
    }

    /// Other messages wait for room, and there are more than the ring holds.
    #[test]
    fn nonblocking_connect_does_not_wait_for_room() -> Result {
        const MANY: usize = 300;
        let bed = Bed::new()?;
        let (listener, to) = bed.listen(1)?;
        let holding = Holding::of(&bed.peer()?)?;
        let mut all = KVec::new();
        for _ in 0..MANY {
            all.push(bed.request(to)?, GFP_KERNEL)?;
        }
        // Every endpoint calls a second time, and one gives up.
        let wait = |endpoint: &Arc<Endpoint>| endpoint.connect(to, true) == Err(EINPROGRESS);
        assert!(all.iter().all(wait));
        drop(all.pop());
        drop(holding);
        bed.settle();
        drop(listener.accept_endpoint(false)?);
        let refused = |endpoint: &Arc<Endpoint>| endpoint.connect(to, true) == Err(ECONNREFUSED);
        assert_eq!(
            all.iter().filter(|endpoint| refused(endpoint)).count(),
            MANY - 2
        );
        drop((all, listener));
        bed.end()
    }

    /// The peer is kept from looking the name up.
    #[test]
    fn nonblocking_connect_does_not_wait_for_name_lookup() -> Result {
        let bed = Bed::new()?;
        let (listener, to) = bed.listen(2)?;
        let [name, unbound] = [42, 43].map(|number| Name { class: 7, number });
        listener.bind_name(name.class, Some(name.number))?;
        let (near, lost, gone) = (bed.open()?, bed.open()?, bed.open()?);
        let begin =
            |endpoint: &Endpoint, name| endpoint.connect_name(NODE, name, true) == Err(EINPROGRESS);
        let holding = Holding::of(&bed.peer()?)?;
        for _ in 0..2 {
            assert!(begin(&near, name) && begin(&lost, unbound) && begin(&gone, name));
            assert_eq!((near.poll_state(), lost.poll_state()), (0, 0));
        }
        drop(gone);
        drop(holding);
        bed.settle();
        assert!(lost.poll_state() & poll_events::ERR != 0);
        assert_eq!(lost.connect_name(NODE, unbound, true), Err(ENOENT));
        let (from, far) = listener.accept_endpoint(false)?;
        assert!(matches!(listener.accept_endpoint(false), Err(EAGAIN)));
        bed.settle();
        assert!(near.poll_state() & poll_events::OUT != 0);
        let ports = near.connect_name(NODE, name, true)?;
        assert_eq!((ports.own, ports.peer), (from.port, to.port));
        assert_eq!(near.facts().peer, Some(to));
        assert!(hears(&far, &near)?);
        drop((listener, near, lost, far));
        bed.end()
    }

    #[test]
    fn listener_close_refuses_queued_requests() -> Result {
        let bed = Bed::new()?;
        let (listener, to) = bed.listen(2)?;
        let endpoint = bed.request(to)?;
        bed.settle();
        assert_eq!(listener.facts().queued, 1);
        listener.close();
        assert_eq!(endpoint.connect(to, false), Err(ECONNREFUSED));
        drop((listener, endpoint));
        bed.end()
    }

    #[test]
    fn listener_close_interrupts_blocked_accept() -> Result {
        let bed = Bed::new()?;
        let (listener, _) = bed.listen(1)?;
        let waiting = Waiting::in_call(&listener, Call::Accept)?;
        listener.close();
        assert_eq!(waiting.result(), Err(EINTR));
        drop(listener);
        bed.end()
    }

    #[test]
    fn interrupted_nonblocking_accept_returns_eagain() -> Result {
        let bed = Bed::new()?;
        let (endpoint, _) = bed.listen(1)?;
        let (listener, port) = endpoint.listening()?;
        // Acts as if another thread had closed a descriptor.
        let accept = |block| endpoint.accept_request(&listener, block, || true).map(drop);
        assert_eq!(accept(false), Err(EAGAIN));
        assert_eq!(accept(true), Err(EINTR));
        drop((listener, port, endpoint));
        bed.end()
    }

    #[test]
    fn port_is_free_after_close_despite_request_in_flight() -> Result {
        let bed = Bed::new()?;
        let (listener, to) = bed.listen(1)?;
        // Finds the listener as the control work does that is about to queue a request.
        let found = bed.scif().ports.listener(to.port);
        listener.close();
        let other = bed.open()?;
        assert_eq!(other.bind(to.port), Ok(to.port));
        drop((found, listener, other));
        bed.end()
    }

    #[test]
    fn abandoned_connect_request_is_not_accepted() -> Result {
        let bed = Bed::new()?;
        let (listener, to) = bed.listen(2)?;
        let (first, second) = (bed.request(to)?, bed.request(to)?);
        bed.settle();
        first.close();
        bed.settle();
        assert_eq!(listener.facts().queued, 1);
        let (from, far) = listener.accept_endpoint(false)?;
        assert_eq!(second.connect(to, false)?.own, from.port);
        drop((listener, first, second, far));
        bed.end()
    }

    #[test]
    fn accepted_connection_is_kept_until_taken_over_once() -> Result {
        let bed = Bed::new()?;
        let (listener, to) = bed.listen(2)?;
        let (first, second) = (bed.request(to)?, bed.request(to)?);
        // A kernel thread can't accept in two steps: only a process can take the connection over.
        assert!(matches!(listener.accept(true), Err(EINVAL)));
        become_process()?;
        let (from, handle) = listener.accept(true)?;
        assert_eq!(first.connect(to, false)?.own, from.port);
        let fresh = bed.open()?;
        assert_eq!(fresh.take_over(handle.wrapping_add(1)), Err(EINVAL));
        assert_eq!(listener.take_over(handle), Err(EINVAL));
        fresh.take_over(handle)?;
        assert_eq!(bed.open()?.take_over(handle), Err(EINVAL));
        assert!(hears(&fresh, &first)?);

        let (_, handle) = listener.accept(true)?;
        second.connect(to, false)?;
        drop(listener.take_accepted(handle));
        assert_eq!(bed.open()?.take_over(handle), Err(EINVAL));
        assert_eq!(receive(&second, &mut [0], true), Err(ECONNRESET));
        drop((listener, fresh, first, second));
        bed.end()
    }

    #[test]
    fn call_in_wrong_state_fails_with_documented_error() -> Result {
        let bed = Bed::new()?;
        let (listener, to) = bed.listen(1)?;
        let endpoint = bed.open()?;
        assert_eq!(endpoint.poll_state(), poll_events::ERR);
        assert_eq!(endpoint.listen(1), Err(EINVAL));
        assert!(matches!(endpoint.accept_endpoint(false), Err(EINVAL)));
        assert_eq!(receive(&endpoint, &mut [0], true), Err(ENOTCONN));
        assert_eq!(endpoint.bind(to.port), Err(EINVAL));
        let port = endpoint.bind(0)?;
        assert_eq!(endpoint.bind(port), Err(EINVAL));
        assert_eq!(endpoint.listen(0), Err(EINVAL));
        let nowhere = PortId {
            node: NODE,
            port: 0,
        };
        assert_eq!(endpoint.connect(nowhere, false), Err(EINVAL));
        let missing = PortId { node: 1, ..to };
        assert_eq!(endpoint.connect(missing, false), Err(ENODEV));
        assert_eq!(listener.connect(to, false), Err(EOPNOTSUPP));
        assert_eq!(listener.listen(1), Err(EISCONN));
        let Pair { near, far } = bed.pair()?;
        assert_eq!(near.bind(0), Err(EISCONN));
        assert_eq!(near.listen(1), Err(EISCONN));
        assert_eq!(near.connect(to, false), Err(EISCONN));
        near.close();
        assert_eq!(near.bind(0), Err(EBADF));
        assert_eq!(near.connect(to, false), Err(EBADF));
        assert_eq!(near.poll_state(), poll_events::ERR | poll_events::HUP);
        drop((listener, endpoint, near, far));
        bed.end()
    }

    #[test]
    fn port_stays_taken_until_all_accepted_endpoints_close() -> Result {
        let bed = Bed::new()?;
        let (listener, to) = bed.listen(1)?;
        let near = bed.request(to)?;
        let (_, far) = listener.accept_endpoint(true)?;
        near.connect(to, false)?;
        listener.close();
        let other = bed.open()?;
        assert_eq!(other.bind(to.port), Err(EINVAL));
        far.close();
        assert_eq!(other.bind(to.port), Ok(to.port));
        drop((listener, near, far, other));
        bed.end()
    }

    #[test]
    fn close_with_pending_transfer_gives_up_and_keeps_waiters() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let channel = near.connection()?.channel.clone();
        // Acts as a transfer that the peer does not complete.
        let transfer = channel.begin_owned_use()?;
        near.close();
        assert!(transfer.is_given_up());
        // The completion of the transfer wakes callers that wait for it.
        assert!(Arc::ptr_eq(&channel.waiters()?, &near.waiters));
        drop((transfer, channel));
        drop((near, far));
        bed.end()
    }

    #[test]
    fn lost_node_fails_all_its_endpoints() -> Result {
        let bed = Bed::new()?;
        let Pair { near, far } = bed.pair()?;
        let (listener, to) = bed.listen(1)?;
        let waiting = bed.request(to)?;
        bed.settle();
        assert_eq!(listener.facts().queued, 1);
        bed.lose()?;
        assert_eq!(waiting.connect(to, false), Err(ENODEV));
        assert_eq!(listener.facts().queued, 0);
        assert_eq!((near.facts().state, far.facts().state), ("lost", "lost"));
        assert!(near.poll_state() & poll_events::HUP != 0);
        drop((near, far, listener, waiting));
        bed.end()
    }
}
