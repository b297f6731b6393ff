// SPDX-License-Identifier: GPL-2.0
//! The control protocol of a running emulator: one JSON value per line over a Unix socket.
//!
//! Each line of a client is a [`Request`], and each is answered by one [`Response`]. Any number of
//! clients may be connected. [`Client`] is a blocking client, which the lab uses; a person can use
//! `socat - UNIX-CONNECT:DIR/emulator.sock`.

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

/// Time that a client waits for an answer. The emulator answers at once, so the timeout only
/// catches an emulator that hangs. It is generous, as the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(100);

/// A request: `{"request":"link","a":0,"b":1,"up":false}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Asks for the counters of all guests.
    Counters,
    /// Sets all counters to zero.
    ResetCounters,
    /// Asks which guests are connected, and which links are up.
    State,
    /// Plugs in or pulls all links between two guests.
    Link {
        /// One guest.
        a: usize,
        /// The other guest.
        b: usize,
        /// True to plug in, false to pull.
        up: bool,
    },
    /// Goes through all windows of the links that lead from one guest to another, like an attacker
    /// (see [`crate::raid`]).
    Raid {
        /// The guest whose windows are used.
        from: usize,
        /// The guest whose memory is behind the windows.
        into: usize,
        /// The pages to write to.
        writes: Writes,
    },
    /// Makes the order of writes follow from another seed from now on.
    Reseed {
        /// The seed.
        seed: u64,
    },
    /// Ends the emulator. QEMUs still connected may abort.
    Shutdown,
}

/// An answer of the emulator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "kebab-case")]
pub enum Response {
    /// The request was carried out.
    Done,
    /// The request can't be carried out.
    Error {
        /// The reason.
        message: String,
    },
    /// The answer to [`Request::Counters`].
    Counters {
        /// The counters by number of guest.
        guests: Vec<GuestCounters>,
    },
    /// The answer to [`Request::State`].
    State(State),
    /// The answer to [`Request::Raid`].
    Loot(Loot),
}

/// The counters of one guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCounters {
    /// The sum over all functions.
    pub total: Snapshot,
    /// The counters of each function.
    pub functions: Vec<FunctionCounters>,
}

impl GuestCounters {
    /// Returns the sum of one counter over the functions whose name begins with `prefix`.
    pub fn sum(&self, prefix: &str, counter: fn(&Snapshot) -> u64) -> u64 {
        let functions = self.functions.iter();
        let wanted = functions.filter(|function| function.name.starts_with(prefix));
        wanted.map(|function| counter(&function.counters)).sum()
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

/// The connections of guests, and the state of links.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The state by number of guest.
    pub guests: Vec<GuestState>,
    /// The state of links, in the order of the configuration.
    pub links: Vec<LinkState>,
    /// The seed of the order of writes, if the order is weak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// The state of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestState {
    /// Whether QEMU is connected to all functions.
    pub connected: bool,
    /// The state of each function.
    pub functions: Vec<FunctionState>,
}

/// The state of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionState {
    /// `ntb-0`, `dma-0` and so on.
    pub name: String,
    /// Whether QEMU is connected to it.
    pub connected: bool,
}

/// The state of a link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// The upstream guest.
    pub upstream: usize,
    /// The downstream guest.
    pub downstream: usize,
    /// Whether the link is plugged in, see [`Request::Link`].
    pub plugged: bool,
    /// Whether the link is up: plugged in, and both drivers want it up.
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

    /// Sends a request and returns the answer. The answer "error" becomes an error.
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

    /// Returns the counters of all guests.
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

    /// Returns which guests are connected, and which links are up.
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

    /// Raids the windows that lead from one guest to another. Returns what the raid found there.
    pub fn raid(&mut self, from: usize, into: usize, writes: Writes) -> Result<Loot> {
        match self.request(&Request::Raid { from, into, writes })? {
            Response::Loot(loot) => Ok(loot),
            other => bail!("the emulator answers {other:?} when asked for a raid"),
        }
    }

    /// Makes the order of writes follow from another seed.
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
    fn documented_control_requests_are_parsed() {
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
