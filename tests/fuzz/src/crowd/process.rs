// SPDX-License-Identifier: GPL-2.0

//! A process of a crowd: its threads, and a watch over them. The watch interrupts calls that wait
//! long, and finds calls that should not wait any more.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use rustix::event::PollFlags;

use crate::crowd::actor::Actor;
use crate::crowd::board::Board;
use crate::crowd::board::Thread;
use crate::crowd::setting::Setting;
use crate::crowd::signals;
use crate::crowd::steps::SLOTS;
use crate::crowd::steps::Step;
use crate::crowd::steps::THREADS;
use crate::crowd::world::World;
use crate::crowd::world::slot_fd;
use crate::kernel;

/// The watch's record of a thread.
#[derive(Clone, Copy)]
struct Seen {
    progress: u32,
    since: Instant,
    /// Time at which `poll` first showed that the call should end.
    ready: Option<Instant>,
}

/// Runs the process of this number to its end.
pub fn process(world: &World, number: usize, plan: &[Step]) -> Result<()> {
    signals::install();
    let setup = Actor::new(world, None);
    for slot in 0..SLOTS {
        setup.renew(slot, slot % 2 == 0)?;
    }
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for actor in number * THREADS..(number + 1) * THREADS {
            if plan.iter().any(|step| step.actor() == actor) {
                let thread = &world.board.threads[actor];
                running.push((actor, scope.spawn(move || act(world, actor, thread, plan))));
            }
        }
        let start = Seen {
            progress: 0,
            since: Instant::now(),
            ready: None,
        };
        let mut seen = [start; THREADS];
        while running.iter().any(|(_, thread)| !thread.is_finished()) {
            std::thread::sleep(world.setting.patience() / 2);
            for (actor, running) in &running {
                let is_there = !running.is_finished();
                let thread = &world.board.threads[*actor];
                if is_there && watch(world, thread, &mut seen[actor % THREADS], plan) {
                    // Exits without joining the stuck thread, which can't be waited for.
                    signals::end();
                }
            }
        }
    });
    Ok(())
}

/// Does the steps of a thread.
fn act(world: &World, number: usize, thread: &Thread, plan: &[Step]) {
    thread.id.store(signals::own_id(), SeqCst);
    let mut actor = Actor::new(world, Some(thread));
    for (index, step) in plan.iter().enumerate() {
        if step.actor() != number {
            continue;
        }
        if world.board.is_wrong() {
            break;
        }
        thread.step.store(index as u32 + 1, SeqCst);
        thread.progress.fetch_add(1, SeqCst);
        if let Err(error) = actor.step(step) {
            world.board.say(&format!("step {index}, {step}: {error:#}"));
            break;
        }
    }
    thread.step.store(0, SeqCst);
    thread.progress.fetch_add(1, SeqCst);
    if let Err(error) = actor.reap_all() {
        world.board.say(&format!("{error:#}"));
    }
    thread.id.store(0, SeqCst);
}

/// Checks the progress of a thread. Returns true if the thread is stuck.
fn watch(world: &World, thread: &Thread, seen: &mut Seen, plan: &[Step]) -> bool {
    let progress = thread.progress.load(SeqCst);
    if progress != seen.progress {
        *seen = Seen {
            progress,
            since: Instant::now(),
            ready: None,
        };
        return false;
    }
    let time = seen.since.elapsed();
    if time < world.setting.patience() {
        return false;
    }
    let is_ready = is_ready(world, thread);
    seen.ready = is_ready.then(|| seen.ready.unwrap_or_else(Instant::now));
    let complaint = match seen.ready {
        Some(ready) if ready.elapsed() > world.setting.awake() => "poll reports it as ready",
        // The call gets some time to end by itself.
        Some(_) => return false,
        None if time > world.setting.stuck() => "the step does not end",
        None => {
            signals::interrupt(thread.id.load(SeqCst));
            return false;
        }
    };
    let step = thread.step.load(SeqCst) as usize;
    let step = step.checked_sub(1).and_then(|index| plan.get(index));
    let step = step.map_or("after its last step".to_owned(), ToString::to_string);
    let id = thread.id.load(SeqCst);
    world.board.say(&format!(
        "thread {id}, {step}: for {time:?}: {complaint}\n{}",
        signals::stacks(std::process::id() as i32)
    ));
    true
}

/// Returns whether `poll` shows that the call in which a thread waits should end.
fn is_ready(world: &World, thread: &Thread) -> bool {
    let events = PollFlags::from_bits_truncate(thread.events.load(SeqCst) as u16);
    let slot = thread.slot.load(SeqCst) as usize;
    let version = Some(thread.version.load(SeqCst));
    let table = world.board.table(world.table);
    let is_same = || table.slots[slot % SLOTS].version() == version;
    if events.is_empty() || !is_same() {
        return false;
    }
    kernel::poll(slot_fd(slot).into(), events, 0).intersects(events) && is_same()
}

/// Makes the world of a process.
pub fn world(board: &'static Board, setting: Setting) -> Result<World> {
    let table = board.table_made().context("too many processes")?;
    World::new(board, table, setting)
}
