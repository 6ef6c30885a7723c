//! Tests draining with SIGUSR1, reloading with SIGHUP, and signals that must have no effect.

use beanpole::Client;

use super::daemon::{run, shell, Daemon, Folder, Signal, PATIENCE};

const DRAINING: &str = "the server answered DRAINING";

fn drain(daemon: &Daemon) {
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_log("draining");
}

fn refuses(client: &mut Client) {
    assert_eq!(client.put(b"x", 0, 0, 60).unwrap_err().to_string(), DRAINING);
    assert_eq!(client.figure("stats", "draining").unwrap(), "true");
}

#[test]
fn usr1_refuses_new_jobs_and_serves_existing_ones() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    assert_eq!(client.figure("stats", "draining").unwrap(), "false");
    let id = client.put(b"x", 0, 0, 60).unwrap();
    drain(&daemon);
    refuses(&mut client);
    refuses(&mut daemon.client());
    assert_eq!(client.reserve(Some(0)).unwrap().expect("a job").id, id);
    client.release(id, 0, 0).unwrap();
    client.delete(id).unwrap();
    assert_eq!(client.figure("stats", "total-jobs").unwrap(), "1");
}

#[test]
fn usr1_cannot_be_undone() {
    let daemon = Daemon::start(&[]);
    drain(&daemon);
    let mut client = daemon.client();
    for _ in 0..3 {
        daemon.signal(Signal::SIGUSR1);
        refuses(&mut client);
    }
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
}

#[test]
fn a_put_in_progress_is_refused_too() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    // The reply to the first command shows that the incomplete put, sent in the same write, has arrived as well.
    client.send(b"list-tube-used\r\nput 0 0 60 5\r\nhel").unwrap();
    assert_eq!(client.line().unwrap(), "USING default");
    drain(&daemon);
    client.send(b"lo\r\n").unwrap();
    assert_eq!(client.line().unwrap(), "DRAINING");
    refuses(&mut client);
    assert_eq!(client.figure("stats", "total-jobs").unwrap(), "0");
}

/// While the server drains, a waiting worker must still receive delayed and released jobs.
#[test]
fn workers_continue_to_wait_while_the_server_drains() {
    let daemon = Daemon::start(&[]);
    let (mut holder, mut worker) = (daemon.client(), daemon.client());
    holder.put(b"x", 0, 0, 60).unwrap();
    let job = holder.reserve(Some(0)).unwrap().expect("a job");
    worker.send(b"reserve\r\n").unwrap();
    drain(&daemon);
    holder.release(job.id, 0, 0).unwrap();
    assert_eq!(worker.line().unwrap(), "RESERVED 1 1");
}

/// A program that is started under nohup or as a background job of a shell inherits ignored signals. These signals must
/// remain ignored.
#[test]
fn a_server_under_nohup_survives_sighup() {
    let daemon = Daemon::spawn(shell("trap '' HUP; exec \"$0\" \"$@\"", &["-p", "0"]));
    daemon.signal(Signal::SIGHUP);
    let mut client = daemon.client();
    client.put(b"x", 0, 0, 60).unwrap();
    drain(&daemon);
    refuses(&mut client);
    assert!(daemon.runs() && !daemon.log().contains("stopping"), "{}", daemon.log());
}

#[test]
fn sigpipe_and_sigstop_do_not_stop_the_server() {
    let daemon = Daemon::start(&[]);
    let mut client = daemon.client();
    for signal in [Signal::SIGPIPE, Signal::SIGSTOP, Signal::SIGCONT] {
        daemon.signal(signal);
    }
    for _ in 0..20 {
        // Disconnects without reading the replies, which the server then writes to a closed connection.
        daemon.client().send(b"stats\r\nstats\r\nstats\r\n").unwrap();
    }
    client.put(b"x", 0, 0, 60).unwrap();
    assert!(daemon.runs());
}

#[test]
fn the_order_of_the_lines_in_a_tube_file_does_not_matter() {
    let folder = Folder::new();
    let (file, lines) = (folder.file("tubes"), (0..17).map(|tube| format!("t{tube} dead:t{}\n", tube + 1)));
    let name = file.display().to_string();
    for (long, short) in [
        (lines.clone().collect::<String>(), lines.clone().take(16).collect::<String>()),
        (lines.clone().rev().collect(), lines.rev().skip(1).collect()),
    ] {
        std::fs::write(&file, long).unwrap();
        let ended = run(&["-p", "0", "--tubes", &name]);
        assert!(ended.code == 1 && ended.err.contains("a chain of more than 16 tubes"), "{ended:?}");
        std::fs::write(&file, short).unwrap();
        let daemon = Daemon::start(&["--tubes", &name]);
        // If the settings were applied to one tube at a time, the first three lines would form cycles with old
        // settings.
        std::fs::write(&file, "t3 dead:t0\nt2 dead:t3\nt1 dead:t2\nt0 max:1\n").unwrap();
        daemon.signal(Signal::SIGHUP);
        daemon.wait_log("configuration files reloaded");
        assert_eq!(daemon.client().figure("stats-tube t3", "settings").unwrap(), "\"dead:t0\"");
        std::fs::write(&file, "t0 dead:t1\n").unwrap();
        daemon.signal(Signal::SIGHUP);
        daemon.wait_log("tube t0: the dead-letter tubes would form a cycle");
    }
}

#[test]
fn tube_settings_are_read_at_the_start_and_on_sighup() {
    let folder = Folder::new();
    let (file, binlog) = (folder.file("tubes"), folder.file("binlog").display().to_string());
    let name = file.display().to_string();
    std::fs::write(&file, "# retries\nmail try:5:10 dead:mail-dead\nkept max:3\n").unwrap();
    let daemon = Daemon::start(&["-b", &binlog, "--tubes", &name]);
    let mut client = daemon.client();
    assert_eq!(client.figure("stats-tube mail", "settings").unwrap(), "\"try:5:10 dead:mail-dead\"");
    std::fs::write(&file, "mail ttl:60\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log("configuration files reloaded");
    assert_eq!(client.figure("stats-tube mail", "settings").unwrap(), "\"ttl:60\"");
    assert_eq!(client.figure("stats-tube kept", "settings").unwrap(), "\"max:3\"");
    std::fs::write(&file, "mail ttl:0\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log("line 1: invalid settings: mail ttl:0; keeping the previous configuration");
    // Opening a FIFO for reading blocks until another process opens the FIFO for writing, even if a signal arrives.
    std::fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log("not a regular file");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, "mail ttl:0\n").unwrap();
    let ended = run(&["-p", "0", "--tubes", &name]);
    assert!(ended.code == 1 && ended.err.contains("line 1: invalid settings"), "{ended:?}");
    let daemon = Daemon::start(&["-b", &binlog]);
    assert_eq!(daemon.client().figure("stats-tube mail", "settings").unwrap(), "\"ttl:60\"");
}
