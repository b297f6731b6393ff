// SPDX-License-Identifier: GPL-2.0
//! The kernel's own driver of IDT switches, and its NTB clients, over the emulated switch. It has
//! messages instead of scratchpads, and one doorbell register with one vector. The node that uses a
//! window sets its translation.

use anyhow::Result;
use anyhow::ensure;
use lab::Iommu;
use lab::Lab;
use lab::Personality;
use lab::RaidWrites;
use lab::Windows;
use lab::wait_until;

use crate::harness::Test;
use crate::in_tree;
use crate::need::Need;
use crate::need::PAIR;
use crate::need::STAR;
use crate::ntb_client;
use crate::ntb_client::Loaded;
use crate::ntb_client::Tool;
use crate::ntb_client::check_link;
use crate::ntb_client::enable_links;
use crate::ntb_client::ntb_device;

/// The size of the windows.
const WINDOW: u64 = 1 << 20;

/// A pair with windows so small that clients find memory for a whole window.
const IDT_PAIR: Need = Need {
    personality: Personality::Idt,
    windows: Windows::Trapped { size: WINDOW },
    ..PAIR
};

/// The same pair with the bridges behind an IOMMU.
const IDT_IOMMU: Need = Need {
    iommu: Iommu::Bridges,
    ..IDT_PAIR
};

/// Three nodes, with windows as large as memory.
const IDT_STAR: Need = Need {
    personality: Personality::Idt,
    ..STAR
};

/// Returns how often a node's bridge has interrupted.
fn interrupts(lab: &Lab, node: usize) -> Result<u64> {
    Ok(ntb_client::interrupts(lab, node, "ntb_irq_idt")?[0])
}

/// Waits until a node's bridge has interrupted `expected` times, and checks that no further
/// interrupt follows.
fn interrupted(lab: &Lab, node: usize, expected: u64) -> Result<()> {
    wait_until("an interrupt", lab.hang_limit(10), || {
        Ok((interrupts(lab, node)? >= expected).then_some(()))
    })?;
    let found = interrupts(lab, node)?;
    ensure!(found == expected, "{found} interrupts, not {expected}");
    Ok(())
}

/// ntb_tool: ports are those of the switch. The link follows the wishes of both clients, and the
/// cable.
fn link_needs_both_clients(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    check_link(lab, [&a, &b], [0, 2])?;
    loaded.unload()
}

/// ntb_tool: each message arrives and interrupts. It stays until the receiver takes it, and the
/// sender of another message gets an error.
fn messages_arrive(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    enable_links(&[&a, &b])?;
    ensure!(a.number("msg_inbits")? == 0xf_0000 && a.number("msg_outbits")? == 0xf);
    for tool in [&a, &b] {
        tool.write("msg_sts", "c 0xf000f")?;
        tool.write("msg_mask", "c 0xf000f")?;
    }
    for (here, there) in [(&a, &b), (&b, &a)] {
        let node = there.node.number();
        for register in 0..4 {
            let before = interrupts(lab, node)?;
            let word = 0x1000_0000 * (register + 1) + 0xabcd;
            here.write(&format!("peer0/msg{register}"), &format!("{word:#x}"))?;
            let arrived = 1 << (16 + register);
            // The write blocks until exactly this event has occurred.
            there.write("msg_event", &format!("{arrived:#x}"))?;
            ensure!(there.read(&format!("msg{register}"))? == format!("{word:#010x}<-0"));
            interrupted(lab, node, before + 1)?;
            here.write(&format!("peer0/msg{register}"), "0x666")?;
            here.write("msg_event", &format!("{:#x}", 1 << register))?;
            ensure!(there.read(&format!("msg{register}"))? == format!("{word:#010x}<-0"));
            here.write("msg_sts", &format!("c {:#x}", 1 << register))?;
            there.write("msg_sts", &format!("c {arrived:#x}"))?;
            ensure!(here.number("msg_sts")? == 0 && there.number("msg_sts")? == 0);
        }
    }
    for tool in [&a, &b] {
        tool.write("msg_mask", "s 0xf000f")?;
    }
    loaded.unload()
}

/// ntb_tool: each doorbell arrives, also comes back to its sender, and is cleared for both nodes.
///
/// The bridge interrupts when the register leaves 0, and only then. The mask delays the interrupt
/// until it is lifted.
fn doorbells_reach_both_nodes(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    enable_links(&[&a, &b])?;
    for (here, there) in [(&a, &b), (&b, &a)] {
        here.write("db_mask", "s 0xffffffff")?;
        there.write("db", "c 0xffffffff")?;
        there.write("db_mask", "c 0xffffffff")?;
        let bits: Vec<String> = (0..32).map(|bit| format!("{:#x}", 1_u64 << bit)).collect();
        let bits = bits.join(" ");
        // Writing db_event blocks until exactly that bit is set.
        let answers = there.node.spawn([
            "sh",
            "-e",
            "-c",
            &format!(
                "cd {}; for bit in {bits}; do echo $bit >db_event; echo c $bit >db; done",
                there.folder
            ),
        ])?;
        here.shell(&format!(
            "for bit in {bits}; do
                 echo s $bit >peer_db
                 while [ $(($(cat db))) != 0 ]; do :; done
             done"
        ))?;
        answers.wait()?.success()?;
        let node = there.node.number();
        let mut seen = interrupts(lab, node)?;
        for (step, more) in [
            ("echo s 0x1 >peer_db", 1),
            ("echo s 0x6 >peer_db", 0),
            ("echo c 0x1 >db; echo s 0x8 >peer_db", 0),
            ("echo c 0xe >db; echo s 0x8 >peer_db", 1),
        ] {
            here.shell(step)?;
            seen += more;
            interrupted(lab, node, seen)?;
        }
        ensure!(here.number("db")? == 0x8 && there.number("db")? == 0x8);
        there.write("db", "c 0x8")?;
        there.write("db_mask", "s 0x10")?;
        here.write("peer_db", "s 0x10")?;
        interrupted(lab, node, seen)?;
        there.write("db_mask", "c 0x10")?;
        interrupted(lab, node, seen + 1)?;
        there.write("db", "c 0x10")?;
    }
    for tool in [&a, &b] {
        tool.write("db_mask", "s 0xffffffff")?;
    }
    loaded.unload()
}

/// Points the window that ntb_perf uses to where the window leads that it sets.
///
/// ntb_perf sets one window and uses the other if the node that uses a window sets it, because it
/// takes the number for that of its peer's window. The function writes registers in configuration
/// space (setup, limit of 64 bits, translated address), with a limit behind all BARs.
fn set_used_window(lab: &Lab, node: usize) -> Result<()> {
    let registers = [0x490, 0x4b0];
    let (used, set) = (registers[node], registers[1 - node]);
    lab.shell(
        node,
        &format!(
            "config=/sys/bus/pci/devices/{}/config
             put() {{ dd of=$config bs=4 seek=$(($1 / 4)) conv=notrunc status=none; }}
             get() {{ dd if=$config bs=4 skip=$(($1 / 4)) count=1 status=none; }}
             for register in 0 8 12; do
                 get $(({set} + register)) | put $(({used} + register))
             done
             for limit in 4 20; do printf '\\377\\377\\377\\377' | put $(({used} + limit)); done",
            ntb_device(0)
        ),
    )?;
    Ok(())
}

/// ntb_perf: the driver finds its peer by messages, and copies through windows by CPU and by the
/// engine.
fn perf(lab: &Lab) -> Result<()> {
    in_tree::perf_after(lab, |node| set_used_window(lab, node))
}

/// A window reaches only what the peer's IOMMU grants its bridge, whatever its translation is.
fn iommu_limits_windows(lab: &Lab) -> Result<()> {
    let loaded = Loaded::new(lab, "ntb_tool", "")?;
    let (a, b) = (Tool::new(lab, 0, 0), Tool::new(lab, 1, 0));
    enable_links(&[&a, &b])?;
    let nothing = lab.raid(0, 1, RaidWrites::Nothing)?;
    ensure!(nothing.tried == 2 * WINDOW / 4096 && nothing.read == 0);
    b.write("peer0/mw_trans0", "65536")?;
    let address = b.field("peer0/mw_trans0", "DMA Address")?;
    // A window onto a megabyte around the buffer reaches the buffer alone. Physical addresses lead
    // nowhere.
    let start = (address - 0x8000).max(0x1000);
    a.write("peer0/peer_mw_trans0", &format!("{start}:{WINDOW}"))?;
    a.write("peer0/peer_mw_trans1", &format!("{}:{WINDOW}", 16 << 20))?;
    let loot = lab.raid(0, 1, RaidWrites::Everything)?;
    ensure!(loot.read == 16 && loot.written == 16, "{loot:?}");
    b.write("peer0/mw_trans0", "0")?;
    ensure!(lab.raid(0, 1, RaidWrites::Everything)?.written == 0);
    for window in 0..2 {
        a.write(&format!("peer0/peer_mw_trans{window}"), "0:0")?;
    }
    loaded.unload()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "in_tree_idt::link_needs_both_clients",
        IDT_PAIR,
        link_needs_both_clients,
    )
    .by_name(),
    Test::new("in_tree_idt::pingpong", IDT_PAIR, in_tree::pingpong).by_name(),
    Test::new("in_tree_idt::messages_arrive", IDT_PAIR, messages_arrive).by_name(),
    Test::new(
        "in_tree_idt::doorbells_reach_both_nodes",
        IDT_PAIR,
        doorbells_reach_both_nodes,
    )
    .by_name(),
    Test::new(
        "in_tree_idt::window_data_arrives",
        IDT_PAIR,
        in_tree::window_data_arrives,
    )
    .by_name(),
    Test::new("in_tree_idt::perf", IDT_PAIR, perf)
        .leaves_disorder()
        .by_name(),
    Test::new(
        "in_tree_idt::iommu_limits_windows",
        IDT_IOMMU,
        iommu_limits_windows,
    )
    .by_name(),
    Test::new("in_tree_idt::perf_iommu", IDT_IOMMU, perf)
        .leaves_disorder()
        .by_name(),
    Test::new("in_tree_idt::star_pingpong", IDT_STAR, in_tree::pingpong).by_name(),
];
