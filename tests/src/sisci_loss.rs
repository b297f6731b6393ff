// SPDX-License-Identifier: GPL-2.0
//! Losses under SISCI: the other side's process is killed, its node is lost, or the link flaps.
//!
//! Meanwhile stores with a checked sequence, DMA with callbacks, and interrupts run at once. The
//! events that the documentation promises come, nothing hangs, and no resources remain (the harness
//! checks).

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Process;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::scif;
use crate::scif_node_loss::USUAL_PAIR;

/// Both sides, in the middle of their work: the server on node 1, and its user on node 0.
struct Sides {
    server: Process,
    user: Process,
}

impl Sides {
    fn start(lab: &Lab, how: &str) -> Result<Sides> {
        let program = scif::built("build/sisci/sisci-loss")?;
        let start = |node: usize, arguments: &[&str], said: &str| -> Result<Process> {
            let mut argv = vec![program.as_str()];
            argv.extend(arguments);
            let process = lab
                .command(node, argv)?
                .timeout(lab.hang_limit(100))
                .spawn()?;
            process
                .wait_for(said, lab.hang_limit(20))
                .with_context(|| format!("on node {node}: {}", process.stderr()))?;
            Ok(process)
        };
        Ok(Sides {
            server: start(1, &["serve"], "serving")?,
            user: start(0, &["run", "1", how], "under way")?,
        })
    }

    /// Checks that the user has reported the other node as out of reach, and the states that hold
    /// meanwhile.
    fn out_of_reach(&self, lab: &Lab) -> Result<()> {
        self.user
            .wait_for("out of reach", lab.hang_limit(20))
            .with_context(|| format!("the user: {}", self.user.stderr()))?;
        Ok(())
    }

    /// Checks that the user ends by itself with success, and reports so.
    fn user_ends(&self, lab: &Lab, said: &str) -> Result<()> {
        let output = self
            .user
            .wait_timeout(lab.hang_limit(30))?
            .with_context(|| format!("the user hangs: {}", self.user.stdout()))?
            .success()?;
        let text = output.stdout();
        ensure!(text.lines().any(|line| line == said), "no '{said}': {text}");
        Ok(())
    }

    /// Checks that the server has reported these events of the user's node, and ends when it gets a
    /// signal.
    fn server_ends(&self, lab: &Lab, said: &[&str]) -> Result<()> {
        for event in said {
            let line = format!("4 is {event}");
            self.server
                .wait_for(&line, lab.hang_limit(20))
                .with_context(|| format!("the server: {}", self.server.stdout()))?;
        }
        self.server.signal(15);
        let output = self
            .server
            .wait_timeout(lab.hang_limit(20))?
            .context("the server hangs")?
            .success()?;
        ensure!(output.stdout().contains("ended"), "{}", output.stdout());
        Ok(())
    }
}

/// Kills either process.
fn killed_process_is_reported(lab: &Lab) -> Result<()> {
    for _ in 0..3 {
        let sides = Sides::start(lab, "process")?;
        sides.server.signal(9);
        sides.user_ends(lab, "lost")?;
        let sides = Sides::start(lab, "process")?;
        sides.user.signal(9);
        sides.server_ends(lab, &["connected", "disconnected"])?;
    }
    for node in 0..2 {
        scif::check_idle(lab, node)?;
    }
    Ok(())
}

/// Kills and restarts the server's node.
fn lost_node_is_reported(lab: &Lab) -> Result<()> {
    let sides = Sides::start(lab, "node")?;
    lab.kill(1)?;
    sides.out_of_reach(lab)?;
    lab.restart(1)?;
    scif::load(lab, 1, Loaded::AsUsual)?;
    sides.user_ends(lab, "lost")?;
    scif::online(lab, 0, 1)?;
    scif::online(lab, 1, 0)?;
    // New connections work.
    let sides = Sides::start(lab, "process")?;
    sides.user.signal(9);
    sides.server_ends(lab, &["disconnected"])
}

/// Takes the link down and up, several times.
fn link_flap_is_reported(lab: &Lab) -> Result<()> {
    for _ in 0..3 {
        let sides = Sides::start(lab, "flap")?;
        lab.set_link(0, 1, false)?;
        sides.out_of_reach(lab)?;
        lab.set_link(0, 1, true)?;
        sides.user_ends(lab, "back")?;
        sides.server_ends(lab, &["connected", "out of reach", "back", "disconnected"])?;
    }
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "sisci_loss::killed_process_is_reported",
        USUAL_PAIR,
        killed_process_is_reported,
    )
    .loses_nodes()
    .seconds(120),
    Test::new(
        "sisci_loss::link_flap_is_reported",
        USUAL_PAIR,
        link_flap_is_reported,
    )
    .loses_nodes()
    .seconds(120),
    Test::new(
        "sisci_loss::lost_node_is_reported",
        USUAL_PAIR,
        lost_node_is_reported,
    )
    .loses_nodes()
    .seconds(180)
    .by_name(),
];
