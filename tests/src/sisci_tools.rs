// SPDX-License-Identifier: GPL-2.0
//! `sisci-info` and `sisci-bench` as users run them: the output is complete, each test ends with a
//! result, and error messages say what to do. The tests do not judge the figures.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Output;
use lab::Process;
use serde_json::Value;

use crate::harness::Test;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Returns the path of an installed tool, with the library beside it.
fn tool(name: &str) -> Result<String> {
    scif::built(&format!("build/DIS/bin/{name}"))
}

fn run(lab: &Lab, node: usize, name: &str, arguments: &[&str]) -> Result<Output> {
    let mut argv = vec![tool(name)?];
    argv.extend(arguments.iter().map(|&argument| argument.to_owned()));
    lab.command(node, argv)?.timeout(lab.hang_limit(100)).run()
}

fn start_server(lab: &Lab, node: usize) -> Result<Process> {
    let server = lab
        .command(node, [tool("sisci-bench")?, "server".to_owned()])?
        .timeout(lab.hang_limit(200))
        .spawn()?;
    server.wait_for("serving", lab.hang_limit(20))?;
    Ok(server)
}

fn json(output: Output) -> Result<Value> {
    Ok(serde_json::from_str(&output.success()?.stdout())?)
}

/// The tool shows both nodes as reachable, and the segment and the interrupt of a program.
fn info(lab: &Lab) -> Result<()> {
    let text = run(lab, 0, "sisci-info", &[])?.success()?.stdout();
    ensure!(
        text.contains("SISCI") && text.contains("Adapter 0"),
        "{text}"
    );
    let server = start_server(lab, 0)?;
    let report = json(run(lab, 0, "sisci-info", &["--json"])?)?;
    let nodes = report["nodes"].as_array().context("no nodes")?;
    for (node, id) in nodes.iter().zip([4, 8]) {
        ensure!(node["id"] == id && node["reachable"] == true, "{report}");
    }
    ensure!(nodes.len() == 2 && report["ok"] == true, "{report}");
    let names = report["names"].as_array().context("no names")?;
    let has = |class: &str| {
        let is_it = |name: &Value| name["class"] == class && name["number"] == 0x5b00;
        names.iter().any(is_it)
    };
    ensure!(has("segment") && has("interrupt"), "{report}");
    server.signal(2);
    server.wait()?.success()?;
    Ok(())
}

/// Runs all benchmarks in both directions, with and without their baseline.
fn bench(lab: &Lab) -> Result<()> {
    let served = scif::Server::start(lab, 1)?;
    let server = start_server(lab, 1)?;
    let quick = ["--rounds", "2", "--seconds", "0.01", "--sizes", "8,4K,64K"];
    let arguments = [&["all", "8", "--json", "--reference"], &quick[..]].concat();
    let report = json(run(lab, 0, "sisci-bench", &arguments)?)?;
    let rows = report["rows"].as_array().context("no rows")?;
    for test in [
        "scibench2",
        "scipp",
        "dma_bench",
        "intr_bench",
        "reflective_bench",
        "sequence",
    ] {
        let of = || rows.iter().filter(|row| row["test"] == test);
        ensure!(of().count() > 0, "nothing of {test}: {report}");
        for row in of() {
            let value = row["value"].as_f64();
            ensure!(value > Some(0.0) || test == "sequence", "{row}");
            ensure!(row["ratio"].is_number() || test == "sequence", "{row}");
        }
    }
    // A second client uses the same server, and draws charts.
    let folder = "/exchange/sisci-plots";
    let arguments = [&["scipp", "8", "--plots", folder], &quick[..]].concat();
    let text = run(lab, 0, "sisci-bench", &arguments)?.success()?.stdout();
    ensure!(text.contains("ping-pong"), "{text}");
    let chart = lab.paths().exchange().join("sisci-plots/pingpong.svg");
    ensure!(chart.exists(), "no chart");
    // A client that ends in the middle only makes the next one wait for its end.
    let long = lab.spawn(
        0,
        [&*tool("sisci-bench")?, "intr_bench", "8", "--seconds", "60"],
    )?;
    std::thread::sleep(std::time::Duration::from_secs(1));
    long.signal(9);
    long.wait_timeout(lab.hang_limit(20))?;
    let arguments = [&["intr_bench", "8"], &quick[..]].concat();
    run(lab, 0, "sisci-bench", &arguments)?.success()?;
    server.signal(2);
    server.wait()?.success()?;
    served.stop()
}

fn errors_say_what_to_do(lab: &Lab) -> Result<()> {
    for (arguments, status, text) in [
        (&["scipp", "8"][..], 3, "run `sisci-bench server`"),
        (&["scipp", "240"], 3, "`sisci-info` lists the nodes"),
        (&["scipp", "0"], 3, "`sisci-info` lists the nodes"),
        (&["all", "8", "--sizes", "3"], 2, "is not between"),
        (&["dma_bench", "8", "--reference"], 3, "scif serve"),
    ] {
        let output = run(lab, 0, "sisci-bench", arguments)?.status(status)?;
        ensure!(output.stderr().contains(text), "{output}");
    }
    // The tool runs without the library, and without the module.
    lab.shell(
        0,
        &format!(
            "mkdir -p /tmp/x/bin && cp {} /tmp/x/bin/",
            tool("sisci-info")?
        ),
    )?;
    let output = lab.exec(0, ["/tmp/x/bin/sisci-info"])?.status(7)?;
    ensure!(output.stderr().contains("DISPREFIX"), "{output}");
    lab.rmmod(0, "scif")?;
    let output = run(lab, 0, "sisci-info", &["--json"])?.status(7)?;
    ensure!(output.stderr().contains("modprobe scif"), "{output}");
    ensure!(output.stdout().contains("\"ok\": false"), "{output}");
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("sisci_tools::info", SCIF_PAIR, info),
    Test::new("sisci_tools::bench", SCIF_PAIR, bench)
        .seconds(120)
        .by_name(),
    Test::new(
        "sisci_tools::errors_say_what_to_do",
        SCIF_PAIR,
        errors_say_what_to_do,
    )
    .leaves_disorder()
    .by_name(),
];
