// SPDX-License-Identifier: GPL-2.0
//! The background process that owns a lab between two commands.
//!
//! `lab up` starts it with the lab's [`Config`] as the first line of its standard input and
//! reads [`Start`] lines from its standard output. Until the lab is up, the end of that
//! input ends the owner: a `lab up` that is interrupted leaves nothing. From then on it
//! lives until `Down` or a signal.
//!
//! [`Control`] requests are served for every lab, that of a test as well, one thread for
//! each client: `scripts/lab --name NAME exec ...` works while the test runs.

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use serde_json::Value;

use crate::config::Config;
use crate::control::Answer;
use crate::control::Control;
use crate::control::Start;
use crate::guest::Event;
use crate::interrupt;
use crate::lab::Lab;
use crate::lock;
use crate::progress::Progress;
use crate::progress::Silent;
use crate::progress::Step;
use crate::wire::Frame;
use crate::wire::Kind;
use crate::wire::Outcome;
use crate::wire::Request;

/// The owner's main function; ends the process.
pub fn main() -> ! {
    let reporter = Arc::new(Reporter::default());
    match start(&reporter) {
        Ok(lab) => {
            lab.allow_down();
            reporter.up.store(true, Ordering::Release);
            reporter.say(&Start::Up);
            // The thread that serves the clients ends the process.
            loop {
                thread::park();
            }
        }
        Err(error) => {
            reporter.say(&Start::Failed(format!("{error:#}")));
            interrupt::end(1)
        }
    }
}

/// Tells `lab up` what happens.
#[derive(Default)]
struct Reporter {
    up: AtomicBool,
    output: Mutex<()>,
}

impl Reporter {
    fn say(&self, what: &Start) {
        let _turn = lock(&self.output);
        if let Ok(line) = serde_json::to_string(what) {
            // Nobody may listen any more; then the input tells.
            let _ = writeln!(io::stdout(), "{line}");
        }
    }
}

impl Progress for Reporter {
    fn step(&self, step: Step) {
        self.say(&Start::Step(step));
    }
}

fn start(reporter: &Arc<Reporter>) -> Result<Lab> {
    interrupt::install()?;
    let mut input = BufReader::new(io::stdin());
    let mut line = String::new();
    input
        .read_line(&mut line)
        .context("cannot read the configuration of the lab")?;
    let config: Config =
        serde_json::from_str(&line).context("the first line of the input is no configuration")?;
    let watched = Arc::clone(reporter);
    thread::spawn(move || {
        let _ = input.read(&mut [0]);
        if !watched.up.load(Ordering::Acquire) {
            interrupt::end(1);
        }
    });
    Lab::start(config, &**reporter)
}

/// Serves the clients of a lab in the background, as long as there is that lab.
pub(crate) fn serve(socket: &Path, lab: impl Fn() -> Option<Lab> + Send + 'static) -> Result<()> {
    let listener = UnixListener::bind(socket)
        .with_context(|| format!("cannot listen on {}", socket.display()))?;
    thread::spawn(move || {
        for client in listener.incoming() {
            // An error here is about one client.
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

fn serve_client(lab: &Lab, mut client: UnixStream) -> Result<()> {
    let Some(frame) = Frame::read(&mut client)? else {
        return Ok(());
    };
    if frame.kind != Kind::Control {
        bail!("it began with a {:?} frame", frame.kind);
    }
    let answer = match frame.parse()? {
        Control::Open { node, request } => return serve_channel(lab, client, node, &request),
        Control::Down if lab.may_go_down() => {
            // The client knows by the end of the connection that all is gone.
            lab.stop();
            interrupt::end(0);
        }
        Control::Down => Err(anyhow!(
            "this lab belongs to the program with pid {}: end that",
            std::process::id()
        )),
        Control::Report => lab
            .report()
            .and_then(|report| Ok(serde_json::to_value(report)?)),
        Control::Kill { node } => lab.kill(node).map(|()| Value::Null),
        Control::Restart { node } => lab.restart_with(node, &Silent).map(|()| Value::Null),
        Control::Pause { node } => lab.pause(node).map(|()| Value::Null),
        Control::Resume { node } => lab.resume(node).map(|()| Value::Null),
        Control::Link { a, b, up } => lab.set_link(a, b, up).map(|()| Value::Null),
        Control::Counters => lab
            .counters()
            .and_then(|counters| Ok(serde_json::to_value(counters)?)),
    };
    let answer = match answer {
        Ok(value) => Answer::Done(value),
        Err(error) => Answer::Failed(format!("{error:#}")),
    };
    Frame::json(Kind::Answer, 0, &answer)?.write(&mut client)?;
    Ok(())
}

/// Joins a client with a channel of a guest's agent.
fn serve_channel(lab: &Lab, client: UnixStream, node: usize, request: &Request) -> Result<()> {
    let (sender, events) = mpsc::channel();
    // The credit of the streams bounds what can queue up here.
    let opened = lab.open(node, request, move |event| {
        let _ = sender.send(event);
    });
    let mut writer = client.try_clone()?;
    let (guest, channel) = match opened {
        Ok(opened) => opened,
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
    // Ends the other direction as well.
    let _ = writer.shutdown(std::net::Shutdown::Both);
    let _ = forward.join();
    Ok(())
}
