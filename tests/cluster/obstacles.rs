//! Tests, with the real program, obstacles that must not prevent a takeover or the forwarding of clients.
//!
//! Owns slow disks, disks without space for new files, emptied directories, and relays that cannot make a copy or reach
//! themselves.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;

use super::daemon::{can_preload, shell, wait_until, Daemon, Folder, Signal, PATIENCE};
use super::engine::Served;
use super::member::{free_address, Clocks, Member};

/// A takeover takes longer than a lease, because it syncs several files.
#[test]
fn a_server_with_a_slow_disk_becomes_active() {
    if !can_preload() {
        return;
    }
    let (served, clocks) = (Served::start(), Clocks::new());
    clocks.delay_syncs(Duration::from_millis(300));
    let member = clocks.start(&served, "a");
    member.daemon.wait_log("active as a, epoch ");
    member.wait_active();
    assert_eq!(member.figure("epoch"), "1", "{}", member.daemon.log());
}

#[test]
fn a_standby_whose_disk_has_no_space_for_new_files_takes_over() {
    if !can_preload() {
        return;
    }
    let (served, clocks) = (Served::start(), Clocks::new());
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let id = first.client().put(b"x", 0, 0, 60).expect("a job");
    let second = clocks.start(&served, "b");
    let held = first.figure("journal-entry");
    wait_until("b has caught up", || second.get("/metrics").1.contains(&format!("\nbeanpole_journal_entry {held}\n")));
    clocks.refuse_files(Errno::ENOSPC);
    first.daemon.signal(Signal::SIGKILL);
    second.wait_active();
    assert_eq!(second.figure("epoch"), "2", "{}", second.daemon.log());
    assert!(second.folder.file("jobs").join("journal.active").exists());
    second.client().delete(id).expect("the job");
}

#[test]
fn a_relay_without_a_copy_forwards_clients_to_the_active_server() {
    let folder = Folder::new();
    let path = folder.file("jobs");
    let alone = Daemon::start(&["-b", path.to_str().expect("a UTF-8 path")]);
    alone.client().put(b"x", 0, 0, 60).expect("a job");
    alone.signal(Signal::SIGTERM);
    assert_eq!(alone.wait(PATIENCE), 0);
    let served = Served::start();
    let first = Member::start(&served, "a", &[]);
    first.wait_active();
    let second = Member::start_in(&served, "b", &["--relay"], folder);
    second.daemon.wait_log("is not of this journal");
    second.daemon.wait_log("a at ");
    assert_eq!(second.figure("pid"), first.daemon.pid().to_string());
}

/// In a new network namespace, the loopback interface is down.
#[test]
fn a_relay_that_cannot_connect_to_itself_stops() {
    if !Command::new("unshare").args(["-n", "true"]).status().is_ok_and(|status| status.success()) {
        println!("skipped: no permission to create a network namespace");
        return;
    }
    let (listener, folder) = (TcpListener::bind(free_address()).expect("a port"), Folder::new());
    let jobs = folder.file("jobs").to_string_lossy().into_owned();
    let options = ["--journal", "etcd://127.0.0.1:1/q", "--node", "a", "--relay", "-l", "0.0.0.0:11300", "-b", &jobs];
    // The test cannot connect to the server, so the daemon gets an address of the test.
    let address = listener.local_addr().expect("an address");
    let daemon = Daemon::spawn_at(shell("exec unshare -n \"$0\" \"$@\"", &options), address);
    daemon.wait_log("standing by as a");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(Duration::from_secs(60)), 0);
}

// Tests promise P35 of beanpole-promises(7).
#[test]
fn an_emptied_or_replaced_directory_does_not_replace_the_queue() {
    for loss in ["emptied", "replaced", "restored"] {
        let served = Served::start();
        let member = Member::start(&served, "a", &[]);
        member.wait_active();
        let mut client = member.client();
        client.put(b"x", 0, 0, 60).expect("a job");
        let jobs = member.folder.file("jobs");
        let names = || std::fs::read_dir(&jobs).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        let backup = names().find(|name| name.to_string_lossy().starts_with("segment.")).expect("a segment");
        std::fs::copy(jobs.join(&backup), member.folder.file("backup")).expect("a backup");
        let ids: Vec<u64> = (0..9).map(|_| client.put(b"x", 0, 0, 60).expect("a job")).collect();
        match loss {
            "replaced" => {
                std::fs::rename(&jobs, member.folder.file("elsewhere")).expect("a directory");
                std::fs::create_dir(&jobs).expect("a directory");
            }
            _ => names().for_each(|name| std::fs::remove_file(jobs.join(name)).expect("a file")),
        }
        if loss == "restored" {
            std::fs::copy(member.folder.file("backup"), jobs.join(&backup)).expect("a backup");
        }
        member.daemon.wait_log("this server stops being active");
        if loss == "restored" {
            member.daemon.wait_log("holds a binlog that is not of this journal; move it away");
            assert!(!member.serves());
            continue;
        }
        member.daemon.wait_log("active as a, epoch 2");
        member.wait_active();
        assert_eq!(member.figure("current-jobs-ready"), "10", "{loss}");
        assert!(member.client().put(b"y", 0, 0, 60).expect("a job") > ids[8], "{loss}");
    }
}
