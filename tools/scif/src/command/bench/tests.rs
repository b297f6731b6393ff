// SPDX-License-Identifier: GPL-2.0

//! Measurements against a server in the same process, and over TCP on this machine.

use super::copies::Copies;
use super::copies::How;
use super::measure::Plan;
use super::measure::measure;
use super::messages::Messages;
use super::overview::Direction;
use crate::confine::Root;
use crate::device::Rma;
use crate::in_process;
use crate::protocol::Raw;
use crate::region::Pages;
use crate::server;
use crate::server::Service;
use crate::server::measure as serving;
use crate::server::shares::MOST_CONNECTIONS;
use crate::server::shares::Origin;
use crate::server::shares::Shares;
use crate::session::Session;
use crate::tcp::Tcp;
use crate::transport::Bytes;
use std::net::TcpListener;
use std::time::Duration;

const PLAN: Plan = Plan {
    time: Duration::ZERO,
    warm_up: Duration::from_millis(1),
    iterations: Some(10),
    parts: 1,
};

/// Runs a client against a server of an empty folder.
fn with_server(client: impl FnOnce(&mut Session<in_process::InProcess>)) {
    let temporary = tempfile::tempdir().unwrap();
    let mut service = Service::new(Root::open(temporary.path()).unwrap(), true);
    service.bench = true;
    let (here, there) = in_process::pair();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = Session::new(there, "client");
            server::serve(&service, Origin::Node(0), &session, &|_| ());
        });
        let mut session = Session::new(here, "server");
        session.greet().unwrap();
        client(&mut session);
        // Afterwards the conversation goes on as before.
        crate::client::ping(&session, b"again").unwrap();
        drop(session);
    });
    assert_eq!(service.sleepers.count(), 0);
}

/// Serves a client that only measures.
fn measure_only<T: Bytes>(session: &Session<T>) -> crate::error::Result<()> {
    let (shares, sleepers) = (Shares::default(), serving::Sleepers::default());
    let guest = serving::Guest {
        origin: Origin::Tcp,
        shares: &shares,
        sleepers: &sleepers,
    };
    serving::serve(session, &guest)
}

fn messages<T: Bytes + Send>(session: &mut Session<T>) {
    for back in [true, false] {
        for polling in [true, false] {
            for size in [1, 100, 10_000] {
                let raw = Raw {
                    size,
                    count: 0,
                    back,
                    polling,
                };
                let mut works = [vec![Messages::new(session, raw)]];
                assert_eq!(measure(&mut works, &PLAN).unwrap().steps, 10);
            }
        }
    }
}

#[test]
fn messages_are_measured_in_one_process() {
    with_server(messages);
}

#[test]
fn messages_are_measured_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (socket, _) = listener.accept().unwrap();
            let session = Session::new(Tcp::new(socket).unwrap(), "client");
            measure_only(&session).unwrap();
        });
        let mut session = Session::new(Tcp::connect(address).unwrap(), "server");
        session.greet().unwrap();
        messages(&mut session);
    });
}

#[test]
fn file_requests_over_tcp_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (socket, _) = listener.accept().unwrap();
            let session = Session::new(Tcp::new(socket).unwrap(), "client");
            let error = measure_only(&session).unwrap_err();
            session.send_failure(&error);
        });
        let session = Session::new(Tcp::connect(address).unwrap(), "server");
        session.greet().unwrap();
        let put = crate::protocol::Message::Put {
            mode: 0,
            size: 0,
            path: b"x".to_vec(),
            name: b"x".to_vec(),
        };
        session.send(&put).unwrap();
        let error = session.receive().unwrap_err().to_string();
        assert!(error.contains("Put came out of turn"), "{error}");
    });
}

#[test]
fn several_copies_in_flight_are_measured() {
    for (direction, depth, sync) in [
        (Direction::Write, 1, true),
        (Direction::Write, 1, false),
        (Direction::Write, 8, false),
        (Direction::Read, 3, false),
    ] {
        with_server(|session| {
            let how = How {
                direction,
                flags: Rma {
                    sync,
                    ..Rma::default()
                },
                depth,
            };
            let mut copies = Copies::new(session, 5000 * depth as u64, Pages::Small, how).unwrap();
            for size in [1, 5000] {
                copies.size = size;
                let mut works = [vec![copies]];
                assert_eq!(measure(&mut works, &PLAN).unwrap().steps, 10);
                let [mut only] = works;
                copies = only.pop().unwrap();
            }
        });
    }
}

#[test]
fn too_many_connections_are_refused() {
    with_server(|_| ());
    let (here, there) = in_process::pair();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = Session::new(there, "client");
            let error = measure_only(&session).unwrap_err();
            session.send_failure(&error);
        });
        let session = Session::new(here, "server");
        session.greet().unwrap();
        let count = MOST_CONNECTIONS + 1;
        session
            .send(&crate::protocol::Message::Accept { count })
            .unwrap();
        let error = session.receive().unwrap_err().to_string();
        assert!(error.contains("at a time"), "{error}");
    });
}
