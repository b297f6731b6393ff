// SPDX-License-Identifier: GPL-2.0
//! `scif bench` as users run it: each measurement ends and finds plausible results, and its server
//! may end at any moment. The tests do not judge the figures.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use serde_json::Value;

use crate::harness::Test;
use crate::scif;
use crate::scif::Server;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Every measurement, with all options.
const MEASUREMENTS: &[&str] = &[
    "send-lat 1 --sizes 1,4K --poll",
    "send-lat 1 --sizes 8 --threads 2 --connections 3",
    "send-bw 1 --sizes 64,1M",
    "send-bw 1 --sizes 64,1M --transport ring",
    "send-lat 1 --sizes 8 --transport ring --poll --threads 2",
    "write-bw 1 --sizes 4K --transport ring",
    "write-lat 1 --sizes 1,64K --auto",
    "write-bw 1 --sizes 4K,1M --dma --depth 3",
    "write-bw 1 --sizes 64K --cpu --threads 2",
    "read-lat 1 --sizes 64 --held 10",
    "read-bw 1 --sizes 64K",
    "mmap-lat 1 --sizes 8",
    "mmap-bw 1 --sizes 64K --read",
    "register 1 --sizes 4K,2M --huge-pages",
    "register 1 --sizes 4K --at-once 10",
    "connect 1 --connections 20",
];

/// Each measurement reports the time of its operations.
fn measurements_report_times(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    for measurement in MEASUREMENTS {
        let mut arguments = vec!["bench"];
        arguments.extend(measurement.split(' '));
        arguments.extend(["--iterations", "20", "--warm-up", "0", "--json"]);
        let output = scif::run_tool(lab, 0, &arguments)?.success()?;
        let report: Value = serde_json::from_str(&output.stdout())?;
        let rows = report["results"].as_array().context("no results")?;
        ensure!(!rows.is_empty(), "{measurement}: {report}");
        for row in rows {
            let operations = row["operations"].as_u64().unwrap_or(0);
            let connections = report["connections"].as_u64().unwrap_or(0);
            // Measurements of "connect" make few connections, because these are what it measures.
            let expected = match measurement.starts_with("connect") {
                true => 20,
                false => 20 * connections,
            };
            ensure!(
                operations == expected && row["seconds"].as_f64() > Some(0.0),
                "{measurement}: {report}"
            );
        }
    }
    server.stop()
}

/// A server ends when it gets a signal, whatever its clients are doing, and the clients notice.
fn signal_ends_server(lab: &Lab) -> Result<()> {
    for how in [
        &[][..],
        &["--poll"],
        &["--transport", "ring"],
        &["--transport", "ring", "--poll"],
    ] {
        let server = Server::start(lab, 1)?;
        let arguments = [
            &["bench", "send-lat", "1", "--sizes", "8"][..],
            &["--warm-up", "0", "--iterations", "100000000"],
            how,
        ];
        let client = scif::start_tool(lab, 0, &arguments.concat())?;
        lab::wait_until("the client is connected", lab.hang_limit(20), || {
            let connections = scif::counters(lab, 1)?.get("connections").copied();
            Ok((connections > Some(0)).then_some(()))
        })?;
        server.stop()?;
        let output = client.wait()?;
        // The client has lost the server, or the server has refused it if the measurement had not
        // begun.
        ensure!(matches!(output.code(), Some(4 | 5)), "{output}");
    }
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_bench::measurements_report_times",
        SCIF_PAIR,
        measurements_report_times,
    )
    .seconds(120)
    .by_name(),
    Test::new(
        "scif_bench::signal_ends_server",
        SCIF_PAIR,
        signal_ends_server,
    ),
];
