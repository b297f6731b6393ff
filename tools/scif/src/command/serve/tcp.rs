// SPDX-License-Identifier: GPL-2.0

//! The same measurements over TCP, for comparison.
//!
//! Its threads wait only for their clients, and hold nothing that must be put in order: they end
//! with the process.

use crate::command::output::note;
use crate::error::Error;
use crate::error::Result;
use crate::server::measure;
use crate::server::measure::Guest;
use crate::server::measure::Sleepers;
use crate::server::shares::Origin;
use crate::server::shares::Shares;
use crate::session::Session;
use crate::tcp::Tcp;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The most clients at a time.
const MOST_CLIENTS: usize = 64;

/// Starts to listen.
pub fn start(address: SocketAddr) -> Result<()> {
    let failed = || format!("cannot listen on {address}");
    let listener = TcpListener::bind(address).map_err(Error::local(failed()))?;
    std::thread::Builder::new()
        .spawn(move || accept_all(&listener))
        .map(drop)
        .map_err(Error::local(failed()))
}

fn accept_all(listener: &TcpListener) {
    let clients = Arc::new(());
    let shared = Arc::new((Shares::default(), Sleepers::default()));
    loop {
        match listener.accept() {
            // The count includes the listener's own reference.
            Ok(_) if Arc::strong_count(&clients) > MOST_CLIENTS => {}
            Ok((socket, peer)) => {
                let client = Arc::clone(&clients);
                let shared = Arc::clone(&shared);
                let started = std::thread::Builder::new().spawn(move || {
                    serve(socket, peer, &shared);
                    drop(client);
                });
                if let Err(error) = started {
                    note(format_args!(
                        "scif: closing the connection of {peer}, as no thread can be started: {error}"
                    ));
                }
            }
            Err(error) => {
                note(format_args!(
                    "scif: cannot accept a TCP connection, trying again: {error}"
                ));
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn serve(socket: TcpStream, peer: SocketAddr, (shares, sleepers): &(Shares, Sleepers)) {
    let guest = Guest {
        origin: Origin::Tcp,
        shares,
        sleepers,
    };
    let served = Tcp::new(socket)
        .map_err(Error::local("cannot set up a TCP connection"))
        .and_then(|tcp| {
            let session = Session::new(tcp, peer.to_string());
            measure::serve(&session, &guest).inspect_err(|error| session.send_failure(error))
        });
    if let Err(error) = served {
        note(format_args!("[{peer}] {error}"));
    }
}
