//! Tests `work`, which runs a command for each job. No crash of a process may lose a job.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::daemon::{run_command, wait_until, Daemon, Folder, Signal, PATIENCE};
use crate::support::{ctl, with_both, Server};
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// A worker process, killed when dropped.
pub struct Running(pub Child);

impl Running {
    pub fn start(mut command: Command) -> Running {
        Running(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program"))
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).expect("a child process");
    }

    pub fn code(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until("the worker ends", || {
            status = self.0.try_wait().expect("a child");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn the_command_receives_the_body_and_the_job_s_properties() {
    with_both(|server| {
        server.ok(&["put", "-t", "mail", "--", "$(touch /tmp/never); `false` \"'", "-x --help"]);
        let script = "cat; echo \"|$BEANPOLE_JOB_ID|$BEANPOLE_JOB_TUBE|$BEANPOLE_JOB_RESERVES|$1\"";
        let ended = server.run(&["work", "mail", "other", "-w", "0", "--", "sh", "-c", script, "sh", "--once"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let expected = "$(touch /tmp/never); `false` \"'|1|mail|1|--once\n-x --help|2|mail|1|--once\n";
        assert_eq!(ended.out, expected);
        let line = ended.err.lines().find_map(|line| line.strip_prefix("beanpole: job 1 of mail: done after "));
        assert!(line.is_some_and(|line| line.ends_with(" s; deleted")), "{}", ended.err);
        assert_eq!(server.figure("stats", "current-jobs-ready"), "0");
    });
}

#[test]
fn a_hanging_job_can_be_revoked_and_its_command_is_killed() {
    let server = Server::beanpole(&[]);
    let folder = Folder::new();
    let mark = folder.file("begun");
    server.ok(&["put", "-t", "mail", "-r", "6", "x"]);
    let script = format!("echo $$ >> {}; exec sleep 1000", mark.display());
    let mut worker = Running::start(server.command(&["work", "mail", "--once", "--", "sh", "-c", &script]));
    wait_until("the command has begun", || lines(&mark).len() == 1);
    let shown = server.ok(&["connections"]);
    let line = shown.lines().find(|line| line.contains("working")).unwrap_or_else(|| panic!("{shown}"));
    assert!(line.contains("\t1\tmail\t") && line.ends_with("\tmail"), "{shown}");
    let json = server.ok(&["connections", "--json"]);
    assert!(json.contains("\"job\":1,\"job-tube\":\"mail\""), "{json}");
    server.ok(&["revoke", "1"]);
    assert_eq!(worker.code(), Some(1), "the worker has lost its job");
    let pid = lines(&mark)[0].parse().expect("a process id");
    wait_until("the command has exited", || kill(Pid::from_raw(pid), None).is_err());
    assert_eq!((server.figure("stats-job 1", "state"), server.figure("stats-job 1", "last-error")).0, "buried");
    let refused = server.run(&["revoke", "1"]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("job 1 is buried, not reserved"), "{}", refused.err);
}

/// The command does not read its input, which is larger than a pipe's buffer. The write must not block the worker.
#[test]
fn a_command_can_ignore_its_input() {
    let server = Server::beanpole(&["-z", "8M"]);
    let mut client = server.daemon.client();
    client.put(&vec![b'x'; 8 << 20], 0, 0, 60).expect("a job");
    client.put(&vec![b'y'; 8 << 20], 0, 0, 60).expect("a job");
    let quiet = server.run(&["work", "-q", "-w", "0", "--", "true"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
    client.put(&vec![b'z'; 5 << 20], 0, 0, 60).expect("a job");
    let counted = server.run(&["work", "--once", "--", "sh", "-c", "wc -c"]);
    assert_eq!(counted.out.trim(), (5 << 20).to_string());
}

#[test]
fn failed_jobs_are_retried_and_then_buried() {
    with_both(|server| {
        server.ok(&["put", "bad", "-p", "77"]);
        let line = ["work", "-w", "3", "--retries", "2", "--backoff", "0", "--", "sh", "-c", "exit 3"];
        let ended = server.run(&line);
        assert_eq!(ended.code, 0);
        let lines: Vec<&str> = ended.err.lines().collect();
        assert_eq!(lines.len(), 3, "{}", ended.err);
        assert!(lines[0].contains("exit 3 after") && lines[0].ends_with("try 2 in 0 s"), "{}", lines[0]);
        assert!(lines[2].ends_with("buried after try 3"), "{}", lines[2]);
        assert_eq!((server.count("default", "buried"), server.figure("stats-job 1", "pri")), (1, "77".to_owned()));
        // Kicking a job resets the number of its failed attempts.
        server.ok(&["kick", "1"]);
        let again = server.run(&line);
        assert_eq!(again.err.lines().count(), 3, "{}", again.err);
        let delayed = server.run(&["kick", "1"]).code;
        assert_eq!(delayed, 0);
        let late = server.run(&["work", "--once", "--backoff", "500", "--", "false"]);
        assert_eq!(late.code, 1, "{}", late.err);
        assert!(late.err.contains("exit 1 after") && late.err.contains("try 2 in 500 s"), "{}", late.err);
        assert_eq!(server.count("default", "delayed"), 1);
        let none = server.run(&["work", "--once", "-w", "0", "--", "true"]);
        assert_eq!(none.code, 2);
    });
}

#[test]
fn the_reason_of_a_failure_is_kept() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "-t", "mail", "x"]);
    let worked =
        server.run(&["work", "mail", "--once", "--retries", "0", "--", "sh", "-c", "echo no such host >&2; exit 3"]);
    assert_eq!(worked.code, 1, "{}", worked.err);
    assert!(worked.err.contains("no such host\n") && worked.err.contains("buried after try 1"), "{}", worked.err);
    assert!(server.ok(&["stats", "-i", "1"]).contains("last-error\texit 3: no such host\n"));
    assert!(server.ok(&["list", "mail"]).ends_with("\texit 3: no such host\tx\n"));
}

#[test]
fn the_settings_of_a_tube_decide_when_a_job_is_tried_again() {
    let server = Server::beanpole(&[]);
    server.ok(&["tube", "mail", "try:2:1000", "dead:mail-dead"]);
    assert_eq!(server.ok(&["tube", "mail"]), "try:2:1000 dead:mail-dead\n");
    server.ok(&["put", "-t", "mail", "x"]);
    let fail = || server.run(&["work", "mail", "--once", "--", "false"]);
    let first = fail();
    assert!(first.err.contains("exit 1") && first.err.contains("try 2 in 1"), "{}", first.err);
    server.ok(&["kick", "-t", "mail"]);
    assert!(fail().err.contains("try 2 in 1"), "a kick must reset the number of tries");
    server.ok(&["kick", "-t", "mail"]);
    server.ok(&["tube", "mail", "try:1", "dead:mail-dead"]);
    assert!(fail().err.contains("buried"));
    assert!(server.ok(&["stats", "-i", "1"]).contains("dead-from\tmail\n"));
    server.ok(&["tube", "mail", "--none"]);
    assert_eq!(server.run(&["tube", "mail"]).code, 1, "the tube must not exist");
    assert_eq!(server.run(&["tube", "mail", "try:0"]).code, 5);
}

#[test]
fn a_job_is_touched_while_its_command_runs() {
    with_both(|server| {
        server.ok(&["put", "-r", "6", "slow"]);
        let ended = server.run(&["work", "--once", "--", "sleep", "7"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.err.contains("; deleted"), "{}", ended.err);
        assert_eq!(server.figure("stats", "job-timeouts"), "0");
    });
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_its_children() {
    let folder = Folder::new();
    let file = folder.file("pid");
    with_both(|server| {
        server.ok(&["put", "slow"]);
        let script = format!("sleep 600 & echo $! >{}; wait", file.display());
        let ended = server.run(&["work", "--once", "--max-time", "1", "--", "sh", "-c", &script]);
        assert_eq!(ended.code, 1);
        assert!(ended.err.contains("killed after 1 s") && ended.err.contains("try 2 in 1 s"), "{}", ended.err);
        let pid = lines(&file)[0].clone();
        wait_until("the child of the command has exited", || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.is_empty() || stat.contains(") Z ")
        });
    });
}

#[test]
fn the_first_signal_waits_for_the_job_and_the_second_does_not() {
    let folder = Folder::new();
    with_both(|server| {
        let begun = folder.file("begun");
        let go = folder.file("go");
        let script = format!("echo x >>{}; while ! test -e {}; do sleep 0.01; done", begun.display(), go.display());
        for (twice, tube) in [(false, "once"), (true, "twice")] {
            let _ = (fs::remove_file(&begun), fs::remove_file(&go));
            server.ok(&["put", "-t", tube, "job"]);
            let mut worker = Running::start(server.command(&["work", tube, "-j", "4", "--", "sh", "-c", &script]));
            wait_until("the command has begun", || begun.exists());
            worker.signal(Signal::SIGTERM);
            wait_until("the other workers have disconnected", || {
                server.figure(&format!("stats-tube {tube}"), "current-watching") == "1"
            });
            server.ok(&["put", "-t", tube, "not taken any more"]);
            assert_eq!(server.count(tube, "reserved"), 1);
            if twice {
                worker.signal(Signal::SIGINT);
            } else {
                fs::write(&go, "").expect("a file");
            }
            assert_eq!(worker.code(), Some(0));
            assert_eq!((server.count(tube, "ready"), server.count(tube, "reserved")), (if twice { 2 } else { 1 }, 0));
        }
    });
}

#[test]
fn a_stopped_worker_reports_that_the_last_try_is_over() {
    let (server, folder) = (Server::beanpole(&[]), Folder::new());
    server.ok(&["tube", "mail", "try:1"]);
    server.ok(&["put", "-t", "mail", "job"]);
    let begun = folder.file("begun");
    let script = format!("touch {}; sleep 1000", begun.display());
    let mut command = server.command(&["work", "mail", "--", "sh", "-c", &script]);
    let mut worker = Running(command.stderr(Stdio::piped()).spawn().expect("the program"));
    wait_until("the command has begun", || begun.exists());
    worker.signal(Signal::SIGTERM);
    // Sends a different signal, because a signal that is already pending is delivered only once.
    worker.signal(Signal::SIGINT);
    assert_eq!((worker.code(), server.count("mail", "buried")), (Some(0), 1));
    let mut told = String::new();
    worker.0.stderr.take().expect("a pipe").read_to_string(&mut told).expect("text");
    assert!(told.contains(": stopped after") && told.contains("; buried after try 1"), "{told}");
}

/// If a signal kills the command, the attempt has failed, but the job must not be lost.
#[test]
fn a_killed_command_loses_no_job() {
    with_both(|server| {
        server.ok(&["put", "job"]);
        let ended = server.run(&["work", "--once", "--", "sh", "-c", "kill -9 $$"]);
        assert_eq!(ended.code, 1);
        assert!(ended.err.contains("killed by signal 9") && ended.err.contains("try 2 in 1 s"), "{}", ended.err);
        assert_eq!(server.count("default", "delayed"), 1);
    });
}

/// The test repeatedly kills the worker. In the end, all jobs must have been processed.
#[test]
fn a_killed_worker_loses_no_job() {
    let folder = Folder::new();
    with_both(|server| {
        let done = folder.file("done");
        let _ = fs::remove_file(&done);
        let input: String = (0..60).map(|number| format!("{number}\n")).collect();
        assert_eq!(server.feed(&["put", "--lines"], input.as_bytes()).code, 0);
        let script = format!("read job; sleep 0.01; echo $job >>{}", done.display());
        let line = ["work", "-j", "3", "-q", "--retries", "1000", "--backoff", "0", "--", "sh", "-c", &script];
        for _ in 0..5 {
            let before = lines(&done).len();
            let worker = Running::start(server.command(&line));
            wait_until("a job is done", || lines(&done).len() > before);
            worker.signal(Signal::SIGKILL);
        }
        wait_until("no job is reserved", || server.figure("stats", "current-jobs-reserved") == "0");
        let mut line = line.to_vec();
        line.splice(1..1, ["-w", "0"]);
        // The server releases the jobs of a killed worker when it notices the disconnection. By then, another worker
        // may already have exited because it found no job.
        wait_until("each job was done at least once", || {
            assert_eq!(server.run(&line).code, 0);
            lines(&done).into_iter().collect::<std::collections::BTreeSet<String>>().len() == 60
        });
        assert_eq!(server.figure("stats", "current-jobs-ready"), "0");
    });
}

/// The test kills the server while the worker's command runs. The worker must reconnect and process the job again.
#[test]
fn a_killed_server_loses_no_job() {
    let folder = Folder::new();
    let binlog = folder.file("log");
    fs::create_dir(&binlog).expect("a directory");
    let binlog = binlog.display().to_string();
    let socket = format!("unix:{}", folder.file("socket").display());
    let (done, go) = (folder.file("done"), folder.file("go"));
    let start = || Daemon::start(&["-l", &socket, "-b", &binlog, "-f0"]);
    let server = start();
    let put = run_command(ctl(&socket, &["put", "a", "b", "c"]));
    assert_eq!(put.out, "1\n2\n3\n");
    let script =
        format!("read job; echo $job >>{}; while ! test -e {}; do sleep 0.01; done", done.display(), go.display());
    let mut worker = Running::start(ctl(&socket, &["work", "-q", "--backoff", "0", "--", "sh", "-c", &script]));
    wait_until("a job runs", || lines(&done).len() == 1);
    server.signal(Signal::SIGKILL);
    drop(server);
    let server = start();
    fs::write(&go, "").expect("a file");
    wait_until("no job is ready", || {
        server.client().figure("stats", "current-jobs-ready").is_ok_and(|left| left == "0")
    });
    wait_until("no job is reserved", || {
        server.client().figure("stats", "current-jobs-reserved").is_ok_and(|left| left == "0")
    });
    let mut seen = lines(&done);
    assert_eq!(seen.len(), 4, "only the job that ran during the kill must run again: {seen:?}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["a", "b", "c"]);
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.code(), Some(0));
    server.signal(Signal::SIGTERM);
    assert_eq!(server.wait(PATIENCE), 0);
}

/// If the command cannot be started, the job must not lose an attempt.
#[test]
fn a_command_that_disappears_stops_the_worker() {
    let folder = Folder::new();
    let script = folder.file("script");
    // If this process wrote the script, a child process of another test could inherit the open file, and an open file
    // cannot be executed.
    let write = r#"echo '#!/no/such/interpreter' >"$0" && chmod 755 "$0""#;
    assert!(Command::new("sh").args(["-c", write]).arg(&script).status().expect("a shell").success());
    let server = Server::beanpole(&[]);
    server.ok(&["put", "job"]);
    let ended = server.run(&["work", "--backoff", "0", "--", script.to_str().expect("a plain path")]);
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("script: No such file"), "{}", ended.err);
    assert_eq!(server.count("default", "ready"), 1);
}
