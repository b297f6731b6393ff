// SPDX-License-Identifier: GPL-2.0

//! Client and server in one conversation over an in-process connection: copies in both directions,
//! and peers that lie, stop half-way, or want what they must not have.

use scif::client;
use scif::client::Copied;
use scif::confine::Found;
use scif::confine::Root;
use scif::device::Protection;
use scif::device::Rma;
use scif::error::Error;
use scif::error::Result;
use scif::in_process;
use scif::in_process::InProcess;
use scif::new_file::NewFile;
use scif::protocol::Message;
use scif::protocol::VERSION;
use scif::protocol::Window;
use scif::region::Region;
use scif::server;
use scif::server::Service;
use scif::session::Session;
use scif::transport::Transport;
use sha2::Digest;
use sha2::Sha256;
use std::ffi::OsStr;
use std::fs;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;
use tempfile::TempDir;

/// More than anything here takes; waits end by events and not by this.
const PATIENCE: Duration = Duration::from_secs(60);

/// A served folder beside a secret.
struct Fixture {
    temporary: TempDir,
    service: Service,
    log: Mutex<Vec<String>>,
}

impl Fixture {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("served");
        fs::create_dir(&folder).unwrap();
        fs::write(temporary.path().join("secret"), "secret").unwrap();
        let service = Service {
            root: Root::open(&folder).unwrap(),
            read_only: false,
        };
        Self {
            temporary,
            service,
            log: Mutex::default(),
        }
    }

    fn served(&self, name: &str) -> PathBuf {
        self.temporary.path().join("served").join(name)
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.temporary.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.served(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Runs a server against `peer`, and returns when the server is done.
    fn serve<R>(&self, peer: impl FnOnce(InProcess) -> R) -> R {
        let (here, there) = in_process::pair();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let log = |line: &str| self.log.lock().unwrap().push(line.to_owned());
                server::serve(&self.service, &Session::new(there, "client"), &log);
            });
            peer(here)
        })
    }

    /// As [`Self::serve`], with a proper client.
    fn client<R>(&self, peer: impl FnOnce(&Session<InProcess>) -> R) -> R {
        self.serve(|transport| {
            let session = Session::new(transport, "server");
            session.greet().unwrap();
            peer(&session)
        })
    }

    fn logged(&self, part: &str) -> bool {
        self.log
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains(part))
    }
}

fn content(size: usize) -> Vec<u8> {
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

fn source(path: &Path) -> Found {
    scif::confine::examine(File::open(path).unwrap(), "source").unwrap()
}

fn target(directory: &Path, name: &str) -> NewFile {
    NewFile::create(File::open(directory).unwrap().into(), OsStr::new(name)).unwrap()
}

fn put(session: &Session<InProcess>, file: &Path, path: &str) -> Result<Copied> {
    client::put(session, source(file), path.as_bytes(), b"name", &mut ())
}

/// Sizes around everything that is a boundary: nothing, piece, buffer, all buffers, and again.
const SIZES: [usize; 11] = [
    0,
    1,
    4095,
    4096,
    131_073,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    4 << 20,
    (4 << 20) + 1,
    (11 << 20) + 12_345,
];

#[test]
fn files_arrive_as_they_were() {
    let fixture = Fixture::new();
    let file = fixture.beside("file");
    for size in SIZES {
        let bytes = content(size);
        fs::write(&file, &bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
        let expected: [u8; 32] = Sha256::digest(&bytes).into();
        fixture.client(|session| {
            let copied = put(session, &file, "copy").unwrap();
            assert_eq!((copied.bytes, copied.own), (size as u64, expected));
            assert_eq!(copied.peer, expected);
            assert!(fs::read(fixture.served("copy")).unwrap() == bytes);
            // The same connection can be used again.
            let back = target(fixture.temporary.path(), "back");
            let copied = client::get(session, b"/copy", back, &mut ()).unwrap();
            assert_eq!((copied.bytes, copied.own), (size as u64, expected));
        });
        assert!(fs::read(fixture.beside("back")).unwrap() == bytes);
        let mode = fs::metadata(fixture.beside("back")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o751);
    }
    assert_eq!(fixture.names(), ["copy"]);
}

#[test]
fn many_clients_at_once() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let fixture = &fixture;
            scope.spawn(move || {
                let file = fixture.beside(&format!("file{number}"));
                let bytes = content(3_000_000 + number);
                fs::write(&file, &bytes).unwrap();
                let name = format!("copy{number}");
                fixture
                    .client(|session| put(session, &file, &name))
                    .unwrap();
                assert!(fs::read(fixture.served(&name)).unwrap() == bytes);
            });
        }
    });
    assert_eq!(fixture.names().len(), 8);
}

#[test]
fn pings_come_back() {
    Fixture::new().client(|session| {
        for size in [0, 1, 65_536] {
            client::ping(session, &content(size)).unwrap();
        }
    });
}

#[test]
fn a_directory_takes_the_name_of_the_file() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.served("sub")).unwrap();
    fs::write(fixture.beside("file"), "content").unwrap();
    fixture
        .client(|session| put(session, &fixture.beside("file"), "sub/"))
        .unwrap();
    fixture
        .client(|session| put(session, &fixture.beside("file"), ""))
        .unwrap();
    assert_eq!(fs::read(fixture.served("sub/name")).unwrap(), b"content");
    assert_eq!(fs::read(fixture.served("name")).unwrap(), b"content");
}

#[test]
fn nothing_outside_is_read_or_written() {
    let fixture = Fixture::new();
    std::os::unix::fs::symlink("../secret", fixture.served("link")).unwrap();
    std::os::unix::fs::symlink("..", fixture.served("up")).unwrap();
    fs::write(fixture.beside("file"), "evil").unwrap();
    for path in [
        "../secret",
        "/../secret",
        "link",
        "up/secret",
        "a/../../secret",
        "/proc/self/environ",
    ] {
        let error = fixture
            .client(|session| put(session, &fixture.beside("file"), path))
            .unwrap_err();
        assert_eq!(error.exit_status(), 5, "{path}: {error}");
        let stolen = target(fixture.temporary.path(), "stolen");
        let error = fixture
            .client(|session| client::get(session, path.as_bytes(), stolen, &mut ()))
            .unwrap_err();
        assert_eq!(error.exit_status(), 5, "{path}: {error}");
    }
    for name in [&b"../secret"[..], b"..", b".", b"", b"a/b", b"a\0b"] {
        let error = fixture
            .client(|session| {
                let file = source(&fixture.beside("file"));
                client::put(session, file, b"", name, &mut ())
            })
            .unwrap_err();
        assert_eq!(error.exit_status(), 5, "{error}");
    }
    assert!(!fixture.beside("stolen").exists());
    assert_eq!(fs::read(fixture.beside("secret")).unwrap(), b"secret");
    assert_eq!(fixture.names(), ["link", "up"]);
}

#[test]
fn a_read_only_server_takes_nothing() {
    let mut fixture = Fixture::new();
    fixture.service.read_only = true;
    fs::write(fixture.beside("file"), "content").unwrap();
    let error = fixture
        .client(|session| put(session, &fixture.beside("file"), "file"))
        .unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    assert!(fixture.names().is_empty());
}

/// A client that speaks the protocol by hand.
struct Hand {
    session: Session<InProcess>,
}

impl Hand {
    fn new(transport: InProcess) -> Self {
        let session = Session::new(transport, "server");
        session.greet().unwrap();
        Self { session }
    }

    fn send(&self, message: Message) {
        self.session.send(&message).unwrap();
    }

    fn put(&self, size: u64) -> Window {
        self.send(Message::Put {
            mode: 0o644,
            size,
            path: b"target".to_vec(),
            name: b"name".to_vec(),
        });
        match self.session.receive().unwrap() {
            Message::Ready { window } => window,
            message => panic!("{message:?}"),
        }
    }

    /// Writes bytes into buffer `sequence` and announces them.
    fn chunk(&self, window: Window, sequence: u64, bytes: &[u8]) {
        let region = Arc::new(Region::new(bytes.len()).unwrap());
        region.write(0, bytes).unwrap();
        let transport = self.session.transport();
        let local = transport.register(&region, Protection::Read).unwrap();
        let how = Rma {
            sync: true,
            ..Rma::default()
        };
        transport
            .write_to(local, bytes.len(), window.start(sequence), how)
            .unwrap();
        self.send(Message::Chunk {
            sequence,
            length: bytes.len() as u32,
        });
    }

    /// The server ends the conversation with a reason.
    fn refused(&self, reason: &str) {
        loop {
            match self.session.receive() {
                Ok(_) => {}
                Err(Error::Peer { text, .. }) => return assert!(text.contains(reason), "{text}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn lies_about_sizes_and_order_leave_no_file() {
    type Lie = fn(&Hand, Window);
    let lies: [(&str, Lie); 9] = [
        ("less content", |hand, window| {
            hand.chunk(window, 0, b"half");
            hand.send(Message::End { hash: [0; 32] });
        }),
        ("more content", |hand, window| {
            hand.chunk(window, 0, &[7; 11])
        }),
        ("not agreed", |hand, window| hand.chunk(window, 1, b"half")),
        ("not agreed", |hand, window| {
            hand.chunk(window, 0, b"half");
            hand.chunk(window, 0, b"half");
        }),
        ("not agreed", |hand, _| {
            hand.send(Message::Chunk {
                sequence: 0,
                length: 0,
            });
        }),
        ("not agreed", |hand, _| {
            hand.send(Message::Chunk {
                sequence: 0,
                length: u32::MAX,
            });
        }),
        ("out of turn", |hand, _| {
            hand.send(Message::Ping { bytes: Vec::new() });
        }),
        ("out of turn", |hand, _| {
            hand.send(Message::Credit { sequence: 0 })
        }),
        ("out of turn", |hand, _| {
            hand.send(Message::Done { hash: [0; 32] })
        }),
    ];
    let fixture = Fixture::new();
    fs::write(fixture.served("target"), "before").unwrap();
    for (reason, lie) in lies {
        fixture.serve(|transport| {
            let hand = Hand::new(transport);
            let window = hand.put(10);
            lie(&hand, window);
            hand.refused(reason);
        });
        assert_eq!(fs::read(fixture.served("target")).unwrap(), b"before");
        assert_eq!(fixture.names(), ["target"]);
    }
}

#[test]
fn a_wrong_hash_leaves_no_file() {
    let fixture = Fixture::new();
    fixture.serve(|transport| {
        let hand = Hand::new(transport);
        let window = hand.put(4);
        hand.chunk(window, 0, b"data");
        hand.send(Message::End { hash: [1; 32] });
        assert_eq!(
            hand.session.receive().unwrap(),
            Message::Credit { sequence: 0 }
        );
        let hash = Sha256::digest(b"data").into();
        assert_eq!(hand.session.receive().unwrap(), Message::Done { hash });
    });
    assert!(fixture.names().is_empty());
    assert!(fixture.logged("changed on the way"));
}

#[test]
fn a_client_that_goes_half_way_leaves_no_file() {
    let fixture = Fixture::new();
    fs::write(fixture.served("target"), "before").unwrap();
    fixture.serve(|transport| {
        let hand = Hand::new(transport);
        let window = hand.put(10);
        hand.chunk(window, 0, b"half");
    });
    assert_eq!(fs::read(fixture.served("target")).unwrap(), b"before");
    assert_eq!(fixture.names(), ["target"]);
    assert!(fixture.logged("closed the connection during the copy (ECONNRESET)"));
    assert!(fixture.logged("nothing was written to 'target'"));
}

#[test]
fn garbage_ends_the_conversation_only() {
    let fixture = Fixture::new();
    let hello = Message::Hello { version: VERSION }.encode();
    let newer = Message::Hello {
        version: VERSION + 1,
    }
    .encode();
    let mut long = hello.clone();
    long.extend(3u32.to_le_bytes());
    long.extend(u32::MAX.to_le_bytes());
    let mut unknown = hello.clone();
    unknown.extend(99u32.to_le_bytes());
    unknown.extend(0u32.to_le_bytes());
    let twice = [hello.clone(), hello.clone()].concat();
    for bytes in [
        Vec::new(),
        vec![0xff; 100],
        b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        hello[..5].to_vec(),
        newer,
        long,
        unknown,
        twice,
    ] {
        fixture.serve(|transport| {
            // The server may be gone before all is sent.
            let _ = transport.send(&bytes, Instant::now() + PATIENCE);
        });
    }
    fixture
        .client(|session| client::ping(session, b"still there"))
        .unwrap();
}

#[test]
fn a_window_that_does_not_exist_ends_the_conversation_only() {
    let fixture = Fixture::new();
    fs::write(fixture.served("file"), content(100_000)).unwrap();
    fixture.serve(|transport| {
        let hand = Hand::new(transport);
        hand.send(Message::Get {
            path: b"file".to_vec(),
            window: Window {
                offset: 0x7000_0000,
                buffer: 4096,
                buffers: 2,
            },
        });
        hand.refused("its window cannot be used");
    });
    fixture
        .client(|session| client::ping(session, b"still there"))
        .unwrap();
}

#[test]
fn credits_for_nothing_are_refused() {
    let fixture = Fixture::new();
    fs::write(fixture.served("file"), content(100_000)).unwrap();
    fixture.serve(|transport| {
        let hand = Hand::new(transport);
        let region = Arc::new(Region::new(8192).unwrap());
        let transport = hand.session.transport();
        let offset = transport.register(&region, Protection::Write).unwrap();
        hand.send(Message::Get {
            path: b"file".to_vec(),
            window: Window {
                offset,
                buffer: 4096,
                buffers: 2,
            },
        });
        hand.send(Message::Credit { sequence: 5 });
        hand.refused("a credit for nothing");
    });
}

/// A server that is played by `script`, and a client that wants `file` from it.
fn hostile_server(script: impl FnOnce(Session<InProcess>) + Send) -> (TempDir, Error) {
    let temporary = tempfile::tempdir().unwrap();
    let (here, there) = in_process::pair();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = Session::new(there, "client");
            session.answer_greeting().unwrap();
            script(session);
        });
        let session = Session::new(here, "node 1");
        session.greet().unwrap();
        let file = target(temporary.path(), "file");
        client::get(&session, b"file", file, &mut ()).unwrap_err()
    });
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    (temporary, error)
}

#[test]
fn hostile_servers_leave_no_file() {
    let (_, error) = hostile_server(|session| {
        session.receive().unwrap();
        let (mode, size) = (0o644, i64::MAX as u64);
        session.send(&Message::Found { mode, size }).unwrap();
    });
    assert_eq!(error.exit_status(), 4);
    assert_eq!(
        error.to_string(),
        "node 1 closed the connection during the copy (ECONNRESET)"
    );
    let (_, error) = hostile_server(|session| {
        session.receive().unwrap();
        let (mode, size) = (0o644, 0);
        session.send(&Message::Found { mode, size }).unwrap();
        session.send(&Message::End { hash: [0; 32] }).unwrap();
        assert!(matches!(session.receive(), Ok(Message::Done { .. })));
    });
    assert_eq!(error.exit_status(), 6);
    let (_, error) = hostile_server(|session| {
        session.receive().unwrap();
        let window = Window {
            offset: 0,
            buffer: 4096,
            buffers: 1,
        };
        session.send(&Message::Ready { window }).unwrap();
    });
    assert_eq!(error.exit_status(), 5);
    let (_, error) = hostile_server(|session| {
        session.receive().unwrap();
        session.send_failure(&Error::Refused("\x1b[31mno".into()));
    });
    assert_eq!(error.to_string(), "node 1 says: \\u{1b}[31mno");
}

#[test]
fn a_lost_node_is_named() {
    let (here, there) = in_process::pair();
    drop(there);
    let session = Session::new(here, "node 1").with_node_lost(|| true);
    session.set_activity("the copy");
    let error = session.receive().unwrap_err();
    assert_eq!(
        error.to_string(),
        "node 1 was lost during the copy (ECONNRESET)"
    );
}

#[test]
fn a_silent_peer_is_not_waited_for_forever() {
    let (here, _there) = in_process::pair();
    let session = Session::new(here, "node 1").with_patience(Duration::ZERO);
    let error = session.receive().unwrap_err();
    assert_eq!(
        error.to_string(),
        "node 1 did not answer during the greeting (ETIMEDOUT)"
    );
    assert_eq!(error.exit_status(), 4);
}

#[test]
fn what_is_lost_after_the_end_is_unconfirmed() {
    let fixture = Fixture::new();
    fs::write(fixture.beside("file"), "content").unwrap();
    let (here, there) = in_process::pair();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = Session::new(there, "client");
            session.answer_greeting().unwrap();
            session.receive().unwrap();
            let region = Arc::new(Region::new(4096).unwrap());
            let offset = session.register(&region, Protection::Write).unwrap();
            let window = Window {
                offset,
                buffer: 4096,
                buffers: 1,
            };
            session.send(&Message::Ready { window }).unwrap();
            while !matches!(session.receive().unwrap(), Message::End { .. }) {}
        });
        let session = Session::new(here, "node 1");
        session.greet().unwrap();
        put(&session, &fixture.beside("file"), "file").unwrap_err()
    });
    assert!(matches!(error, Error::Unconfirmed(_)), "{error}");
    assert_eq!(error.exit_status(), 4);
}

#[test]
fn a_file_that_changes_while_it_is_sent_is_refused() {
    let fixture = Fixture::new();
    let file = fixture.beside("file");
    for (size, reason) in [(101, "shorter"), (99, "longer")] {
        fs::write(&file, content(100)).unwrap();
        let mut source = source(&file);
        source.size = size;
        let error = fixture
            .client(|session| client::put(session, source, b"file", b"name", &mut ()))
            .unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert!(fixture.logged(reason));
    }
    assert!(fixture.names().is_empty());
}
