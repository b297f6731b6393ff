// SPDX-License-Identifier: GPL-2.0
//! Serves the clients of a lab, also of a test's lab, with one thread for each client: `scripts/lab
//! --name NAME exec ...` works while the test runs.
//!
//! It knows the frames and nothing of labs: [`Served`] carries out the requests.

use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use serde_json::Value;

use crate::control::Answer;
use crate::control::Control;
use crate::guest::Event;
use crate::guest::Guest;
use crate::wire::Frame;
use crate::wire::Kind;
use crate::wire::Outcome;
use crate::wire::Request;

/// The lab, which carries out the requests.
pub(crate) trait Served: Send + 'static {
    /// Carries out a request of a client.
    fn answer(&self, request: Control) -> Result<Reply>;
}

/// The answer to a client.
pub(crate) enum Reply {
    /// A value that depends on the request.
    Value(Value),
    /// A channel to this guest's agent, for this request.
    Channel(Guest, Request),
}

/// Serves the clients of a lab in the background, as long as the lab exists.
pub(crate) fn serve<L: Served>(
    socket: &Path,
    lab: impl Fn() -> Option<L> + Send + 'static,
) -> Result<()> {
    let listener = UnixListener::bind(socket)
        .with_context(|| format!("cannot listen on {}", socket.display()))?;
    thread::spawn(move || {
        for client in listener.incoming() {
            // The error concerns one client.
            let (Ok(client), Some(lab)) = (client, lab()) else {
                continue;
            };
            thread::spawn(move || {
                if let Err(error) = serve_client(&lab, client) {
                    eprintln!("lab: a client: {error:#}");
                }
            });
        }
    });
    Ok(())
}

fn serve_client(lab: &impl Served, mut client: UnixStream) -> Result<()> {
    let Some(frame) = Frame::read(&mut client)? else {
        return Ok(());
    };
    if frame.kind != Kind::Control {
        bail!("it began with a {:?} frame", frame.kind);
    }
    let answer = match lab.answer(frame.parse()?) {
        Ok(Reply::Value(value)) => Answer::Done(value),
        Ok(Reply::Channel(guest, request)) => return serve_channel(&guest, client, &request),
        Err(error) => Answer::Failed(format!("{error:#}")),
    };
    Frame::json(Kind::Answer, 0, &answer)?.write(&mut client)?;
    Ok(())
}

/// Joins a client with a channel of a guest's agent.
fn serve_channel(guest: &Guest, client: UnixStream, request: &Request) -> Result<()> {
    let (sender, events) = mpsc::channel();
    // The credit of the streams bounds the queue.
    let opened = guest.open(request, move |event| {
        let _ = sender.send(event);
    });
    let mut writer = client.try_clone()?;
    let channel = match opened {
        Ok(channel) => channel,
        Err(error) => {
            let answer = Answer::Failed(format!("{error:#}"));
            Frame::json(Kind::Answer, 0, &answer)?.write(&mut writer)?;
            return Ok(());
        }
    };
    let done = Arc::new(AtomicBool::new(false));
    let finished = Arc::clone(&done);
    let to_guest = guest.clone();
    let mut reader = client;
    let forward = thread::spawn(move || {
        while let Ok(Some(mut frame)) = Frame::read(&mut reader) {
            match frame.kind {
                Kind::Stdin | Kind::StdinEnd | Kind::Signal | Kind::Credit => {
                    frame.channel = channel;
                    if to_guest.send(&frame).is_err() {
                        break;
                    }
                }
                _ => break,
            }
        }
        if !finished.load(Ordering::Acquire) {
            let _ = to_guest.send(&Frame::signal(channel, 9));
        }
    });
    for event in events {
        let mut frame = match event {
            Event::Frame(frame) => frame,
            Event::Lost(reason) => {
                let outcome = Outcome::Lost(reason);
                Frame::json(Kind::Done, 0, &outcome)?
            }
        };
        frame.channel = 0;
        let last = frame.kind == Kind::Done;
        if last {
            done.store(true, Ordering::Release);
        }
        if frame.write(&mut writer).is_err() || last {
            break;
        }
    }
    // This ends the other direction as well.
    let _ = writer.shutdown(std::net::Shutdown::Both);
    let _ = forward.join();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Served for Fake {
        fn answer(&self, request: Control) -> Result<Reply> {
            match request {
                Control::Counters => Ok(Reply::Value(Value::from(7))),
                other => bail!("no {other:?} here"),
            }
        }
    }

    fn ask(request: &Frame) -> (Result<()>, Option<Frame>) {
        let (mut here, there) = UnixStream::pair().unwrap();
        request.write(&mut here).unwrap();
        let served = serve_client(&Fake, there);
        (served, Frame::read(&mut here).unwrap())
    }

    #[test]
    fn control_requests_are_answered() {
        let request = |control| Frame::json(Kind::Control, 0, control).unwrap();
        let (served, answer) = ask(&request(&Control::Counters));
        served.unwrap();
        assert!(matches!(answer.unwrap().parse().unwrap(), Answer::Done(value) if value == 7));
        let (served, answer) = ask(&request(&Control::Kill { node: 3 }));
        served.unwrap();
        let failed = answer.unwrap().parse().unwrap();
        assert!(matches!(failed, Answer::Failed(text) if text == "no Kill { node: 3 } here"));
    }

    #[test]
    fn connection_without_a_control_request_gets_no_answer() {
        let (served, answer) = ask(&Frame::new(Kind::Stdin, 0, b"hello"));
        assert!(served.is_err());
        assert!(answer.is_none());
    }
}
