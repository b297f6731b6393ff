// SPDX-License-Identifier: GPL-2.0
//! What the tests of the module share: loading it, reading what it shows in debugfs, its
//! command line tool and the C programs in tests/programs.
//!
//! Nothing is asserted here about what the module does; that is in the files of the tests.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::io::BufWriter;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::bail;
use anyhow::ensure;
use lab::Lab;
use lab::Outcome;
use lab::Output;
use lab::Personality;
use lab::Process;
use lab::Windows;
use lab::paths;
use lab::wait_until;
use sha2::Digest;
use sha2::Sha256;

use crate::heartbeat;
use crate::loaded::Loaded;

/// Where the module's files are in a guest.
pub const DEBUGFS: &str = "/sys/kernel/debug/scif";

/// The file given on the command line.
pub static GIVEN_MODULE: OnceLock<PathBuf> = OnceLock::new();

/// What the module is made of.
const SOURCES: &[&str] = &["drivers/misc/scif", "include"];

/// The module for a lab's kernel.
pub fn module(lab: &Lab) -> Result<PathBuf> {
    match GIVEN_MODULE.get() {
        Some(path) => Ok(path.clone()),
        None => lab.built_from("scif.ko", SOURCES),
    }
}

/// Whether a store of a node's processor into its peer's memory takes microseconds, as it does on no real machine.
fn stores_trap(lab: &Lab, node: usize) -> bool {
    let config = lab.config();
    config.weak_order.is_some()
        || config.personality == Personality::Idt
        || match config.windows {
            Windows::Trapped { .. } => true,
            Windows::Mixed => node == 1,
            Windows::Aperture | Windows::Fixed { .. } => false,
        }
}

/// The parameters of the module for a node. Engines make all copies that they can where stores trap.
pub fn parameters(lab: &Lab, node: usize, how: Loaded) -> Result<String> {
    // The nodes of a lab trust each other: without an IOMMU it is flat.
    let mut words = vec![
        heartbeat::parameter(lab, node, how)?,
        "allow_flat=1".to_owned(),
    ];
    if stores_trap(lab, node) {
        words.push("dma_threshold=0".to_owned());
    }
    // The ports of an NTB tell two nodes apart, not more.
    if lab.nodes() > 2 {
        words.push(format!("node_id={node}"));
    }
    // As modprobe takes them from the kernel command line.
    let append = lab.config().append.iter();
    let ours = append.filter_map(|word| word.strip_prefix("scif."));
    words.extend(ours.map(str::to_owned));
    Ok(words.join(" "))
}

/// Loads the module in a node. That takes the in-tree modules the lab has loaded already.
pub fn load(lab: &Lab, node: usize, how: Loaded) -> Result<()> {
    load_with(lab, node, how, "")
}

/// The same with another parameter.
pub fn load_with(lab: &Lab, node: usize, how: Loaded, parameter: &str) -> Result<()> {
    let usual = parameters(lab, node, how)?;
    lab.insmod(node, module(lab)?, &format!("{usual} {parameter}"))
}

fn parameter_file(name: &str) -> String {
    format!("/sys/module/scif/parameters/{name}")
}

/// A parameter of the loaded module.
fn parameter(lab: &Lab, node: usize, name: &str) -> Result<String> {
    let text = lab.shell(node, &format!("cat {}", parameter_file(name)))?;
    Ok(text.trim().to_owned())
}

/// Sets a parameter of the loaded module in all nodes.
pub fn set_parameter(lab: &Lab, name: &str, value: &str) -> Result<()> {
    for node in 0..lab.nodes() {
        lab.node(node).write(&parameter_file(name), value)?;
    }
    Ok(())
}

/// Does some work while a parameter has this value in all nodes, and sets it back to that of node 0.
pub fn with_parameter(
    lab: &Lab,
    name: &str,
    value: &str,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let usual = parameter(lab, 0, name)?;
    set_parameter(lab, name, value)?;
    let result = work();
    set_parameter(lab, name, &usual)?;
    result
}

/// Does some work with every transfer by the engine that can be.
pub fn all_by_engine(lab: &Lab, work: impl FnOnce() -> Result<()>) -> Result<()> {
    with_parameter(lab, "dma_threshold", "0", work)
}

/// Does some work with every read by the peer's engine that can be.
pub fn all_by_peer(lab: &Lab, work: impl FnOnce() -> Result<()>) -> Result<()> {
    set_parameter(lab, "push_threshold", "0")?;
    let result = all_by_engine(lab, work);
    set_parameter(lab, "push_threshold", "-1")?;
    result
}

/// Loads the module in all nodes and waits until those with a link see each other.
pub fn load_everywhere(lab: &Lab, how: Loaded) -> Result<()> {
    for node in 0..lab.nodes() {
        load(lab, node, how)?;
    }
    for (a, b) in lab.config().links() {
        online(lab, a, b)?;
        online(lab, b, a)?;
    }
    Ok(())
}

/// Unloads the module from all nodes.
pub fn unload_everywhere(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        lab.rmmod(node, "scif")?;
    }
    Ok(())
}

// ----- what the module shows --------------------------------------------------------------

/// A node as another (or itself) sees it: a line of debugfs's scif/nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its id.
    pub id: u16,
    /// self, online or lost.
    pub state: String,
    /// loopback, or ntb: and a device.
    pub link: String,
    /// How its memory is reached.
    pub aperture: String,
    /// One start of the module on it.
    pub generation: String,
}

/// The nodes that a node knows.
pub fn nodes(lab: &Lab, node: usize) -> Result<Vec<Seen>> {
    let text = lab.node(node).read(&format!("{DEBUGFS}/nodes"))?;
    let mut lines = text.lines();
    ensure!(
        lines.next() == Some("node state link aperture generation"),
        "scif/nodes has another header:\n{text}"
    );
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let [id, state, link, aperture, generation] = fields[..] else {
                bail!("not a line of scif/nodes: '{line}'");
            };
            Ok(Seen {
                id: id.parse().with_context(|| format!("in '{line}'"))?,
                state: state.to_owned(),
                link: link.to_owned(),
                aperture: aperture.to_owned(),
                generation: generation.to_owned(),
            })
        })
        .collect()
}

/// The lines of a table in debugfs, by the names of its columns.
pub fn table(lab: &Lab, node: usize, name: &str) -> Result<Vec<BTreeMap<String, String>>> {
    let text = lab.node(node).read(&format!("{DEBUGFS}/{name}"))?;
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    lines
        .map(|line| {
            let values: Vec<&str> = line.split(' ').collect();
            ensure!(
                values.len() == names.len(),
                "not a line of scif/{name}: '{line}'"
            );
            let pairs = names.iter().zip(values);
            Ok(pairs
                .map(|(name, value)| ((*name).to_owned(), value.to_owned()))
                .collect())
        })
        .collect()
}

/// What `node` knows of `id`, if anything.
pub fn seen(lab: &Lab, node: usize, id: usize) -> Result<Option<Seen>> {
    Ok(nodes(lab, node)?
        .into_iter()
        .find(|seen| usize::from(seen.id) == id))
}

/// Waits until `node` sees `id` in a state.
pub fn state(lab: &Lab, node: usize, id: usize, state: &str, limit: Duration) -> Result<Seen> {
    let what = format!("node {node} sees node {id} {state}");
    wait_until(&what, limit, || {
        Ok(seen(lab, node, id)?.filter(|seen| seen.state == state))
    })
}

/// Waits until `node` sees `id` online.
pub fn online(lab: &Lab, node: usize, id: usize) -> Result<Seen> {
    state(lab, node, id, "online", lab.hang_limit(20))
}

/// Waits until both nodes of a pair see each other in sessions other than the given ones;
/// returns those that they are in, seen from node 0 and from node 1.
pub fn pair_online_anew(lab: &Lab, before: &[Seen; 2]) -> Result<[Seen; 2]> {
    let limit = lab.hang_limit(20);
    let find = |node: usize, id: usize| {
        let what = format!("node {node} sees node {id} online again, in another generation");
        wait_until(&what, limit, || {
            Ok(seen(lab, node, id)?.filter(|seen| {
                seen.state == "online" && seen.generation != before[node].generation
            }))
        })
    };
    Ok([find(0, 1)?, find(1, 0)?])
}

/// What the table of links of a node says of the one to another node, as far as it is `wanted`.
pub fn check_link(lab: &Lab, node: usize, wanted: &[(&str, &str)]) -> Result<()> {
    let links = table(lab, node, "links")?;
    let link = links.iter().find(|link| link["link"].starts_with("ntb:"));
    ensure!(
        link.is_some_and(|link| wanted.iter().all(|(name, value)| link[*name] == *value)),
        "node {node}: {links:#?}"
    );
    Ok(())
}

/// The module's counters.
pub fn counters(lab: &Lab, node: usize) -> Result<BTreeMap<String, u64>> {
    parse_counters(&lab.node(node).read(&format!("{DEBUGFS}/counters"))?)
}

fn parse_counters(text: &str) -> Result<BTreeMap<String, u64>> {
    text.lines()
        .map(|line| {
            line.split_once(' ')
                .and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
                .with_context(|| format!("not a counter: '{line}'"))
        })
        .collect()
}

/// Bytes that a node's engine has copied for the module.
pub fn dma_bytes(lab: &Lab, node: usize) -> Result<u64> {
    Ok(counters(lab, node)?.get("dma_bytes").copied().unwrap_or(0))
}

/// Whether the module is loaded.
pub fn is_loaded(lab: &Lab, node: usize) -> Result<bool> {
    Ok(lab.exec(node, ["test", "-e", "/sys/module/scif"])?.code() == Some(0))
}

/// What a node has loaded, and what it holds, read at once: a process takes long to start in a guest.
pub struct Glance {
    /// The names of its modules.
    pub modules: BTreeSet<String>,
    /// What the module counts, if it is loaded, and what the kernel does.
    counts: BTreeMap<String, u64>,
}

impl Glance {
    /// Reads it.
    pub fn at(lab: &Lab, node: usize) -> Result<Glance> {
        let counters = format!("{DEBUGFS}/counters");
        // Each processor counts pinned pages for itself; reading stat_refresh adds it all up. Without the module its
        // file is not there, of which cat complains.
        let files = [
            "/proc/sys/vm/stat_refresh",
            &counters,
            "/proc/vmstat",
            "/proc/modules",
        ];
        let output = lab.exec(node, ["cat"].iter().chain(&files).copied())?;
        let mut glance = Glance {
            modules: BTreeSet::new(),
            counts: BTreeMap::new(),
        };
        for line in output.stdout().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                [name, value] => {
                    let value = value.parse().with_context(|| format!("in '{line}'"))?;
                    glance.counts.insert(name.to_owned(), value);
                }
                [module, _, _, ..] => {
                    glance.modules.insert(module.to_owned());
                }
                _ => bail!("neither a counter nor a module: '{line}'"),
            }
        }
        ensure!(
            !glance.counts.is_empty(),
            "node {node} shows nothing: {output}"
        );
        Ok(glance)
    }

    /// Whether the module is loaded.
    pub fn has_scif(&self) -> bool {
        self.modules.contains("scif")
    }

    /// Copies of engines for the module that failed; none if it is not loaded.
    pub fn dma_errors(&self) -> u64 {
        self.counts.get("dma_errors").copied().unwrap_or(0)
    }

    /// Whether the module, which is loaded, holds nothing for anybody: connections, windows, pinned pages.
    pub fn is_idle(&self) -> Result<bool> {
        let count = |name: &str| {
            let count = self.counts.get(name);
            count
                .copied()
                .with_context(|| format!("nobody counts {name}"))
        };
        Ok(count("connections")? == 0
            && count("closing_connections")? == 0
            && count("exported_windows")? == 0
            && count("nr_foll_pin_acquired")? == count("nr_foll_pin_released")?)
    }
}

/// An error if a node still holds something for somebody when all programs have ended:
/// connections, windows, pinned pages. Closing goes on for a moment after a process ended.
pub fn check_idle(lab: &Lab, node: usize) -> Result<()> {
    let deadline = Instant::now() + lab.hang_limit(10);
    loop {
        let glance = Glance::at(lab, node)?;
        if glance.is_idle()? {
            return Ok(());
        }
        if Instant::now() > deadline {
            let counts = &glance.counts;
            bail!("node {node} has not let go of everything:\n{counts:#?}");
        }
    }
}

/// Lines of a node's kernel log since the last mark that are errors or worse.
pub fn kernel_errors(lab: &Lab, node: usize) -> Result<Vec<String>> {
    let log = lab.dmesg(node)?;
    Ok(lab::kernel_log::since_mark(&log)
        .lines()
        .filter(|line| {
            line.strip_prefix('<')
                .and_then(|rest| rest.split_once('>')?.0.parse::<u32>().ok())
                .is_some_and(|level| level & 7 <= 3)
        })
        .map(str::to_owned)
        .collect())
}

// ----- programs ---------------------------------------------------------------------------

/// The command line tool, as guests see it.
pub fn tool() -> Result<String> {
    Ok(paths::sibling("scif", None)?.display().to_string())
}

/// What `make tools` has built, by its path in the clone, as guests see it.
pub fn built(path: &str) -> Result<String> {
    let path = paths::repository().join(path);
    ensure!(
        path.exists(),
        "{} does not exist; run 'make tools'",
        path.display()
    );
    Ok(path.display().to_string())
}

/// A C program of tests/programs, as guests see it.
pub fn program(name: &str) -> Result<String> {
    built(&format!("tests/programs/{name}"))
}

/// Runs the tool to its end.
pub fn run_tool(lab: &Lab, node: usize, arguments: &[&str]) -> Result<Output> {
    start_tool(lab, node, arguments)?.wait()
}

/// Starts the tool.
pub fn start_tool(lab: &Lab, node: usize, arguments: &[&str]) -> Result<Process> {
    let mut argv = vec![tool()?];
    argv.extend(arguments.iter().map(|&argument| argument.to_owned()));
    // The time of the test is limited anyway.
    lab.command(node, argv)?
        .timeout(lab.hang_limit(600))
        .spawn()
}

/// A running `scif serve`, with a folder that host and guests see. Dropping it kills it.
pub struct Server<'a> {
    lab: &'a Lab,
    /// The folder, on the host.
    pub folder: PathBuf,
    process: Process,
}

impl<'a> Server<'a> {
    /// Serves a new folder on a node.
    pub fn start(lab: &'a Lab, node: usize) -> Result<Server<'a>> {
        Self::start_with(lab, node, "--bench")
    }

    /// The same with other options; these are words of a shell, which can redirect as well.
    pub fn start_with(lab: &'a Lab, node: usize, options: &str) -> Result<Server<'a>> {
        let name = format!("served-by-{node}");
        let folder = lab.paths().exchange().join(&name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder)?;
        let command = format!("exec {} serve --root /exchange/{name} {options}", tool()?);
        // The time of the test is limited anyway.
        let process = (lab.command(node, ["sh", "-c", &command])?)
            .timeout(lab.hang_limit(600))
            .spawn()?;
        process.wait_for("serving", lab.hang_limit(30))?;
        Ok(Server {
            lab,
            folder,
            process,
        })
    }

    /// What it has said of its clients.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// Ends it as Ctrl-C does, which must work.
    pub fn stop(self) -> Result<()> {
        self.process.signal(2);
        match self.process.wait_timeout(self.lab.hang_limit(20))? {
            Some(output) if output.outcome == Outcome::Exited(0) => Ok(()),
            Some(output) => Err(anyhow!("after SIGINT {output}")),
            None => Err(anyhow!("scif serve does not end after SIGINT")),
        }
    }
}

/// Starts a C program; `seconds` are plenty for it on an idle machine.
pub fn start_program(
    lab: &Lab,
    node: usize,
    name: &str,
    arguments: &[&str],
    seconds: u64,
) -> Result<Process> {
    let mut argv = vec![program(name)?];
    argv.extend(arguments.iter().map(|&argument| argument.to_owned()));
    lab.command(node, argv)?
        .timeout(lab.hang_limit(seconds))
        .spawn()
}

/// Runs one that prints TAP, of which all has to be "ok". Returns what it said.
pub fn run_tap(
    lab: &Lab,
    node: usize,
    name: &str,
    arguments: &[&str],
    seconds: u64,
) -> Result<String> {
    let output = start_program(lab, node, name, arguments, seconds)?.wait()?;
    let text = output.stdout();
    check_tap(output)?;
    Ok(text)
}

/// Starts one that says when it listens.
pub fn start_server(
    lab: &Lab,
    node: usize,
    name: &str,
    arguments: &[&str],
    seconds: u64,
) -> Result<Process> {
    let server = start_program(lab, node, name, arguments, seconds)?;
    server.wait_for("listening", lab.hang_limit(20))?;
    Ok(server)
}

/// The results of a program that prints TAP: an error unless all is "ok", and in the number
/// that was announced.
pub fn check_tap(output: Output) -> Result<()> {
    let text = output.stdout();
    let failures = tap_failures(&text);
    ensure!(
        failures.is_empty(),
        "{}\n{}",
        failures.join("\n"),
        output.stderr()
    );
    let good = text.lines().filter(|line| line.starts_with("ok ")).count();
    ensure!(
        good > 0 && text.lines().any(|line| line == format!("1..{good}")),
        "incomplete: {output}"
    );
    output.success()?;
    Ok(())
}

/// The lines that are "not ok", and the comments below each, which say why.
fn tap_failures(text: &str) -> Vec<&str> {
    let mut failures = Vec::new();
    let mut in_failure = false;
    for line in text.lines() {
        let is_comment = line.starts_with("# ") && !line.contains(" passed, ");
        in_failure = line.starts_with("not ok") || (in_failure && is_comment);
        if in_failure {
            failures.push(line);
        }
    }
    failures
}

// ----- files ------------------------------------------------------------------------------

/// A file with content that does not repeat, in the exchange folder; returns its hash.
pub fn make_file(lab: &Lab, name: &str, size: u64) -> Result<String> {
    let path = lab.paths().exchange().join(name);
    let mut file = BufWriter::new(fs::File::create(&path)?);
    let mut hash = Sha256::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ size;
    let mut block = [0; 8192];
    let mut left = size;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let piece = &block[..left.min(block.len() as u64) as usize];
        file.write_all(piece)?;
        hash.update(piece);
        left -= piece.len() as u64;
    }
    file.flush()?;
    Ok(format!("{:x}", hash.finalize()))
}

/// A file of zeroes in the exchange folder that takes no room, for copies that are not to end: a server
/// takes them only where it has the room.
pub fn make_endless_file(path: &Path) -> Result<()> {
    fs::File::create(path)?.set_len(16 << 30)?;
    Ok(())
}

/// The hash of a file on the host.
pub fn hash_of(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    let mut file =
        fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    std::io::copy(&mut file, &mut hash)?;
    Ok(format!("{:x}", hash.finalize()))
}

/// The names in a folder, without the hidden ones that a file has while it is written.
pub fn names_in(folder: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            names.insert(name);
        }
    }
    Ok(names)
}
