// SPDX-License-Identifier: GPL-2.0

//! `register`: the time until the peer can reach memory, and until it can't reach it any more.

use super::figures::Row;
use super::figures::Setup;
use super::figures::show;
use super::measure::Plan;
use super::measure::measure;
use super::options::Common;
use super::options::sizes_from;
use super::peer;
use super::work::Times;
use super::work::Work;
use crate::device::Protection;
use crate::error::Error;
use crate::error::Result;
use crate::format::parse_size;
use crate::region::Pages;
use crate::region::Region;
use crate::region::page_size;
use crate::session::Session;
use crate::transport::Transport;
use std::sync::Arc;

/// The offset of the windows that are measured.
const MEASURED: i64 = 1 << 40;

/// The offset of the other windows.
const HELD: i64 = 1 << 41;

/// The smallest window.
const SMALLEST: u64 = 4096;

/// The largest window.
const LARGEST: u64 = 1 << 30;

fn parse_window_size(text: &str) -> std::result::Result<u64, String> {
    match parse_size(text)? {
        size if (1..=LARGEST).contains(&size) => Ok(size),
        _ => Err(format!("'{text}' is not between 1 and 1G")),
    }
}

/// Windows: register and unregister
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) common: Common,
    /// Sizes, 1 B to 1 GiB; by default powers of 4 up to 64 MiB
    #[arg(long, value_delimiter = ',', value_parser = parse_window_size)]
    sizes: Vec<u64>,
    /// Use huge pages for the memory, as far as the kernel has them
    #[arg(long)]
    huge_pages: bool,
    /// Number of windows to register before one call unregisters all of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    at_once: u32,
    /// Number of other windows of the endpoint, each of one page
    #[arg(long, value_name = "N", default_value_t = 0)]
    held: u32,
}

impl Arguments {
    pub(super) fn run(&self) -> Result<()> {
        let parts = ["register", "unregister"];
        let session = peer::scif(&self.common)?;
        hold(&session, self.held)?;
        let plan = Plan::new(&self.common, parts.len());
        let mut works = vec![vec![Windows {
            session,
            region: self.region(SMALLEST)?,
            at_once: self.at_once.into(),
        }]];
        let mut rows = Vec::new();
        for size in self.sizes() {
            for work in works.iter_mut().flatten() {
                work.region = self.region(size)?;
            }
            rows.push(Row::of(Some(size), measure(&mut works, &plan)?, &parts));
        }
        let setup = Setup {
            measurement: "register",
            peer: self.common.peer.clone(),
            threads: 1,
            connections: 1,
            ..Setup::default()
        };
        show(setup, rows, self.common.json)
    }

    fn sizes(&self) -> Vec<u64> {
        match self.sizes.is_empty() {
            true => sizes_from(SMALLEST),
            false => self.sizes.clone(),
        }
    }

    fn region(&self, size: u64) -> Result<Arc<Region>> {
        let pages = match self.huge_pages {
            true => Pages::Huge,
            false => Pages::Small,
        };
        Region::of_pages(size as usize, pages)
            .map(Arc::new)
            .map_err(Error::local("cannot allocate memory"))
    }
}

/// Registers `count` windows that are not measured, for the life of the connection.
pub fn hold<T: Transport>(session: &Session<T>, count: u32) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let region =
        Arc::new(Region::new(page_size()).map_err(Error::local("cannot allocate memory"))?);
    for index in 0..i64::from(count) {
        // The windows are apart from each other, so that each remains a window of its own.
        let offset = HELD + index * 2 * region.len() as i64;
        session
            .transport()
            .register_at(&region, Protection::Read, offset)
            .map_err(|error| session.explain(error))?;
    }
    Ok(())
}

/// Registering and unregistering on one connection.
struct Windows<T> {
    session: Session<T>,
    region: Arc<Region>,
    at_once: i64,
}

impl<T: Transport + Send> Work for Windows<T> {
    fn begin(&mut self, _count: u64) -> Result<()> {
        self.session.set_activity("the measurement");
        Ok(())
    }

    fn step(&mut self, times: &mut Times) -> Result<()> {
        let transport = self.session.transport();
        let length = self.region.len() as i64;
        let mut work = || {
            for index in 0..self.at_once {
                times.part(0, || {
                    let offset = MEASURED + index * length;
                    transport.register_at(&self.region, Protection::ReadWrite, offset)
                })?;
            }
            times.part(1, || {
                transport.unregister(MEASURED, (self.at_once * length) as usize)
            })
        };
        work().map_err(|error| self.session.explain(error))
    }

    fn end(&mut self, _times: &mut Times) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process;
    use std::time::Duration;

    #[test]
    fn window_benchmark_unregisters_all_windows() {
        let (here, _there) = in_process::pair();
        let session = Session::new(here, "server");
        hold(&session, 3).unwrap();
        let region = Arc::new(Region::of_pages(1, Pages::Small).unwrap());
        let mut works = vec![vec![Windows {
            session,
            region,
            at_once: 5,
        }]];
        let plan = Plan {
            time: Duration::ZERO,
            warm_up: Duration::ZERO,
            iterations: Some(2),
            parts: 2,
        };
        let measured = measure(&mut works, &plan).unwrap();
        let parts = measured.times.into_parts();
        assert_eq!((parts[0].len(), parts[1].len()), (10, 2));
        let transport = works[0][0].session.transport();
        assert!(transport.unregister(MEASURED, 5 * page_size()).is_err());
        assert!(transport.unregister(HELD, 6 * page_size()).is_ok());
    }
}
