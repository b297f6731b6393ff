// SPDX-License-Identifier: GPL-2.0

//! A server of a folder, and the files that it and its clients exchange.

use scif::client;
use scif::client::Copied;
use scif::confine::Found;
use scif::confine::Root;
use scif::error::Result;
use scif::in_process;
use scif::in_process::InProcess;
use scif::new_file::NewFile;
use scif::server;
use scif::server::Service;
use scif::server::shares::Origin;
use scif::session::Session;
use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;
use tempfile::TempDir;

/// A served folder beside a secret.
pub struct Fixture {
    pub temporary: TempDir,
    pub service: Service,
    log: Mutex<Vec<String>>,
}

impl Fixture {
    /// Creates a server of an empty folder.
    pub fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("served");
        fs::create_dir(&folder).unwrap();
        fs::write(temporary.path().join("secret"), "secret").unwrap();
        let service = Service::new(Root::open(&folder).unwrap(), false);
        Self {
            temporary,
            service,
            log: Mutex::default(),
        }
    }

    /// Returns a path in the folder.
    pub fn served(&self, name: &str) -> PathBuf {
        self.temporary.path().join("served").join(name)
    }

    /// Returns a path beside the folder.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.temporary.path().join(name)
    }

    /// Returns the names in the folder.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.served(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Runs a server against `peer`, and returns when the server is done.
    pub fn serve<R>(&self, peer: impl FnOnce(InProcess) -> R) -> R {
        self.serve_within(Duration::from_secs(60), peer)
    }

    /// Runs a server like [`Self::serve`], with a timeout for its client.
    pub fn serve_within<R>(&self, timeout: Duration, peer: impl FnOnce(InProcess) -> R) -> R {
        let (here, there) = in_process::pair();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let log = |line: &str| self.log.lock().unwrap().push(line.to_owned());
                let session = Session::new(there, "client").with_timeout(timeout);
                server::serve(&self.service, Origin::Node(1), &session, &log);
            });
            peer(here)
        })
    }

    /// Runs a server like [`Self::serve`], with a client that has greeted.
    pub fn client<R>(&self, peer: impl FnOnce(&Session<InProcess>) -> R) -> R {
        self.serve(|transport| {
            let session = Session::new(transport, "server");
            session.greet().unwrap();
            peer(&session)
        })
    }

    /// Returns whether the server has logged this text.
    pub fn logged(&self, part: &str) -> bool {
        self.log
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains(part))
    }
}

/// Bytes without a pattern.
pub fn content(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    (0..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Opens a file to send.
pub fn source(path: &Path) -> Found {
    scif::confine::examine(File::open(path).unwrap(), "source").unwrap()
}

/// Creates a file to receive.
pub fn target(directory: &Path, name: &str) -> NewFile {
    NewFile::create(File::open(directory).unwrap().into(), OsStr::new(name)).unwrap()
}

/// Sends a file.
pub fn put(session: &Session<InProcess>, file: &Path, path: &str) -> Result<Copied> {
    client::put(session, source(file), path.as_bytes(), b"name", &mut ())
}
