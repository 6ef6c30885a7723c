//! Runs the commands of beanpole-migrate(7) verbatim, with beanstalkd if it is installed.

mod daemon;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use beanpole::Client;
use daemon::{unassigned, wait_until, Daemon, Folder, Signal};

const BEANSTALKD: &str = "/usr/bin/beanstalkd";

/// Returns the code blocks of a section of the page.
fn commands(section: &str) -> Vec<String> {
    let page = std::fs::read_to_string("man/beanpole-migrate.7").expect("the page");
    let text = page.split(&format!(".Sh {section}\n")).nth(1).expect("the section").split("\n.Sh ").next().unwrap();
    let blocks = text.split(".Bd -literal -offset indent\n").skip(1);
    blocks.map(|block| block.split(".Ed").next().unwrap().replace("\\e", "\\")).collect()
}

/// A code block that is being executed. Its last command runs until the value is dropped.
struct Run(Child);

impl Run {
    fn new(block: &str, variables: &[(&str, String)]) -> Run {
        let mut command = Command::new("sh");
        let block = block.trim().trim_end_matches('&');
        let (first, last) = block.rsplit_once('\n').unwrap_or(("", block));
        command.args(["-c", &format!("{first}\nexec {last}")]).env("PATH", daemon::path());
        command.envs(variables.iter().map(|(name, value)| (name, value))).stdin(Stdio::null()).stderr(Stdio::null());
        Run(command.spawn().expect("a shell"))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(address: SocketAddr) -> Client {
    let mut found = None;
    wait_until("the server listens", || {
        found = Client::connect(address).ok();
        found.is_some()
    });
    found.expect("a connection")
}

fn original(address: SocketAddr, folder: &str) -> Option<Daemon> {
    if !Path::new(BEANSTALKD).exists() {
        eprintln!("skipped: {BEANSTALKD} is missing");
        return None;
    }
    let mut command = Command::new(BEANSTALKD);
    command.args(["-l", "127.0.0.1", "-p", &address.port().to_string(), "-b", folder]);
    Some(Daemon::spawn_at(command, address))
}

#[test]
fn migrating_in_place_and_back_keeps_every_job() {
    let (folder, address) = (Folder::new(), unassigned("127.0.0.1"));
    let dir = folder.file("jobs").display().to_string();
    std::fs::create_dir(&dir).unwrap();
    let Some(old) = original(address, &dir) else { return };
    let mut client_of_old = client(address);
    client_of_old.use_tube("mail").unwrap();
    let id = client_of_old.put(b"hello", 7, 0, 60).unwrap();
    let variables = |pid: u32| [("DIR", dir.clone()), ("PORT", address.port().to_string()), ("OLD", pid.to_string())];
    let block = &commands("FROM BEANSTALKD, IN PLACE")[0];
    let ours = Run::new(block, &variables(old.pid()));
    // The commands wait until the process of the old server no longer exists.
    wait_until("the old server has exited", || !old.runs());
    let mut moved = client(address);
    assert_eq!(moved.peek(id).unwrap().body, b"hello");
    assert_eq!(moved.figure(&format!("stats-job {id}"), "pri").unwrap(), "7");
    assert!(Path::new(&format!("{dir}.before")).is_dir());
    drop((moved, ours));
    let back = commands("BACK TO BEANSTALKD")[1].lines().last().expect("commands").to_owned();
    let again = Run::new(&back, &variables(0));
    assert_eq!(client(address).peek(id).unwrap().body, b"hello");
    drop(again);
}

#[test]
fn migrating_side_by_side_drains_the_old_server() {
    let (folder, address, new) = (Folder::new(), unassigned("127.0.0.1"), unassigned("127.0.0.1"));
    let dir = folder.file("jobs").display().to_string();
    std::fs::create_dir(&dir).unwrap();
    let Some(old) = original(address, &dir) else { return };
    let id = client(address).put(b"hello", 7, 0, 60).unwrap();
    let [start, count] = &commands("FROM BEANSTALKD, SIDE BY SIDE")[..] else { panic!("expected two code blocks") };
    let (start, drain) = start.trim().split_once('\n').expect("two commands");
    let variables =
        [("PORT", address.port().to_string()), ("NEW", new.port().to_string()), ("OLD", old.pid().to_string())];
    let ours = Run::new(start, &variables);
    client(new).put(b"new", 0, 0, 60).unwrap();
    drop(Run::new(drain, &variables).wait());
    wait_until("the old server drains", || client(address).put(b"x", 0, 0, 60).is_err());
    if Command::new("nc").arg("-h").output().is_ok() {
        let mut shell = Command::new("sh");
        let out = shell.args(["-c", count]).envs(variables.iter().cloned()).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap().replace('\r', "");
        assert!(text.contains("current-jobs-ready: 1\n") && text.lines().count() == 4, "{text}");
    }
    client(address).delete(id).unwrap();
    old.signal(Signal::SIGTERM);
    wait_until("the old server has exited", || !old.runs());
    drop(ours);
}

impl Run {
    fn wait(mut self) -> Run {
        assert!(self.0.wait().expect("a shell").success());
        self
    }
}
