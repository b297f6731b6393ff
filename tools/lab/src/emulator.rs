// SPDX-License-Identifier: GPL-2.0
//! The emulator process of a lab: its configuration, its life, and its control connection.
//!
//! It has to be ready before any QEMU starts and to outlive them all: a QEMU whose devices
//! vanish may abort. If it ends by itself, the lab is over.

use std::fs;
use std::fs::File;
use std::io::BufRead;
use std::io::BufReader;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use ntb_emulator::config::Topology;
use ntb_emulator::control::Client;
use rustix::process::Signal;

use crate::config::Config;
use crate::limits::hang_limit;
use crate::paths;
use crate::paths::LabPaths;
use crate::process::Supervised;
use crate::process::describe;
use crate::text::last_lines;

/// Time within which the emulator must listen.
const START: Duration = hang_limit(60);

/// The running emulator.
pub(crate) struct Emulator {
    process: Supervised,
}

impl Emulator {
    /// Starts the emulator, and waits until it listens. Calls `on_exit` when it ends.
    pub(crate) fn start(
        config: &Config,
        paths: &LabPaths,
        topology: &Topology,
        on_exit: impl FnOnce(ExitStatus) + Send + 'static,
    ) -> Result<Emulator> {
        let program = paths::sibling("ntb-emulator", config.emulator.as_deref())?;
        let file = paths.folder().join("emulator.json");
        fs::write(&file, serde_json::to_vec_pretty(topology)?)
            .with_context(|| format!("cannot write {}", file.display()))?;

        let log = paths.emulator_log();
        let mut command = Command::new(program);
        command
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).with_context(|| format!("cannot make {}", log.display()))?);
        let (process, stdout) = Supervised::spawn("the emulator", command, on_exit)?;
        let stdout = stdout.context("the emulator has no standard output")?;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            // The thread reads on after "ready", so that the emulator can never block on this pipe.
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        loop {
            match receiver.recv_timeout(START) {
                Ok(line) if line.trim() == "ready" => return Ok(Emulator { process }),
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    bail!("the emulator is not ready after {} s", START.as_secs())
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    process.wait(hang_limit(5));
                    bail!("{}", Self::epitaph(&process, paths));
                }
            }
        }
    }

    fn epitaph(process: &Supervised, paths: &LabPaths) -> String {
        let end = process
            .exited()
            .map_or("closed its output".into(), describe);
        let log = fs::read_to_string(paths.emulator_log()).unwrap_or_default();
        format!("the emulator {end}:\n{}", last_lines(&log, 10))
    }

    /// Returns why the emulator is gone, if it is.
    pub(crate) fn failure(&self, paths: &LabPaths) -> Option<String> {
        self.process.exited()?;
        Some(Self::epitaph(&self.process, paths))
    }

    /// Opens a control connection.
    pub(crate) fn client(&self, paths: &LabPaths) -> Result<Client> {
        Client::connect(paths.folder())
    }

    /// Returns the process id, for people.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends the emulator: by a signal first, and by force after a while. No QEMU may run any more.
    pub(crate) fn stop(&self) {
        self.process.signal(Signal::TERM);
        if self.process.wait(hang_limit(3)).is_none() {
            self.process.kill();
        }
    }
}
