// SPDX-License-Identifier: GPL-2.0

//! Peers that lie, stop half-way, or speak another protocol: clients against a server, and servers
//! against a client.

use crate::fixture::Fixture;
use crate::fixture::content;
use crate::fixture::put;
use crate::fixture::target;
use scif::client;
use scif::device::Protection;
use scif::device::Rma;
use scif::error::Error;
use scif::in_process;
use scif::in_process::InProcess;
use scif::protocol::Message;
use scif::protocol::Raw;
use scif::protocol::VERSION;
use scif::protocol::Window;
use scif::region::Region;
use scif::server::room::Room;
use scif::server::shares::Limits;
use scif::server::shares::Shares;
use scif::session::Session;
use scif::transfer::Receiver;
use scif::transfer::tell;
use scif::transport::Bytes;
use scif::transport::Transport;
use sha2::Digest;
use sha2::Sha256;
use std::fs;
use std::io;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;
use tempfile::TempDir;

/// Longer than any step here takes; waits end by events and not by this.
const TIMEOUT: Duration = Duration::from_secs(60);

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

    /// Checks that the server ends the conversation with a reason.
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
fn wrong_sizes_or_order_leave_no_file() {
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
fn wrong_hash_leaves_no_file() {
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
fn client_leaving_during_a_copy_leaves_no_file() {
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
fn garbage_ends_only_its_own_connection() {
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
            // The server may be gone before everything is sent.
            let _ = transport.send(&bytes, Instant::now() + TIMEOUT);
        });
    }
    fixture
        .client(|session| client::ping(session, b"still there"))
        .unwrap();
}

#[test]
fn nonexistent_window_ends_only_its_own_connection() {
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
fn unearned_credit_is_refused() {
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

/// Runs a server that `script` plays, and a client that wants `file` from it.
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

/// The disk of the server is full in the middle of a copy. The server releases its window first,
/// and sends the reason a moment later.
#[test]
fn server_error_is_reported_before_its_lost_window() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("file");
    let size = 8 << 20;
    fs::write(&file, content(size)).unwrap();
    let (here, there) = in_process::pair();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            let session = Session::new(there, "client");
            session.answer_greeting().unwrap();
            session.receive().unwrap();
            let receiver = Receiver::new(&session, Some(size as u64)).unwrap();
            let window = receiver.window();
            session.send(&Message::Ready { window }).unwrap();
            let error = receiver
                .receive(&mut Full, size as u64, &mut |_| ())
                .unwrap_err();
            drop(receiver);
            // This is longer than the client takes to notice, and its error stays the same.
            std::thread::sleep(Duration::from_millis(300));
            tell(&session, &error);
        });
        let session = Session::new(here, "node 1");
        session.greet().unwrap();
        put(&session, &file, "file").unwrap_err()
    });
    let text = error.to_string();
    assert!(
        text.starts_with("node 1 says: cannot write the file"),
        "{text}"
    );
    assert!(text.contains("ENOSPC"), "{text}");
}

/// The reverse case: the client's disk is full, and the server's log says so.
#[test]
fn client_error_is_reported_before_its_lost_window() {
    let fixture = Fixture::new();
    fs::write(fixture.served("file"), content(8 << 20)).unwrap();
    fixture.serve(|transport| {
        let hand = Hand::new(transport);
        let receiver = Receiver::new(&hand.session, None).unwrap();
        hand.send(Message::Get {
            path: b"file".to_vec(),
            window: receiver.window(),
        });
        drop(receiver);
        std::thread::sleep(Duration::from_millis(300));
        hand.session
            .send_failure(&Error::Refused("the disk of the client is full".into()));
    });
    assert!(fixture.logged("the disk of the client is full"));
}

#[test]
fn bench_request_without_bench_option_is_refused() {
    let fixture = Fixture::new();
    let raw = Raw {
        size: 1,
        count: 1,
        back: true,
        polling: true,
    };
    for request in [
        Message::Bench { size: 4096 },
        Message::Raw(raw),
        Message::Accept { count: 1 },
        Message::Ring,
    ] {
        fixture.serve(|transport| {
            let hand = Hand::new(transport);
            hand.send(request);
            hand.refused("scif serve --bench");
        });
    }
}

#[test]
fn bench_request_beyond_its_limits_is_refused() {
    let mut fixture = Fixture::new();
    fixture.service.bench = true;
    fixture.service.shares = Shares::new(Limits {
        memory: 10_000,
        pollers: 0,
        ..Limits::default()
    });
    let raw = |size, polling| {
        Message::Raw(Raw {
            size,
            count: 1,
            back: true,
            polling,
        })
    };
    for (request, reason) in [
        (Message::Bench { size: 10_001 }, "--bench-memory"),
        (raw(10_001, false), "--bench-memory"),
        (raw(1, true), "--poll"),
        (Message::Accept { count: 20_001 }, "at a time"),
    ] {
        fixture.serve(|transport| {
            let hand = Hand::new(transport);
            hand.send(request);
            hand.refused(reason);
        });
    }
    // When a window goes, there is room for the next one.
    fixture.client(|session| {
        for _ in 0..3 {
            client::bench_window(session, 8000).unwrap();
        }
    });
}

#[test]
fn silent_client_is_dropped() {
    let fixture = Fixture::new();
    let waiting = Duration::from_millis(10);
    fixture.serve_within(waiting, |transport| {
        // Waits until the server has gone, and no longer.
        let mut byte = [0];
        transport
            .recv(&mut byte, Instant::now() + TIMEOUT)
            .unwrap_err()
    });
    assert!(fixture.logged("did not answer during the greeting"));
    fixture.serve_within(TIMEOUT, |transport| drop(Hand::new(transport)));
    assert!(!fixture.logged("first request"));
}

#[test]
fn put_beyond_the_stored_bytes_limit_is_refused() {
    let mut fixture = Fixture::new();
    let file = fixture.beside("file");
    fs::write(&file, content(6000)).unwrap();
    fixture.service.shares = Shares::new(Limits {
        stored: 10_000,
        ..Limits::default()
    });
    // A file that is being written counts, and its share is returned if the copy fails.
    fixture.serve(|transport| {
        let hand = Hand::new(transport);
        hand.put(6000);
        let error = fixture.client(|session| put(session, &file, "other").unwrap_err());
        assert!(error.to_string().contains("--max-bytes"), "{error}");
    });
    fixture.client(|session| put(session, &file, "one").unwrap());
    let error = fixture.client(|session| put(session, &file, "two").unwrap_err());
    assert!(error.to_string().contains("--max-bytes"), "{error}");
    assert_eq!(fixture.names(), ["one"]);
    fixture.service.shares = Shares::default();
    fixture.service.room = Room::new(Some(u64::MAX));
    let error = fixture.client(|session| put(session, &file, "two").unwrap_err());
    assert!(error.to_string().contains("--keep-free"), "{error}");
    assert_eq!(fixture.names(), ["one"]);
}
