// SPDX-License-Identifier: GPL-2.0
//! The advice of `scif doctor`, followed literally: a test makes a state, and runs as root the
//! commands that the doctor prints for it. The test ends with a link that works.

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use lab::Lab;
use lab::wait_until;
use serde_json::Value;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::PAIR;
use crate::scif;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_idt;

/// Modules that a node of these tests can load by name, besides the module under test.
const MODULES: &str = "ntb_hw_intel ntb_hw_idt ntb_transport ntb_netdev plx_dma";

/// The bridge of a node of a pair.
const BRIDGE: &str = "0000:00:05.0";

/// Installs the module in a node as a package does, so that modprobe finds it. The usual parameters
/// apply, except the permission for flat mode.
fn install(lab: &Lab, node: usize) -> Result<()> {
    let module = scif::module(lab)?;
    let parameters = scif::parameters(lab, node, Loaded::LongHeartbeat)?;
    let parameters = parameters.replace("allow_flat=1", "");
    let script = format!(
        "set -e
        new=/tmp/modules/$(uname -r)
        mkdir -p $new/updates
        for name in {MODULES}; do modprobe --show-depends $name; done |
            sed -n 's/^insmod \\([^ ]*\\).*/\\1/p' | sort -u | xargs cp -t $new
        cp /lib/modules/$(uname -r)/modules.builtin /lib/modules/$(uname -r)/modules.order $new
        cp {} $new/updates/scif.ko
        mount --bind /tmp/modules /lib/modules/
        depmod
        echo options scif {parameters} > /etc/modprobe.d/scif.conf",
        module.display()
    );
    lab.shell(node, &script)?;
    Ok(())
}

/// Runs a test in nodes that have the module installed, and then uninstalls it, because other tests
/// load other modules.
fn with_package(lab: &Lab, test: impl FnOnce() -> Result<()>) -> Result<()> {
    for node in 0..2 {
        install(lab, node)?;
    }
    test()?;
    for node in 0..2 {
        lab.shell(
            node,
            "umount /lib/modules/ && rm -r /tmp/modules /etc/modprobe.d/scif.conf",
        )?;
    }
    Ok(())
}

/// Returns the output of the doctor.
fn printed(lab: &Lab, node: usize) -> Result<String> {
    Ok(scif::run_tool(lab, node, &["doctor"])?.stdout())
}

/// Returns the advice and the commands for the finding with these words.
fn advised(text: &str, words: &str) -> Result<(String, Vec<String>)> {
    let mut lines = text.lines().skip_while(|line| !line.contains(words));
    lines
        .next()
        .with_context(|| format!("nothing with '{words}' in\n{text}"))?;
    let advice = lines
        .next()
        .and_then(|line| line.trim().strip_prefix("-> "));
    let advice = advice.with_context(|| format!("no advice for '{words}' in\n{text}"))?;
    let commands = lines.map_while(|line| line.trim().strip_prefix("# "));
    Ok((advice.to_owned(), commands.map(str::to_owned).collect()))
}

/// Runs the commands for the finding with these words, and checks that the JSON output has the same
/// ones.
fn follow(lab: &Lab, node: usize, words: &str) -> Result<()> {
    let (_, commands) = advised(&printed(lab, node)?, words)?;
    let output = scif::run_tool(lab, node, &["doctor", "--json"])?;
    let report: Value = serde_json::from_str(&output.stdout()).context("its JSON")?;
    let findings = report["findings"].as_array().context("no findings")?;
    let found = findings
        .iter()
        .find(|finding| {
            finding["text"]
                .as_str()
                .is_some_and(|text| text.contains(words))
        })
        .with_context(|| format!("nothing with '{words}' in {findings:#?}"))?;
    ensure!(
        found["commands"] == Value::from(commands.clone()),
        "{found:#?}"
    );
    run_commands(lab, node, words, &commands)
}

/// Runs the commands for the finding with these words, if there is one. The module may leave such a
/// state by itself at any time, so the doctor runs only once.
fn follow_while_it_lasts(lab: &Lab, node: usize, words: &str) -> Result<()> {
    let text = printed(lab, node)?;
    if !text.contains(words) {
        return Ok(());
    }
    let (_, commands) = advised(&text, words)?;
    run_commands(lab, node, words, &commands)
}

/// Runs the commands that are advised for the finding with these words. There has to be at least
/// one.
fn run_commands(lab: &Lab, node: usize, words: &str, commands: &[String]) -> Result<()> {
    ensure!(!commands.is_empty(), "no commands for '{words}'");
    for command in commands {
        lab.shell(node, command)
            .with_context(|| format!("'{command}', as advised for '{words}'"))?;
    }
    Ok(())
}

/// Checks that the link works, and that the doctor finds no obstacle.
fn works(lab: &Lab) -> Result<()> {
    scif::online(lab, 0, 1)?;
    scif::online(lab, 1, 0)?;
    let server = scif::Server::start(lab, 1)?;
    scif::run_tool(lab, 0, &["ping", "1", "-c", "3", "-i", "0"])?.success()?;
    server.stop()?;
    for node in 0..2 {
        scif::run_tool(lab, node, &["doctor"])?.success()?;
    }
    Ok(())
}

/// Module and driver are missing or unbound, the bridge has another client, or the device file is
/// missing.
fn missing_parts_are_named(lab: &Lab) -> Result<()> {
    with_package(lab, || {
        lab.shell(0, "rmmod ntb_hw_intel")?;
        follow(lab, 1, "scif is not loaded")?;
        follow(lab, 0, "scif is not loaded")?;
        follow(lab, 0, "has no driver")?;
        works(lab)?;
        lab.shell(
            0,
            &format!("echo {BRIDGE} > /sys/bus/pci/drivers/ntb_hw_intel/unbind"),
        )?;
        follow(lab, 0, "ntb_hw_intel is loaded, but does not drive it")?;
        works(lab)?;
        lab.shell(0, "rm /dev/scif")?;
        follow(lab, 0, "there is no /dev/scif")?;
        works(lab)
    })
}

/// Another client has the bridge, or has had it.
fn other_bridge_client_is_named(lab: &Lab) -> Result<()> {
    with_package(lab, || {
        for node in 0..2 {
            lab.shell(
                node,
                "modprobe ntb_transport; modprobe ntb_netdev; modprobe scif",
            )?;
        }
        for node in 0..2 {
            follow(lab, node, "is used by ntb_transport")?;
        }
        works(lab)?;
        lab.shell(
            0,
            "rmmod scif; rmmod ntb_netdev; rmmod ntb_transport; modprobe ntb_transport; modprobe scif",
        )?;
        lab.shell(0, "rmmod ntb_transport")?;
        follow_while_it_lasts(lab, 0, "scif has not taken it")?;
        works(lab)
    })
}

/// An engine appears after the link is up.
fn late_engine_is_named(lab: &Lab) -> Result<()> {
    with_package(lab, || {
        for node in 0..2 {
            lab.shell(node, "rmmod plx_dma; modprobe scif")?;
        }
        works(lab)?;
        follow(lab, 0, "no DMA engine")?;
        follow_while_it_lasts(lab, 0, "no engine reaches node 1")?;
        works(lab)?;
        wait_until("an engine of the link", lab.hang_limit(20), || {
            let links = scif::table(lab, 0, "links")?;
            let has_engine = |link: &&std::collections::BTreeMap<String, String>| {
                link["link"].starts_with("ntb:") && link["engines"] == "1"
            };
            Ok(links.iter().find(has_engine).map(|_| ()))
        })
    })
}

/// A user may not open the device, or may pin only little memory.
fn users_rights_are_checked(lab: &Lab) -> Result<()> {
    with_package(lab, || {
        let tool = scif::tool()?;
        let run = |command: &str| lab.exec(0, ["su", "ann", "-c", &format!("{tool} {command}")]);
        lab.shell(0, "useradd ann")?;
        run("ping 1")?.status(7)?;
        for node in 0..2 {
            lab.shell(node, "modprobe scif")?;
        }
        works(lab)?;
        run("ping 1")?.status(8)?;
        let output = run("doctor")?.status(1)?.stdout();
        let (advice, commands) = advised(&output, "the user ann can't open /dev/scif (EACCES)")?;
        ensure!(advice.contains("group scif"), "{output}");
        for command in commands {
            lab.shell(0, &command)?;
        }
        let server = scif::Server::start(lab, 1)?;
        run("ping 1 -c 1")?.success()?;
        server.stop()?;
        let output = run("doctor")?.success()?.stdout();
        let (_, commands) = advised(&output, "the user ann may pin 8.00 MiB")?;
        for command in commands {
            lab.shell(0, &command)?;
        }
        let output = run("doctor")?.success()?.stdout();
        ensure!(!output.contains("may pin"), "{output}");
        Ok(())
    })
}

/// A parameter asks for a mode in which the other host can read all memory, but the permission for
/// that is missing.
fn open_mode_needs_permission(lab: &Lab) -> Result<()> {
    with_package(lab, || {
        lab.shell(1, "modprobe scif")?;
        lab.shell(0, "modprobe scif aperture=flat")?;
        follow(
            lab,
            0,
            "aperture=flat lets the other host read and write all memory",
        )?;
        works(lab)
    })
}

/// The other host sets the translation of the bridge's windows.
fn unguarded_bridge_is_named(lab: &Lab) -> Result<()> {
    with_package(lab, || {
        for node in 0..2 {
            lab.shell(node, "modprobe scif")?;
        }
        for node in 0..2 {
            let text = printed(lab, node)?;
            ensure!(text.contains("scif refuses it: \"scif: "), "{text}");
            follow(lab, node, "the other host sets where its windows lead")?;
        }
        works(lab)
    })
}

/// The IOMMU passes all addresses through.
fn iommu_passthrough_is_named(lab: &Lab) -> Result<()> {
    with_package(lab, || {
        for node in 0..2 {
            lab.shell(node, "modprobe scif")?;
        }
        scif::online(lab, 0, 1)?;
        scif::check_link(lab, 0, &[("own_aperture", "bounce")])?;
        let words = "staging slots and nothing else";
        let (advice, _) = advised(&printed(lab, 0)?, words)?;
        ensure!(
            advice.contains("boot without iommu=pt") && !advice.contains("BIOS"),
            "{advice}"
        );
        follow(lab, 0, words)?;
        works(lab)?;
        scif::check_link(lab, 0, &[("own_aperture", "arena")])
    })
}

/// An administrator has sent the bridge's interrupts to an isolated CPU.
fn isolated_cpu_is_named(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        scif::load(lab, node, Loaded::LongHeartbeat)?;
    }
    let script = format!(
        "for irq in $(ls /sys/bus/pci/devices/{BRIDGE}/msi_irqs); do
            [ ! -e /proc/irq/$irq/smp_affinity_list ] || echo 1 > /proc/irq/$irq/smp_affinity_list
        done"
    );
    lab.shell(0, &script)?;
    follow(lab, 0, "of its interrupts go to isolated CPUs (of 1)")?;
    let text = printed(lab, 0)?;
    ensure!(!text.contains("isolated"), "{text}");
    works(lab)
}

/// A word of the kernel's command line leaves no memory for a bridge.
fn lack_of_memory_is_named(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        scif::load(lab, node, Loaded::LongHeartbeat)?;
    }
    wait_until("the reason in the log", lab.hang_limit(20), || {
        let log = lab.dmesg(0)?;
        Ok(log.contains("can't offer a link: ENOMEM").then_some(()))
    })?;
    let text = printed(lab, 0)?;
    ensure!(!text.contains("look at the cable"), "{text}");
    let (_, commands) = advised(&text, "can't offer a link: ENOMEM")?;
    ensure!(commands.is_empty(), "{text}");
    let (advice, _) = advised(
        &text,
        "the kernel has no memory that the bridge may lead to",
    )?;
    let Some(word) = advice.strip_prefix("boot without ") else {
        bail!("{advice}");
    };
    for node in 0..2 {
        lab.restart_without(node, word)?;
    }
    for node in 0..2 {
        scif::load(lab, node, Loaded::LongHeartbeat)?;
    }
    works(lab)
}

/// A pair without the module, and with windows in front of a pool of memory.
const BOUNCE: Need = Need {
    scif: Loaded::No,
    ..scif_bounce::USUAL
};

const fn booted_with(need: Need, append: &'static [&'static str]) -> Need {
    Need {
        append,
        scif: Loaded::No,
        ..need
    }
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_advice::missing_parts_are_named",
        BOUNCE,
        missing_parts_are_named,
    )
    .seconds(180)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_advice::other_bridge_client_is_named",
        BOUNCE,
        other_bridge_client_is_named,
    )
    .seconds(180)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_advice::late_engine_is_named",
        BOUNCE,
        late_engine_is_named,
    )
    .seconds(180)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_advice::users_rights_are_checked",
        BOUNCE,
        users_rights_are_checked,
    )
    .seconds(180)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_advice::open_mode_needs_permission",
        BOUNCE,
        open_mode_needs_permission,
    )
    .expects(&["aperture=flat lets the peer read and write all memory"])
    .seconds(180)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_advice::unguarded_bridge_is_named",
        booted_with(scif_idt::UNGUARDED, &[]),
        unguarded_bridge_is_named,
    )
    .expects(&["the other host sets where the windows of this bridge lead"])
    .seconds(180)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_advice::iommu_passthrough_is_named",
        booted_with(ARENA_PAIR, &["iommu=pt"]),
        iommu_passthrough_is_named,
    )
    .seconds(180)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_advice::isolated_cpu_is_named",
        booted_with(PAIR, &["isolcpus=1"]),
        isolated_cpu_is_named,
    )
    .seconds(180)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_advice::lack_of_memory_is_named",
        booted_with(PAIR, &["swiotlb=force"]),
        lack_of_memory_is_named,
    )
    .expects(&["can't offer a link: ENOMEM"])
    .seconds(180)
    .leaves_disorder()
    .by_name(),
];
