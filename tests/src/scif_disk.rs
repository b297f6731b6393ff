// SPDX-License-Identifier: GPL-2.0
//! The sample of a block device in another node's memory (samples/scif/kernel/scif_blk.c): by
//! itself, under a file system, under fio, and beside nbd over ntb_netdev, the older solution.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::wait_until;

use crate::harness::Test;
use crate::in_tree;
use crate::scif;
use crate::scif_kernel::load;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Gives node 0 a disk in the memory of node 1.
fn attach(lab: &Lab, megabytes: usize) -> Result<()> {
    let size = format!("size_mb={megabytes}");
    load(lab, 1, "samples", "scif_blk_server", &size)?;
    load(lab, 0, "samples", "scif_blk", "node=1")?;
    wait_until("node 0 has the disk", lab.hang_limit(20), || {
        let there = lab.exec(0, ["test", "-b", "/dev/scifblk0"])?;
        Ok((there.code() == Some(0)).then_some(()))
    })
}

fn detach(lab: &Lab) -> Result<()> {
    lab.rmmod(0, "scif_blk")?;
    lab.rmmod(1, "scif_blk_server")?;
    for node in 0..2 {
        scif::check_idle(lab, node)?;
    }
    Ok(())
}

/// Returns how often the memory of a disk is removed in the middle of transfers.
fn rounds(lab: &Lab) -> usize {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 10,
        Flavour::Debug | Flavour::Kcsan => 5,
    }
}

/// The disk sample: reads return the written data. If the memory is removed in the middle of
/// transfers, they fail. When it is back, the disk works again.
fn reads_return_written_data(lab: &Lab) -> Result<()> {
    attach(lab, 32)?;
    lab.shell(
        0,
        "set -e
         test $(blockdev --getsize64 /dev/scifblk0) = $((32 << 20))
         dd if=/dev/urandom of=/tmp/data bs=1M count=24 status=none
         dd if=/tmp/data of=/dev/scifblk0 bs=1M oflag=direct status=none
         dd if=/tmp/data of=/dev/scifblk0 bs=4k seek=1024 count=100 oflag=direct status=none
         dd if=/tmp/data of=/tmp/wanted bs=1M status=none
         dd if=/tmp/data of=/tmp/wanted bs=4k seek=1024 count=100 conv=notrunc status=none
         dd if=/dev/scifblk0 bs=512k count=48 iflag=direct status=none | cmp - /tmp/wanted
         rm /tmp/data /tmp/wanted",
    )?;
    let limit = lab.hang_limit(20);
    for _ in 0..rounds(lab) {
        // The memory is removed in the middle of reads, which fail and do not hang.
        let reader = lab.spawn(
            0,
            [
                "sh",
                "-c",
                "while dd if=/dev/scifblk0 of=/dev/null bs=64k iflag=direct status=none; do echo; done",
            ],
        )?;
        wait_until("something is read", limit, || {
            Ok((!reader.stdout().is_empty()).then_some(()))
        })?;
        lab.rmmod(1, "scif_blk_server")?;
        reader.wait()?;
        load(lab, 1, "samples", "scif_blk_server", "size_mb=32")?;
        wait_until("the disk is back", limit, || {
            let read = lab.exec(
                0,
                [
                    "dd",
                    "if=/dev/scifblk0",
                    "of=/dev/null",
                    "bs=4k",
                    "count=1",
                    "iflag=direct",
                ],
            )?;
            Ok((read.code() == Some(0)).then_some(()))
        })?;
    }
    detach(lab)
}

/// The client gives up a server that does not answer a message, and the disk can be removed.
fn silent_server_is_given_up(lab: &Lab) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_mute_disk", &["3002"], 120)?;
    load(lab, 0, "samples", "scif_blk", "node=1 patience=1")?;
    wait_until("node 0 has the disk", lab.hang_limit(20), || {
        let there = lab.exec(0, ["test", "-b", "/dev/scifblk0"])?;
        Ok((there.code() == Some(0)).then_some(()))
    })?;
    // Transfers need no answer from the server.
    let write = "dd if=/dev/zero of=/dev/scifblk0 bs=64k count=4 oflag=direct status=none";
    lab.shell(0, write)?;
    let discarded = lab.exec(0, ["blkdiscard", "-f", "-l", "64k", "/dev/scifblk0"])?;
    ensure!(
        discarded.code() != Some(0),
        "a discard has succeeded: {discarded}"
    );
    // The client reconnects within a second.
    wait_until("the disk is back", lab.hang_limit(20), || {
        Ok((lab.exec(0, ["sh", "-c", write])?.code() == Some(0)).then_some(()))
    })?;
    lab.rmmod(0, "scif_blk")?;
    server.kill();
    server.wait()?;
    for node in 0..2 {
        scif::check_idle(lab, node)?;
    }
    Ok(())
}

/// A file system on the disk is made, filled, checked, read again, and trimmed.
fn file_system_is_consistent(lab: &Lab) -> Result<()> {
    attach(lab, 64)?;
    lab.shell(
        0,
        "set -e
         modprobe ext4
         mkfs.ext4 -q /dev/scifblk0
         mkdir -p /tmp/disk
         mount /dev/scifblk0 /tmp/disk
         cp -r /usr/include/linux /tmp/disk/
         umount /tmp/disk
         e2fsck -fn /dev/scifblk0
         mount /dev/scifblk0 /tmp/disk
         diff -r /usr/include/linux /tmp/disk/linux
         rm -r /tmp/disk/linux
         fstrim /tmp/disk
         umount /tmp/disk
         e2fsck -fn /dev/scifblk0
         rmdir /tmp/disk
         modprobe -r ext4 crc32c_cryptoapi",
    )?;
    detach(lab)
}

/// Runs fio on a disk of node 0. Returns MiB/s read and written.
fn fio(lab: &Lab, disk: &str, how: &str) -> Result<(f64, f64)> {
    let said = lab.shell(
        0,
        &format!(
            "fio --name=disk --filename={disk} --direct=1 --ioengine=psync --output-format=json {how}"
        ),
    )?;
    let at = said.find('{').context("fio has said nothing")?;
    let report: serde_json::Value = serde_json::from_str(&said[at..])?;
    let job = &report["jobs"][0];
    ensure!(job["error"] == 0, "fio: {report}");
    let rate = |way: &str| job[way]["bw_bytes"].as_f64().unwrap_or(0.0) / f64::from(1 << 20);
    Ok((rate("read"), rate("write")))
}

/// Measures large sequential and small random accesses. The figures are for people.
fn measure(lab: &Lab, label: &str, disk: &str) -> Result<()> {
    let (_, write) = fio(lab, disk, "--rw=write --bs=1M --size=32M --loops=4")?;
    let (read, _) = fio(lab, disk, "--rw=read --bs=1M --size=32M --loops=4")?;
    let (small, _) = fio(
        lab,
        disk,
        "--rw=randread --bs=4k --size=32M --number_ios=2000",
    )?;
    println!(
        "      {label}: 1 MiB written {write:.0} MiB/s, read {read:.0} MiB/s; 4 KiB at random {:.0}/s",
        small * 256.0
    );
    Ok(())
}

/// Several fio jobs at once write at random, and verify their data.
fn fio_verifies_random_writes(lab: &Lab) -> Result<()> {
    attach(lab, 32)?;
    fio(
        lab,
        "/dev/scifblk0",
        "--rw=randrw --bsrange=4k-128k --size=8M --numjobs=4 --offset_increment=8M \
         --verify=crc32c --group_reporting",
    )?;
    measure(lab, "scif_blk", "/dev/scifblk0")?;
    detach(lab)
}

/// Measures the same figures of nbd over ntb_netdev.
fn nbd_for_comparison(lab: &Lab) -> Result<()> {
    in_tree::network(lab)?;
    lab.shell(
        1,
        "set -e
         truncate -s 32M /dev/shm/disk
         nbd-server 10809 /dev/shm/disk -C /dev/null",
    )?;
    lab.shell(
        0,
        "set -e
         modprobe nbd nbds_max=1
         nbd-client 10.0.0.2 10809 /dev/nbd0",
    )?;
    measure(lab, "nbd over ntb_netdev", "/dev/nbd0")
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_disk::reads_return_written_data",
        SCIF_PAIR,
        reads_return_written_data,
    )
    .seconds(240)
    .by_name(),
    Test::new(
        "scif_disk::silent_server_is_given_up",
        SCIF_PAIR,
        silent_server_is_given_up,
    ),
    Test::new(
        "scif_disk::file_system_is_consistent",
        SCIF_PAIR,
        file_system_is_consistent,
    )
    .seconds(120)
    .on_stock()
    .by_name(),
    Test::new(
        "scif_disk::fio_verifies_random_writes",
        SCIF_PAIR,
        fio_verifies_random_writes,
    )
    .seconds(120)
    .on_stock()
    .by_name(),
    Test::new(
        "scif_disk::nbd_for_comparison",
        in_tree::FIXED_PAIR,
        nbd_for_comparison,
    )
    .seconds(120)
    .on_stock()
    .destroys()
    .by_name(),
];
