// SPDX-License-Identifier: GPL-2.0
//! Functions that the tests of the module share: loading it, reading its files in debugfs, its
//! command line tool, and the C programs in tests/programs.
//!
//! This file asserts nothing about the module's behaviour. The files of the tests do that.

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

/// The module's debugfs folder in a guest.
pub const DEBUGFS: &str = "/sys/kernel/debug/scif";

/// The module file given on the command line.
pub static GIVEN_MODULE: OnceLock<PathBuf> = OnceLock::new();

/// The sources of the modules.
const SOURCES: &[&str] = &["drivers", "include"];

/// Returns the path of the module for a lab's kernel.
pub fn module(lab: &Lab) -> Result<PathBuf> {
    match GIVEN_MODULE.get() {
        Some(path) => Ok(path.clone()),
        None => lab.built_from("scif.ko", SOURCES),
    }
}

/// Returns the path of the `scif_net.ko` that was built with the module.
pub fn net_module(lab: &Lab) -> Result<PathBuf> {
    Ok(module(lab)?.with_file_name("net/scif_net.ko"))
}

/// Returns whether a node's CPU stores to its peer's memory take microseconds. This is so on no
/// real machine.
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

/// Returns the parameters of the module for a node. Where stores trap, engines make as many copies
/// as possible.
pub fn parameters(lab: &Lab, node: usize, how: Loaded) -> Result<String> {
    // The nodes of a lab trust each other, so without an IOMMU the mode is flat.
    let mut words = vec![
        heartbeat::parameter(lab, node, how)?,
        "allow_flat=1".to_owned(),
    ];
    if stores_trap(lab, node) {
        words.push("dma_threshold=0".to_owned());
    }
    // The ports of an NTB distinguish only two nodes.
    if lab.nodes() > 2 {
        words.push(format!("node_id={node}"));
    }
    // Takes parameters from the kernel command line, as modprobe does.
    let append = lab.config().append.iter();
    let ours = append.filter_map(|word| word.strip_prefix("scif."));
    words.extend(ours.map(str::to_owned));
    Ok(words.join(" "))
}

/// Loads the module in a node. The lab has already loaded the in-tree modules that it needs.
pub fn load(lab: &Lab, node: usize, how: Loaded) -> Result<()> {
    load_with(lab, node, how, "")
}

/// Loads the module in a node, with an additional parameter.
pub fn load_with(lab: &Lab, node: usize, how: Loaded, parameter: &str) -> Result<()> {
    let usual = parameters(lab, node, how)?;
    lab.insmod(node, module(lab)?, &format!("{usual} {parameter}"))
}

fn parameter_file(name: &str) -> String {
    format!("/sys/module/scif/parameters/{name}")
}

/// Returns a parameter of the loaded module.
fn parameter(lab: &Lab, node: usize, name: &str) -> Result<String> {
    let text = lab.node(node).read(&parameter_file(name))?;
    Ok(text.trim().to_owned())
}

/// Sets a parameter of the loaded module in all nodes.
pub fn set_parameter(lab: &Lab, name: &str, value: &str) -> Result<()> {
    for node in 0..lab.nodes() {
        lab.node(node).write(&parameter_file(name), value)?;
    }
    Ok(())
}

/// Does some work while a parameter has this value in all nodes. Afterwards sets all nodes to the
/// old value of node 0.
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

/// Does some work while the engine makes every transfer that it can.
pub fn all_by_engine(lab: &Lab, work: impl FnOnce() -> Result<()>) -> Result<()> {
    with_parameter(lab, "dma_threshold", "0", work)
}

/// Does some work while the peer's engine makes every read that it can.
pub fn all_by_peer(lab: &Lab, work: impl FnOnce() -> Result<()>) -> Result<()> {
    set_parameter(lab, "push_threshold", "0")?;
    let result = all_by_engine(lab, work);
    set_parameter(lab, "push_threshold", "-1")?;
    result
}

/// Loads the module in all nodes, and waits until nodes with a link see each other.
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

// ----- debugfs ----------------------------------------------------------------------------

/// A node as another node (or itself) sees it: a line of debugfs's scif/nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The id of the node.
    pub id: u16,
    /// The state of the node: self, online or lost.
    pub state: String,
    /// The link to the node: loopback, or ntb: and a device.
    pub link: String,
    /// The mode in which its memory is reached.
    pub aperture: String,
    /// The generation of its module, which is new each time that the module is loaded.
    pub generation: String,
}

/// Returns the nodes that a node knows.
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

/// Returns the lines of a table in debugfs, by the names of its columns.
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

/// Returns the line of node `id` on `node`, or `None` if there is none.
pub fn seen(lab: &Lab, node: usize, id: usize) -> Result<Option<Seen>> {
    Ok(nodes(lab, node)?
        .into_iter()
        .find(|seen| usize::from(seen.id) == id))
}

/// Waits until `node` sees `id` in a state.
pub fn state(lab: &Lab, node: usize, id: usize, state: &str, limit: Duration) -> Result<Seen> {
    let condition = format!("node {node} sees node {id} {state}");
    wait_until(&condition, limit, || {
        Ok(seen(lab, node, id)?.filter(|seen| seen.state == state))
    })
}

/// Waits until `node` sees `id` online.
pub fn online(lab: &Lab, node: usize, id: usize) -> Result<Seen> {
    state(lab, node, id, "online", lab.hang_limit(20))
}

/// Waits until both nodes of a pair see each other in sessions other than `before`. Returns the new
/// sessions, seen from node 0 and from node 1.
pub fn pair_online_anew(lab: &Lab, before: &[Seen; 2]) -> Result<[Seen; 2]> {
    let limit = lab.hang_limit(20);
    let find = |node: usize, id: usize| {
        let condition = format!("node {node} sees node {id} online again, in another generation");
        wait_until(&condition, limit, || {
            Ok(seen(lab, node, id)?.filter(|seen| {
                seen.state == "online" && seen.generation != before[node].generation
            }))
        })
    };
    Ok([find(0, 1)?, find(1, 0)?])
}

/// Checks that a node's table of links has the `wanted` values for the link to another node.
pub fn check_link(lab: &Lab, node: usize, wanted: &[(&str, &str)]) -> Result<()> {
    let links = table(lab, node, "links")?;
    let link = links.iter().find(|link| link["link"].starts_with("ntb:"));
    ensure!(
        link.is_some_and(|link| wanted.iter().all(|(name, value)| link[*name] == *value)),
        "node {node}: {links:#?}"
    );
    Ok(())
}

/// Returns the module's counters.
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

/// Returns the bytes that a node's engine has copied for the module.
pub fn dma_bytes(lab: &Lab, node: usize) -> Result<u64> {
    Ok(counters(lab, node)?.get("dma_bytes").copied().unwrap_or(0))
}

/// Returns whether the module is loaded.
pub fn is_loaded(lab: &Lab, node: usize) -> Result<bool> {
    Ok(lab.exec(node, ["test", "-e", "/sys/module/scif"])?.code() == Some(0))
}

/// The modules that a node has loaded, and the resources that they hold. All are read by one
/// command, because starting a process takes long in a guest.
pub struct Glance {
    /// The names of its modules.
    pub modules: BTreeSet<String>,
    /// Counters of the module, if it is loaded, and of the kernel.
    counts: BTreeMap<String, u64>,
}

impl Glance {
    /// Reads the modules and counters of a node.
    pub fn at(lab: &Lab, node: usize) -> Result<Glance> {
        let counters = format!("{DEBUGFS}/counters");
        // Each CPU counts pinned pages for itself, and a read of stat_refresh adds the counts up.
        // If the module is not loaded, its file does not exist.
        let files = [
            "/proc/sys/vm/stat_refresh",
            &counters,
            "/proc/vmstat",
            "/proc/modules",
        ];
        let mut text = String::new();
        for file in files {
            text.extend(lab.node(node).read_if_there(file)?);
        }
        let mut glance = Glance {
            modules: BTreeSet::new(),
            counts: BTreeMap::new(),
        };
        for line in text.lines() {
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
        ensure!(!glance.counts.is_empty(), "node {node} shows nothing");
        Ok(glance)
    }

    /// Returns whether the module is loaded.
    pub fn has_scif(&self) -> bool {
        self.modules.contains("scif")
    }

    /// Returns the number of failed copies by engines for the module, or 0 if it is not loaded.
    pub fn dma_errors(&self) -> u64 {
        self.counts.get("dma_errors").copied().unwrap_or(0)
    }

    /// Returns whether the loaded module holds no connections, windows or pinned pages.
    pub fn is_idle(&self) -> Result<bool> {
        let count = |name: &str| {
            let count = self.counts.get(name);
            count
                .copied()
                .with_context(|| format!("the node has no counter {name}"))
        };
        Ok(count("connections")? == 0
            && count("closing_connections")? == 0
            && count("exported_windows")? == 0
            && count("nr_foll_pin_acquired")? == count("nr_foll_pin_released")?)
    }
}

/// Returns an error if a node still holds connections, windows or pinned pages after all programs
/// have ended. Closing goes on for a moment after a process has ended.
pub fn check_idle(lab: &Lab, node: usize) -> Result<()> {
    let deadline = Instant::now() + lab.hang_limit(10);
    loop {
        let glance = Glance::at(lab, node)?;
        if glance.is_idle()? {
            return Ok(());
        }
        if Instant::now() > deadline {
            let counts = &glance.counts;
            bail!("node {node} has not released all connections, windows and pages:\n{counts:#?}");
        }
    }
}

/// Returns the errors in a node's kernel log since the last mark.
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

/// Returns the path of the command line tool in guests.
pub fn tool() -> Result<String> {
    Ok(paths::sibling("scif", None)?.display().to_string())
}

/// Returns the path in guests of a file that `make tools` has built, from its path in the clone.
pub fn built(path: &str) -> Result<String> {
    let path = paths::repository().join(path);
    ensure!(
        path.exists(),
        "{} does not exist; run 'make tools'",
        path.display()
    );
    Ok(path.display().to_string())
}

/// Returns the path in guests of a C program of tests/programs.
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
    // The test has a time limit anyway.
    lab.command(node, argv)?
        .timeout(lab.hang_limit(600))
        .spawn()
}

/// A running `scif serve`, with a folder that the host and guests see. Dropping the value kills the
/// server.
pub struct Server<'a> {
    lab: &'a Lab,
    /// Path of the folder on the host.
    pub folder: PathBuf,
    process: Process,
}

impl<'a> Server<'a> {
    /// Serves a new folder on a node.
    pub fn start(lab: &'a Lab, node: usize) -> Result<Server<'a>> {
        Self::start_with(lab, node, "--bench")
    }

    /// Serves a new folder with other options. The options are words of a shell, so they can
    /// redirect streams.
    pub fn start_with(lab: &'a Lab, node: usize, options: &str) -> Result<Server<'a>> {
        let name = format!("served-by-{node}");
        let folder = lab.paths().exchange().join(&name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder)?;
        let command = format!("exec {} serve --root /exchange/{name} {options}", tool()?);
        // The limit is long, because the test has a time limit of its own.
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

    /// Returns the server's messages about its clients.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// Ends the server as Ctrl-C does, and checks that it ends.
    pub fn stop(self) -> Result<()> {
        self.process.signal(2);
        match self.process.wait_timeout(self.lab.hang_limit(20))? {
            Some(output) if output.outcome == Outcome::Exited(0) => Ok(()),
            Some(output) => Err(anyhow!("after SIGINT {output}")),
            None => Err(anyhow!("scif serve does not end after SIGINT")),
        }
    }
}

/// Starts a C program. On an idle machine `seconds` are more than enough for it.
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

/// Runs a program that prints TAP, and checks that all results are "ok". Returns its output.
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

/// Starts a program that prints when it listens, and waits for that.
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

/// Returns an error unless all results of a program that prints TAP are "ok", and their number is
/// the announced one.
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

/// Returns the lines that are "not ok", and the comments below each, which give the reason.
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

/// Makes a file with content that does not repeat in the exchange folder. Returns its hash.
pub fn make_file(lab: &Lab, name: &str, size: u64) -> Result<String> {
    let path = lab.paths().exchange().join(name);
    let mut file = BufWriter::new(fs::File::create(&path)?);
    let mut hash = Sha256::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ size;
    let mut block = [0; 8192];
    let mut left = size;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            // The generator is xorshift64.
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

/// Makes a sparse file of zeroes in the exchange folder, for copies that are not meant to end. A
/// server accepts such a copy only if it has the room.
pub fn make_endless_file(path: &Path) -> Result<()> {
    fs::File::create(path)?.set_len(16 << 30)?;
    Ok(())
}

/// Returns the hash of a file on the host.
pub fn hash_of(path: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    let mut file =
        fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    std::io::copy(&mut file, &mut hash)?;
    Ok(format!("{:x}", hash.finalize()))
}

/// Returns the names in a folder, without the hidden names that files have while they are written.
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
