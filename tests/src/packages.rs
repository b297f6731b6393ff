// SPDX-License-Identifier: GPL-2.0
//! The Debian packages as their users have them: installed with dpkg on two nodes, the modules
//! that dkms has built loaded, the tool and a program run, and all of it purged.
//!
//! dkms takes minutes for the modules, in an emulated guest hours: `scripts/deb-installed` has let
//! the packages build them on a machine like these, installed and purged there as well, and left an
//! archive of dkms's, which is the way to more hosts with the same kernel. A guest loads that.

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

/// What the lab has loaded, and the packages have as well.
const DRIVERS: &str = "plx_dma ntb_hw_intel";

/// Takes the lab's drivers away, and makes /lib/modules one that can be written. It has few of the
/// kernel's modules, because depmod reads all, and none that was not in the kernel's package.
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

/// Installs the packages and what dkms has built of them.
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

/// Says the path of each file that is still there.
const LEFT: &str = "
    while read -r file; do
        [ -d \"$file\" ] || [ ! -e \"$file\" ] && [ ! -L \"$file\" ] || echo $file
    done </run/files
    for folder in /usr/src/scif-* /var/lib/dkms/scif* /usr/lib/modules/*/updates; do
        [ ! -e $folder ] || echo $folder
    done
    dpkg-query -W -f '${Status} ${Package}\n' $PACKAGES 2>/dev/null | grep -v not-installed || true
";

/// Where the packages are, the same path here and in guests.
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

/// Runs a script that takes long where the processor is emulated; it must succeed.
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

/// Does it on both nodes at a time.
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
    // The rule of scif-tools is at work before there is a device.
    shell(lab, node, "/usr/lib/systemd/systemd-udevd --daemon")?;
    shell(lab, node, "modprobe --all $DRIVERS")?;
    let parameters = scif::parameters(lab, node, Loaded::LongHeartbeat)?;
    shell(lab, node, &format!("modprobe scif {parameters}"))?;
    for module in ["scif", "ntb", "ntb_hw_intel", "plx_dma"] {
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

/// Unloads what was loaded, purges the packages, and looks for what they have left.
fn purge(lab: &Lab, node: usize) -> Result<()> {
    shell(lab, node, "udevadm control --exit; modprobe -r scif")?;
    shell(lab, node, "modprobe -r $DRIVERS")?;
    shell(lab, node, "dpkg --purge $PACKAGES")?;
    let left = shell(lab, node, LEFT)?;
    ensure!(left.is_empty(), "node {node}: left behind:\n{left}");
    Ok(())
}

/// The tool of the package sees the other node.
fn nodes_are_listed(node: &Node<'_>) -> Result<()> {
    let output: Output = node.exec(["/usr/bin/scif", "nodes"])?.success()?;
    ensure!(output.stdout().contains("online"), "{output}");
    Ok(())
}

/// The sample for libscif_ring, compiled with what the packages have.
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

/// All packages, from dpkg -i to dpkg --purge.
fn installed(lab: &Lab) -> Result<()> {
    check_built()?;
    on_both(|node| install(lab, node))?;
    scif::online(lab, 0, 1)?;
    scif::online(lab, 1, 0)?;
    for node in [0, 1] {
        nodes_are_listed(&lab.node(node))?;
    }

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
    // The modules are built for Debian's kernel; what the lab has loaded is not there afterwards.
    Test::new("packages::installed", PAIR, installed)
        .seconds(600)
        .on_stock()
        .leaves_disorder()
        .by_name(),
];
