//! Tests that the current version can read files of released versions.
//!
//! Owns `tests/released`, which contains for each version a binlog, its export, the replies to Workq clients that ask
//! for a result and a lease, an access file, a list of the granted rights, and conversations for
//! `tests/conversations.rs`. The directory of a released version must never change.

mod daemon;

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use beanpole::internals::protocol::Wire;
use beanpole::{Address, Client, Config, ManualClock, Server};
use daemon::everything::{fields, fill, fill_gearman, fill_outcomes, fill_workq, outcomes, without_protocols};
use daemon::{run, Folder};

const RELEASED: &str = "tests/released";

/// The time on the queue's clock when the binlogs are written, since 1970: in 2096, later than any run of these tests.
/// A server that reads the binlogs continues at this time, and its clock stands still, so no deadline passes.
const MOMENT: Duration = Duration::from_secs(4_000_000_000);

/// Segment size of the binlogs in bytes, small enough for several segments.
const SEGMENT: u64 = 4096;

/// Conversations that later versions must pass.
const CONVERSATIONS: [&str; 4] = ["delete.txt", "extensions/vectors.txt", "gearman/submit.txt", "workq/jobs.txt"];

fn versions() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(RELEASED).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    found.sort();
    found
}

fn text(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Starts a server for all protocols, whose clock stands still.
fn serve(folder: &Path) -> (Server, ManualClock) {
    let config = Config::embedded().with(|config| {
        config.log_folder = Some(folder.to_owned());
        config.log.segment_size = SEGMENT;
        config.gearman = vec![Address::Tcp(None, None)];
        config.workq = vec![Address::Tcp(None, None)];
    });
    Server::with_manual_clock(config).expect("a server")
}

fn connect(server: &Server, wire: Wire) -> TcpStream {
    TcpStream::connect(server.address_of(wire).expect("an address")).expect("a connection")
}

fn export(server: &Server) -> String {
    let ended = run(&["export", "-s", &server.address().to_string()]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    ended.out
}

fn lines(export: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = export.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn this_version_has_a_directory() {
    let own = Path::new(RELEASED).join(env!("CARGO_PKG_VERSION"));
    assert!(versions().contains(&own), "{} is missing: see CONTRIBUTING.md, Releases", own.display());
}

// Tests promise P40 of beanpole-promises(7).
#[test]
fn binlogs_are_read() {
    for version in versions() {
        let folder = copy_of(&version.join("binlog"));
        let (server, _clock) = serve(&folder.file("copy"));
        let (now, before) = (export(&server), text(version.join("export")));
        assert_eq!(lines(&now), lines(&before), "{}", version.display());
        let reported = outcomes(connect(&server, Wire::Workq));
        assert_eq!(reported, text(version.join("outcomes")), "{}", version.display());
        let skipped = "binlog-records-skipped";
        let figure = Client::connect(server.address()).expect("a connection").figure("stats", skipped);
        assert_eq!(figure.expect(skipped), "0", "{}", version.display());
    }
}

/// Returns the kinds of all records in a segment, in order. binlog(5) describes the format.
fn kinds(segment: &[u8]) -> Vec<u8> {
    const HEADER: usize = 192;
    let mut rest = &segment[HEADER..];
    let next = || {
        let (head, behind) = rest.split_first_chunk::<9>().filter(|(head, _)| head[8] != 0)?;
        let length = u32::from_le_bytes(*head.first_chunk().expect("a length")) as usize;
        rest = &behind[length + if length > 64 { 4 } else { 0 }..];
        Some(head[8])
    };
    std::iter::from_fn(next).collect()
}

/// The log keeps these records only while a long command runs, and while the last IDs are being assigned.
const TRANSIENT: &[u8] = b"FYI";

#[test]
fn the_binlog_contains_each_kind_of_record() {
    let binlog = Path::new(RELEASED).join(env!("CARGO_PKG_VERSION")).join("binlog");
    let segments: Vec<Vec<u8>> = fs::read_dir(binlog)
        .expect("a binlog")
        .map(|it| fs::read(it.expect("an entry").path()).expect("a file"))
        .collect();
    let used: Vec<Vec<u8>> = segments.iter().map(|it| kinds(it)).filter(|it| !it.is_empty()).collect();
    assert!(used.len() > 1, "the binlog has only one segment with records");
    let source = text("src/binlog/decode.rs".into());
    let cases = source.split("let record = match kind {").nth(1).and_then(|rest| rest.split("_ => return None").next());
    let known = cases.expect("the kinds").split("b'").skip(1).map(|rest| rest.as_bytes()[0]);
    let missing: Vec<char> =
        known.filter(|kind| !used.concat().contains(kind) && !TRANSIENT.contains(kind)).map(char::from).collect();
    assert_eq!(missing, [], "the binlog lacks kinds of records: extend `fill_again`");
}

// Tests promise P40 of beanpole-promises(7).
#[test]
fn exports_are_imported() {
    for version in versions() {
        let folder = Folder::new();
        let (server, _clock) = serve(&folder.file(""));
        let before = version.join("export");
        let ended = run(&["import", "-s", &server.address().to_string(), before.to_str().expect("a name")]);
        // An import does not store some properties of jobs of Gearman and Workq, and makes a leased job ready.
        let is_complete = ended.err.contains("; 0 lines were refused");
        assert!(ended.code == 1 && is_complete, "{}: {}", version.display(), ended.err);
        let stored = without_protocols(&text(before)).replace(r#""state":"reserved""#, r#""state":"ready""#);
        // An imported schedule has not run yet.
        let stored = stored.replace(r#""runs":1,"skipped":1"#, r#""runs":0,"skipped":0"#);
        assert_eq!(fields(&export(&server)), fields(&stored), "{}", version.display());
    }
}

/// Each line of `rights` contains a client, a command, a tube, and the expected exit status of `check-access`.
// Tests promise P40 of beanpole-promises(7).
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

/// Puts and deletes jobs until the log has removed the first segment.
fn churn(server: &Server) {
    let mut client = Client::connect(server.address()).expect("a connection");
    client.put(b"plain", 5, 100_000, 60).expect("an ID");
    for _ in 0..100 {
        let id = client.put(&[b'x'; 200], 5, 0, 60).expect("an ID");
        client.delete(id).expect("a job");
    }
}

/// Causes each kind of change, because the log no longer contains the changes that [`fill`] caused.
fn fill_again(server: &Server, clock: &ManualClock) {
    let mut client = Client::connect(server.address()).expect("a connection");
    let mut ask = |commands: &str, reply: &str| {
        let lines = commands.split_inclusive("\r\n").collect::<Vec<_>>();
        client.send(lines.concat().as_bytes()).expect("a connection");
        let found: Vec<String> = reply.split(' ').map(|_| client.line().expect("a reply")).collect();
        let words: Vec<&str> = found.iter().map(|line| line.split(' ').next().unwrap_or_default()).collect();
        assert_eq!(words.join(" "), reply, "{commands}: {found:?}");
        found.iter().find_map(|line| line.strip_prefix("INSERTED ")).unwrap_or_default().to_owned()
    };
    let plain = ask("put 5 0 60 1\r\na\r\n", "INSERTED");
    // A time to run expires, first without and then with a limit on the tries.
    ask(&format!("reserve-job {plain}\r\n"), "RESERVED a");
    clock.advance(Duration::from_secs(61));
    ask(&format!("reserve-job {plain}\r\nrelease {plain} 6 100015\r\n"), "RESERVED a RELEASED");
    let tried = ask("put 5 0 60 1 try:3:100016\r\nb\r\n", "INSERTED");
    ask(&format!("reserve-job {tried}\r\n"), "RESERVED b");
    clock.advance(Duration::from_secs(61));
    let dead = ask("put 5 0 60 1 tub:mail try:1\r\nc\r\n", "INSERTED");
    ask(&format!("reserve-job {dead}\r\nfail {dead} 5 4\r\nlost\r\n"), "RESERVED c BURIED");
    let buried = ask("put 5 0 60 1\r\nd\r\n", "INSERTED");
    ask(&format!("reserve-job {buried}\r\nbury {buried} 5\r\nkick-job {buried}\r\n"), "RESERVED d BURIED KICKED");
    ask(&format!("reserve-job {buried}\r\nbury {buried} 7\r\n"), "RESERVED d BURIED");
    let urgent = "put 5 0 60 1 idp:urgent\r\ne\r\nput 4 0 60 1 idp:urgent\r\ne\r\n";
    ask(urgent, "INSERTED INSERTED");
    let kept = ask("put 5 0 60 1 idp:kept:100017 grp:batch\r\nf\r\n", "INSERTED");
    ask(&format!("delete {kept}\r\nset-tube again max:2\r\npause-tube again 100018\r\n"), "DELETED SET PAUSED");
    // A schedule runs, and skips its next run because the job of the previous run still exists.
    ask("put 5 0 60 1 tub:runs idp:run every:100\r\ng\r\n", "INSERTED");
    clock.advance(Duration::from_secs(101));
    clock.advance(Duration::from_secs(101));
    ask("put 5 0 60 1 tub:flushed\r\nh\r\nflush-tube flushed\r\n", "INSERTED FLUSHED");
    ask("put 5 0 60 1 tub:moved\r\ni\r\nmove-tube moved t ready 5\r\n", "INSERTED MOVED");
}

#[test]
#[ignore = "writes files into the source tree before a release"]
fn write() {
    let tag = concat!("refs/tags/v", env!("CARGO_PKG_VERSION"));
    let is_tagged =
        Command::new("git").args(["rev-parse", "--quiet", "--verify", tag]).status().expect("git").success();
    assert!(!is_tagged, "the files of a released version must never change");
    let own = Path::new(RELEASED).join(env!("CARGO_PKG_VERSION"));
    let binlog = own.join("binlog");
    let _ = fs::remove_dir_all(&binlog);
    fs::create_dir_all(&binlog).expect("a directory");
    let (server, clock) = serve(&binlog);
    clock.advance(MOMENT - UNIX_EPOCH.elapsed().expect("a time after 1970"));
    fill(connect(&server, Wire::Beanstalk));
    fill_gearman(connect(&server, Wire::Gearman));
    fill_workq(connect(&server, Wire::Workq));
    // The log rewrites the jobs, because little of their segments is still in use.
    churn(&server);
    drop((server, clock));
    let (server, clock) = serve(&binlog);
    fill_again(&server, &clock);
    fill_outcomes(connect(&server, Wire::Workq));
    fs::write(own.join("export"), export(&server)).expect("a file");
    fs::write(own.join("outcomes"), outcomes(connect(&server, Wire::Workq))).expect("a file");
    drop((server, clock));
    let _ = fs::remove_file(binlog.join("lock"));
    let copy = |from: PathBuf, to: PathBuf| {
        assert!(Command::new("cp").arg(&from).arg(&to).status().expect("cp").success(), "{}", from.display());
    };
    // The access file of the first release was written by hand.
    let earlier = versions().into_iter().rev().find(|version| *version != own);
    for name in ["access", "rights"] {
        earlier.iter().for_each(|version| copy(version.join(name), own.join(name)));
    }
    fs::create_dir_all(own.join("conversations")).expect("a directory");
    for name in CONVERSATIONS {
        copy(Path::new("tests/conversations").join(name), own.join("conversations"));
    }
}
