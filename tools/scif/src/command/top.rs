// SPDX-License-Identifier: GPL-2.0

//! `scif top`: shows again and again how much each process moves.

use crate::cancel::Cancel;
use crate::command::columns::Columns;
use crate::command::columns::Side;
use crate::command::columns::or_dash;
use crate::command::columns::printable;
use crate::command::output::print;
use crate::command::screen::Screen;
use crate::command::screen::Woken;
use crate::error::Error;
use crate::error::Result;
use crate::format::per_second;
use crate::watch::Picture;
use crate::watch::Places;
use crate::watch::rates::Process;
use crate::watch::rates::Rates;
use crate::watch::rates::processes;
use serde::Serialize;
use std::time::Duration;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  scif top                       your own processes and their connections; press q to quit
  sudo scif top                  all processes, their connections, and the kernel's
  scif top -p -d 5               only processes, every five seconds
  scif top -n 1                  the rates of one second, as text
  scif top --json | jq .total    the total rates each second, as JSON";

/// Show the rates of processes and connections, and refresh them
///
/// Each rate is the mean since the last refresh. The process with the highest rate comes first. The
/// bytes of a transfer count when the transfer is complete. Loads and stores through a mapping do
/// not count. Press q or Ctrl-C to quit.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// Seconds between refreshes
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = parse_seconds)]
    pub delay: Duration,
    /// Quit after this many refreshes; by default, refresh until you quit
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Show only processes, not their connections
    #[arg(short, long)]
    pub processes: bool,
    /// Also show idle connections
    #[arg(short, long)]
    pub all: bool,
    /// Print JSON: one object on a line for each refresh
    #[arg(long)]
    pub json: bool,
}

fn parse_seconds(text: &str) -> std::result::Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| (Duration::from_millis(100)..=Duration::from_secs(86400)).contains(time))
        .ok_or_else(|| format!("'{text}' is not a number of seconds, from 0.1 to 86400"))
}

/// A refresh.
#[derive(Debug, Serialize)]
struct Refresh {
    /// Time since the last refresh.
    seconds: f64,
    /// Whether the caller sees all processes.
    all_endpoints: bool,
    /// Bytes per second of everything that the caller sees.
    total: Rates,
    processes: Vec<Process>,
}

impl Refresh {
    fn between(before: &Picture, now: &Picture, time: Duration) -> Self {
        let processes = processes(&before.endpoints, &now.endpoints, time);
        let mut total = Rates::default();
        for process in &processes {
            total += process.bytes_per_second;
        }
        Self {
            seconds: time.as_secs_f64(),
            all_endpoints: now.all_endpoints,
            total,
            processes,
        }
    }

    /// Leaves out the parts that the caller does not want to see.
    fn retain(&mut self, arguments: &Arguments) {
        for process in &mut self.processes {
            process.connections.retain(|connection| {
                let is_busy = connection.endpoint.traffic.in_flight > 0;
                let moves = connection.bytes_per_second.total() > 0.0 || is_busy;
                !arguments.processes && (arguments.all || moves)
            });
        }
        let moves =
            |process: &Process| process.bytes_per_second.total() > 0.0 || process.in_flight > 0;
        self.processes
            .retain(|process| arguments.all || moves(process));
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    let cancel = Cancel::on_signals().map_err(Error::local("cannot catch signals"))?;
    let places = Places::default();
    // Before the screen is taken, so that an error appears on the usual screen.
    let mut before = (Picture::take(&places)?, Instant::now());
    let mut screen = (!arguments.json).then(Screen::new);
    let quiet = Screen::quiet();
    let mut next = before.1;
    for _ in 0..arguments.count.unwrap_or(u64::MAX) {
        next += arguments.delay;
        // After a stop (ctrl-z) the refreshes do not catch up.
        next = next.max(Instant::now());
        if screen.as_ref().unwrap_or(&quiet).wait_until(next, &cancel) == Woken::Quit {
            break;
        }
        let now = (Picture::take(&places)?, Instant::now());
        let mut refresh = Refresh::between(&before.0, &now.0, now.1 - before.1);
        refresh.retain(arguments);
        match &mut screen {
            Some(screen) => {
                let (head, lines) = text(&refresh);
                let shown = screen.show(&lines, head);
                shown.map_err(Error::local("cannot write to standard output"))?;
            }
            None => print_line(&refresh)?,
        }
        before = now;
    }
    Ok(())
}

fn print_line(refresh: &Refresh) -> Result<()> {
    let text = serde_json::to_string(refresh)
        .map_err(|error| Error::Refused(format!("cannot make JSON: {error}")))?;
    print(text)
}

/// Returns the lines, and how many of them are the head.
fn text(refresh: &Refresh) -> (usize, Vec<String>) {
    let mut columns = Columns::new(&[
        ("PID", Side::Right),
        ("NAME", Side::Left),
        ("OWN", Side::Left),
        ("PEER", Side::Left),
        ("SENT", Side::Right),
        ("RECEIVED", Side::Right),
        ("WRITTEN", Side::Right),
        ("READ", Side::Right),
        ("IN FLIGHT", Side::Right),
        ("WINDOWS", Side::Right),
    ]);
    for process in &refresh.processes {
        let [sent, received, written, read] = cells(&process.bytes_per_second);
        columns.push([
            or_dash(process.pid),
            printable(process.name.as_deref().unwrap_or("-")),
            String::new(),
            String::new(),
            sent,
            received,
            written,
            read,
            process.in_flight.to_string(),
            process.windows.to_string(),
        ]);
        for connection in &process.connections {
            let endpoint = &connection.endpoint;
            let [sent, received, written, read] = cells(&connection.bytes_per_second);
            columns.push([
                String::new(),
                format!("  {}", endpoint.state),
                or_dash(endpoint.own.as_ref()),
                or_dash(endpoint.peer.as_ref()),
                sent,
                received,
                written,
                read,
                endpoint.traffic.in_flight.to_string(),
                endpoint.traffic.windows.to_string(),
            ]);
        }
    }
    let [sent, received, written, read] = cells(&refresh.total);
    let scope = match refresh.all_endpoints {
        true => "all processes",
        false => "processes that you may look into",
    };
    let mut lines = vec![
        format!("scif top: {scope}"),
        format!("sent {sent}, received {received}, written {written}, read {read}"),
        String::new(),
    ];
    lines.extend(columns.lines());
    (4, lines)
}

fn cells(rates: &Rates) -> [String; 4] {
    [rates.sent, rates.received, rates.written, rates.read].map(per_second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::endpoint::Endpoint;
    use crate::watch::endpoint::Traffic;

    fn picture(sent: u64) -> Picture {
        let endpoint = |pid, channel: &str, sent_bytes| Endpoint {
            state: "connected".into(),
            own: Some("0:5".into()),
            peer: Some("1:6".into()),
            channel: Some(channel.into()),
            pid: Some(pid),
            name: Some("prog".into()),
            traffic: Traffic {
                sent_bytes,
                ..Traffic::default()
            },
            ..Endpoint::default()
        };
        Picture {
            endpoints: vec![endpoint(7, "0x1", sent), endpoint(8, "0x2", 0)],
            ..Picture::default()
        }
    }

    fn arguments(processes: bool, all: bool) -> Arguments {
        Arguments {
            delay: Duration::from_secs(1),
            count: None,
            processes,
            all,
            json: false,
        }
    }

    fn refresh(processes: bool, all: bool) -> Refresh {
        let mut refresh = Refresh::between(&picture(0), &picture(4096), Duration::from_secs(2));
        refresh.retain(&arguments(processes, all));
        refresh
    }

    #[test]
    fn processes_are_listed_above_their_connections() {
        let expected = "\
scif top: processes that you may look into
sent 2.00 KiB/s, received 0 B/s, written 0 B/s, read 0 B/s

PID  NAME         OWN  PEER        SENT  RECEIVED  WRITTEN   READ  IN FLIGHT  WINDOWS
  7  prog                    2.00 KiB/s     0 B/s    0 B/s  0 B/s          0        0
       connected  0:5  1:6   2.00 KiB/s     0 B/s    0 B/s  0 B/s          0        0";
        assert_eq!(text(&refresh(false, false)).1.join("\n"), expected);
        assert_eq!(text(&refresh(true, false)).1.len(), 5);
        assert_eq!(text(&refresh(false, true)).1.len(), 8);
    }

    #[test]
    fn top_json_is_one_line() {
        let text = serde_json::to_string(&refresh(false, false)).unwrap();
        assert!(!text.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["total"]["sent"], 2048.0);
        let connection = &value["processes"][0]["connections"][0];
        assert_eq!(connection["peer"], "1:6");
        assert_eq!(connection["sent_bytes"], 4096);
        assert_eq!(connection["bytes_per_second"]["sent"], 2048.0);
    }

    #[test]
    fn interval_out_of_range_is_refused() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "NaN", "1e9", "x"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
