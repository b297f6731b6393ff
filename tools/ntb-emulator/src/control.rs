// SPDX-License-Identifier: GPL-2.0
//! How others control a running emulator: one JSON value per line over a Unix socket.
//!
//! Each line from the client is a [`Request`], each is answered by one [`Response`].
//! Any number of clients may be connected. [`Client`] is the blocking one that the lab
//! uses; a person can use `socat - UNIX-CONNECT:DIR/emulator.sock` as well.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use serde::Deserialize;
use serde::Serialize;

use crate::config::control_socket;
use crate::counters::Snapshot;
use crate::raid::Loot;
use crate::raid::Writes;

/// How long a client waits for an answer. The emulator answers at once, so this only catches
/// one that hangs, and is generous: the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(100);

/// What a client wants: `{"request":"link","a":0,"b":1,"up":false}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The counters of all guests.
    Counters,
    /// Sets all counters to zero.
    ResetCounters,
    /// Who is connected, and which links are up.
    State,
    /// Plugs in or pulls all links between two guests.
    Link {
        /// One guest.
        a: usize,
        /// The other one.
        b: usize,
        /// In, or out.
        up: bool,
    },
    /// Goes through all windows of the links that lead from one guest to another, as somebody would
    /// who means no good (see [`crate::raid`]).
    Raid {
        /// The guest whose windows are gone through.
        from: usize,
        /// The guest whose memory is behind them.
        into: usize,
        /// Where to write.
        writes: Writes,
    },
    /// Has all that is reordered follow from another seed from now on.
    Reseed {
        /// The seed.
        seed: u64,
    },
    /// Ends the emulator. QEMUs still connected may abort.
    Shutdown,
}

/// What the emulator answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// It is done.
    Done,
    /// It cannot be done.
    Error {
        /// Why.
        message: String,
    },
    /// To [`Request::Counters`].
    Counters {
        /// By number of guest.
        guests: Vec<GuestCounters>,
    },
    /// To [`Request::State`].
    State(State),
    /// To [`Request::Raid`].
    Loot(Loot),
}

/// The counters of one guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCounters {
    /// The sum over all functions.
    pub total: Snapshot,
    /// Each function.
    pub functions: Vec<FunctionCounters>,
}

impl GuestCounters {
    /// The sum of one of them over the functions whose name begins with `prefix`.
    pub fn sum(&self, prefix: &str, what: fn(&Snapshot) -> u64) -> u64 {
        let functions = self.functions.iter();
        let wanted = functions.filter(|function| function.name.starts_with(prefix));
        wanted.map(|function| what(&function.counters)).sum()
    }
}

/// The counters of one function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionCounters {
    /// `ntb-0`, `dma-0` and so on.
    pub name: String,
    /// The counters.
    pub counters: Snapshot,
}

/// Who is connected, and which links are up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// By number of guest.
    pub guests: Vec<GuestState>,
    /// In the order of the configuration.
    pub links: Vec<LinkState>,
    /// What the order of writes follows from, if it is weak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// One guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestState {
    /// Whether QEMU is connected to all functions.
    pub connected: bool,
    /// Each function.
    pub functions: Vec<FunctionState>,
}

/// One function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionState {
    /// `ntb-0`, `dma-0` and so on.
    pub name: String,
    /// Whether QEMU is connected to it.
    pub connected: bool,
}

/// One link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// The guest upstream.
    pub upstream: usize,
    /// The guest downstream.
    pub downstream: usize,
    /// Whether the link is plugged in, see [`Request::Link`].
    pub plugged: bool,
    /// Whether it is up: plugged in, and both drivers want it.
    pub up: bool,
}

/// A blocking client.
pub struct Client {
    reader: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the emulator that uses `directory`.
    pub fn connect(directory: &Path) -> Result<Self> {
        let path = control_socket(directory);
        let stream = UnixStream::connect(&path)
            .with_context(|| format!("no emulator answers on {}", path.display()))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            reader: BufReader::new(stream),
        })
    }

    /// Asks for something. An answer that says "error" is an error.
    pub fn request(&mut self, request: &Request) -> Result<Response> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.reader
            .get_mut()
            .write_all(line.as_bytes())
            .context("the emulator does not listen any more")?;
        line.clear();
        let length = self
            .reader
            .read_line(&mut line)
            .context("the emulator does not answer")?;
        if length == 0 {
            bail!("the emulator has hung up; its own output says why");
        }
        match serde_json::from_str(&line).context("the emulator's answer makes no sense")? {
            Response::Error { message } => bail!("the emulator refuses: {message}"),
            response => Ok(response),
        }
    }

    /// The counters of all guests.
    pub fn counters(&mut self) -> Result<Vec<GuestCounters>> {
        match self.request(&Request::Counters)? {
            Response::Counters { guests } => Ok(guests),
            other => bail!("the emulator answers {other:?} when asked for counters"),
        }
    }

    /// Sets all counters to zero.
    pub fn reset_counters(&mut self) -> Result<()> {
        self.request(&Request::ResetCounters).map(drop)
    }

    /// Who is connected, and which links are up.
    pub fn state(&mut self) -> Result<State> {
        match self.request(&Request::State)? {
            Response::State(state) => Ok(state),
            other => bail!("the emulator answers {other:?} when asked for its state"),
        }
    }

    /// Plugs in or pulls all links between two guests.
    pub fn link(&mut self, a: usize, b: usize, up: bool) -> Result<()> {
        self.request(&Request::Link { a, b, up }).map(drop)
    }

    /// What is found in the windows that lead from one guest to another.
    pub fn raid(&mut self, from: usize, into: usize, writes: Writes) -> Result<Loot> {
        match self.request(&Request::Raid { from, into, writes })? {
            Response::Loot(loot) => Ok(loot),
            other => bail!("the emulator answers {other:?} when asked for a raid"),
        }
    }

    /// Has all that is reordered follow from another seed.
    pub fn reseed(&mut self, seed: u64) -> Result<()> {
        self.request(&Request::Reseed { seed }).map(drop)
    }

    /// Ends the emulator.
    pub fn shutdown(&mut self) -> Result<()> {
        self.request(&Request::Shutdown).map(drop)
    }
}

/// Answers one client until it hangs up.
pub fn serve(stream: UnixStream, mut answer: impl FnMut(Request) -> Response) -> Result<()> {
    let mut writer = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        let response = match serde_json::from_str(&line?) {
            Ok(request) => answer(request),
            Err(error) => Response::Error {
                message: format!("this is no request: {error}"),
            },
        };
        let mut line = serde_json::to_string(&response)?;
        line.push('\n');
        writer.write_all(line.as_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_forms() {
        let requests = [
            (r#"{"request":"counters"}"#, Request::Counters),
            (r#"{"request":"reset-counters"}"#, Request::ResetCounters),
            (r#"{"request":"state"}"#, Request::State),
            (
                r#"{"request":"link","a":0,"b":1,"up":false}"#,
                Request::Link {
                    a: 0,
                    b: 1,
                    up: false,
                },
            ),
            (
                r#"{"request":"raid","from":0,"into":1,"writes":"public"}"#,
                Request::Raid {
                    from: 0,
                    into: 1,
                    writes: Writes::Public,
                },
            ),
            (
                r#"{"request":"reseed","seed":7}"#,
                Request::Reseed { seed: 7 },
            ),
            (r#"{"request":"shutdown"}"#, Request::Shutdown),
        ];
        for (text, request) in requests {
            assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request);
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
        }
        let response = Response::State(State::default());
        let text = r#"{"response":"state","guests":[],"links":[]}"#;
        assert_eq!(serde_json::to_string(&response).unwrap(), text);
        assert_eq!(serde_json::from_str::<Response>(text).unwrap(), response);
    }
}
