// SPDX-License-Identifier: GPL-2.0
//! The emulator as a program: reads the configuration, and serves until it is told to end.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::Sender;
use std::sync::mpsc::channel;
use std::thread;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use clap::Parser;
use ntb_emulator::config::Topology;
use ntb_emulator::emulator::Emulator;
use ntb_emulator::emulator::Event;
use ntb_emulator::priority;
use signal_hook::consts::SIGHUP;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

const EXAMPLE: &str = r#"Example of a configuration: two guests, one link

  {
    "directory": "/run/lab",
    "guests": [
      { "ram_file": "/dev/shm/ram-0", "ram_size": 536870912, "dma_channels": 1 },
      { "ram_file": "/dev/shm/ram-1", "ram_size": 536870912, "dma_channels": 1 }
    ],
    "links": [
      { "upstream": 0, "downstream": 1, "personality": "gen5", "windows": "aperture" }
    ]
  }

personality  gen5 (Intel 8086:0db4), gen3 (8086:201c, translations aligned to the window),
             amd (AMD 1022:17d7: eight scratchpads), or
             idt (IDT 111d:808f: outbound translation, messages; windows are "aperture" or "trapped")
windows      "aperture": window 0 traps, window 1 is mapped over all of the peer's RAM;
             {"fixed": {"base": B, "size": S}}: both are mapped, at B and B+S of the peer's RAM;
             "mixed": the same, but window 1 of the downstream guest traps, too;
             {"trapped": {"size": S}}: both trap

To make links and DMA engines take time as on hardware (Documentation/link-model.rst):

  { "directory": "/run/lab", "slowdown": 20,
    "guests": [ { ..., "engine": { "bandwidth": 4500000000, "descriptor_ns": 250 } }, ... ],
    "links": [ { ..., "model": { "bandwidth": 7235000000, "read_ns": 900 } } ] }

model        the model of a link: bandwidth (bytes per second, each direction), posted_ns, read_ns,
             register_read_ns, payload, request, outstanding; {} is PCIe Gen 3 with 8 lanes
engine       the model of each DMA function of a guest: bandwidth, descriptor_ns; {} has defaults
slowdown     the factor by which models are slower than hardware, as emulated guests are slower

To make writes across links arrive late, and out of order where PCI Express allows it; not together
with a model (Documentation/pcie-order.rst):

  { "directory": "/run/lab", "weak_order": { "seed": 7, "engines": "switch" }, ... }

seed         decides which writes are held, and for how long
engines      "switch": reads by a CPU do not push writes of engines; "root": reads by a CPU push
             them, for which all windows must trap

Each function gets a vfio-user socket in the directory: guest-G-ntb-N.sock, guest-G-dma-N.sock.
Start QEMU, after "ready" has been printed, with
  -object memory-backend-file,id=ram,size=512M,mem-path=/dev/shm/ram-0,share=on
  -machine q35,memory-backend=ram
  -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"/run/lab/guest-0-ntb-0.sock"}}'

Control and counters, one JSON value per line on the socket emulator.sock:
  {"request":"counters"} {"request":"reset-counters"} {"request":"state"}
  {"request":"link","a":0,"b":1,"up":false} {"request":"reseed","seed":8}
  {"request":"shutdown"}"#;

/// PCIe non-transparent bridges and DMA engines for QEMU guests, over vfio-user
#[derive(Parser)]
#[command(version, after_help = EXAMPLE)]
struct Arguments {
    /// The guests and links to emulate (JSON)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Exit at the end of standard input, so when the program that started this one exits
    #[arg(long)]
    until_eof: bool,

    /// Report connections and link changes
    #[arg(long, short)]
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let level = if arguments.verbose { "info" } else { "warn" };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).init();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ntb-emulator: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    // For all threads that are started below. Without the priority all works, only later.
    if let Err(error) = priority::raise() {
        log::warn!("threads of devices have no priority over guests' CPUs: {error}");
    }
    let (sender, events) = channel();
    report_panics(&sender);
    end_on_signals(&sender)?;
    let topology = Topology::load(&arguments.config)?;
    let emulator = Emulator::start(topology, sender.clone())?;
    if arguments.until_eof {
        end_on_eof(&sender)?;
    }
    println!("ready");
    std::io::stdout().flush().context("cannot say ready")?;
    let event = events
        .recv()
        .context("all threads of the emulator have ended")?;
    drop(emulator);
    match event {
        Event::Shutdown => Ok(()),
        Event::Failed(error) => Err(error),
    }
}

/// Makes a panic of any thread end the process in order.
fn report_panics(events: &Sender<Event>) {
    let events = events.clone();
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        default(panic);
        let error = anyhow!("internal error: {panic}");
        // If the receiver is gone, the process is about to end.
        let _ = events.send(Event::Failed(error));
    }));
}

fn end_on_signals(events: &Sender<Event>) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot handle signals")?;
    let events = events.clone();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                // If the receiver is gone, the process is about to end.
                let _ = events.send(Event::Shutdown);
            }
        })
        .context("cannot start the thread for signals")?;
    Ok(())
}

fn end_on_eof(events: &Sender<Event>) -> Result<()> {
    let events = events.clone();
    thread::Builder::new()
        .name("standard input".to_owned())
        .spawn(move || {
            // An error also means that the starter is gone.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            let _ = events.send(Event::Shutdown);
        })
        .context("cannot start the thread for standard input")?;
    Ok(())
}
