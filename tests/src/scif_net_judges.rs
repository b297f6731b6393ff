// SPDX-License-Identifier: GPL-2.0
//! The programs and parts of the kernel for which people have a network, over the devices of
//! `scif_net`.
//!
//! Some tests need Debian packages that the environment does not have. `scripts/judges` downloads
//! them, and a test unpacks them in its guests.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Process;
use lab::paths;
use lab::wait_until;
use serde_json::Value;

use crate::harness::Test;
use crate::need::PAIR;
use crate::scif_net;

/// Bytes of the files that are copied.
const FILE_SIZE: u64 = 64 << 20;

/// Reports frames that arrive at a device, until one is longer than a packet of the wire can be.
/// Before that the program switches GRO off at another device, so that the kernel does not join
/// frames. Arguments: the device, the one without GRO, the length.
const LONG_FRAMES: &str = r#"
import ctypes, fcntl, socket, struct, sys
device, plain, least = sys.argv[1], sys.argv[2], int(sys.argv[3])
SIOCETHTOOL, ETHTOOL_SGRO, ETH_P_ALL, MSG_TRUNC = 0x8946, 0x2c, 3, 0x20
if plain != '-':
    value = ctypes.create_string_buffer(struct.pack('II', ETHTOOL_SGRO, 0))
    request = struct.pack('16sP', plain.encode(), ctypes.addressof(value)) + bytes(16)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, request)
frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
frames.bind((device, 0))
data = bytearray(64)
print('ready', flush=True)
while True:
    length, address = frames.recvfrom_into(data, 64, MSG_TRUNC)
    if address[2] != socket.PACKET_OUTGOING and length >= least:
        print('long frame', length, flush=True)
        break
"#;

/// Unpacks the packages of the judges in a guest.
pub fn install(lab: &Lab, node: usize) -> Result<()> {
    let folder = paths::repository().join("build/judges/packages");
    ensure!(folder.exists(), "run scripts/judges first");
    lab.shell(
        node,
        &format!(
            "[ ! -e /run/judges ] || exit 0
             for package in {}/*.deb; do dpkg-deb -x $package /; done
             ldconfig
             touch /run/judges",
            folder.display()
        ),
    )?;
    Ok(())
}

/// Installs the packages in both nodes, and joins them.
pub fn prepare(lab: &Lab) -> Result<()> {
    (0..2).try_for_each(|node| install(lab, node))?;
    scif_net::joined(lab)
}

/// Runs a shell in a node with a limit of minutes.
pub fn long_shell(lab: &Lab, node: usize, script: &str) -> Result<String> {
    let done = lab
        .command(node, ["sh", "-e", "-c", script])?
        .timeout(lab.hang_limit(120))
        .run()?;
    Ok(done.success()?.stdout())
}

/// Unloads modules of the kernel, and those that came with them. The devices of a namespace that was
/// deleted go a little later.
fn remove(lab: &Lab, node: usize, modules: &str) -> Result<()> {
    let remove = format!(
        "for module in {modules} garp mrp stp llc; do
             [ ! -e /sys/module/$module ] || rmmod $module || exit 1
         done 2>/dev/null"
    );
    wait_until(&format!("no {modules}"), lab.hang_limit(20), || {
        Ok((lab.exec(node, ["sh", "-c", &remove])?.code() == Some(0)).then_some(()))
    })
}

/// Sends by TCP from node 0 to node 1, both in a network namespace of this name, or in their first
/// one. Returns the report.
fn tcp_in(lab: &Lab, space: Option<&str>, arguments: &[&str]) -> Result<Value> {
    let enter: Vec<&str> = match space {
        Some(space) => vec!["ip", "netns", "exec", space],
        None => Vec::new(),
    };
    let serve = ["iperf3", "--server", "--one-off", "--forceflush"];
    let server = lab.spawn(1, [&enter[..], &serve].concat())?;
    server.wait_for("Server listening", lab.hang_limit(20))?;
    let client = ["iperf3", "--json", "--bytes", "16M"];
    let argv = [&enter[..], &client, arguments].concat();
    let done = lab.command(0, argv)?.timeout(lab.hang_limit(60)).run()?;
    let report: Value = serde_json::from_str(&done.stdout()).with_context(|| done.to_string())?;
    ensure!(report["error"].is_null(), "iperf3: {}", report["error"]);
    let received = report["end"]["sum_received"]["bytes"].as_u64();
    ensure!(received >= Some(15 << 20), "{:#}", report["end"]);
    server.wait()?;
    Ok(report)
}

/// Starts to look for a long frame at a device of node 1.
fn watch(lab: &Lab, enter: &[&str], device: &str, plain: &str) -> Result<Process> {
    let watch = ["python3", "-c", LONG_FRAMES, device, plain, "20000"];
    let process = lab.spawn(1, [enter, &watch].concat())?;
    process.wait_for("ready", lab.hang_limit(20))?;
    Ok(process)
}

/// Waits until a long frame has been seen.
fn seen(lab: &Lab, watch: Process) -> Result<()> {
    let found = watch.wait_for("long frame", lab.hang_limit(10));
    watch.kill();
    watch.wait()?;
    found.context("no frame crossed whole")
}

/// VLANs over the device carry TCP, and frames cross whole.
fn vlans(lab: &Lab) -> Result<()> {
    scif_net::joined(lab)?;
    for node in 0..2 {
        lab.load(node, "8021q")?;
        lab.shell(
            node,
            &format!(
                "ip link add link scif0 name v7 type vlan id 7
                 echo 1 >/proc/sys/net/ipv6/conf/v7/disable_ipv6
                 ip addr add 10.9.7.{}/24 dev v7; ip link set v7 up",
                node + 1
            ),
        )?;
    }
    let long = watch(lab, &[], "v7", "scif0")?;
    tcp_in(lab, None, &["--client", "10.9.7.2"])?;
    seen(lab, long)?;
    for node in 0..2 {
        lab.shell(node, "ip link del v7")?;
        remove(lab, node, "8021q")?;
    }
    scif_net::unload(lab)
}

/// A bridge of each node has the device as a port, and a namespace behind it. TCP passes, and
/// frames cross whole.
fn bridges(lab: &Lab) -> Result<()> {
    scif_net::joined(lab)?;
    for node in 0..2 {
        for module in ["bridge", "veth"] {
            lab.load(node, module)?;
        }
        lab.shell(
            node,
            &format!(
                "ip netns add far
                 ip link add b0 type bridge
                 ip link add h0 type veth peer name e0 netns far
                 for device in b0 h0; do
                     echo 1 >/proc/sys/net/ipv6/conf/$device/disable_ipv6
                 done
                 ip addr flush dev scif0
                 ip link set scif0 master b0; ip link set h0 master b0
                 ip link set h0 up; ip link set b0 up
                 ip netns exec far ip link set lo up
                 ip netns exec far ip addr add 10.9.8.{}/24 dev e0
                 ip netns exec far ip link set e0 up",
                node + 1
            ),
        )?;
    }
    // The ports of a bridge learn addresses before they forward.
    let ping = "ip netns exec far busybox ping -c 1 -W 1 10.9.8.2";
    wait_until("a ping through both bridges", lab.hang_limit(60), || {
        Ok((lab.exec(0, ["sh", "-c", ping])?.code() == Some(0)).then_some(()))
    })?;
    let long = watch(lab, &["ip", "netns", "exec", "far"], "e0", "-")?;
    tcp_in(lab, Some("far"), &["--client", "10.9.8.2"])?;
    seen(lab, long)?;
    for node in 0..2 {
        lab.shell(node, "ip link del b0; ip link del h0; ip netns del far")?;
        remove(lab, node, "bridge veth")?;
    }
    scif_net::unload(lab)
}

/// The device moves to another network namespace and back, and works in both.
fn namespaces(lab: &Lab) -> Result<()> {
    scif_net::joined(lab)?;
    for node in 0..2 {
        lab.shell(
            node,
            &format!(
                "ip netns add far
                 ip link set scif0 netns far
                 ip netns exec far ip addr add 10.9.9.{}/24 dev scif0
                 ip netns exec far ip link set scif0 up",
                node + 1
            ),
        )?;
    }
    tcp_in(lab, Some("far"), &["--client", "10.9.9.2"])?;
    for node in 0..2 {
        lab.shell(
            node,
            "ip netns exec far ip link set scif0 netns 1; ip netns del far",
        )?;
        scif_net::set_up(lab, node)?;
    }
    let to = scif_net::address(1);
    tcp_in(lab, None, &["--client", &to])?;
    // A namespace that ends gives the device back, too.
    lab.shell(
        0,
        "ip netns add far; ip link set scif0 netns far; ip netns del far",
    )?;
    scif_net::set_up(lab, 0)?;
    tcp_in(lab, None, &["--client", &to])?;
    scif_net::unload(lab)
}

/// Addresses that IPv6 makes by itself reach the peer.
fn link_local(lab: &Lab) -> Result<()> {
    scif_net::joined(lab)?;
    let mut addresses = Vec::new();
    for node in 0..2 {
        lab.shell(node, "echo 0 >/proc/sys/net/ipv6/conf/scif0/disable_ipv6")?;
        let show = "ip -6 -o addr show dev scif0 scope link -tentative";
        addresses.push(wait_until("an address", lab.hang_limit(20), || {
            let said = lab.shell(node, show)?;
            let mut words = said.split_whitespace();
            Ok(words
                .find(|word| word.starts_with("fe80:"))
                .map(str::to_owned))
        })?);
    }
    let to = addresses[1].split('/').next().context("no address")?;
    lab.shell(0, &format!("busybox ping -6 -c 3 -I scif0 {to}"))?;
    tcp_in(lab, None, &["-6", "--client", &format!("{to}%scif0")])?;
    scif_net::unload(lab)
}

/// `ping -f` loses nothing, with small and with large packets.
fn ping_flood(lab: &Lab) -> Result<()> {
    prepare(lab)?;
    let to = scif_net::address(1);
    for (count, size) in [(20_000, 56), (2000, 1472), (1000, 65_000)] {
        let said = long_shell(lab, 0, &format!("ping -f -q -c {count} -s {size} {to}"))?;
        let last = said.lines().last().unwrap_or("");
        println!("      {size} bytes: {last}");
        ensure!(said.contains(" 0% packet loss"), "{said}");
    }
    scif_net::unload(lab)
}

/// qperf, which measures as netperf does, finishes all of its tests of TCP and UDP.
fn qperf(lab: &Lab) -> Result<()> {
    prepare(lab)?;
    let server = lab.spawn(1, ["qperf"])?;
    let to = scif_net::address(1);
    let said = long_shell(
        lab,
        0,
        &format!("qperf --wait 10 -t 2 {to} tcp_bw tcp_lat udp_bw udp_lat"),
    )?;
    for line in said.lines().filter(|line| line.contains(" = ")) {
        println!("      {}", line.trim());
    }
    ensure!(said.matches("latency").count() == 2, "{said}");
    server.kill();
    server.wait()?;
    scif_net::unload(lab)
}

/// Starts sshd in node 1, and gives root of node 0 a key that opens it.
pub fn serve_ssh(lab: &Lab) -> Result<Process> {
    let keys = "mkdir -p -m 700 /root/.ssh /run/sshd
        [ -e /root/.ssh/id_ed25519 ] || ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
        cat /root/.ssh/id_ed25519.pub";
    let key = lab.shell(0, keys)?;
    lab.shell(
        0,
        "printf 'StrictHostKeyChecking no\\nLogLevel ERROR\\n' >/root/.ssh/config",
    )?;
    lab.shell(
        1,
        &format!(
            "mkdir -p -m 700 /root/.ssh /run/sshd
             echo '{}' >/root/.ssh/authorized_keys
             grep -q ^sshd: /etc/passwd ||
                 echo 'sshd:x:74:65534::/run/sshd:/usr/sbin/nologin' >>/etc/passwd
             [ -e /run/host_key ] || ssh-keygen -q -t ed25519 -N '' -f /run/host_key",
            key.trim()
        ),
    )?;
    let server = lab.spawn(
        1,
        [
            "/usr/sbin/sshd",
            "-D",
            "-e",
            "-f",
            "/dev/null",
            "-h",
            "/run/host_key",
            "-o",
            "UsePAM=no",
            "-o",
            "PermitRootLogin=yes",
            "-o",
            "Subsystem=sftp /usr/lib/openssh/sftp-server",
        ],
    )?;
    // sshd says where it listens on its standard error, which wait_for() reads, too.
    server.wait_for("Server listening", lab.hang_limit(20))?;
    Ok(server)
}

fn hash(lab: &Lab, node: usize, file: &str) -> Result<String> {
    let said = long_shell(lab, node, &format!("sha256sum {file}"))?;
    Ok(said.split(' ').next().unwrap_or("").to_owned())
}

/// Makes a file of random bytes in node 0. Returns its hash.
fn make_file(lab: &Lab, file: &str) -> Result<String> {
    let count = FILE_SIZE >> 20;
    long_shell(
        lab,
        0,
        &format!("dd if=/dev/urandom of={file} bs=1M count={count} status=none"),
    )?;
    hash(lab, 0, file)
}

/// ssh runs a command on the other node, and scp copies a file there and back.
fn ssh(lab: &Lab) -> Result<()> {
    prepare(lab)?;
    let server = serve_ssh(lab)?;
    let to = scif_net::address(1);
    let there = long_shell(
        lab,
        0,
        &format!("ssh root@{to} cat /proc/sys/kernel/random/boot_id"),
    )?;
    ensure!(there.trim() == lab.boot_id(1)?.trim(), "{there}");
    let sent = make_file(lab, "/run/sent")?;
    long_shell(lab, 0, &format!("scp -q /run/sent root@{to}:/run/copy"))?;
    ensure!(hash(lab, 1, "/run/copy")? == sent, "another file arrived");
    long_shell(
        lab,
        0,
        &format!("rm /run/sent; scp -q root@{to}:/run/copy /run/back"),
    )?;
    ensure!(hash(lab, 0, "/run/back")? == sent, "another file came back");
    lab.shell(0, "rm /run/back")?;
    lab.shell(1, "rm /run/copy")?;
    server.kill();
    server.wait()?;
    scif_net::unload(lab)
}

/// A file system that node 1 exports by NFS has the same bytes on both nodes. The server has no
/// record of earlier clients, and lets clients write when its grace time of 10 s is over.
fn nfs(lab: &Lab) -> Result<()> {
    prepare(lab)?;
    lab.load(1, "nfsd")?;
    lab.load(0, "nfsv4")?;
    let client = scif_net::address(0);
    lab.shell(
        1,
        &format!(
            "mkdir -p /srv /var/lib/nfs/v4recovery /run/rpc_pipefs
             touch /etc/exports /var/lib/nfs/etab /var/lib/nfs/rmtab
             mount -t tmpfs -o size=80M tmpfs /srv
             mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
             echo 10 >/proc/fs/nfsd/nfsv4leasetime
             echo 10 >/proc/fs/nfsd/nfsv4gracetime
             exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 {client}:/srv"
        ),
    )?;
    let exports = lab.spawn(1, ["rpc.mountd", "-F", "-N", "2", "-N", "3"])?;
    lab.shell(1, "rpc.nfsd -N 3 -V 4.2 4")?;
    let to = scif_net::address(1);
    lab.shell(
        0,
        &format!("mkdir -p /mnt && mount -t nfs4 -o vers=4.2,sec=sys,hard {to}:/ /mnt"),
    )?;
    let sent = make_file(lab, "/run/sent")?;
    long_shell(
        lab,
        0,
        "dd if=/run/sent of=/mnt/file bs=1M conv=fsync status=none",
    )?;
    ensure!(hash(lab, 1, "/srv/file")? == sent, "another file arrived");
    long_shell(lab, 0, "rm /run/sent; echo 3 >/proc/sys/vm/drop_caches")?;
    ensure!(hash(lab, 0, "/mnt/file")? == sent, "another file came back");
    lab.shell(0, "umount /mnt")?;
    lab.shell(1, "rpc.nfsd 0; exportfs -au")?;
    exports.kill();
    exports.wait()?;
    lab.shell(1, "umount /srv /proc/fs/nfsd")?;
    scif_net::unload(lab)
}

/// tcpdump sees the frames of a stream, in promiscuous mode and with their whole lengths.
fn tcpdump(lab: &Lab) -> Result<()> {
    prepare(lab)?;
    let dump = lab.spawn(
        1,
        [
            "tcpdump",
            "-Z",
            "root",
            "-n",
            "-i",
            "scif0",
            "-c",
            "200",
            "-w",
            "/run/dump",
            "tcp",
        ],
    )?;
    dump.wait_for("listening on", lab.hang_limit(20))?;
    let promiscuous = lab.shell(1, "cat /sys/class/net/scif0/flags")?;
    let to = scif_net::address(1);
    tcp_in(lab, None, &["--client", &to])?;
    dump.wait()?.success()?;
    let said = lab.shell(1, "tcpdump -Z root -n -r /run/dump; rm /run/dump")?;
    let from = format!("IP {}.", scif_net::address(0));
    ensure!(
        said.lines().count() >= 200 && said.contains(&from),
        "{said}"
    );
    println!("      flags {}", promiscuous.trim());
    scif_net::unload(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_net_judges::vlans", PAIR, vlans),
    Test::new("scif_net_judges::bridges", PAIR, bridges).seconds(120),
    Test::new("scif_net_judges::namespaces", PAIR, namespaces),
    Test::new("scif_net_judges::link_local", PAIR, link_local),
    Test::new("scif_net_judges::ping_flood", PAIR, ping_flood)
        .seconds(120)
        .by_name(),
    Test::new("scif_net_judges::qperf", PAIR, qperf)
        .seconds(120)
        .by_name(),
    Test::new("scif_net_judges::ssh", PAIR, ssh)
        .seconds(120)
        .by_name(),
    Test::new("scif_net_judges::nfs", PAIR, nfs)
        .seconds(120)
        .destroys()
        .by_name(),
    Test::new("scif_net_judges::tcpdump", PAIR, tcpdump)
        .seconds(120)
        .by_name(),
];
