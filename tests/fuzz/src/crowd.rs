// SPDX-License-Identifier: GPL-2.0

//! Crowds: processes and threads that share endpoints, pass them on, fork, interrupt and kill each
//! other.
//!
//! The result of a call depends on what other threads do meanwhile, so `oracle.rs` judges it by a
//! set of allowed results. Each thread may have endpoints of its own, too, whose results the model
//! predicts exactly. Some rules hold for all: no call waits for an event that has occurred, a
//! killed process ends soon, and no resources of a crowd remain.

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

/// Number of calls of each word that succeeded, and that failed.
pub type Tally = BTreeMap<&'static str, (u64, u64)>;

/// File with the counters of the module.
const COUNTERS: &str = "/sys/kernel/debug/scif/counters";

/// Counters that have to be 0 when no process uses the module.
const GONE: &[&str] = &[
    "connections",
    "closing_connections",
    "exported_windows",
    "mappings",
];

/// Runs a crowd by a plan. Returns an error if the crowd has found a fault.
pub fn run(plan: &[Step], setting: Setting) -> Result<Tally> {
    signals::adopt();
    let (board, fd) = Board::new()?;
    let sockets = signals::socket_pair()?;
    world::put(&fd, BOARD_FD)?;
    for (socket, place) in sockets.iter().zip(SOCKET_FDS) {
        world::put(socket, place)?;
    }
    let places = [BOARD_FD, SOCKET_FDS[0], SOCKET_FDS[1]];
    // Endpoints that were passed and not taken are released with the socket, and so with the last
    // process.
    drop((fd, sockets));
    let started = start(board, plan, setting);
    places.into_iter().for_each(world::close);
    let ended = started.and_then(|left| end(board, left, setting));
    let said = board.said();
    let tally = tally(board);
    // SAFETY: All processes have ended, and this process has copied the text.
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

/// Starts the processes, and returns their ids.
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

/// Waits for the processes, and for the orphans of their children.
fn end(board: &Board, mut left: Vec<i32>, setting: Setting) -> Result<()> {
    // Each step ends in time, or the watch of its process reports that it does not.
    let mut deadline = Instant::now() + setting.stuck() * 20;
    while let Some(pid) = signals::next_ended() {
        if pid > 0 {
            left.retain(|other| *other != pid);
            continue;
        }
        // After a fault, the remaining processes get only a short time to end.
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

/// Kills the remaining processes, and fails if they do not end soon.
fn killed(left: Vec<i32>, setting: Setting) -> Result<()> {
    left.into_iter().for_each(signals::kill);
    let deadline = Instant::now() + setting.dead();
    while signals::next_ended().is_some() {
        ensure!(Instant::now() < deadline, "a killed process does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Fails if resources of the crowd remain.
fn quiet(setting: Setting) -> Result<()> {
    let deadline = Instant::now() + setting.stuck();
    loop {
        // Without debugfs there are no counters to check.
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
            "no process has port {port}, and to bind it is {bound:?}"
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

/// Continues as a process of the crowd after `exec`.
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
