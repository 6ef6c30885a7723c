//! Tests that the current version can read files of released versions.
//!
//! Owns `tests/released`, which contains for each version a binlog, its export, an access file, a list of the granted
//! rights, and conversations for `tests/conversations.rs`. The directory of a released version must never change.

mod daemon;

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use beanpole::internals::binlog::Folder as Storage;
use beanpole::{Client, Config, RoleBoard, Server};
use daemon::everything::{fields, fill};
use daemon::{run, Folder};
use nix::time::{clock_gettime, ClockId};

const RELEASED: &str = "tests/released";

/// The time on the queue's clock when the binlogs are written and read: 2033-05-18T03:33:20Z, in milliseconds since
/// 1970. No deadline passes between writing and reading.
const MOMENT: i64 = 2_000_000_000_000;

/// Segment size of the binlogs in bytes, small enough for several segments.
const SEGMENT: u64 = 4096;

fn versions() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(RELEASED).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    found.sort();
    found
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn serve(folder: &Path) -> Server {
    let started = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock");
    let role = RoleBoard::default();
    role.note(|figures| figures.clock = Some(MOMENT - started.tv_sec() * 1000));
    let config = Config::embedded().with(|config| {
        config.role = Some(Arc::new(role));
        config.log.segment_size = SEGMENT;
    });
    Server::with_storage(config, Arc::new(Storage::new(folder))).expect("a server")
}

fn export(server: &Server) -> String {
    let ended = run(&["export", "-s", &server.address().to_string()]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    ended.out
}

fn ids(export: &str) -> Vec<&str> {
    let mut ids: Vec<&str> =
        export.lines().filter_map(|line| line.split_once("\"id\":")?.1.split(',').next()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn this_version_has_a_directory() {
    let own = Path::new(RELEASED).join(env!("CARGO_PKG_VERSION"));
    assert!(versions().contains(&own), "{} is missing: see CONTRIBUTING.md, Releases", own.display());
}

#[test]
fn binlogs_are_read() {
    for version in versions() {
        let folder = copy_of(&version.join("binlog"));
        let server = serve(&folder.file("copy"));
        let (now, before) = (export(&server), text(version.join("export")));
        assert_eq!((fields(&now), ids(&now)), (fields(&before), ids(&before)), "{}", version.display());
        let skipped = "binlog-records-skipped";
        let figure = Client::connect(server.address()).expect("a connection").figure("stats", skipped);
        assert_eq!(figure.expect(skipped), "0", "{}", version.display());
    }
}

#[test]
fn exports_are_imported() {
    for version in versions() {
        let folder = Folder::new();
        let server = serve(&folder.file(""));
        let before = version.join("export");
        let ended = run(&["import", "-s", &server.address().to_string(), before.to_str().expect("a name")]);
        assert_eq!(ended.code, 0, "{}: {}", version.display(), ended.err);
        assert_eq!(fields(&export(&server)), fields(&text(before)), "{}", version.display());
    }
}

/// Each line of `rights` contains a client, a command, a tube, and the expected exit status of `check-access`.
#[test]
fn released_access_files_grant_the_same_rights() {
    for version in versions() {
        let (file, rights) = (version.join("access"), text(version.join("rights")));
        for line in rights.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [question @ .., code] = &words[..] else { panic!("malformed line: {line}") };
            let ended = run(&[&["check-access", file.to_str().expect("a name")], question].concat());
            assert_eq!(ended.code.to_string(), *code, "{}: {line}: {}{}", version.display(), ended.out, ended.err);
        }
        assert!(rights.lines().any(|line| line.ends_with(" 0")) && rights.lines().any(|line| line.ends_with(" 1")));
    }
}

fn copy_of(folder: &Path) -> Folder {
    let copy = Folder::new();
    fs::create_dir(copy.file("copy")).expect("a directory");
    for entry in fs::read_dir(folder).expect("a binlog") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, copy.file("copy").join(path.file_name().expect("a name"))).expect("a copy");
    }
    copy
}

#[test]
#[ignore = "writes files into the source tree before a release"]
fn write() {
    let own = Path::new(RELEASED).join(env!("CARGO_PKG_VERSION"));
    let binlog = own.join("binlog");
    let _ = fs::remove_dir_all(&binlog);
    fs::create_dir_all(&binlog).expect("a directory");
    let server = serve(&binlog);
    fill(TcpStream::connect(server.address()).expect("a connection"));
    fs::write(own.join("export"), export(&server)).expect("a file");
    drop(server);
    let _ = fs::remove_file(binlog.join("lock"));
    for last in versions().iter().rev().filter(|version| **version != own).take(1) {
        for name in ["access", "rights", "conversations"] {
            assert!(Command::new("cp").arg("-R").arg(last.join(name)).arg(&own).status().expect("cp").success());
        }
    }
}
