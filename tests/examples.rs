//! Runs the examples in `examples/` as users do: fixtures, producers, workers and adapters in several languages.
//!
//! An example whose language or library is missing is skipped with a message, unless the variable `EXAMPLES_TOOLS` is
//! set to a directory with all dependencies. `tests/compat/examples` prepares this directory. If it could not reach a
//! proxy for Go modules, only the Go worker is skipped.

mod daemon;
/// The test suite in Rust runs in this process.
#[path = "../examples/rust/queue_test.rs"]
mod queue_test;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use beanpole::Client;
use daemon::{program, wait_until, Daemon, Folder};

/// Returns the directory of dependencies if `tests/compat/examples` runs the test.
fn tools() -> Option<PathBuf> {
    std::env::var_os("EXAMPLES_TOOLS").map(PathBuf::from)
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

/// Returns a command that runs in the directory of an example, with the directory of beanpole in its PATH.
fn command(folder: &str, words: &[&str]) -> Command {
    let own = daemon::path();
    let path = tools().map(|tools| tools.join("venv/bin")).into_iter().chain(std::env::split_paths(&own));
    let path = std::env::join_paths(path).expect("a path");
    // `Command` looks up programs in the PATH of the test process. env(1) looks them up in the changed PATH.
    let mut command = Command::new("env");
    command.arg(format!("PATH={}", path.to_str().expect("text"))).args(words).current_dir(example(folder));
    command.env("BEANPOLE", program()).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Reports a skipped test. The test harness would discard the output of `eprintln` if the test passes.
fn skip(reason: &str) {
    writeln!(std::io::stderr(), "skipped: {reason}").expect("a standard error");
}

fn is_installed(name: &str, words: &[&str]) -> bool {
    let run = command("", words).output().expect("env");
    if !run.status.success() {
        let problem = format!("{name}: {words:?}: {}", String::from_utf8_lossy(&run.stderr));
        assert!(tools().is_none(), "{problem}");
        skip(&problem);
    }
    run.status.success()
}

fn passes(command: &mut Command) -> Output {
    let run = command.env("BEANPOLE", program()).output().expect("an executable program");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{command:?}: {}\n{out}{err}", run.status);
    run
}

/// A worker process, killed when dropped.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The directory, producer, worker and test fixture of each language. For shell, the fixture is a file for make.
const PARTS: [(&str, [&str; 3]); 7] = [
    ("python", ["producer.py", "worker.py", "test_queue.py"]),
    ("ruby", ["producer.rb", "worker.rb", "queue_test.rb"]),
    ("php", ["producer.php", "worker.php", "queue_test.php"]),
    ("node", ["producer.mjs", "worker.mjs", "queue.test.mjs"]),
    ("go", ["main.go", "client.go", "queue_test.go"]),
    ("rust", ["producer.rs", "worker.rs", "queue_test.rs"]),
    ("shell", ["producer.sh", "worker.sh", "queue.mk"]),
];

#[test]
fn each_language_has_a_producer_a_worker_and_a_test_fixture() {
    let [page, tests] = ["examples/README.md", file!()].map(|path| std::fs::read_to_string(path).expect("a text"));
    for (folder, parts) in PARTS {
        assert!(page.contains(&format!("| [{folder}]({folder}) |")), "examples/README.md has no row for {folder}");
        for part in parts {
            assert!(example(folder).join(part).exists(), "examples/{folder}: there is no {part}");
        }
        let fixture = format!("{folder}/{}", parts[2]);
        assert!(page.contains(&format!("({fixture})")), "examples/README.md does not mention {fixture}");
        // `PARTS` is not a use.
        let uses = tests.matches(parts[2]).count() - 1;
        assert!(uses > 0, "no test runs {fixture}");
    }
}

#[test]
fn suites_of_other_languages_get_separate_queues() {
    for (folder, words) in [
        ("python", &["python3", "test_queue.py"][..]),
        ("ruby", &["ruby", "queue_test.rb"]),
        ("php", &["php", "queue_test.php"]),
        ("node", &["node", "--test", "queue.test.mjs"]),
    ] {
        if is_installed(folder, &[words[0], "--version"]) {
            passes(&mut command(folder, words));
        }
    }
    if is_installed("go", &["go", "version"]) {
        let folder = Folder::new();
        let mut go = Command::new("go");
        go.args(["test", "-count=1"]).arg(example("go/queue_test.go"));
        go.env("GOCACHE", folder.file("cache")).env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
        passes(go.current_dir(folder.file("")));
    }
}

/// Like beanstalkd, a server without extensions executes the body of a job with tags as commands.
fn refuses_a_server_without_extensions(name: &str, producer: &dyn Fn() -> Command) {
    let daemon = Daemon::start(&["--no-extensions"]);
    let mut producer = producer();
    producer.args(["key", "x\r\nput 0 0 60 1\r\ny"]).env("BEANPOLE_SERVER", daemon.address().to_string());
    let run = producer.output().expect("an executable program");
    assert!(!run.status.success(), "{name}: {}", String::from_utf8_lossy(&run.stdout));
    assert_eq!(daemon.client().figure("stats", "total-jobs").expect("statistics"), "0", "{name}");
}

/// Tests a producer and a worker as examples/README.md describes them: deduplication by key, retries with backoff, dead
/// letters, expired reservations, and a restart of the server.
fn work(name: &str, producer: &dyn Fn() -> Command, mut worker: Command) {
    refuses_a_server_without_extensions(name, producer);
    let folder = Folder::new();
    let log = folder.file("worker");
    let jobs = format!("-b{}", folder.file("").display());
    let daemon = Daemon::start(&[&jobs]);
    let server = daemon.address().to_string();
    worker.env("BEANPOLE_SERVER", &server).stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let worker = Worker(worker.spawn().expect("a worker"));
    let mut client = daemon.client();
    let put = |key: &str, body: &str| {
        let run = passes(producer().args([key, body]).env("BEANPOLE_SERVER", &server));
        String::from_utf8_lossy(&run.stdout).trim().to_owned()
    };
    let reads = |client: &mut Client, id: u64, key: &str| {
        client.figure(&format!("stats-job {id}"), key).unwrap_or_default().trim_matches('"').to_owned()
    };
    wait_until(&format!("{name}: the worker changes the settings"), || {
        client.figure("stats-tube mail", "settings").is_ok_and(|settings| settings.contains("try:5:10"))
    });

    // Waits until the worker watches only the tube `mail`.
    wait_until(&format!("{name}: the worker waits"), || {
        client.figure("stats-tube mail", "current-waiting").unwrap() == "1"
    });
    assert_eq!(client.figure("stats-tube default", "current-waiting").unwrap(), "0", "{name}");

    assert_eq!(put("welcome-7", "alice@example.org"), "1", "{name}");
    wait_until(&format!("{name}: job 1 is done"), || client.peek(1).is_err());
    assert_eq!(put("welcome-7", "alice@example.org"), "1", "{name}: the key outlives the job");

    // With a long backoff, the test can inspect the job before the second attempt.
    client.set_tube("mail", "try:5:3600 dead:mail-dead").unwrap();
    assert_eq!(put("welcome-8", "nobody"), "2", "{name}");
    wait_until(&format!("{name}: job 2 fails"), || reads(&mut client, 2, "fails") == "1");
    assert_eq!(reads(&mut client, 2, "state"), "delayed", "{name}");
    let reason = reads(&mut client, 2, "last-error");
    assert!(reason.ends_with("not an address: nobody"), "{name}: {reason}");

    client.set_tube("mail", "try:1 dead:mail-dead").unwrap();
    assert_eq!(put("welcome-9", "nobody"), "3", "{name}");
    wait_until(&format!("{name}: job 3 is buried"), || reads(&mut client, 3, "state") == "buried");
    assert_eq!(reads(&mut client, 3, "tube"), "mail-dead", "{name}");
    assert_eq!(reads(&mut client, 3, "dead-from"), "mail", "{name}");
    assert_eq!(put("welcome-10", "bob@example.org"), "4", "{name}");
    wait_until(&format!("{name}: job 4 is done"), || client.peek(4).is_err());
    if name != "shell" {
        assert_eq!(client.figure("stats", "cmd-touch").unwrap(), "2", "{name}");
    }

    client.use_tube("mail").unwrap();
    fails_at_bytes(name, &mut client);
    client.set_tube("mail", "try:5 dead:mail-dead").unwrap();
    loses_a_job(name, &mut client, &worker, &log);
    drop(daemon);
    let daemon = Daemon::start(&[&jobs, "-p", server.rsplit(':').next().unwrap()]);
    let mut client = daemon.client();
    client.use_tube("mail").unwrap();
    let id = client.put(b"dave@example.org", 0, 0, 60).unwrap();
    wait_until(&format!("{name}: the worker connects again"), || client.peek(id).is_err());
}

/// Puts jobs that are not text, in a tube whose jobs have one try. The worker must report the failures: a worker that
/// crashes leaves no reason.
fn fails_at_bytes(name: &str, client: &mut Client) {
    for body in [&b"caf\xe9"[..], b"\xff\xfe\r\n", b"\xed\xa0\x80", b"\0", b""] {
        let id = client.put(body, 0, 0, 60).unwrap();
        wait_until(&format!("{name}: the job {body:?} is buried"), || {
            client.figure(&format!("stats-job {id}"), "state").is_ok_and(|state| state == "buried")
        });
        let reason = client.figure(&format!("stats-job {id}"), "last-error");
        assert!(reason.is_ok(), "{name}: there is no reason for the failure of the job {body:?}");
    }
}

/// Suspends the worker until its reservation has expired. The worker must report the loss and continue.
fn loses_a_job(name: &str, client: &mut Client, worker: &Worker, log: &Path) {
    let signal = |signal: &str| passes(Command::new("kill").args([signal, &worker.0.id().to_string()]));
    wait_until(&format!("{name}: the worker waits"), || {
        client.figure("stats-tube mail", "current-waiting").unwrap() == "1"
    });
    signal("-STOP");
    let id = client.put(b"carol@example.org", 0, 0, 1).unwrap();
    wait_until(&format!("{name}: the reservation expires"), || {
        client.figure(&format!("stats-job {id}"), "timeouts").is_ok_and(|timeouts| timeouts == "1")
    });
    client.delete(id).unwrap();
    signal("-CONT");
    // `beanpole work` reports the second reason.
    let reasons = ["no longer reserved", "time to run"];
    wait_until(&format!("{name}: the worker reports the loss"), || {
        let log = std::fs::read(log).unwrap();
        String::from_utf8_lossy(&log)
            .lines()
            .any(|line| line.contains(&format!("job {id}")) && reasons.iter().any(|reason| line.contains(reason)))
    });
    let id = client.put(b"dave@example.org", 0, 0, 60).unwrap();
    wait_until(&format!("{name}: the worker continues"), || client.peek(id).is_err());
}

#[test]
fn workers_retry_with_reasons_and_producers_put_no_duplicates() {
    let python = &["python3", "-c", "import greenstalk"][..];
    let pheanstalk = &["php", "-r", "(@include 'Pheanstalk/autoload.php') || exit(1);"];
    for (folder, needs, producer, worker) in [
        ("python", python, &["python3", "producer.py"][..], &["python3", "worker.py"][..]),
        ("ruby", &["ruby", "-e", "require 'beaneater'"], &["ruby", "producer.rb"], &["ruby", "worker.rb"]),
        ("php", pheanstalk, &["php", "producer.php"], &["php", "worker.php"]),
        ("node", &["node", "--version"], &["node", "producer.mjs"], &["node", "worker.mjs"]),
        ("shell", &["sh", "-c", ":"], &["./producer.sh"], &["./worker.sh"]),
    ] {
        if is_installed(folder, needs) {
            work(folder, &|| command(folder, producer), command(folder, worker));
        }
    }
}

#[test]
fn the_worker_of_the_readme_retries() {
    if !is_installed("python", &["python3", "-c", "import greenstalk"]) {
        return;
    }
    let readme = std::fs::read_to_string("README.md").unwrap();
    let shown = readme.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a worker");
    let program = format!("def send(address):\n    assert b'@' in address, 'no address'\n\n{shown}");
    let daemon = Daemon::start(&[]);
    let mut worker = command("python", &["python3", "-c", &program]);
    let _worker = Worker(worker.env("BEANPOLE_SERVER", daemon.address().to_string()).spawn().expect("a worker"));
    let mut client = daemon.client();
    client.use_tube("mail").unwrap();
    let done = client.put(b"alice@example.org", 0, 0, 60).unwrap();
    wait_until("the job is done", || client.peek(done).is_err());
    let failed = client.put(b"nobod\xff", 0, 0, 60).unwrap();
    let mut reason = || client.figure(&format!("stats-job {failed}"), "last-error").unwrap_or_default();
    wait_until("the job fails", || reason().contains("AssertionError: no address"));
}

#[test]
fn a_rust_worker_retries_too() {
    // `cargo test` builds the examples, but `cargo test --test examples` does not.
    let own = std::env::current_exe().expect("this program");
    let folder = own.ancestors().nth(2).expect("a directory").join("examples");
    let built = |name: &str| folder.join(name);
    assert!(built("worker").is_file(), "missing examples: run cargo build --examples");
    work("rust", &|| Command::new(built("producer")), Command::new(built("worker")));
}

/// Requires the sources of go-beanstalk, which `tests/compat/go_clients` fetches. With the variable `REQUIRED`, they
/// may be missing only if no proxy for Go modules can be reached.
#[test]
fn a_go_worker_retries_too() {
    let clients = tools().map(|tools| tools.with_file_name("go"));
    let Some(clients) = clients.clone().filter(|clients| clients.join("src").is_dir()) else {
        let is_required = std::env::var_os("REQUIRED").is_some_and(|value| !value.is_empty());
        let is_unreachable = clients.is_none_or(|clients| clients.join("unreachable").exists());
        assert!(is_unreachable || !is_required, "go: the module go-beanstalk was not fetched");
        return skip("go: the module go-beanstalk was not fetched");
    };
    let folder = Folder::new();
    let program = folder.file("mail");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).current_dir(example("go"));
    passes(go.env("GO111MODULE", "off").env("GOFLAGS", "").env("GOPATH", clients));
    let run = |word: &str| {
        let mut command = Command::new(&program);
        command.arg(word);
        command
    };
    work("go", &|| run("put"), run("work"));
}

/// Runs the test suite of an adapter, unless a required command fails.
fn adapter(folder: &str, needs: &[&[&str]], suite: &[&str]) {
    if needs.iter().all(|words| is_installed(folder, words)) {
        passes(&mut command(folder, suite));
    }
}

#[test]
fn a_client_is_tested_with_the_vectors() {
    adapter("python", &[&["python3", "-c", "import greenstalk"]], &["python3", "test_client.py"]);
}

#[test]
fn a_python_client_accepts_any_body_and_reason() {
    if !is_installed("python", &["python3", "-c", "import greenstalk"]) {
        return;
    }
    let code = "from client import Client\n\
        queue = Client()\n\
        queue.set_tube('default', 'try:2:1000')\n\
        for body in (b'caf\\xe9', 'caf\\xe9'):\n\x20\
            queue.put_tagged(body, 'idp:a')\n\x20\
            job = queue.reserve()\n\x20\
            assert job.body == (body if isinstance(body, bytes) else body.encode()), job\n\x20\
            assert queue.fail(job, '\\ud800') >= 1000\n\x20\
            queue.delete(job)\n\
        queue.put_tagged('caf\\xe9', 'idp:a')\n\
        assert Client(encoding='utf-8').reserve().body == 'caf\\xe9'";
    let daemon = Daemon::start(&[]);
    passes(command("python", &["python3", "-c", code]).env("BEANPOLE_SERVER", daemon.address().to_string()));
}

#[test]
fn vectors_are_played_without_placeholders() {
    let check = "import play, re\n\
        for title, steps in play.load().items():\n\x20\
            for step in steps: assert not re.search(rb'<[a-z]+>', step[2]), (title, step)";
    adapter("python", &[&["python3", "--version"]], &["python3", "-c", check]);
}

#[test]
fn celery_tasks_run_once_and_survive_a_crash() {
    adapter(
        "celery",
        &[&["python3", "-c", "from celery import Celery; import greenstalk"]],
        &["python3", "test_transport.py"],
    );
}

#[test]
fn an_outbox_neither_loses_nor_duplicates_a_job() {
    let python = &["python3", "-c", "import psycopg2, greenstalk"][..];
    let postgresql = &["sh", "-c", "ls /usr/lib/postgresql/*/bin/initdb"];
    adapter("outbox", &[python, postgresql], &["python3", "test_relay.py"]);
}

#[test]
fn active_job_supports_tags_delays_and_reasons() {
    let needs = &["ruby", "-e", "require 'active_job'; require 'beaneater'; require 'minitest'"][..];
    adapter("activejob", &[needs], &["ruby", "test_adapter.rb"]);
}

#[test]
fn laravel_has_tags() {
    let packages = ["Pheanstalk", "Illuminate/Queue", "Illuminate/Events", "Illuminate/Container", "Illuminate/Bus"];
    let needs = packages.map(|name| format!("(@include '{name}/autoload.php') || exit(1);"));
    let needs = needs.each_ref().map(|code| ["php", "-r", code]);
    adapter("laravel", &needs.each_ref().map(|words| &words[..]), &["php", "test_queue.php"]);
}

#[test]
fn a_makefile_has_a_queue() {
    if !is_installed("make", &["make", "--version"]) {
        return;
    }
    let folder = Folder::new();
    std::fs::write(folder.file("Makefile"), format!("include {}\n", example("shell/queue.mk").display())).unwrap();
    let make = |word: &str| {
        let run = passes(Command::new("make").current_dir(folder.file("")).args(["-s", word]));
        String::from_utf8(run.stdout).expect("text")
    };
    let started = make("queue-start");
    let port = std::fs::read_to_string(folder.file(".queue/port")).unwrap();
    assert_eq!(started, format!("the queue listens on port {port}"));
    make("queue-wait");
    assert!(make("queue-start").contains("already"));
    let mut client = beanpole::Client::connect(("127.0.0.1", port.trim().parse::<u16>().unwrap())).unwrap();
    client.put(b"x", 0, 0, 60).unwrap();
    make("queue-stop");
    assert!(!folder.file(".queue/port").exists());
    assert!(client.figure("stats", "pid").is_err());
    make("queue-stop");
    // The recorded process ID may belong to another program, for example after a reboot.
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    std::fs::write(folder.file(".queue/pid"), other.id().to_string()).unwrap();
    assert!(make("queue-start").contains("listens"));
    make("queue-stop");
    std::fs::write(folder.file(".queue/pid"), other.id().to_string()).unwrap();
    make("queue-stop");
    assert!(other.try_wait().unwrap().is_none(), "queue-stop killed a process that is not the queue");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn the_pages_show_the_worker_and_files_that_exist() {
    let readme = std::fs::read_to_string(example("README.md")).unwrap();
    let worker = std::fs::read_to_string(example("python/worker.py")).unwrap();
    let shown: String = readme
        .split("```python\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap()
        .lines()
        .map(|line| format!("{}\n", line.strip_prefix("   ").unwrap_or(line)))
        .collect();
    let shown = shown.trim_end();
    assert!(worker.contains(shown), "examples/README.md shows another worker than python/worker.py:\n{shown}");
    for page in ["README.md", "CLIENTS.md"] {
        let text = std::fs::read_to_string(example(page)).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            assert!(example(target).exists(), "examples/{page}: {target} does not exist");
        }
    }
}
