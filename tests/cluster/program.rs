//! Tests the real program as one of several servers, with a simulated etcd.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use super::daemon::everything;
use super::daemon::{can_preload, command, run, wait_until, Daemon, Folder, Signal, PATIENCE};
use super::engine::Served;
use super::member::{free_address, Clocks, Member};

// Tests promise P33 of beanpole-promises(7).
#[test]
fn a_server_suspended_beyond_its_lease_stops_serving() {
    if !can_preload() {
        return;
    }
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

/// A server that stops while etcd is unreachable must wait only until its lease has expired, and must not restart.
#[test]
fn a_server_stops_while_etcd_is_unreachable() {
    for is_signal in [true, false] {
        let (served, gearman) = (Served::start(), free_address());
        let member = Member::start(&served, "a", &["--allow-shutdown", &format!("--gearman={gearman}")]);
        member.wait_active();
        wait_until("the server listens for Gearman", || TcpStream::connect(gearman).is_ok());
        let mut client = TcpStream::connect(gearman).expect("a server");
        // The server cannot append this put to the shared log, but keeps its lease until it is stopping.
        served.engine().held = member.figure("journal-entry").parse::<u64>().expect("a number") + 1;
        let _unconfirmed = begin_put(&member);
        match is_signal {
            true => member.daemon.signal(Signal::SIGTERM),
            false => client.write_all(b"shutdown\n").expect("a command"),
        }
        member.daemon.wait_log(if is_signal { "stopping" } else { "shutting down, as was asked" });
        let mut engine = served.engine();
        (engine.is_away, engine.held) = (true, 0);
        drop(engine);
        assert_eq!(member.daemon.wait(PATIENCE), 0, "signal: {is_signal}");
    }
}

#[test]
fn each_address_reports_the_role_and_only_the_active_server_is_ready() {
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
    wait_until("etcd's size is known", || (number("journal-size"), number("journal-quota")) == (50_000, 2 << 30));
    assert_eq!(first.get("/readyz").0, 200);
    assert!(first.get("/api/server").1.contains("\"role\":\"active\""));
    let metrics = first.get("/metrics").1;
    assert!(metrics.contains("\nbeanpole_active 1\n") && metrics.contains("\nbeanpole_epoch 1\n"), "{metrics}");
    // The standby must not serve the queue.
    assert!(!second.serves());
    assert_eq!(second.get("/healthz").0, 200);
    let (status, reason) = second.get("/readyz");
    assert!(status == 503 && reason.contains("stands by"), "{status} {reason}");
    assert_eq!(second.get("/api/server").0, 503);
    assert!(second.get("/metrics").1.contains("\nbeanpole_active 0\n"));
    wait_until("the standby follows", || second.get("/metrics").1.contains("\nbeanpole_epoch 1\n"));
    let notifications = first.notifications("STATUS=active, epoch 1");
    assert_eq!(notifications, ["READY=1", "STATUS=standing by", "STATUS=active, epoch 1"]);
    let following = "STATUS=standing by; a is active, epoch 1";
    assert_eq!(second.notifications(following), ["READY=1", "STATUS=standing by", following]);
    for log in ["standing by as a", "active as a, epoch 1"] {
        assert!(first.daemon.log().contains(log), "{}", first.daemon.log());
    }
}

#[test]
fn a_promoted_server_takes_over_and_the_other_becomes_a_standby() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let id = first.client().put(b"x", 0, 0, 60).expect("a job");
    let second = Member::start(&served, "b", &[]);
    wait_until("b has registered", || run(&["cluster", "status", &served.url()]).out.contains("b\tstandby\t"));
    first.notifications("STATUS=active, epoch 1");
    assert_eq!(run(&["cluster", "promote", &served.url(), "b"]).code, 0);
    second.wait_active();
    assert_eq!(second.client().reserve(Some(0)).expect("a reply").expect("the job").id, id);
    assert_eq!((second.figure("role"), second.figure("epoch")), ("active".into(), "2".into()));
    wait_until("the first server stands by", || first.get("/readyz").0 == 503);
    first.daemon.wait_log("b at ");
    let last = "STATUS=standing by; b is active, epoch 2";
    let mut notifications = first.notifications(last);
    // If the server has not seen epoch 2 yet, it first reports that `a` is still active.
    notifications.retain(|line| !line.ends_with("a is active, epoch 1"));
    let wanted = ["STATUS=closing, epoch 1", "READY=1", "STATUS=standing by", last];
    assert_eq!(notifications, wanted, "the service must not stop");
    for log in ["another server is to take over", "journal: released", "epoch 2"] {
        assert!(first.daemon.log().contains(log), "{}", first.daemon.log());
    }
    // A server that stops cleanly informs systemd and releases its lease, so the standby can take over immediately.
    second.notifications("STATUS=active, epoch 2");
    second.daemon.signal(Signal::SIGTERM);
    assert_eq!(second.daemon.wait(PATIENCE), 0);
    let last = "STATUS=closing, epoch 2";
    assert_eq!(second.notifications(last), ["STOPPING=1", last]);
    first.wait_active();
    assert_eq!(first.figure("epoch"), "3");
}

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
    wait_until("b has registered", || run(&["cluster", "status", &served.url()]).out.contains("b\tstandby\t"));
    assert!(second.daemon.status("Uid").starts_with("65534\t65534"), "{}", second.daemon.status("Uid"));
    // Both servers have switched to the user nobody, and each must be able to become active again.
    for (number, (old, new, name)) in [(&first, &second, "b"), (&second, &first, "a")].into_iter().enumerate() {
        assert_eq!(run(&["cluster", "promote", &served.url(), name]).code, 0);
        new.wait_active();
        assert_eq!(new.figure("current-jobs-ready"), "1");
        old.daemon.wait_log(&format!("is the active server, epoch {}", number + 2));
    }
    for member in [&first, &second] {
        let files =
            std::fs::read_dir(member.folder.file("jobs")).expect("a directory").map(|file| file.expect("a file"));
        let own = |file: &std::fs::DirEntry| file.metadata().expect("a file").uid() == 65534;
        assert!(files.filter(|file| !own(file)).count() == 0);
    }
}

#[test]
fn a_relaying_standby_forwards_clients_to_the_active_server() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let second = Member::start(&served, "b", &["--relay"]);
    second.daemon.wait_log("a at ");
    let mut client = second.client();
    let id = client.put(b"x", 0, 0, 60).expect("a job");
    assert_eq!(client.figure("stats", "pid").expect("a figure"), first.daemon.pid().to_string());
    // When the second server becomes active, it closes the relayed connections and serves the queue at the same
    // address.
    first.daemon.signal(Signal::SIGTERM);
    assert_eq!(first.daemon.wait(PATIENCE), 0);
    assert!(client.figure("stats", "pid").is_err());
    second.daemon.wait_log(" is listening on ");
    assert_eq!(second.figure("pid"), second.daemon.pid().to_string());
    assert_eq!(second.client().reserve(Some(0)).expect("a reply").expect("the job").id, id);
}

#[test]
fn a_standby_relays_every_protocol() {
    let served = Served::start();
    let ports = || [free_address(), free_address()];
    let options = |[gearman, workq]: [SocketAddr; 2]| [format!("--gearman={gearman}"), format!("--workq={workq}")];
    let start = |name: &str, more: &[String], places| {
        let options = [more, &options(places)].concat();
        Member::start(&served, name, &options.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let first = start("a", &[], ports());
    first.wait_active();
    let [gearman, workq] = ports();
    let second = start("b", &["--relay".to_owned()], [gearman, workq]);
    second.daemon.wait_log("a at ");
    let ask = |place: SocketAddr, request: &[u8], reply: &str| {
        let mut stream = TcpStream::connect(place).expect("a relay");
        stream.write_all(request).expect("a relay");
        let mut bytes = vec![0; reply.len()];
        stream.read_exact(&mut bytes).expect("a reply");
        assert_eq!(String::from_utf8_lossy(&bytes), reply);
    };
    ask(gearman, b"getpid\n", &format!("OK {}\n", first.daemon.pid()));
    ask(workq, b"add 6ba7b810-9dad-11d1-80b4-00c04fd430c4 q 1000 60000 1\r\nx\r\n", "+OK\r\n");
    assert_eq!(first.figure("current-jobs-ready"), "1");
    let (status, server) = second.get("/api/server");
    assert!(status == 200 && server.contains("\"role\":\"active\""), "{status} {server}");
    assert_eq!(second.get("/readyz").0, 503, "/readyz must report on the standby itself");
    assert!(second.get("/metrics").1.contains("\nbeanpole_active 0\n"));
}

#[test]
fn a_server_that_cannot_become_active_is_not_a_standby() {
    let served = Served::start();
    let listener = TcpListener::bind(free_address()).expect("a port");
    let taken = listener.local_addr().expect("an address").to_string();
    let (free, folder) = (free_address().to_string(), Folder::new());
    let jobs = folder.file("jobs").to_string_lossy().into_owned();
    let (gearman, unresolvable) = (format!("--gearman={taken}"), "x".repeat(64));
    for (options, code, problem) in [
        (&["-l", &taken][..], 111, "cannot listen on"),
        (&["-l", &free, &gearman], 111, "cannot listen on"),
        (&["-l", &taken, "--relay"], 111, "cannot listen on"),
        (&["-l", &unresolvable, "--relay"], 75, "lookup"),
        (&["-l", &free, "--access", "/nowhere/access"], 1, "/nowhere/access"),
        (&["-l", &free, "--tubes", "/nowhere/tubes"], 1, "/nowhere/tubes"),
        (&["-l", &free, "--http=0.0.0.0:0"], 1, "needs a token"),
    ] {
        let ended = run(&[&["--journal", &served.url(), "--node", "a", "-b", &jobs], options].concat());
        assert!(ended.code == code && ended.err.contains(problem), "{options:?}: {ended:?}");
    }
    assert_eq!(run(&["cluster", "status", &served.url()]).out.lines().count(), 2, "no server may register");
}

#[test]
fn a_server_that_takes_over_continues_the_queue_s_time() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    // To the second server, the first server's clock appears to be one hour ahead.
    served.engine().ahead = 3_600_000;
    let second = Member::start(&served, "b", &[]);
    second.daemon.wait_log("s ahead of this server's clock");
    let id = first.client().put(b"x", 0, 7200, 60).expect("a job");
    first.daemon.signal(Signal::SIGTERM);
    second.wait_active();
    let left: u64 = second.client().figure(&format!("stats-job {id}"), "time-left").expect("a figure").parse().unwrap();
    assert!((3500..=3600).contains(&left), "the queue's time must be one hour ahead: {left}");
    served.engine().ahead = 0;
}

// Tests promise P34 of beanpole-promises(7).
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

pub fn begin_put(member: &Member) -> TcpStream {
    let mut stream = TcpStream::connect(member.beanstalk).expect("the active server");
    stream.write_all(b"put 0 0 60 1\r\nx\r\n").expect("a command");
    stream
}

#[test]
fn a_late_append_delays_replies_but_loses_nothing() {
    let served = Served::start();
    let member = Member::start(&served, "a", &[]);
    member.wait_active();
    member.client().put(b"x", 0, 0, 60).expect("a job");
    let next = member.figure("journal-entry").parse::<u64>().expect("a number") + 1;
    served.engine().held = next;
    let mut streams = vec![begin_put(&member)];
    wait_until("an append is under way", || served.engine().arrived.contains(&next));
    streams.extend((0..5).map(|_| begin_put(&member)));
    wait_until("the next append is as well", || served.engine().arrived.contains(&(next + 1)));
    for stream in &streams {
        stream.set_nonblocking(true).expect("a socket");
        assert!((&*stream).read(&mut [0; 99]).is_err(), "a reply arrived before its entry was stored");
    }
    served.engine().held = 0;
    for stream in &mut streams {
        stream.set_nonblocking(false).expect("a socket");
        let mut reply = [0; 8];
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(&reply, b"INSERTED");
    }
    assert_eq!(member.figure("epoch"), "1");
    member.daemon.signal(Signal::SIGKILL);
    let second = Member::start(&served, "b", &[]);
    second.wait_active();
    assert_eq!(second.figure("current-jobs-ready"), "7");
}

#[test]
fn small_entries_are_merged_for_fast_restarts() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let mut client = first.client();
    let ids: Vec<u64> = (0..600).map(|_| client.put(b"x", 0, 0, 60).expect("a job")).collect();
    // Waits until the server has merged entries twice, each time 256 entries into one.
    wait_until("the entries are merged", || served.engine().entries() < 200);
    let first = Member::start_in(&served, "a", &[], first.kill());
    first.wait_active();
    let mut client = first.client();
    let found = std::iter::from_fn(|| client.reserve(Some(0)).expect("a reply"));
    assert_eq!(found.map(|job| job.id).collect::<Vec<_>>(), ids);
}

#[test]
fn a_full_etcd_is_compacted_by_a_standby() {
    let served = Served::start();
    // Simulates a compaction requested by another server.
    served.engine().requested_paths.push("/v3/kv/compaction".to_owned());
    served.engine().is_full = true;
    let member = Member::start(&served, "a", &[]);
    member.daemon.wait_log("active as a, epoch 1");
    assert!(!served.engine().is_full);
    assert!(member.daemon.log().contains("reached its quota"), "{}", member.daemon.log());
    let requested_paths = served.engine().requested_paths.clone();
    assert!(requested_paths.iter().any(|path| path == "/v3/kv/compaction"), "{requested_paths:?}");
}

#[test]
fn a_full_etcd_that_refuses_reads_is_compacted() {
    let served = Served::start();
    (served.engine().is_full, served.engine().full_for_reads) = (true, true);
    let member = Member::start(&served, "a", &[]);
    member.daemon.wait_log("active as a, epoch 1");
    assert!(!served.engine().is_full);
}

#[test]
fn etcd_receives_the_user_and_password() {
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
    assert!(!refused.err.contains("wrong"), "the message shows the password: {refused:?}");
}

#[test]
fn shutting_down_the_active_server_lets_another_take_over() {
    let served = Served::start();
    let gearman = free_address();
    let first = Member::start(&served, "a", &["--allow-shutdown", &format!("--gearman={gearman}")]);
    first.wait_active();
    wait_until("the server listens for Gearman", || TcpStream::connect(gearman).is_ok());
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
    let jobs = path.to_str().expect("a UTF-8 path");
    let alone = Daemon::start(&["-b", jobs, "-f0"]);
    let ids: Vec<u64> = (0..100).map(|_| alone.client().put(&[b'x'; 5000], 0, 0, 60).expect("a job")).collect();
    alone.signal(Signal::SIGTERM);
    assert_eq!(alone.wait(PATIENCE), 0);
    // Imports the binlog into the shared log.
    let served = Served::start();
    let first = Member::start_in(&served, "a", &[], folder);
    first.wait_active();
    assert!(first.daemon.log().contains("importing the binlog"), "{}", first.daemon.log());
    assert_eq!(first.figure("current-jobs-ready"), ids.len().to_string());
    first.client().delete(ids[0]).expect("the job is deleted");
    let second = Member::start(&served, "b", &[]);
    let held = first.figure("journal-entry");
    wait_until("b has caught up", || second.get("/metrics").1.contains(&format!("\nbeanpole_journal_entry {held}\n")));
    // Serves the queue without etcd, from the directory of a server that was never active.
    second.daemon.signal(Signal::SIGTERM);
    assert_eq!(second.daemon.wait(PATIENCE), 0);
    let copy = second.folder.file("jobs");
    let back = Daemon::start(&["-b", copy.to_str().expect("a UTF-8 path")]);
    let mut client = back.client();
    let found = std::iter::from_fn(|| client.reserve(Some(0)).expect("a reply"));
    assert_eq!(found.map(|job| job.id).collect::<Vec<_>>(), ids[1..]);
    // This server has changed the queue without the shared log, so its directory must not be accepted as a copy.
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
    let alone = Daemon::start(&["-b", path.to_str().expect("a UTF-8 path")]);
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
    // With a higher quota, the server must recover.
    member.daemon.signal(Signal::SIGTERM);
    assert_eq!(member.daemon.wait(PATIENCE), 0);
    let Member { folder, .. } = member;
    let member = Member::start_in(&served, "a", &[], folder);
    member.wait_active();
    assert_eq!(member.figure("current-jobs-ready"), "20");
}

/// The test renames the log's directory instead of removing it, so that the system calls of the log still succeed.
#[test]
fn a_server_that_loses_its_directory_stops_serving_and_keeps_deletes() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let mut client = first.client();
    let ids: Vec<u64> = (0..200).map(|_| client.put(b"x", 0, 0, 60).expect("a job")).collect();
    std::fs::rename(first.folder.file("jobs"), first.folder.file("elsewhere")).expect("a directory");
    let mut deleted = Vec::new();
    wait_until("the server stops being active", || {
        let next = ids.get(deleted.len()).copied();
        match next.map(|id| client.delete(id)) {
            Some(Ok(())) => deleted.push(next),
            Some(Err(_)) => return true,
            // The server checks only twice per second whether the directory still exists.
            None => return client.figure("stats", "pid").is_err(),
        }
        false
    });
    first.daemon.wait_log("this server stops being active");
    first.daemon.signal(Signal::SIGKILL);
    let second = Member::start(&served, "b", &[]);
    second.wait_active();
    let mut client = second.client();
    let found = std::iter::from_fn(|| client.reserve(Some(0)).expect("a reply"));
    let left: Vec<u64> = found.map(|job| job.id).collect();
    // The delete without a reply may have been executed.
    assert!(left == ids[deleted.len()..] || left == ids[deleted.len() + 1..], "{} {left:?}", deleted.len());
}

/// Returns the directory that beanpole-cluster(7) recommends for serving the queue without etcd.
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
        let is_complete = entry > 0 && !place.join("journal.incomplete").exists();
        let epoch: u64 = words[epoch].parse().expect("an epoch");
        ((is_complete, epoch, place.join("journal.active").exists(), entry), jobs)
    });
    copies.max().expect("a server").1
}

// Tests promise P35 of beanpole-promises(7).
#[test]
fn the_directory_chosen_by_the_manual_preserves_the_queue() {
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
        wait_until("the formerly active server stands by", again);
        for member in &members {
            member.daemon.signal(Signal::SIGTERM);
            assert_eq!(member.daemon.wait(PATIENCE), 0);
        }
        let jobs = best_copy(&members);
        assert_eq!(jobs, members[0].folder.file("jobs"));
        let alone = Daemon::start(&["-b", jobs.to_str().expect("a UTF-8 path")]);
        let mut client = alone.client();
        assert_eq!(client.reserve(Some(0)).expect("a reply").expect("a job").id, ids[0]);
        client.delete(ids[0]).expect("a job");
        alone.signal(Signal::SIGTERM);
        assert_eq!(alone.wait(PATIENCE), 0);
        // Shares the queue again through an empty etcd.
        let served = Served::start();
        let Member { folder, .. } = members.swap_remove(0);
        let first = Member::start_in(&served, "a", &[], folder);
        first.wait_active();
        let mut client = first.client();
        let found = std::iter::from_fn(|| client.reserve(Some(0)).expect("a reply"));
        assert_eq!(found.map(|job| job.id).collect::<Vec<_>>(), ids[1..]);
    }
}

#[test]
fn two_etcd_clusters_in_one_url_are_refused() {
    let (served, other) = (Served::start(), Served::start());
    let url = format!("etcd://{},{}/q", served.address, other.address);
    for more in [&["--journal", &url, "--node", "a"][..], &["--journal", &url, "--node", "b"]] {
        let member = Member::start(&served, "x", more);
        member.daemon.wait_log("are different clusters");
        assert!(!member.serves());
    }
    assert_eq!((served.engine().entries(), other.engine().entries()), (0, 0));
    let asked = run(&["cluster", "status", &url]);
    assert!(asked.code != 0 && asked.err.contains("are different clusters"), "{asked:?}");
}

#[test]
fn a_second_server_of_the_same_name_is_reported() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let second = Member::start(&served, "a", &[]);
    let problem = format!("the server at {} is named a too", second.beanstalk);
    first.daemon.wait_log(&problem);
    let problem = format!("the server at {} is named a too", first.beanstalk);
    second.daemon.wait_log(&problem);
}

#[test]
fn a_server_that_was_active_last_does_not_relay_to_itself() {
    let served = Served::start();
    // Listens at the address that `a` advertises, to which other servers relay connections when `a` is active.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let first = Member::start(&served, "a", &["--advertise", &address]);
    first.wait_active();
    let again = Member::start_in(&served, "a", &["--relay", "--advertise", &address], first.kill());
    again.daemon.wait_log("a at ");
    let mut client = TcpStream::connect(again.beanstalk).expect("a relay");
    client.set_read_timeout(Some(Duration::from_secs(3))).expect("a socket");
    // A server that is not active must close the connection immediately, instead of relaying it to itself.
    let _ = client.read(&mut [0]);
    listener.set_nonblocking(true).expect("a socket");
    assert!(listener.accept().is_err(), "the server relayed the connection to itself");
}

#[test]
fn a_wiped_etcd_is_refused_with_advice() {
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    first.client().put(b"x", 0, 0, 60).expect("a job");
    let second = Member::start(&served, "b", &[]);
    let held = first.figure("journal-entry");
    wait_until("b has caught up", || second.get("/metrics").1.contains(&format!("\nbeanpole_journal_entry {held}\n")));
    let folder = first.kill();
    served.engine().wipe();
    second.daemon.wait_log("etcd was wiped or restored; see \"Loss of etcd\" in beanpole-cluster(7)");
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
    let alone = Daemon::start(&["-b", jobs.to_str().expect("a UTF-8 path")]);
    assert_eq!(alone.client().figure("stats", "current-jobs-ready").expect("a figure"), "1");
}
