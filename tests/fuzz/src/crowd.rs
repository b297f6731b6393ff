// SPDX-License-Identifier: GPL-2.0

//! Crowds: processes and threads that share endpoints, hand them on, fork, interrupt and kill each other.
//!
//! What a call may return depends on what others do meanwhile, so it is judged by a set (`oracle.rs`). Each thread may
//! have endpoints of its own, too, of which the model says exactly what they do, whatever goes on beside them. And some
//! things hold for all: no call waits for what has happened, who is killed is soon gone, and nothing is left of a crowd.

pub mod actor;
pub mod board;
pub mod oracle;
pub mod plan;
pub mod process;
pub mod setting;
pub mod signals;
pub mod steps;
pub mod world;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;

use crate::crowd::board::Board;
use crate::crowd::board::Ended;
use crate::crowd::setting::Setting;
use crate::crowd::steps::PROCESSES;
use crate::crowd::steps::Step;
use crate::crowd::world::BOARD_FD;
use crate::crowd::world::SOCKET_FDS;
use crate::crowd::world::World;
use crate::kernel;

/// How the calls of each word have ended: well, and not.
pub type Tally = BTreeMap<&'static str, (u64, u64)>;

/// Where the module counts what it has.
const COUNTERS: &str = "/sys/kernel/debug/scif/counters";

/// What it counts of, and has to be 0 when nobody uses it.
const GONE: &[&str] = &[
    "connections",
    "closing_connections",
    "exported_windows",
    "mappings",
];

/// Has a crowd do what is planned. An error says what was wrong.
pub fn run(plan: &[Step], setting: Setting) -> Result<Tally> {
    signals::adopt();
    let (board, fd) = Board::new()?;
    let sockets = signals::socket_pair()?;
    world::put(&fd, BOARD_FD)?;
    for (socket, place) in sockets.iter().zip(SOCKET_FDS) {
        world::put(socket, place)?;
    }
    let places = [BOARD_FD, SOCKET_FDS[0], SOCKET_FDS[1]];
    // What was passed and not taken goes with the socket, and so with the last of the processes.
    drop((fd, sockets));
    let started = start(board, plan, setting);
    places.into_iter().for_each(world::close);
    let ended = started.and_then(|left| end(board, left, setting));
    let said = board.said();
    let tally = tally(board);
    // SAFETY: All processes have ended, and this one has copied what it needs.
    unsafe { board.unmap() };
    if let Some(said) = said {
        bail!("{said}");
    }
    ended?;
    if setting.is_alone() {
        quiet(setting)?;
    }
    Ok(tally)
}

/// Starts the processes; returns their numbers.
fn start(board: &'static Board, plan: &[Step], setting: Setting) -> Result<Vec<i32>> {
    let mut left = Vec::new();
    for number in 0..PROCESSES {
        if !plan.iter().any(|step| step.process() == number) {
            continue;
        }
        let pid = signals::fork()?;
        if pid == 0 {
            let done = process::world(board, setting)
                .and_then(|world| process::process(&world, number, plan));
            if let Err(error) = done {
                board.say(&format!("process {number}: {error:#}"));
            }
            signals::end();
        }
        left.push(pid);
    }
    Ok(left)
}

/// Waits for the processes, and for those that they have left behind.
fn end(board: &Board, mut left: Vec<i32>, setting: Setting) -> Result<()> {
    // Each step ends in time, or its process says that it does not.
    let mut deadline = Instant::now() + setting.stuck() * 20;
    while let Some(pid) = signals::next_ended() {
        if pid > 0 {
            left.retain(|other| *other != pid);
            continue;
        }
        // What is left of a crowd in which something is wrong waits for nothing any more.
        if board.is_wrong() && deadline > Instant::now() + setting.dead() {
            deadline = Instant::now() + setting.dead();
        }
        if Instant::now() > deadline {
            let stacks: String = left.iter().map(|pid| signals::stacks(*pid)).collect();
            board.say(&format!("processes {left:?} do not end:\n{stacks}"));
            return killed(left, setting);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Kills what is left; it has to end soon.
fn killed(left: Vec<i32>, setting: Setting) -> Result<()> {
    left.into_iter().for_each(signals::kill);
    let deadline = Instant::now() + setting.dead();
    while signals::next_ended().is_some() {
        ensure!(Instant::now() < deadline, "a killed process does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Fails unless nothing is left of the crowd.
fn quiet(setting: Setting) -> Result<()> {
    let deadline = Instant::now() + setting.stuck();
    loop {
        // Without debugfs nobody counts.
        let counters = std::fs::read_to_string(COUNTERS).unwrap_or_default();
        let mut rows = counters.lines().filter_map(|line| line.split_once(' '));
        let Some((name, count)) = rows.find(|(name, count)| GONE.contains(name) && *count != "0")
        else {
            break;
        };
        ensure!(
            Instant::now() < deadline,
            "all processes have ended, and {name} is {count}"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    for port in plan::PORTS {
        let endpoint = scif_sys::open().context("of open")?;
        let bound = kernel::bind(endpoint.as_fd().into(), port);
        ensure!(
            bound == Ok(port.into()),
            "nobody has port {port}, and to bind it is {bound:?}"
        );
    }
    Ok(())
}

fn tally(board: &Board) -> Tally {
    let count = |ended: &Ended| {
        let load = |count: &std::sync::atomic::AtomicU32| u64::from(count.load(SeqCst));
        (load(&ended.well), load(&ended.failed))
    };
    let words = Step::WORDS.iter().zip(&board.tally);
    let mut tally: Tally = words.map(|(word, ended)| (*word, count(ended))).collect();
    tally.retain(|_, ended| *ended != (0, 0));
    tally.insert("own", count(&board.own));
    tally
}

/// Goes on as the process that an `exec` was made in.
pub fn inherit(
    table: usize,
    actor: usize,
    seed: u64,
    calls: usize,
    setting: Setting,
) -> Result<()> {
    signals::install();
    let board = Board::of(world::fixed(BOARD_FD))?;
    let world = World::new(board, table, setting)?;
    actor::child(&world, actor, seed, calls);
    Ok(())
}
