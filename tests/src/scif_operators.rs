// SPDX-License-Identifier: GPL-2.0
//! The means that operators have to inspect the module: tracepoints, the files in debugfs, `scif
//! status` and `scif top`. They run as root and as an ordinary user, while files are copied between
//! two nodes.

use std::collections::HashMap;
use std::fs;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::wait_until;
use serde_json::Value;

use crate::harness::Test;
use crate::scif;
use crate::scif::DEBUGFS;
use crate::scif::Server;
use crate::scif_messages_and_rma::SCIF_PAIR;

const TRACING: &str = "/sys/kernel/tracing";
const SIZE: u64 = (2 << 20) + 12345;

/// Copies a file from node 0 to node 1.
fn copy(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    scif::make_file(lab, "sent", SIZE)?;
    scif::run_tool(lab, 0, &["cp", "-q", "/exchange/sent", "1:copy"])?.success()?;
    server.stop()
}

/// Returns the value of a field of an event.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ')
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Returns the events that a node has traced: the name of each, and the rest of its line.
fn traced(lab: &Lab, node: usize) -> Result<Vec<(String, String)>> {
    let text = lab.shell(node, &format!("cat {TRACING}/trace"))?;
    let events = text.lines().filter_map(|line| {
        let (_, event) = line.split_once(": scif_")?;
        let (name, rest) = event.split_once(": ")?;
        Some((format!("scif_{name}"), rest.to_owned()))
    });
    Ok(events.collect())
}

/// Both nodes trace the events of a copy, and the events of a transfer match.
fn trace_events_match(lab: &Lab) -> Result<()> {
    if matches!(lab.kernel().flavour(), Flavour::Plain | Flavour::Kcsan) {
        println!("      this kernel has no tracepoints");
        return Ok(());
    }
    for node in 0..2 {
        lab.shell(
            node,
            &format!(
                "[ -e {TRACING}/events ] || mount -t tracefs tracefs {TRACING}
                echo > {TRACING}/trace && echo 1 > {TRACING}/events/scif/enable"
            ),
        )?;
    }
    let copied = copy(lab);
    let (at_0, at_1) = (traced(lab, 0)?, traced(lab, 1)?);
    for node in 0..2 {
        lab.shell(node, &format!("echo 0 > {TRACING}/events/scif/enable"))?;
    }
    copied?;
    let both = at_0.iter().chain(&at_1);
    let names: Vec<&str> = both.clone().map(|(name, _)| name.as_str()).collect();
    for name in [
        "scif_connect",
        "scif_connect_done",
        "scif_accept",
        "scif_close",
        "scif_send",
        "scif_receive",
        "scif_register",
        "scif_rma_submit",
        "scif_rma_complete",
        "scif_fence_mark",
        "scif_fence_wait",
        "scif_fence_wait_done",
    ] {
        ensure!(names.contains(&name), "no {name} in {at_0:#?}\n{at_1:#?}");
    }
    for events in [&at_0, &at_1] {
        let mut running = HashMap::new();
        for (name, text) in events {
            let key = (field(text, "channel"), field(text, "number"));
            match name.as_str() {
                "scif_rma_submit" => {
                    running.insert(key, text);
                }
                "scif_rma_complete" => {
                    ensure!(running.remove(&key).is_some(), "not submitted: {text}");
                    ensure!(field(text, "result") == Some("0"), "{text}");
                }
                _ => (),
            }
        }
        ensure!(running.is_empty(), "not complete: {running:?}");
    }
    Ok(())
}

/// Returns the output of `scif status` for a user.
fn status(lab: &Lab, node: usize, user: &str) -> Result<Value> {
    let text = lab.shell(node, &format!("{user} {} status --json", scif::tool()?))?;
    serde_json::from_str(&text).with_context(|| format!("not JSON:\n{text}"))
}

/// Returns the endpoints in this state.
fn endpoints<'a>(status: &'a Value, state: &str) -> Vec<&'a Value> {
    let all = status["endpoints"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    all.iter().filter(|each| each["state"] == state).collect()
}

/// Root sees all endpoints in all files of debugfs, and a connection whose counts grow.
fn root_sees_all_endpoints(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    for file in ["links", "endpoints", "windows", "marks", "pins"] {
        let text = lab.node(1).read(&format!("{DEBUGFS}/{file}"))?;
        ensure!(text.lines().count() >= 1, "{file} has no line of titles");
    }
    let seen = status(lab, 1, "")?;
    ensure!(seen["all_endpoints"] == true, "{seen:#}");
    let up = |link: &&Value| link["state"] == "up";
    let links = seen["links"].as_array().map_or(&[][..], Vec::as_slice);
    ensure!(links.iter().filter(up).count() == 2, "{seen:#}");
    let listening = endpoints(&seen, "listening");
    ensure!(
        listening.len() == 1 && listening[0]["name"] == "scif",
        "{seen:#}"
    );

    // Pings go on as long as the test reads the files.
    let pings = ["ping", "1", "-q", "-c", "100000", "-i", "0.01"];
    let client = scif::start_tool(lab, 0, &pings)?;
    let connected = wait_until("node 1 sees a connection", lab.hang_limit(20), || {
        let seen = status(lab, 1, "")?;
        let found = endpoints(&seen, "connected")
            .first()
            .map(|&each| each.clone());
        // The server answers a ping after it has received it.
        let counts = ["received_bytes", "sent_messages"];
        Ok(found.filter(|each| counts.iter().all(|&count| each[count].as_u64() > Some(0))))
    })?;
    ensure!(connected["name"] == "scif", "{connected:#}");
    let top = scif::run_tool(lab, 1, &["top", "-n", "2", "-d", "1", "--json"])?.success()?;
    for line in top.stdout().lines() {
        let refresh: Value = serde_json::from_str(line)?;
        ensure!(refresh["total"]["sent"].as_f64() > Some(0.0), "{refresh:#}");
        ensure!(refresh["processes"][0]["name"] == "scif", "{refresh:#}");
    }
    let metrics = scif::run_tool(lab, 1, &["status", "--metrics"])?.success()?;
    ensure!(
        metrics
            .stdout()
            .contains("\nscif_connection_sent_bytes_total{own=\"1:2050\","),
        "{metrics}"
    );
    client.signal(2);
    client.wait()?;
    server.stop()?;
    scif::check_idle(lab, 1)
}

/// Another user sees the nodes, and the user's own endpoints.
fn user_sees_own_endpoints(lab: &Lab) -> Result<()> {
    let user = "setpriv --reuid=1234 --regid=1234 --clear-groups";
    let server = Server::start(lab, 1)?;
    let seen = status(lab, 1, user)?;
    ensure!(seen["all_endpoints"] == false, "{seen:#}");
    ensure!(
        seen["links"].is_null() && seen["pins"].is_null(),
        "{seen:#}"
    );
    ensure!(
        seen["nodes"].as_array().map(Vec::len) == Some(2),
        "{seen:#}"
    );
    ensure!(endpoints(&seen, "listening").is_empty(), "{seen:#}");
    server.stop()?;

    let folder = lab.paths().exchange().join("of-a-user");
    fs::create_dir_all(&folder)?;
    lab.shell(1, "chmod 666 /dev/scif && chmod 755 /exchange/of-a-user")?;
    let tool = scif::tool()?;
    let words = format!("{user} {tool} serve --root /exchange/of-a-user --read-only");
    let argv: Vec<&str> = words.split(' ').collect();
    let own = lab.command(1, argv)?.timeout(lab.hang_limit(120)).spawn()?;
    own.wait_for("serving", lab.hang_limit(30))?;
    let seen = status(lab, 1, user);
    own.signal(2);
    own.wait()?;
    lab.shell(1, "chmod 600 /dev/scif")?;
    let seen = seen?;
    let listening = endpoints(&seen, "listening");
    ensure!(
        listening.len() == 1 && listening[0]["uid"] == 1234 && listening[0]["own"] == "1:2050",
        "{seen:#}"
    );
    Ok(())
}

/// Runs a script that prints its process id and the fdinfo of its open device.
fn own_and_said(lab: &Lab, script: &str) -> Result<(String, String)> {
    let text = lab.shell(0, script)?;
    let mut lines = text.lines().map(str::to_owned);
    let pair = lines.next().zip(lines.next());
    pair.with_context(|| format!("not two lines: {text}"))
}

/// fdinfo names the process that opened the device, and no process once that one has ended.
fn fdinfo_names_opener(lab: &Lab) -> Result<()> {
    let (own, said) = own_and_said(
        lab,
        "exec 9<>/dev/scif; echo $$; sed -n 's/^scif-pid:.//p' /proc/self/fdinfo/9",
    )?;
    ensure!(own == said, "process {own} opened it, fdinfo says {said}");
    // The process has ended, but the file is still open.
    let said = lab.shell(
        0,
        "mkfifo /tmp/process_ids
        sh -c \"exec 9<>/dev/scif
            { read go; sed -n 's/^scif-pid:.//p' /proc/self/fdinfo/9; } </tmp/process_ids &\"
        echo go >/tmp/process_ids",
    )?;
    ensure!(said == "0\n", "a process that is gone is {said}");
    Ok(())
}

/// fdinfo has the process id in the reader's PID namespace, or 0 if the process is outside of the
/// namespace. The kernels that the project builds have no such namespaces.
fn fdinfo_follows_pid_namespace(lab: &Lab) -> Result<()> {
    let (own, said) = own_and_said(
        lab,
        "unshare --pid --fork --mount-proc sh -c \
            \"exec 9<>/dev/scif; echo \\$\\$; sed -n 's/^scif-pid:.//p' /proc/self/fdinfo/9\"",
    )?;
    ensure!(
        own == "1" && said == "1",
        "process {own} opened it, fdinfo says {said}"
    );
    let (_, said) = own_and_said(
        lab,
        "exec 9<>/dev/scif; echo $$
        unshare --pid --fork --mount-proc sed -n 's/^scif-pid:.//p' /proc/self/fdinfo/9",
    )?;
    ensure!(said == "0", "a process outside is {said} inside");
    Ok(())
}

/// The tests of this file, in the order in which they run.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_operators::trace_events_match",
        SCIF_PAIR,
        trace_events_match,
    ),
    Test::new(
        "scif_operators::root_sees_all_endpoints",
        SCIF_PAIR,
        root_sees_all_endpoints,
    ),
    Test::new(
        "scif_operators::fdinfo_names_opener",
        SCIF_PAIR,
        fdinfo_names_opener,
    ),
    Test::new(
        "scif_operators::fdinfo_follows_pid_namespace",
        SCIF_PAIR,
        fdinfo_follows_pid_namespace,
    )
    .on_stock(),
    Test::new(
        "scif_operators::user_sees_own_endpoints",
        SCIF_PAIR,
        user_sees_own_endpoints,
    ),
];
