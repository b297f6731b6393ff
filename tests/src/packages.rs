// SPDX-License-Identifier: GPL-2.0
//! The Debian packages as their users get them. dpkg installs them on two nodes, and the modules
//! that dkms has built are loaded. Then the tool and a program run, and all packages are purged.
//!
//! dkms takes minutes to build the modules, and in an emulated guest hours. So
//! `scripts/deb-installed` has let the packages build them on a machine like these, where they were
//! installed and purged as well. It has left an archive of dkms, which is the way to install on
//! more hosts with the same kernel. A guest loads that archive.

use std::fs;
use std::path::PathBuf;
use std::thread;

use anyhow::Context;
use anyhow::Result;
use anyhow::anyhow;
use anyhow::ensure;
use lab::Lab;
use lab::Node;
use lab::Output;
use lab::paths;
use lab::wait_until;

use crate::harness::Test;
use crate::libscif;
use crate::loaded::Loaded;
use crate::need::PAIR;
use crate::scif;
use crate::scif_ring;

/// The packages, in the order in which they are purged.
const PACKAGES: [&str; 6] = [
    "scif-dkms",
    "scif-tools",
    "libscif-dev",
    "libscif0",
    "libscif-ring-dev",
    "libscif-ring0",
];

/// Modules that the lab has loaded, and that the packages contain as well.
const DRIVERS: &str = "plx_dma ntb_hw_intel";

/// Unloads the lab's drivers, and makes /lib/modules writable.
///
/// The folder has few of the kernel's modules, because depmod reads all, and no module from outside
/// the kernel's package.
const FRESH_MACHINE: &str = "
    modprobe -r $DRIVERS
    modules=/usr/lib/modules/$(uname -r)
    fresh=/run/modules/$(uname -r)
    mkdir -p $fresh/kernel/fs
    cp $modules/modules.builtin $modules/modules.builtin.modinfo $modules/modules.order \\
        $modules/config $fresh/
    cp -r $modules/kernel/fs/9p $fresh/kernel/fs/
    mount -o bind /run/modules /usr/lib/modules
    depmod $(uname -r)
    # A trigger that reads all manual pages.
    rm -f /var/lib/man-db/auto-update
";

/// Installs the packages and the modules that dkms has built.
const INSTALL: &str = "
    dpkg -i $FOLDER/*.deb
    version=$(dpkg-query -W -f '${Version}' scif-dkms)
    # What is in the archive comes in the place of what the package has added.
    dkms remove scif/$version --all
    dkms ldtarball --archive $FOLDER/modules.dkms.tar.gz
    dkms install scif/$version -k $(uname -r)
    dkms status
    dpkg -L $PACKAGES >/run/files
";

/// Prints the path of each file that still exists.
const LEFT: &str = "
    while read -r file; do
        [ -d \"$file\" ] || [ ! -e \"$file\" ] && [ ! -L \"$file\" ] || echo $file
    done </run/files
    for folder in /usr/src/scif-* /var/lib/dkms/scif* /usr/lib/modules/*/updates; do
        [ ! -e $folder ] || echo $folder
    done
    dpkg-query -W -f '${Status} ${Package}\n' $PACKAGES 2>/dev/null | grep -v not-installed || true
";

/// Returns the folder of the packages, which has the same path on the host and in guests.
fn folder() -> PathBuf {
    paths::repository().join("build/deb")
}

fn check_built() -> Result<()> {
    let debs = fs::read_dir(folder())
        .context("there is no build/deb; run 'make deb'")?
        .filter(|entry| {
            entry
                .as_ref()
                .is_ok_and(|entry| entry.path().extension().is_some_and(|end| end == "deb"))
        })
        .count();
    ensure!(
        debs == PACKAGES.len(),
        "build/deb has {debs} packages; run 'make deb'"
    );
    ensure!(
        folder().join("modules.dkms.tar.gz").exists(),
        "build/deb has no modules; run 'scripts/environment run scripts/deb-installed'"
    );
    Ok(())
}

/// Runs a script that takes long where the CPU is emulated. The script must succeed.
fn shell(lab: &Lab, node: usize, script: &str) -> Result<String> {
    let output = lab
        .command(node, ["sh", "-e", "-c", script])?
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("DRIVERS", DRIVERS)
        .env("FOLDER", &folder().display().to_string())
        .env("PACKAGES", &PACKAGES.join(" "))
        .timeout(lab.hang_limit(300))
        .run()?;
    Ok(output.success()?.stdout())
}

/// Runs an action on both nodes in parallel.
fn on_both(action: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let action = &action;
        let threads = [0, 1].map(|node| scope.spawn(move || action(node)));
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(anyhow!("a thread of this test panicked")))
        })
    })
}

/// Installs the packages on a node, and loads the modules by their names.
fn install(lab: &Lab, node: usize) -> Result<()> {
    shell(lab, node, FRESH_MACHINE)?;
    shell(lab, node, INSTALL)?;
    // The rule of scif-tools is active before the device exists.
    shell(lab, node, "/usr/lib/systemd/systemd-udevd --daemon")?;
    shell(lab, node, "modprobe --all $DRIVERS")?;
    let parameters = scif::parameters(lab, node, Loaded::LongHeartbeat)?;
    shell(lab, node, &format!("modprobe scif {parameters}"))?;
    let early = shell(lab, node, "lsmod | grep scif_net || true")?;
    ensure!(early.is_empty(), "node {node}: scif_net is loaded unasked");
    shell(lab, node, "modprobe scif_net")?;
    for module in ["scif", "scif_net", "ntb", "ntb_hw_intel", "plx_dma"] {
        let file = shell(lab, node, &format!("modinfo -n {module}"))?;
        ensure!(
            file.contains("/updates/dkms/"),
            "node {node}: {module} is {file}"
        );
        ensure!(
            lab.exec(node, ["test", "-e", &format!("/sys/module/{module}")])?
                .code()
                == Some(0),
            "node {node}: {module} is not loaded"
        );
    }
    shell(lab, node, "udevadm settle --timeout=600")?;
    let seen = shell(lab, node, "stat -c '%U:%G %a' /dev/scif")?;
    ensure!(
        seen.trim() == "root:scif 660",
        "node {node}: /dev/scif is {seen}"
    );
    Ok(())
}

/// Unloads the modules, purges the packages, and checks that they have left no files.
fn purge(lab: &Lab, node: usize) -> Result<()> {
    shell(
        lab,
        node,
        "udevadm control --exit; modprobe -r scif_net scif",
    )?;
    shell(lab, node, "modprobe -r $DRIVERS")?;
    shell(lab, node, "dpkg --purge $PACKAGES")?;
    let left = shell(lab, node, LEFT)?;
    ensure!(left.is_empty(), "node {node}: left behind:\n{left}");
    Ok(())
}

/// Checks that the packaged tool sees the other node.
fn nodes_are_listed(node: &Node<'_>) -> Result<()> {
    let output: Output = node.exec(["/usr/bin/scif", "nodes"])?.success()?;
    ensure!(output.stdout().contains("online"), "{output}");
    Ok(())
}

/// Waits until a node has a network device, which udev may have renamed. Returns its name.
fn network_device(lab: &Lab, node: usize) -> Result<String> {
    let condition = format!("node {node} has a network device");
    wait_until(&condition, lab.hang_limit(20), || {
        let names = lab.shell(node, "ls /sys/class/net")?;
        let mut names = names.split_whitespace();
        Ok(names.find(|name| *name != "lo").map(str::to_owned))
    })?;
    // The name may still change.
    shell(lab, node, "udevadm settle --timeout=600")?;
    let names = lab.shell(node, "ls /sys/class/net")?;
    let name = names.split_whitespace().find(|name| *name != "lo");
    Ok(name.context("the network device is gone")?.to_owned())
}

/// The nodes reach each other over the network devices.
fn nodes_ping(lab: &Lab) -> Result<()> {
    for node in [0, 1] {
        let device = network_device(lab, node)?;
        shell(
            lab,
            node,
            &format!("ip addr add 10.9.0.{node}/31 dev {device}; ip link set {device} up"),
        )?;
    }
    for node in [0, 1] {
        let condition = format!("node {node} reaches the other one");
        let ping = format!("busybox ping -c 1 -W 5 10.9.0.{} || true", 1 - node);
        wait_until(&condition, lab.hang_limit(20), || {
            let said = lab.shell(node, &ping)?;
            Ok(said.contains(" 0% packet loss").then_some(()))
        })?;
    }
    Ok(())
}

/// The sample for libscif_ring is compiled with the files of the packages.
fn quotes(lab: &Lab) -> Result<()> {
    let program = "/exchange/packaged-quotes";
    let samples = paths::repository().join("samples/ring");
    shell(
        lab,
        0,
        &format!(
            "cp -r {} /run/quotes && make -C /run/quotes && cp /run/quotes/quotes {program}",
            samples.display()
        ),
    )?;
    let server = scif_ring::serve_quotes(lab, program)?;
    scif_ring::take_quotes(lab, program, "over a mapped ring")?;
    server.kill();
    Ok(())
}

/// Tests all packages, from dpkg -i to dpkg --purge.
fn install_and_purge(lab: &Lab) -> Result<()> {
    check_built()?;
    on_both(|node| install(lab, node))?;
    scif::online(lab, 0, 1)?;
    scif::online(lab, 1, 0)?;
    for node in [0, 1] {
        nodes_are_listed(&lab.node(node))?;
    }
    nodes_ping(lab)?;

    let program = "/exchange/packaged-user";
    let sources = libscif::user_sources().join(" ");
    shell(
        lab,
        0,
        &format!("cc -O2 -o {program} {sources} $(pkg-config --cflags --libs scif)"),
    )?;
    let linked = shell(lab, 0, &format!("ldd {program}"))?;
    ensure!(
        linked.contains("libscif.so.0 => /lib/x86_64-linux-gnu/libscif.so.0"),
        "{linked}"
    );
    libscif::client_and_server(lab, program, "", [0, 1])?;
    quotes(lab)?;

    on_both(|node| purge(lab, node))
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    // The modules are built for Debian's kernel. The modules that the lab has loaded are gone
    // afterwards.
    Test::new("packages::install_and_purge", PAIR, install_and_purge)
        .seconds(600)
        .on_stock()
        .leaves_disorder()
        .by_name(),
];
