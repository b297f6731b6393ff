// SPDX-License-Identifier: GPL-2.0
//! The kernel's own tests of network drivers (`tools/testing/selftests/drivers/net`), with the
//! other node as their remote host. `scripts/judges` copies and compiles them.

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::paths;

use crate::harness::Test;
use crate::need::PAIR;
use crate::scif_net;
use crate::scif_net_judges;

/// Prepares node 0: one connection for all calls of ssh, as a new one takes longer than some tests wait;
/// and an ethtool that shows channels as JSON, which Debian's does not.
const TOOLS: &str = r#"
echo 'ControlPath /run/ssh-%n' >>/root/.ssh/config
ssh -fNM root@"$1" </dev/null >/dev/null 2>&1
mkdir -p /run/tools
cat >/run/tools/ethtool <<'END'
#!/bin/sh
[ "$1 $2" = "--json -l" ] || exec /usr/sbin/ethtool "$@"
/usr/sbin/ethtool -l "$3" | awk '
    /^Current/ { is_current = 1 }
    is_current && /^Combined:/ { printf "[{\"combined\": %d}]\n", $2 }'
END
chmod +x /run/tools/ethtool
"#;

/// Results of a program.
#[derive(Default)]
struct Results {
    passed: Vec<String>,
    skipped: Vec<String>,
    failed: Vec<String>,
}

impl Results {
    /// Adds the lines of a program, such as "ok 1 ping.test_default_v4" and "not ok 2 x # SKIP why".
    fn add(&mut self, said: &str) {
        for line in said.lines() {
            let (is_ok, rest) = match line.strip_prefix("not ok ") {
                Some(rest) => (false, rest),
                None => match line.strip_prefix("ok ") {
                    Some(rest) => (true, rest),
                    None => continue,
                },
            };
            let name = rest
                .split_once(' ')
                .map_or(rest, |(_, name)| name)
                .to_owned();
            match is_ok {
                true if name.contains("# SKIP") || name.contains("# XFAIL") => {
                    self.skipped.push(name);
                }
                true => self.passed.push(name),
                false => self.failed.push(name),
            }
        }
    }
}

/// Returns what a program of the kernel says, and its errors if it has no result at all.
fn run(lab: &Lab, program: &str) -> Result<String> {
    let folder =
        paths::repository().join("build/judges/kernel/tools/testing/selftests/drivers/net");
    let script = format!(
        "cd {}
         export NETIF=scif0 LOCAL_V4={} REMOTE_V4={} LOCAL_V6=fd36::1 REMOTE_V6=fd36::2
         export REMOTE_TYPE=ssh REMOTE_ARGS=root@{}
         export PATH=/run/tools:$PATH PYTHONDONTWRITEBYTECODE=1 KSFT_MACHINE_SLOW=yes
         timeout 3500 python3 ./{program} 2>&1 || true",
        folder.display(),
        scif_net::address(0),
        scif_net::address(1),
        scif_net::address(1),
    );
    let done = lab
        .command(0, ["sh", "-c", &script])?
        .timeout(lab.hang_limit(3600))
        .run()?;
    Ok(done.success()?.stdout())
}

/// Makes the state in which each program starts.
fn set_up(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        lab.shell(
            node,
            &format!(
                "ip link set scif0 up mtu 1500
                 echo 0 >/proc/sys/net/ipv6/conf/scif0/disable_ipv6
                 ip addr replace fd36::{}/64 dev scif0 nodad",
                node + 1
            ),
        )?;
        scif_net::carrier(lab, node, "scif0", true)?;
    }
    Ok(())
}

/// No test of a program fails. Those of what a device need not have are skipped.
fn check(lab: &Lab, program: &str) -> Result<()> {
    scif_net_judges::prepare(lab)?;
    let server = scif_net_judges::serve_ssh(lab)?;
    let remote = scif_net::address(1);
    lab.command(0, ["sh", "-e", "-c", TOOLS, "sh", &remote])?
        .timeout(lab.hang_limit(60))
        .run()?
        .success()?;
    let mut results = Results::default();
    set_up(lab)?;
    let said = run(lab, program)?;
    // Otherwise the server's process for this connection would stay.
    lab.shell(0, &format!("ssh -O exit root@{remote} 2>&1"))?;
    results.add(&said);
    for (what, names) in [
        ("passed", &results.passed),
        ("skipped", &results.skipped),
        ("failed", &results.failed),
    ] {
        println!("      {program}: {} {what}", names.len());
        names.iter().for_each(|name| println!("        {name}"));
    }
    ensure!(
        results.failed.is_empty() && results.passed.len() + results.skipped.len() > 0,
        "{program} says:\n{said}"
    );
    server.kill();
    server.wait()?;
    scif_net::unload(lab)
}

const fn test(name: &'static str, run: fn(&Lab) -> Result<()>) -> Test {
    Test::new(name, PAIR, run).seconds(600).destroys().by_name()
}

/// The tests of this file, one for each program.
pub const TESTS: &[Test] = &[
    test("scif_net_kernel::ping", |lab| check(lab, "ping.py")),
    test("scif_net_kernel::stats", |lab| check(lab, "stats.py")),
    test("scif_net_kernel::queues", |lab| check(lab, "queues.py")),
    test("scif_net_kernel::napi_threaded", |lab| {
        check(lab, "napi_threaded.py")
    }),
    test("scif_net_kernel::xdp", |lab| check(lab, "xdp.py")),
    test("scif_net_kernel::gro", |lab| check(lab, "gro.py")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_the_kernels_tests_are_parsed() {
        let mut results = Results::default();
        results.add("TAP version 13\n1..3\nok 1 ping.a\nok 2 ping.b # SKIP no\nnot ok 3 ping.c\n");
        assert_eq!(results.passed, ["ping.a"]);
        assert_eq!(results.skipped, ["ping.b # SKIP no"]);
        assert_eq!(results.failed, ["ping.c"]);
    }
}
