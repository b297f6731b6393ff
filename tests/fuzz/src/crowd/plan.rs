// SPDX-License-Identifier: GPL-2.0

//! The plan of a crowd: a list of steps made from a seed. Each thread does its own steps in this
//! order.
//!
//! The planner can't know the state that a step will find, as other threads go on meanwhile. So
//! steps that belong together, such as bind and listen, follow each other. Most slots are either
//! for listeners or for connections.

use std::ops::Range;

use crate::crowd::steps::OR_NEXT;
use crate::crowd::steps::SLOTS;
use crate::crowd::steps::Step;
use crate::crowd::steps::THREADS;
use crate::memory::PAGE;

/// Ports of a crowd's listeners.
pub const PORTS: Range<u16> = 3200..3206;

/// Slots for listeners. The other slots are for connections.
const LISTENERS: Range<usize> = 0..2;

/// Number of pages, and of offsets, at which windows begin.
const PAGES: u64 = 6;

/// A source of steps that a seed determines.
pub struct Planner {
    random: fastrand::Rng,
    /// Steps that follow, the last one first.
    next: Vec<Step>,
}

impl Planner {
    pub fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            next: Vec::new(),
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.random.u32(..n) == 0
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.random.usize(..values.len())]
    }

    fn listener(&mut self) -> usize {
        match self.one_in(12) {
            true => self.random.usize(..SLOTS),
            false => self.random.usize(LISTENERS),
        }
    }

    fn slot(&mut self) -> usize {
        match self.one_in(12) {
            true => self.random.usize(..SLOTS),
            false => self.random.usize(LISTENERS.end..SLOTS),
        }
    }

    /// Returns a slot, mostly one that is connected.
    fn connected(&mut self) -> usize {
        self.random.usize(..SLOTS) + if self.one_in(8) { 0 } else { OR_NEXT }
    }

    fn port(&mut self) -> u16 {
        match self.one_in(16) {
            true => self.of(&[0, 1]),
            false => self.random.u16(PORTS),
        }
    }

    fn len(&mut self) -> u64 {
        match self.random.u32(..12) {
            0 => self.of(&[0, 1, PAGE]),
            1 => self.random.u64(1..6 * PAGE),
            _ => self.random.u64(1..600),
        }
    }

    fn message(&mut self) -> i32 {
        match self.random.u32(..16) {
            0 => self.of(&[0, -1]),
            1 => self.random.i32(1..40_000),
            _ => self.random.i32(1..600),
        }
    }

    fn flags(&mut self, allowed: i32) -> i32 {
        match self.one_in(32) {
            true => self.of(&[-1, 0x40]),
            false => self.random.i32(..) & allowed,
        }
    }

    fn at(&mut self) -> i64 {
        self.random.u64(..PAGES) as i64 * PAGE as i64
    }

    fn offset(&mut self) -> i64 {
        self.at()
            + if self.random.bool() {
                0
            } else {
                self.random.i64(0..PAGE as i64)
            }
    }

    fn word(&mut self) -> i64 {
        self.at() + self.random.i64(0..PAGE as i64 / 8) * 8 + self.of(&[0, 0, 0, 4, 1])
    }

    fn protection(&mut self) -> i32 {
        self.of(&[3, 3, 3, 3, 1, 2, 0])
    }

    /// Returns the next step of a thread.
    pub fn step(&mut self, actor: usize) -> Step {
        if let Some(step) = self.next.pop() {
            return step;
        }
        match self.random.u32(..64) {
            0..2 => self.listen(actor),
            2..10 => self.accept(actor),
            10..17 => self.connect(actor),
            17..31 => self.message_step(actor),
            31..57 => self.memory_step(actor),
            57 => self.bind(actor),
            _ => self.descriptor_step(actor),
        }
    }

    fn listen(&mut self, actor: usize) -> Step {
        let slot = self.listener();
        let backlog = self.of(&[1, 2, 8, 8, 16, 16, 16, 0]);
        // Most binds use a port of the thread's own, which is mostly free.
        let own =
            PORTS.start + ((actor / THREADS * LISTENERS.len() + slot) as u16 % PORTS.len() as u16);
        let port = if self.one_in(6) { self.port() } else { own };
        let accept = self.accept(actor);
        self.next.push(accept);
        if self.one_in(3) {
            let name = self.random.u32(1..5);
            self.next.push(Step::BindName { actor, slot, name });
        }
        self.next.push(Step::Listen {
            actor,
            slot,
            backlog,
        });
        self.next.push(Step::Bind { actor, slot, port });
        Step::Renew {
            actor,
            slot: slot + if self.one_in(6) { 0 } else { OR_NEXT },
            nonblocking: self.random.bool(),
        }
    }

    fn accept(&mut self, actor: usize) -> Step {
        Step::Accept {
            actor,
            slot: self.listener() + if self.one_in(8) { 0 } else { OR_NEXT },
            into: self.slot(),
            flags: self.flags(1),
        }
    }

    fn connect(&mut self, actor: usize) -> Step {
        let slot = self.slot();
        let connect = match self.one_in(6) {
            true => Step::ConnectName {
                actor,
                slot,
                name: self.random.u32(1..5),
            },
            false => Step::Connect {
                actor,
                slot,
                port: self.port(),
            },
        };
        if self.random.bool() {
            // The second connect collects the result of the first one.
            self.next.push(connect);
            self.next.push(Step::Poll {
                actor,
                slot,
                milliseconds: 5,
            });
        }
        self.next.push(connect);
        Step::Renew {
            actor,
            slot: slot + if self.one_in(3) { 0 } else { OR_NEXT },
            nonblocking: self.random.bool(),
        }
    }

    fn message_step(&mut self, actor: usize) -> Step {
        let slot = self.connected();
        match self.random.u32(..8) {
            0..3 => Step::Send {
                actor,
                slot,
                len: self.message(),
                flags: self.flags(1),
            },
            3 => Step::SendAll {
                actor,
                slot,
                len: self.len(),
                flags: self.flags(1) as u32,
            },
            4..7 => Step::Receive {
                actor,
                slot,
                len: self.message(),
                flags: self.flags(1),
            },
            _ => Step::Poll {
                actor,
                slot: self.random.usize(..SLOTS),
                milliseconds: self.of(&[0, 0, 2]),
            },
        }
    }

    fn memory_step(&mut self, actor: usize) -> Step {
        let slot = self.connected();
        match self.random.u32(..20) {
            0..5 => Step::Register {
                actor,
                slot,
                page: self.random.u64(..PAGES),
                pages: self.of(&[1, 1, 2, 3, 0]),
                at: self.at(),
                protection: self.protection(),
                flags: self.of(&[0x10, 0x10, 0x10, 0]),
            },
            5 => Step::Memory {
                actor,
                slot,
                page: self.random.u64(..PAGES),
                pages: self.of(&[1, 1, 2]),
                at: self.at(),
                protection: self.protection(),
                flags: self.of(&[0x10, 0]),
            },
            6 => Step::Unregister {
                actor,
                slot,
                at: self.at(),
                pages: self.of(&[1, 1, 1, 2, 6, 0]),
            },
            7..11 => Step::Copy {
                actor,
                slot,
                write: self.random.bool(),
                local: self.offset(),
                remote: self.offset(),
                len: self.len(),
                flags: self.flags(0xf),
            },
            11..15 => Step::CopyMemory {
                actor,
                slot,
                write: self.random.bool(),
                page: self.random.u64(..PAGES),
                remote: self.offset(),
                len: self.len(),
                flags: self.flags(0xf),
            },
            15 => Step::Map {
                actor,
                slot,
                at: self.at(),
                write: self.random.bool(),
            },
            16..18 => Step::Mark {
                actor,
                slot,
                flags: self.of(&[1, 2, 1, 2, 0]),
            },
            _ => Step::Signal {
                actor,
                slot,
                flags: self.of(&[1, 2]) | self.of(&[0x10, 0x20, 0x30, 0]),
                local: self.word(),
                remote: self.word(),
            },
        }
    }

    fn descriptor_step(&mut self, actor: usize) -> Step {
        let slot = self.random.usize(..SLOTS);
        match self.random.u32(..8) {
            0 => Step::Renew {
                actor,
                slot,
                nonblocking: self.random.bool(),
            },
            1..3 => Step::Share {
                actor,
                slot,
                into: self.random.usize(..SLOTS),
            },
            3 => Step::Pass { actor, slot },
            4 => Step::Take { actor, into: slot },
            5 => Step::Nodes { actor, slot },
            6 => Step::Status { actor, slot },
            _ => Step::Interrupt {
                actor,
                whom: actor / THREADS * THREADS + self.random.usize(..THREADS),
            },
        }
    }

    /// Binds the endpoint of any slot.
    fn bind(&mut self, actor: usize) -> Step {
        Step::Bind {
            actor,
            slot: self.random.usize(..SLOTS),
            port: self.port(),
        }
    }
}

/// Makes the plan of a seed.
pub fn plan(seed: u64) -> Vec<Step> {
    let mut random = fastrand::Rng::with_seed(seed);
    let processes = random.usize(2..=3);
    let mut actors: Vec<(usize, Planner)> = Vec::new();
    for process in 0..processes {
        for thread in 0..random.usize(2..=3) {
            let actor = process * THREADS + thread;
            actors.push((actor, Planner::new(random.u64(..))));
        }
    }
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        for (actor, planner) in &mut actors {
            steps.push(planner.step(*actor));
            // A forked process would keep the own endpoints of other threads open. So the threads
            // of a process either fork or use own endpoints.
            let forks = *actor < THREADS;
            if random.u32(..if forks { 40 } else { 24 }) == 0 {
                let further = match forks {
                    true => of_children(&mut random, *actor),
                    false => Step::Own {
                        actor: *actor,
                        seed: random.u64(..),
                        calls: random.usize(20..200),
                    },
                };
                steps.push(further);
            }
        }
    }
    if random.u32(..4) == 0 {
        let process = random.usize(..processes);
        let at = random.usize(steps.len() / 2..steps.len());
        let actor = process * THREADS;
        steps.insert(at, Step::Die { actor });
    }
    steps
}

/// Number of steps of each thread in a plan.
const STEPS: usize = 120;

fn of_children(random: &mut fastrand::Rng, actor: usize) -> Step {
    let seed = random.u64(..);
    let calls = random.usize(5..60);
    match random.u32(..8) {
        0 => Step::Exec { actor, seed, calls },
        1..5 => Step::Fork { actor, seed, calls },
        _ => Step::Kill { actor },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines;

    #[test]
    fn same_seed_makes_the_same_plan_and_plans_parse_back() {
        let steps = plan(5);
        assert_eq!(plan(5), steps);
        assert_ne!(plan(6), steps);
        assert_eq!(lines::parse::<Step>(&lines::print(&steps)).unwrap(), steps);
    }

    #[test]
    fn plans_contain_every_kind_of_step() {
        let mut words: Vec<&str> = (0..200).flat_map(plan).map(|step| step.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Step::WORDS.len());
    }

    #[test]
    fn forking_process_has_no_endpoints_of_its_own() {
        for step in (0..50).flat_map(plan) {
            match step {
                Step::Own { .. } => assert!(step.process() > 0),
                Step::Fork { .. } | Step::Exec { .. } => assert_eq!(step.process(), 0),
                _ => (),
            }
        }
    }
}
