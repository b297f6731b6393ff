// SPDX-License-Identifier: GPL-2.0
//! libscif as its users get it: installed, found by pkg-config, linked statically and dynamically.
//! Also the samples, and the permissions of the device with udev and sysusers running.
//!
//! `make check` of the library checks what needs no device.

use std::path::PathBuf;
use std::process;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Output;
use lab::paths;
use lab::wait_until;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::ONE;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// A node without a device, and without the module.
const ALONE: Need = Need {
    dma_channels: 0,
    ..ONE
};

/// Id of the user and the group `nobody`.
const NOBODY: &str = "65534";

/// Path of the exchange folder in guests.
const EXCHANGE: &str = "/exchange";

/// The compiler and the folder of a tree.
#[derive(Clone, Copy)]
struct Kind {
    /// The tree's folder below the exchange folder.
    folder: &'static str,
    compiler: &'static [&'static str],
}

/// A tree built as any distribution would build it.
const NATIVE: Kind = Kind {
    folder: "libscif",
    compiler: &["cc"],
};

/// A tree for 32-bit programs.
const SMALL: Kind = Kind {
    folder: "libscif-32",
    compiler: &["cc", "-m32"],
};

/// A tree below the exchange folder, in which the library is installed.
struct Installed {
    kind: Kind,
    /// Path of the tree on the host.
    root: PathBuf,
}

impl Installed {
    fn new(lab: &Lab, kind: Kind) -> Result<Installed> {
        let root = lab.paths().exchange().join(kind.folder);
        let build = root.join("build");
        let mut make = process::Command::new("make");
        make.arg("-s")
            .arg("-C")
            .arg(paths::repository().join("tools/lib/scif"))
            .arg(format!("CC={}", kind.compiler.join(" ")))
            .arg(format!("OUTPUT={}", build.display()))
            .arg(format!("DESTDIR={}", root.display()))
            .args(["PREFIX=/usr", "install"]);
        run(&mut make)?;
        Ok(Installed { kind, root })
    }

    /// Returns the output of pkg-config.
    fn flags(&self, arguments: &[&str]) -> Result<Vec<String>> {
        let mut command = process::Command::new("pkg-config");
        command
            .env("PKG_CONFIG_LIBDIR", self.root.join("usr/lib/pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", &self.root)
            .args(arguments)
            .arg("scif");
        let flags = run(&mut command)?;
        Ok(flags.split_whitespace().map(str::to_owned).collect())
    }

    /// Compiles tests/programs/libscif_user.c, and returns the path of the program in guests.
    fn build_user(&self, name: &str, how: &[&str], libraries: &[&str]) -> Result<String> {
        let mut cc = process::Command::new(self.kind.compiler[0]);
        cc.args(&self.kind.compiler[1..])
            .args(["-O2", "-Wall", "-Wextra", "-Werror"])
            .args(how)
            .arg("-o")
            .arg(self.root.join(name))
            .args(user_sources())
            .args(self.flags(libraries)?);
        run(&mut cc)?;
        Ok(self.in_guest(name))
    }

    fn in_guest(&self, path: &str) -> String {
        format!("{EXCHANGE}/{}/{path}", self.kind.folder)
    }
}

/// Returns the compiler's arguments for tests/programs/libscif_user.c, without those that find the
/// library.
pub fn user_sources() -> Vec<String> {
    let tests = paths::repository().join("tests");
    let harness = tests.join("harness");
    vec![
        format!("-I{}", harness.display()),
        harness.join("checks.c").display().to_string(),
        tests.join("programs/libscif_user.c").display().to_string(),
    ]
}

/// Runs a command on the host. Returns its output, or an error if it fails.
fn run(command: &mut process::Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs the program on two nodes: a server on one, a client on the other.
pub fn client_and_server(lab: &Lab, program: &str, library: &str, nodes: [usize; 2]) -> Result<()> {
    let [client, server] = nodes;
    let limit = lab.hang_limit(60);
    let serving = lab
        .command(server, [program, "server", "2060"])?
        .env("LD_LIBRARY_PATH", library)
        .timeout(limit)
        .spawn()?;
    serving.wait_for("listening", lab.hang_limit(20))?;
    let output = lab
        .command(client, [program, "client", &server.to_string(), "2060"])?
        .env("LD_LIBRARY_PATH", library)
        .timeout(limit)
        .run()?;
    scif::check_tap(output)?;
    scif::check_tap(serving.wait()?)
}

/// A dynamically linked program uses the shared library of the tree.
fn linked_dynamically(lab: &Lab, kind: Kind) -> Result<()> {
    let installed = Installed::new(lab, kind)?;
    let program = installed.build_user("shared", &[], &["--cflags", "--libs"])?;
    let library = installed.in_guest("usr/lib");
    let output = lab
        .command(0, ["ldd", &program])?
        .env("LD_LIBRARY_PATH", &library)
        .run()?
        .success()?;
    ensure!(
        output
            .stdout()
            .contains(&format!("libscif.so.0 => {library}/libscif.so.0")),
        "{output}"
    );
    client_and_server(lab, &program, &library, [0, 1])
}

fn dynamic_program_runs(lab: &Lab) -> Result<()> {
    linked_dynamically(lab, NATIVE)
}

/// The library and the program have 32 bits, the kernel has 64.
fn dynamic_32_bit_program_runs(lab: &Lab) -> Result<()> {
    linked_dynamically(lab, SMALL)
}

/// A statically linked program contains the library.
fn static_program_runs(lab: &Lab) -> Result<()> {
    let installed = Installed::new(lab, NATIVE)?;
    let libraries = ["--static", "--cflags", "--libs"];
    let program = installed.build_user("static", &["-static"], &libraries)?;
    client_and_server(lab, &program, "", [1, 0])
}

/// Returns the path of a sample in guests.
pub fn sample(name: &str) -> Result<String> {
    scif::built(&format!("build/samples/{name}"))
}

fn says(output: Output, text: &str) -> Result<()> {
    ensure!(output.stdout().contains(text), "no '{text}': {output}");
    output.success()?;
    Ok(())
}

/// samples/scif/hello: both nodes send a text to the server.
fn sample_hello(lab: &Lab) -> Result<()> {
    let hello = sample("hello")?;
    let server = lab.spawn(1, [&*hello, "serve", "2061"])?;
    server.wait_for("listening", lab.hang_limit(20))?;
    for node in [0, 1] {
        let text = format!("good morning from {node}");
        let output = lab.exec(node, [&*hello, "1", "2061", &text])?;
        says(output, &format!("node 1 answers: {text}"))?;
        server.wait_for(&format!("says: {text}"), lab.hang_limit(20))?;
    }
    let output = lab.exec(0, [&*hello, "1", "2062", "nobody"])?.status(1)?;
    ensure!(output.stderr().contains("Connection refused"), "{output}");
    server.kill();
    Ok(())
}

/// samples/scif/put: a copy and the signal behind it, in both directions.
fn sample_put(lab: &Lab) -> Result<()> {
    let put = sample("put")?;
    for (client, server, kib) in [(0, 1, "4"), (1, 0, "16384")] {
        let serving = lab.spawn(server, [&*put, "serve", "2063"])?;
        serving.wait_for("listening", lab.hang_limit(20))?;
        let output = lab.exec(client, [&*put, &server.to_string(), "2063", kib])?;
        says(output, &format!("node {server} has all"))?;
        says(serving.wait()?, &format!("node {client} has put"))?;
    }
    Ok(())
}

/// Runs a client's script on node 0 as soon as the server listens, which prints nothing then.
fn once_it_listens(lab: &Lab, script: &str) -> Result<Output> {
    wait_until("a server listens", lab.hang_limit(20), || {
        let output = lab.exec(0, ["sh", "-c", script])?;
        let refused = output.stderr().contains("Connection refused");
        Ok((!refused).then_some(output))
    })
}

/// samples/scif/ring: the output is the input, which is longer than the ring. If one end is killed,
/// the other end notices.
fn sample_ring(lab: &Lab) -> Result<()> {
    let ring = sample("ring")?;
    let hash = scif::make_file(lab, "ring-in", 5_000_011)?;
    let serve = format!("{ring} serve 2064 >{EXCHANGE}/ring-out");
    let server = lab.spawn(1, ["sh", "-c", &serve])?;
    let output = once_it_listens(lab, &format!("{ring} 1 2064 <{EXCHANGE}/ring-in"))?.success()?;
    ensure!(output.stderr().contains("5000011 bytes"), "{output}");
    server.wait()?.success()?;
    ensure!(scif::hash_of(&lab.paths().exchange().join("ring-out"))? == hash);

    for killed in [0, 1] {
        let server = lab.spawn(1, [&*ring, "serve", "2065"])?;
        let put = format!("exec {ring} 1 2065 </dev/zero");
        let client = wait_until("something goes through", lab.hang_limit(20), || {
            let client = lab.spawn(0, ["sh", "-c", &put])?;
            let mut refused = false;
            let limit = Instant::now() + lab.hang_limit(20);
            while server.stdout().is_empty() && !refused && Instant::now() < limit {
                refused = client.stderr().contains("Connection refused");
                thread::sleep(Duration::from_millis(20));
            }
            Ok((!refused).then_some(client))
        })?;
        let (victim, other) = match killed {
            0 => (&client, &server),
            _ => (&server, &client),
        };
        victim.signal(9);
        let told = other.wait_timeout(lab.hang_limit(20))?;
        let told = told.context("the other end does not end")?.status(1)?;
        ensure!(told.stderr().contains("reset by peer"), "{told}");
    }
    Ok(())
}

/// samples/scif/file_server: the server sends files of its folder, of various sizes, and no other
/// files.
fn sample_file_server(lab: &Lab) -> Result<()> {
    let file_server = sample("file_server")?;
    let sizes = [0, 1, 1 << 20, (2 << 20) + 4097];
    lab.shell(
        1,
        "rm -rf /tmp/served && mkdir -p /tmp/served/folder && cd /tmp/served
         echo secret >/tmp/outside && ln -s /tmp/outside link && mkfifo pipe",
    )?;
    for size in sizes {
        scif::make_file(lab, &format!("served-{size}"), size)?;
        lab.shell(1, &format!("cp {EXCHANGE}/served-{size} /tmp/served/"))?;
    }
    let serve = format!("cd /tmp/served && exec {file_server} serve 2066");
    let server = lab.spawn(1, ["sh", "-c", &serve])?;
    server.wait_for("listening", lab.hang_limit(20))?;

    for size in sizes {
        let name = format!("served-{size}");
        let get = format!("{file_server} 1 2066 {name} | cmp - {EXCHANGE}/{name}");
        lab.shell(0, &get)?;
        server.wait_for(&format!("gets {name}"), lab.hang_limit(20))?;
    }
    for (name, error) in [
        ("missing", "No such file"),
        ("link", "symbolic links"),
        ("pipe", "Permission denied"),
        ("folder", "Permission denied"),
        ("..", "Permission denied"),
        ("../outside", "Permission denied"),
        ("/tmp/outside", "Permission denied"),
        ("folder/../served-1", "Permission denied"),
    ] {
        let output = lab.exec(0, [&*file_server, "1", "2066", name])?.status(1)?;
        ensure!(output.stdout().is_empty(), "{name} came: {output}");
        ensure!(output.stderr().contains(error), "{name}: {output}");
    }
    // A client that ends in the middle of a file does not affect others.
    lab.shell(
        0,
        &format!("{file_server} 1 2066 served-2101249 | head -c 1 >/dev/null"),
    )?;
    lab.shell(
        0,
        &format!("{file_server} 1 2066 served-1 | cmp - {EXCHANGE}/served-1"),
    )?;
    server.kill();
    Ok(())
}

/// With udevd running, the device belongs to the group that sysusers has made.
fn udev_sets_device_group(lab: &Lab) -> Result<()> {
    let installed = Installed::new(lab, NATIVE)?;
    let tree = installed.in_guest("usr/lib");
    lab.shell(
        0,
        &format!(
            "for folder in udev/rules.d sysusers.d; do
                mkdir -p /usr/lib/$folder
                cp {tree}/$folder/*scif* /usr/lib/$folder/
             done
             systemd-sysusers
             udevadm verify /usr/lib/udev/rules.d/60-scif.rules
             /usr/lib/systemd/systemd-udevd --daemon"
        ),
    )?;
    let groups = lab.shell(0, "getent group scif")?;
    let group = groups.split(':').nth(2).context("a group without an id")?;

    for _ in 0..2 {
        scif::load(lab, 0, Loaded::LongHeartbeat)?;
        lab.exec(0, ["udevadm", "settle", "--timeout=600"])?
            .success()?;
        let seen = lab.shell(0, "stat -c '%U:%G %a' /dev/scif")?;
        ensure!(seen.trim() == "root:scif 660", "/dev/scif is {seen}");
        lab.rmmod(0, "scif")?;
    }

    // A member of the group may use the device without further rights.
    scif::load(lab, 0, Loaded::LongHeartbeat)?;
    lab.exec(0, ["udevadm", "settle", "--timeout=600"])?
        .success()?;
    let tool = scif::tool()?;
    let as_nobody = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY];
    let in_group: Vec<&str> = [&as_nobody[..], &["--groups", group, &tool, "nodes"]].concat();
    lab.exec(0, in_group)?.success()?;
    let outside: Vec<&str> = [&as_nobody[..], &["--clear-groups", &tool, "nodes"]].concat();
    let output = lab.exec(0, outside)?;
    ensure!(
        output.code() != Some(0) && output.stderr().contains("EACCES"),
        "a user outside the group may use the device: {output}"
    );
    lab.rmmod(0, "scif")?;

    // The rule covers the device of the MIC library, too.
    lab.insmod(0, scif::module(lab)?, "mic_compat=1")?;
    lab.exec(0, ["udevadm", "settle", "--timeout=600"])?
        .success()?;
    let seen = lab.shell(0, "stat -c '%U:%G %a' /dev/mic/scif")?;
    ensure!(seen.trim() == "root:scif 660", "/dev/mic/scif is {seen}");
    lab.exec(0, ["udevadm", "control", "--exit"])?.success()?;
    lab.rmmod(0, "scif")
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "libscif::dynamic_program_runs",
        SCIF_PAIR,
        dynamic_program_runs,
    )
    .seconds(120),
    Test::new(
        "libscif::static_program_runs",
        SCIF_PAIR,
        static_program_runs,
    )
    .seconds(120),
    Test::new(
        "libscif::dynamic_32_bit_program_runs",
        SCIF_PAIR,
        dynamic_32_bit_program_runs,
    )
    .seconds(120),
    Test::new("libscif::sample_hello", SCIF_PAIR, sample_hello),
    Test::new("libscif::sample_put", SCIF_PAIR, sample_put),
    Test::new("libscif::sample_ring", SCIF_PAIR, sample_ring).seconds(120),
    Test::new("libscif::sample_file_server", SCIF_PAIR, sample_file_server),
    // Other tests must not run with udevd's rules, and udevd handles the module's events.
    Test::new(
        "libscif::udev_sets_device_group",
        ALONE,
        udev_sets_device_group,
    )
    .seconds(120)
    .destroys(),
];
