// SPDX-License-Identifier: GPL-2.0

//! The other node of a run: a program on that node has half of the endpoints and an arena of its
//! own. It makes the calls that the run requests over a SCIF connection.
//!
//! The arenas lie at the same address on both nodes, so the run can fill in the addresses of
//! arguments.

use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::fd::OwnedFd;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::ensure;
use rustix::event::PollFlags;
use scif_sys::PortId;
use scif_sys::abi;

use crate::calls::SLOTS;
use crate::kernel;
use crate::kernel::Argument;
use crate::kernel::Elsewhere;
use crate::kernel::Errno;
use crate::kernel::Outcome;
use crate::memory::Arena;
use crate::memory::SIZE;
use crate::memory::digest;

/// An action that the run requests from the other node.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Action {
    /// Closes all endpoints and makes a new arena.
    Begin,
    Open,
    Close,
    /// Makes a call whose argument is a structure.
    Call,
    /// Makes a call whose argument is a number.
    Number,
    Mark,
    Poll,
    /// Reads from the arena.
    Read,
    /// Returns the digest of a part of the arena.
    Digest,
    /// Maps windows, and reads the mapping.
    Map,
}

/// All actions, in the order of their numbers.
const ACTIONS: [Action; 10] = [
    Action::Begin,
    Action::Open,
    Action::Close,
    Action::Call,
    Action::Number,
    Action::Mark,
    Action::Poll,
    Action::Read,
    Action::Digest,
    Action::Map,
];

/// A request: the action, the slot, a number, and then the argument of a call or two more numbers.
type Request = [u64; 2 + kernel::WORDS];
/// The answer: a result, and the changed bits of the argument. Bytes may follow.
type Answer = [u64; 1 + kernel::WORDS];

/// The connection with the program on the other node.
pub struct Agent {
    fd: OwnedFd,
    /// The node of the program.
    pub node: u16,
}

fn in_result(outcome: Outcome) -> u64 {
    match outcome {
        Ok(value) => value as u64,
        Err(Errno(number)) => -i64::from(number) as u64,
    }
}

fn of_result(word: u64) -> Outcome {
    match word as i64 {
        value @ ..0 => Err(Errno(-value as i32)),
        value => Ok(value),
    }
}

/// Sends all bytes.
fn send(fd: &OwnedFd, bytes: &[u8]) -> Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let part = left.len().min(1 << 15);
        let sent = kernel::send(
            fd.as_fd().into(),
            left.as_ptr() as u64,
            part as i32,
            abi::SEND_BLOCK,
        );
        let sent = sent.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        left = &left[sent as usize..];
    }
    Ok(())
}

fn receive(fd: &OwnedFd, bytes: &mut [u8]) -> Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let left = &mut bytes[at..];
        let part = left.len().min(1 << 15);
        let received = kernel::receive(
            fd.as_fd().into(),
            left.as_mut_ptr() as u64,
            part as i32,
            abi::RECV_BLOCK,
        );
        at += received.map_err(|error| anyhow::anyhow!("{error:?}"))? as usize;
    }
    Ok(())
}

/// Sends words except the zeroes at the end, because on some bridges each store traps and takes
/// long.
fn send_words(fd: &OwnedFd, words: &[u64]) -> Result<()> {
    let last = words.iter().rposition(|word| *word != 0);
    let sent = &words[..last.map_or(0, |last| last + 1)];
    let count = sent.len() as u64;
    let words = [&count].into_iter().chain(sent);
    let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
    send(fd, &bytes)
}

fn receive_words<const N: usize>(fd: &OwnedFd) -> Result<[u64; N]> {
    let mut count = [0; 8];
    receive(fd, &mut count)?;
    let count = u64::from_le_bytes(count) as usize;
    ensure!(count <= N, "{count} words");
    let mut bytes = vec![0; count * 8];
    receive(fd, &mut bytes)?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into()?);
    }
    Ok(words)
}

impl Agent {
    /// Connects to the program on a node.
    pub fn connect(node: u16, port: u16) -> Result<Self> {
        let fd = scif_sys::open().context("/dev/scif can't be opened")?;
        scif_sys::connect(&fd, PortId { node, port })
            .with_context(|| format!("no agent at port {port} of node {node}"))?;
        Ok(Self { fd, node })
    }

    fn ask(&self, action: Action, slot: usize, numbers: [u64; 3]) -> Result<Answer> {
        let mut argument: Argument = [0; kernel::WORDS];
        argument[..2].copy_from_slice(&numbers[1..]);
        self.ask_with(action, slot, numbers[0], &argument)
    }

    fn ask_with(
        &self,
        action: Action,
        slot: usize,
        number: u64,
        argument: &Argument,
    ) -> Result<Answer> {
        let mut request: Request = [0; 2 + kernel::WORDS];
        request[0] = action as u64 | ((slot as u64) << 32);
        request[1] = number;
        request[2..].copy_from_slice(argument);
        send_words(&self.fd, &request).context("to the agent")?;
        receive_words(&self.fd).context("from the agent")
    }

    /// Requests an action, and returns its result. If the connection itself fails, the result is
    /// EPROTO, which no call returns.
    fn result(&self, action: Action, slot: usize, numbers: [u64; 3]) -> Outcome {
        let answer = self.ask(action, slot, numbers);
        answer.map_or(Err(Errno(libc::EPROTO)), |answer| of_result(answer[0]))
    }

    /// Begins a new run.
    pub fn begin(&self) -> Result<()> {
        self.ask(Action::Begin, 0, [0; 3]).map(|_| ())
    }

    pub fn open(&self, slot: usize) -> Outcome {
        self.result(Action::Open, slot, [0; 3])
    }

    pub fn close(&self, slot: usize) {
        let _ = self.result(Action::Close, slot, [0; 3]);
    }

    /// Returns whether a part of the other arena has these bytes. Only a digest crosses the link,
    /// because sending the bytes takes long where stores trap.
    pub fn has(&self, at: usize, bytes: &[u8]) -> Result<bool> {
        let numbers = [at as u64, bytes.len() as u64, 0];
        let answer = self.ask(Action::Digest, 0, numbers)?;
        Ok(answer[1] == digest(bytes))
    }

    /// Reads from the other arena.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        self.ask(Action::Read, 0, [at as u64, bytes.len() as u64, 0])?;
        receive(&self.fd, bytes)
    }
}

impl Elsewhere for Agent {
    fn call(&self, slot: usize, number: u32, argument: &mut Argument) -> Outcome {
        let answer = self.ask_with(Action::Call, slot, number.into(), argument);
        let Ok(answer) = answer else {
            return Err(Errno(libc::EPROTO));
        };
        for (word, changed) in argument.iter_mut().zip(&answer[1..]) {
            *word ^= changed;
        }
        of_result(answer[0])
    }

    fn number(&self, slot: usize, number: u32, argument: u64) -> Outcome {
        self.result(Action::Number, slot, [number.into(), argument, 0])
    }

    fn mark(&self, slot: usize, flags: i32) -> Outcome {
        self.result(Action::Mark, slot, [flags as u64, 0, 0])
    }

    fn poll(&self, slot: usize, events: PollFlags, milliseconds: i64) -> PollFlags {
        let asked = [events.bits().into(), milliseconds as u64, 0];
        let found = self.result(Action::Poll, slot, asked).unwrap_or(0);
        PollFlags::from_bits_retain(found as u16)
    }

    fn map(&self, slot: usize, offset: i64, len: usize, write: bool) -> Result<Vec<u8>, Errno> {
        let numbers = [offset as u64, len as u64, write.into()];
        self.result(Action::Map, slot, numbers)?;
        let mut bytes = vec![0; len];
        receive(&self.fd, &mut bytes).map_err(|_| Errno(libc::EPROTO))?;
        Ok(bytes)
    }
}

// ----- the program on the other node ---------------------------------------------------------------------------------

struct Served {
    arena: Arena,
    fds: [Option<OwnedFd>; SLOTS],
}

/// Serves runs, one after the other, without end.
pub fn serve(port: u16) -> Result<()> {
    let listener = scif_sys::open().context("/dev/scif can't be opened")?;
    scif_sys::bind(&listener, port).context("of bind")?;
    scif_sys::listen(&listener, 4).context("of listen")?;
    println!("agent at port {port}");
    loop {
        let (handle, _) = kernel::accept_request(listener.as_fd().into(), abi::ACCEPT_SYNC)
            .map_err(|error| anyhow::anyhow!("{error:?} of accept"))?;
        let fd = scif_sys::open().context("/dev/scif can't be opened")?;
        kernel::accept_register(fd.as_fd().into(), handle)
            .map_err(|error| anyhow::anyhow!("{error:?} of accept"))?;
        // `serve_one` returns an error when the other side closes.
        let _ = serve_one(&fd);
    }
}

fn serve_one(fd: &OwnedFd) -> Result<()> {
    let mut served = Served {
        arena: Arena::at_fixed_place()?,
        fds: Default::default(),
    };
    loop {
        let request: Request = receive_words(fd)?;
        let action = ACTIONS.get(request[0] as u32 as usize);
        let action = action.context("no action")?;
        let slot = (request[0] >> 32) as usize;
        ensure!(slot < SLOTS, "no slot");
        let mut answer: Answer = [0; 1 + kernel::WORDS];
        let mut bytes = Vec::new();
        let outcome = match action {
            Action::Begin => {
                served.fds = Default::default();
                served.arena.clear();
                Ok(0)
            }
            Action::Open => opened().map(|fd| {
                served.fds[slot] = Some(fd);
                0
            }),
            Action::Close => {
                served.fds[slot] = None;
                Ok(0)
            }
            Action::Read | Action::Digest => {
                let range: Range<usize> = 0..SIZE;
                let (at, len) = (request[1] as usize, request[2] as usize);
                ensure!(range.contains(&at) && len <= SIZE - at, "not in the arena");
                bytes = vec![0; len];
                served.arena.read(at, &mut bytes);
                if *action == Action::Digest {
                    answer[1] = digest(&bytes);
                    bytes.clear();
                }
                Ok(0)
            }
            _ => {
                let fd = served.fds[slot].as_ref().context("no endpoint")?;
                on_endpoint(*action, fd, &request, &mut answer, &mut bytes)
            }
        };
        answer[0] = in_result(outcome);
        send_words(fd, &answer)?;
        send(fd, &bytes)?;
    }
}

fn opened() -> Result<OwnedFd, Errno> {
    let open = || -> rustix::io::Result<OwnedFd> {
        let fd = scif_sys::open()?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        Ok(fd)
    };
    open().map_err(|error| Errno(error.raw_os_error()))
}

fn on_endpoint(
    action: Action,
    fd: &OwnedFd,
    request: &Request,
    answer: &mut Answer,
    bytes: &mut Vec<u8>,
) -> Outcome {
    let fd = kernel::Fd::Here(fd.as_fd());
    let numbers = [request[1], request[2], request[3]];
    match action {
        Action::Call => {
            let mut argument: Argument = [0; kernel::WORDS];
            argument.copy_from_slice(&request[2..]);
            let outcome = kernel::call_raw(fd, numbers[0] as u32, &mut argument);
            let words = argument.iter().zip(&request[2..]);
            for (changed, (after, before)) in answer[1..].iter_mut().zip(words) {
                *changed = after ^ before;
            }
            outcome
        }
        Action::Number => kernel::number(fd, numbers[0] as u32, numbers[1]),
        Action::Mark => kernel::fence_mark(fd, numbers[0] as i32),
        Action::Poll => {
            let events = PollFlags::from_bits_retain(numbers[0] as u16);
            Ok(kernel::poll(fd, events, numbers[1] as i64).bits().into())
        }
        Action::Map => {
            let len = (numbers[1] as usize).min(SIZE);
            *bytes = kernel::map(fd, numbers[0] as i64, len, numbers[2] != 0)?;
            Ok(0)
        }
        _ => Err(Errno(libc::EPROTO)),
    }
}
