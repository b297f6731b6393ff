// SPDX-License-Identifier: GPL-2.0

//! Client and server in one conversation over an in-process connection: copies in both directions,
//! and peers that go away, or that ask for forbidden files.

mod fixture;
mod hostile;
mod liar;

use crate::fixture::Fixture;
use crate::fixture::content;
use crate::fixture::put;
use crate::fixture::source;
use crate::fixture::target;
use scif::client;
use scif::device::Protection;
use scif::error::Error;
use scif::in_process;
use scif::protocol::Message;
use scif::protocol::Window;
use scif::region::Region;
use scif::session::Session;
use sha2::Digest;
use sha2::Sha256;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

/// Sizes around each boundary: nothing, piece, buffer, all buffers, and again.
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
fn copied_files_have_the_same_content() {
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
fn many_concurrent_clients_succeed() {
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
fn ping_of_any_size_returns() {
    Fixture::new().client(|session| {
        for size in [0, 1, 65_536] {
            client::ping(session, &content(size)).unwrap();
        }
    });
}

#[test]
fn put_into_a_directory_uses_the_file_name() {
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
fn paths_outside_the_served_directory_are_refused() {
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
fn put_to_a_read_only_server_is_refused() {
    let mut fixture = Fixture::new();
    fixture.service.read_only = true;
    fs::write(fixture.beside("file"), "content").unwrap();
    let error = fixture
        .client(|session| put(session, &fixture.beside("file"), "file"))
        .unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    assert!(fixture.names().is_empty());
}

#[test]
fn lost_node_is_named_in_the_error() {
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
fn silent_peer_times_out() {
    let (here, _there) = in_process::pair();
    let session = Session::new(here, "node 1").with_timeout(Duration::ZERO);
    let error = session.receive().unwrap_err();
    assert_eq!(
        error.to_string(),
        "node 1 did not answer during the greeting (ETIMEDOUT)"
    );
    assert_eq!(error.exit_status(), 4);
}

#[test]
fn connection_lost_after_the_end_leaves_copy_unconfirmed() {
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
fn file_that_changes_while_sent_is_refused() {
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

/// A peer that goes while a ring is made is told from a machine that can't make one.
#[test]
fn failure_of_another_connection_names_the_peer_or_the_reason() {
    for (errno, status, text) in [
        (libc::ECONNRESET, 4, "node 1 closed the connection"),
        (libc::ENOMEM, 1, "cannot make a ring"),
    ] {
        let (here, _there) = in_process::pair();
        let session = Session::new(here, "node 1");
        let made = session.over(
            |_| Err::<(), _>(io::Error::from_raw_os_error(errno)),
            "cannot make a ring",
        );
        let error = made.err().unwrap();
        assert_eq!(error.exit_status(), status);
        assert!(error.to_string().starts_with(text), "{error}");
    }
}
