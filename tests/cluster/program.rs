//! The real program as one of several servers, on an etcd of this test: what it tells of its role, and to whom.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use super::daemon::everything;
use super::daemon::{command, run, wait_until, Daemon, Folder, Signal, PATIENCE};
use super::engine::Served;

/// One server of several, with a folder and addresses of its own.
pub struct Member {
    pub daemon: Daemon,
    beanstalk: SocketAddr,
    http: SocketAddr,
    /// What it tells systemd.
    manager: UnixDatagram,
    pub folder: Folder,
}

/// A free port of an address that no other test listens on. Otherwise a server that starts later could find its port
/// taken by another test.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1 << 8);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let own = Ipv4Addr::new(127, 77, high, low);
    TcpListener::bind((own, 0)).expect("a port").local_addr().expect("an address")
}

impl Member {
    /// Starts it; it listens for HTTP when this returns.
    pub fn start(served: &Served, name: &str, more: &[&str]) -> Member {
        Member::start_in(served, name, more, Folder::new())
    }

    fn start_in(served: &Served, name: &str, more: &[&str], folder: Folder) -> Member {
        Member::start_with(served, name, more, folder, &[])
    }

    fn start_with(
        served: &Served,
        name: &str,
        more: &[&str],
        folder: Folder,
        environment: &[(&str, PathBuf)],
    ) -> Member {
        let (beanstalk, http) = (free_address(), free_address());
        let _ = std::fs::remove_file(folder.file("manager"));
        let manager = UnixDatagram::bind(folder.file("manager")).expect("a socket");
        manager.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let mut program = command(&["--journal", &served.url(), "--node", name, &format!("--http={http}")]);
        program.args(["-l", &beanstalk.to_string(), "-b"]).arg(folder.file("jobs")).args(more);
        program.env("NOTIFY_SOCKET", folder.file("manager")).envs(environment.iter().cloned());
        let daemon = Daemon::spawn_at(program, http);
        Member { daemon, beanstalk, http, manager, folder }
    }

    pub fn serves(&self) -> bool {
        TcpStream::connect(self.beanstalk).is_ok()
    }

    pub fn wait_active(&self) {
        wait_until("it is active", || self.serves());
    }

    pub fn client(&self) -> beanpole::Client {
        beanpole::Client::connect(self.beanstalk).expect("an active server")
    }

    pub fn figure(&self, key: &str) -> String {
        self.client().figure("stats", key).expect("a figure")
    }

    /// The status and the body of an answer over HTTP.
    pub fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).expect("a server");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.http).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, answer.split_once("\r\n\r\n").expect("a head").1.to_owned())
    }

    /// Everything that it has told systemd since the last call, up to this line.
    pub fn told(&self, last: &str) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut buffer = [0; 1000];
        while !lines.iter().any(|line| line == last) {
            let length = self.manager.recv(&mut buffer).unwrap_or_else(|error| panic!("no {last}: {error} {lines:?}"));
            lines.extend(String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned));
        }
        lines
    }
}

impl Member {
    /// Starts this server a second time, with these clocks.
    pub fn again(self, served: &Served, clocks: &Clocks) -> Member {
        clocks.start_in(served, "a", self.folder)
    }
}

/// Clocks of one server, which the test sets by `clock_shim.rs`.
pub struct Clocks {
    folder: Folder,
    shim: PathBuf,
}

impl Clocks {
    pub fn new() -> Clocks {
        let folder = Folder::new();
        let (file, shim) = (folder.file("clocks"), folder.file("shim.so"));
        std::fs::write(file, [0; 16]).expect("a file");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/clock_shim.rs");
        let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        command.args(["--edition", "2021", "--crate-type", "cdylib", "-C", "panic=abort", "-o"]);
        assert!(command.arg(&shim).arg(source).status().expect("rustc").success());
        Clocks { folder, shim }
    }

    pub fn start(&self, served: &Served, name: &str) -> Member {
        self.start_in(served, name, Folder::new())
    }

    fn start_in(&self, served: &Served, name: &str, folder: Folder) -> Member {
        let environment = [("LD_PRELOAD", self.shim.clone()), ("CLOCK_SHIM", self.folder.file("clocks"))];
        Member::start_with(served, name, &[], folder, &environment)
    }

    /// Sets how far the wall clock is ahead, and for how long the machine was suspended.
    pub fn set(&self, wall: Duration, suspended: Duration) {
        let bytes = [wall, suspended].map(|length| (length.as_nanos() as u64).to_ne_bytes()).concat();
        // In place: the program has mapped this file.
        OpenOptions::new().write(true).open(self.folder.file("clocks")).expect("a file").write_all(&bytes).expect("ok");
    }
}

#[test]
fn a_machine_that_was_suspended_for_longer_than_its_lease_stops_answering() {
    let (served, clocks) = (Served::start(), Clocks::new());
    let member = clocks.start(&served, "a");
    member.wait_active();
    member.client().put(b"x", 0, 0, 60).expect("a job");
    let length = Duration::from_secs(2);
    member.daemon.signal(Signal::SIGSTOP);
    std::thread::sleep(length);
    clocks.set(Duration::ZERO, length);
    member.daemon.signal(Signal::SIGCONT);
    member.daemon.wait_log("no longer active");
    assert!(member.daemon.log().contains("was stopped for 2."), "{}", member.daemon.log());
}

/// Without its etcd, a server that stops loses its lease on the way.
#[test]
fn a_server_that_is_told_to_stop_while_etcd_is_away_stops() {
    let served = Served::start();
    let member = Member::start(&served, "a", &[]);
    member.wait_active();
    // Something that it cannot append any more.
    served.engine().is_away = true;
    let mut stream = TcpStream::connect(member.beanstalk).expect("a server");
    stream.write_all(b"put 0 0 60 1\r\nx\r\n").expect("a command");
    member.daemon.signal(Signal::SIGTERM);
    assert_eq!(member.daemon.wait(PATIENCE), 0);
}

#[test]
fn a_clock_that_jumps_before_a_take_over_ends_no_delay() {
    let (served, clocks) = (Served::start(), Clocks::new());
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let id = first.client().put(b"x", 0, 3000, 60).expect("a job");
    let second = clocks.start(&served, "b");
    let held = first.figure("journal-entry");
    wait_until("it has all", || second.get("/metrics").1.contains(&format!("\nbeanpole_journal_entry {held}\n")));
    // Some beats have been seen.
    let (beats, seen) = (served.engine().beats(), 5);
    wait_until("beats", || served.engine().beats() >= beats + seen);
    first.daemon.signal(Signal::SIGKILL);
    clocks.set(Duration::from_secs(3600), Duration::ZERO);
    second.wait_active();
    let left: u64 = second.client().figure(&format!("stats-job {id}"), "time-left").expect("a figure").parse().unwrap();
    assert!((2400..=3000).contains(&left), "the job's delay moved with the clock: {left}");
}

#[test]
fn each_door_tells_the_role_and_only_the_active_server_is_ready() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    first.client().put(b"x", 0, 0, 60).expect("a job");
    let second = Member::start(&served, "b", &[]);
    assert_eq!((first.figure("role"), first.figure("epoch")), ("active".into(), "1".into()));
    let number = |key: &str| first.figure(key).parse::<u64>().expect("a number");
    assert!(number("journal-entry") >= 2 && number("journal-entries-written") >= 1);
    assert!(number("journal-bytes-written") > 100, "{}", number("journal-bytes-written"));
    assert_eq!(number("journal-retries"), 0);
    wait_until("the space is known", || (number("journal-size"), number("journal-quota")) == (50_000, 2 << 30));
    assert_eq!(first.get("/readyz").0, 200);
    assert!(first.get("/api/server").1.contains("\"role\":\"active\""));
    let metrics = first.get("/metrics").1;
    assert!(metrics.contains("\nbeanpole_active 1\n") && metrics.contains("\nbeanpole_epoch 1\n"), "{metrics}");
    // The other one has no queue to speak of.
    assert!(!second.serves());
    assert_eq!(second.get("/healthz").0, 200);
    let (status, reason) = second.get("/readyz");
    assert!(status == 503 && reason.contains("stands by"), "{status} {reason}");
    assert_eq!(second.get("/api/server").0, 503);
    assert!(second.get("/metrics").1.contains("\nbeanpole_active 0\n"));
    wait_until("it follows", || second.get("/metrics").1.contains("\nbeanpole_epoch 1\n"));
    let told = first.told("STATUS=active, epoch 1");
    assert_eq!(told, ["READY=1", "STATUS=standing by", "STATUS=active, epoch 1"]);
    let following = "STATUS=standing by; a is active, epoch 1";
    assert_eq!(second.told(following), ["READY=1", "STATUS=standing by", following]);
    for log in ["standing by as a", "active as a, epoch 1"] {
        assert!(first.daemon.log().contains(log), "{}", first.daemon.log());
    }
}

#[test]
fn a_promoted_server_takes_over_and_the_other_goes_on_as_a_standby() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let id = first.client().put(b"x", 0, 0, 60).expect("a job");
    let second = Member::start(&served, "b", &[]);
    wait_until("it is known", || run(&["cluster", "status", &served.url()]).out.contains("b\tstandby\t"));
    first.told("STATUS=active, epoch 1");
    assert_eq!(run(&["cluster", "promote", &served.url(), "b"]).code, 0);
    second.wait_active();
    assert_eq!(second.client().reserve(Some(0)).expect("an answer").expect("the job").id, id);
    assert_eq!((second.figure("role"), second.figure("epoch")), ("active".into(), "2".into()));
    wait_until("the other stands by", || first.get("/readyz").0 == 503);
    first.daemon.wait_log("b at ");
    let last = "STATUS=standing by; b is active, epoch 2";
    let mut told = first.told(last);
    // It may see its own epoch as the last one for a moment.
    told.retain(|line| !line.ends_with("a is active, epoch 1"));
    let wanted = ["STATUS=closing, epoch 1", "READY=1", "STATUS=standing by", last];
    assert_eq!(told, wanted, "the service does not stop");
    for log in ["another server is to take over", "journal: released", "epoch 2"] {
        assert!(first.daemon.log().contains(log), "{}", first.daemon.log());
    }
    // Ended in order, it tells that it stops, and lets the other in at once.
    second.told("STATUS=active, epoch 2");
    second.daemon.signal(Signal::SIGTERM);
    assert_eq!(second.daemon.wait(PATIENCE), 0);
    let last = "STATUS=closing, epoch 2";
    assert_eq!(second.told(last), ["STOPPING=1", last]);
    first.wait_active();
    assert_eq!(first.figure("epoch"), "3");
}

/// Only root can become another user.
#[test]
fn a_copy_belongs_to_the_user_that_the_server_becomes() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let served = Served::start();
    let first = Member::start(&served, "a", &["-u", "65534"]);
    first.wait_active();
    first.client().put(b"x", 0, 0, 60).expect("a job");
    assert!(first.daemon.status("Uid").starts_with("65534\t65534"), "{}", first.daemon.status("Uid"));
    let second = Member::start(&served, "b", &["-u", "65534"]);
    wait_until("it is known", || run(&["cluster", "status", &served.url()]).out.contains("b\tstandby\t"));
    assert!(second.daemon.status("Uid").starts_with("65534\t65534"), "{}", second.daemon.status("Uid"));
    // What it does as that user alone: begin anew, and be active again.
    for (number, (old, new, name)) in [(&first, &second, "b"), (&second, &first, "a")].into_iter().enumerate() {
        assert_eq!(run(&["cluster", "promote", &served.url(), name]).code, 0);
        new.wait_active();
        assert_eq!(new.figure("current-jobs-ready"), "1");
        old.daemon.wait_log(&format!("is the active server, epoch {}", number + 2));
    }
    for member in [&first, &second] {
        let files = std::fs::read_dir(member.folder.file("jobs")).expect("a folder").map(|file| file.expect("a file"));
        let own = |file: &std::fs::DirEntry| file.metadata().expect("a file").uid() == 65534;
        assert!(files.filter(|file| !own(file)).count() == 0);
    }
}

#[test]
fn a_standby_that_relays_hands_clients_to_whoever_is_active() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let second = Member::start(&served, "b", &["--relay"]);
    second.daemon.wait_log("a at ");
    let mut client = second.client();
    let id = client.put(b"x", 0, 0, 60).expect("a job");
    assert_eq!(client.figure("stats", "pid").expect("a figure"), first.daemon.pid().to_string());
    // A switch ends its connection, as it does those of all others; then it serves itself, at the same address.
    first.daemon.signal(Signal::SIGTERM);
    assert_eq!(first.daemon.wait(PATIENCE), 0);
    assert!(client.figure("stats", "pid").is_err());
    second.daemon.wait_log(" is listening on ");
    assert_eq!(second.figure("pid"), second.daemon.pid().to_string());
    assert_eq!(second.client().reserve(Some(0)).expect("an answer").expect("the job").id, id);
}

#[test]
fn a_server_that_takes_over_goes_on_with_the_time_of_the_one_before() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    // The clock of the first one is an hour ahead, as far as the second one can see.
    served.engine().ahead = 3_600_000;
    let second = Member::start(&served, "b", &[]);
    second.daemon.wait_log("s ahead of this server's clock");
    let id = first.client().put(b"x", 0, 7200, 60).expect("a job");
    first.daemon.signal(Signal::SIGTERM);
    second.wait_active();
    let left: u64 = second.client().figure(&format!("stats-job {id}"), "time-left").expect("a figure").parse().unwrap();
    assert!((3500..=3600).contains(&left), "the time of the queue is an hour further: {left}");
    served.engine().ahead = 0;
}

#[test]
fn a_failover_keeps_every_tag_and_setting() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let second = Member::start(&served, "b", &[]);
    everything::fill(TcpStream::connect(first.beanstalk).expect("the active server"));
    let export = |member: &Member| {
        let ended = run(&["export", "--server", &member.beanstalk.to_string()]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        everything::fields(&ended.out)
    };
    let before = export(&first);
    assert!(before.len() > 9, "{before:?}");
    first.daemon.signal(Signal::SIGKILL);
    second.wait_active();
    assert_eq!(export(&second), before);
}

#[test]
fn a_full_etcd_is_tidied_by_who_wants_to_be_active() {
    let served = Served::start();
    // Somebody else has had it compacted already.
    served.engine().asked.push("/v3/kv/compaction".to_owned());
    served.engine().is_full = true;
    let member = Member::start(&served, "a", &[]);
    member.daemon.wait_log("active as a, epoch 1");
    assert!(!served.engine().is_full);
    assert!(member.daemon.log().contains("reached its quota"), "{}", member.daemon.log());
    let asked = served.engine().asked.clone();
    assert!(asked.iter().any(|path| path == "/v3/kv/compaction"), "{asked:?}");
}

#[test]
fn a_full_etcd_that_refuses_reads_too_is_tidied_as_well() {
    let served = Served::start();
    (served.engine().is_full, served.engine().full_for_reads) = (true, true);
    let member = Member::start(&served, "a", &[]);
    member.daemon.wait_log("active as a, epoch 1");
    assert!(!served.engine().is_full);
}

#[test]
fn a_user_and_a_password_are_shown_to_etcd() {
    let served = Served::start();
    served.engine().login = Some(("queue".into(), "secret".into()));
    let url = format!("etcd://queue:secret@{}/q", served.address);
    let folder = Folder::new();
    let beanstalk = free_address();
    let mut program = command(&["--journal", &url, "--node", "a", "-l", &beanstalk.to_string(), "-b"]);
    program.arg(folder.file("jobs"));
    let daemon = Daemon::spawn_at(program, beanstalk);
    daemon.client().put(b"x", 0, 0, 60).expect("a job");
    assert!(!daemon.log().contains("secret"), "{}", daemon.log());
    let refused = run(&["cluster", "status", &url.replace("secret", "wrong")]);
    assert!(refused.code != 0 && refused.err.contains("etcd refuses user and password"), "{refused:?}");
    assert!(!refused.err.contains("wrong"), "a password is not shown: {refused:?}");
}

#[test]
fn a_client_that_may_shut_down_the_active_server_lets_another_in() {
    let served = Served::start();
    let gearman = free_address();
    let first = Member::start(&served, "a", &["--allow-shutdown", &format!("--gearman={gearman}")]);
    first.wait_active();
    wait_until("it listens for Gearman too", || TcpStream::connect(gearman).is_ok());
    TcpStream::connect(gearman).expect("a server").write_all(b"shutdown\n").expect("a command");
    assert_eq!(first.daemon.wait(PATIENCE), 0);
    assert!(first.daemon.log().contains("journal: released"), "{}", first.daemon.log());
    let second = Member::start(&served, "b", &[]);
    second.wait_active();
}

#[test]
fn the_copy_of_a_server_is_an_ordinary_binlog_and_a_binlog_can_be_shared() {
    let folder = Folder::new();
    let path = folder.file("jobs");
    let jobs = path.to_str().expect("a path");
    let alone = Daemon::start(&["-b", jobs, "-f0"]);
    let ids: Vec<u64> = (0..100).map(|_| alone.client().put(&[b'x'; 5000], 0, 0, 60).expect("a job")).collect();
    alone.signal(Signal::SIGTERM);
    assert_eq!(alone.wait(PATIENCE), 0);
    // Into the shared log ...
    let served = Served::start();
    let first = Member::start_in(&served, "a", &[], folder);
    first.wait_active();
    assert!(first.daemon.log().contains("taking in the binlog"), "{}", first.daemon.log());
    assert_eq!(first.figure("current-jobs-ready"), ids.len().to_string());
    first.client().delete(ids[0]).expect("it is there");
    let second = Member::start(&served, "b", &[]);
    let held = first.figure("journal-entry");
    wait_until("it has all", || second.get("/metrics").1.contains(&format!("\nbeanpole_journal_entry {held}\n")));
    // ... and out of it, by a server that never was active.
    second.daemon.signal(Signal::SIGTERM);
    assert_eq!(second.daemon.wait(PATIENCE), 0);
    let copy = second.folder.file("jobs");
    let back = Daemon::start(&["-b", copy.to_str().expect("a path")]);
    let mut client = back.client();
    let found = std::iter::from_fn(|| client.reserve(Some(0)).expect("an answer"));
    assert_eq!(found.map(|job| job.id).collect::<Vec<_>>(), ids[1..]);
    // What it did alone is in no shared log, so it is not taken for a copy any more.
    back.signal(Signal::SIGTERM);
    assert_eq!(back.wait(PATIENCE), 0);
    let Member { folder, .. } = second;
    let third = Member::start_in(&served, "c", &[], folder);
    third.daemon.wait_log("holds a binlog that is not of this journal");
}

#[test]
fn a_binlog_that_does_not_fit_into_etcd_is_refused_before_anything_is_written() {
    let folder = Folder::new();
    let path = folder.file("jobs");
    let alone = Daemon::start(&["-b", path.to_str().expect("a path")]);
    for _ in 0..20 {
        alone.client().put(&[b'x'; 50_000], 0, 0, 60).expect("a job");
    }
    alone.signal(Signal::SIGTERM);
    assert_eq!(alone.wait(PATIENCE), 0);
    let served = Served::start();
    let url = format!("{}?quota=1000000", served.url());
    let member = Member::start_in(&served, "a", &["--journal", &url, "--node", "a"], folder);
    member.daemon.wait_log("etcd's quota leaves 750000; increase the quota");
    assert_eq!(served.engine().entries(), 0);
    // A larger quota is all that it needs.
    member.daemon.signal(Signal::SIGTERM);
    assert_eq!(member.daemon.wait(PATIENCE), 0);
    let Member { folder, .. } = member;
    let member = Member::start_in(&served, "a", &[], folder);
    member.wait_active();
    assert_eq!(member.figure("current-jobs-ready"), "20");
}

/// Beside whatever error a call returns, the log can fail because its files are not where they were.
#[test]
fn a_server_that_loses_its_directory_stops_answering_and_no_delete_comes_back() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let mut client = first.client();
    let ids: Vec<u64> = (0..200).map(|_| client.put(b"x", 0, 0, 60).expect("a job")).collect();
    std::fs::rename(first.folder.file("jobs"), first.folder.file("elsewhere")).expect("a directory");
    let mut deleted = Vec::new();
    wait_until("it stops being active", || {
        let next = ids.get(deleted.len()).copied();
        match next.map(|id| client.delete(id)) {
            Some(Ok(())) => deleted.push(next),
            Some(Err(_)) => return true,
            // The check of the directory runs twice a second.
            None => return client.figure("stats", "pid").is_err(),
        }
        false
    });
    first.daemon.wait_log("this server stops being active");
    first.daemon.signal(Signal::SIGKILL);
    let second = Member::start(&served, "b", &[]);
    second.wait_active();
    let mut client = second.client();
    let found = std::iter::from_fn(|| client.reserve(Some(0)).expect("an answer"));
    let left: Vec<u64> = found.map(|job| job.id).collect();
    // The delete that was under way may have been carried out.
    assert!(left == ids[deleted.len()..] || left == ids[deleted.len() + 1..], "{} {left:?}", deleted.len());
}

/// The directory that beanpole-cluster(7) tells to choose when the queue is to be served without etcd.
fn best_copy(members: &[Member]) -> PathBuf {
    let copies = members.iter().map(|member| {
        let jobs = member.folder.file("jobs");
        let aside = jobs.join("journal.aside");
        let place = if aside.exists() { aside } else { jobs.clone() };
        let text = std::fs::read_to_string(place.join("journal.position")).expect("a position");
        let mut lines = text.lines();
        let entry: u64 = lines.next().expect("a line").parse().expect("an entry");
        let words: Vec<&str> = lines.next().expect("a line").split(' ').collect();
        let epoch = words.iter().position(|word| *word == "epoch").expect("an epoch") + 1;
        ((words[epoch].parse::<u64>().expect("an epoch"), place.join("journal.active").exists(), entry), jobs)
    });
    copies.max().expect("a server").1
}

#[test]
fn a_queue_outlives_etcd_in_the_directory_that_the_manual_names() {
    for names in [&["a"][..], &["a", "b"], &["a", "b", "c"]] {
        let served = Served::start();
        let mut members: Vec<Member> = Vec::new();
        for name in names {
            members.push(Member::start(&served, name, &[]));
            members[0].wait_active();
        }
        let ids: Vec<u64> = (0..300).map(|_| members[0].client().put(b"x", 0, 0, 60).expect("a job")).collect();
        served.engine().is_away = true;
        let again = || members[0].daemon.log().matches("standing by as a").count() == 2;
        wait_until("the server that was active stands by", again);
        for member in &members {
            member.daemon.signal(Signal::SIGTERM);
            assert_eq!(member.daemon.wait(PATIENCE), 0);
        }
        let jobs = best_copy(&members);
        assert_eq!(jobs, members[0].folder.file("jobs"));
        let alone = Daemon::start(&["-b", jobs.to_str().expect("a path")]);
        let mut client = alone.client();
        assert_eq!(client.reserve(Some(0)).expect("an answer").expect("a job").id, ids[0]);
        client.delete(ids[0]).expect("a job");
        alone.signal(Signal::SIGTERM);
        assert_eq!(alone.wait(PATIENCE), 0);
        // Shared again, in an etcd that was wiped.
        let served = Served::start();
        let Member { folder, .. } = members.swap_remove(0);
        let first = Member::start_in(&served, "a", &[], folder);
        first.wait_active();
        let mut client = first.client();
        let found = std::iter::from_fn(|| client.reserve(Some(0)).expect("an answer"));
        assert_eq!(found.map(|job| job.id).collect::<Vec<_>>(), ids[1..]);
    }
}

#[test]
fn a_server_refuses_an_etcd_that_was_wiped_and_says_what_to_do() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    first.client().put(b"x", 0, 0, 60).expect("a job");
    let second = Member::start(&served, "b", &[]);
    let held = first.figure("journal-entry");
    wait_until("it has all", || second.get("/metrics").1.contains(&format!("\nbeanpole_journal_entry {held}\n")));
    first.daemon.signal(Signal::SIGKILL);
    served.engine().wipe();
    second.daemon.wait_log("etcd was wiped or restored; see \"Loss of etcd\" in beanpole-cluster(7)");
    let Member { folder, .. } = first;
    let first = Member::start_in(&served, "a", &[], folder);
    first.daemon.wait_log("etcd was wiped or restored");
    assert!(!first.serves() && !second.serves());
    for member in [&first, &second] {
        member.daemon.signal(Signal::SIGTERM);
        assert_eq!(member.daemon.wait(PATIENCE), 0);
        assert!(!member.folder.file("jobs").join("journal.aside").exists());
    }
    let members = [second, first];
    let jobs = best_copy(&members);
    let alone = Daemon::start(&["-b", jobs.to_str().expect("a path")]);
    assert_eq!(alone.client().figure("stats", "current-jobs-ready").expect("a figure"), "1");
}
