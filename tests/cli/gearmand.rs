//! Tests the program under the name gearmand: options, files and signals.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::daemon::{command, run_command, unassigned, wait_until, Daemon, Folder, Signal, PATIENCE};
use super::own_host;

/// Returns a command that runs the program as gearmand, without a configuration file unless `arguments` name one.
pub fn gearmand(arguments: &[&str]) -> Command {
    let mut program = command(&["--config-file=/dev/null"]);
    program.arg0("/usr/sbin/gearmand").args(arguments).env_remove("GEARMAND_PORT");
    program
}

/// A gearmand process in the background, stopped when dropped.
struct Background {
    folder: Folder,
    address: SocketAddr,
    pid: i32,
}

impl Background {
    fn start(arguments: &[&str]) -> Background {
        let folder = Folder::new();
        let host = own_host();
        let free = unassigned(&host);
        let (pid_file, log) = (folder.file("pid"), folder.file("log"));
        let mut program = gearmand(&["-d", "-L", &host, "-p", &free.port().to_string()]);
        program.arg("-P").arg(&pid_file).arg("-l").arg(&log).args(arguments);
        let ended = run_command(program);
        assert_eq!((ended.code, ended.out.as_str(), ended.err.as_str()), (0, "", ""), "{}", read(&folder, "log"));
        // The parent exits only after the daemon has created the PID file and opened the port.
        let pid = read(&folder, "pid").trim().parse().expect("a process ID");
        drop(TcpStream::connect(free).expect("a connection"));
        Background { folder, address: free, pid }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).expect("a running process");
    }

    /// Waits until the daemon has removed its PID file, which is the daemon's last action.
    fn wait(&self) {
        wait_until("the daemon has exited", || !self.folder.file("pid").exists());
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if self.folder.file("pid").exists() {
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGKILL);
        }
    }
}

fn read(folder: &Folder, name: &str) -> String {
    fs::read_to_string(folder.file(name)).unwrap_or_default()
}

fn packet(kind: u32, body: &[u8]) -> Vec<u8> {
    [b"\0REQ".as_slice(), &kind.to_be_bytes(), &(body.len() as u32).to_be_bytes(), body].concat()
}

fn ask(stream: &mut TcpStream, kind: u32, body: &[u8]) -> (u32, Vec<u8>) {
    stream.write_all(&packet(kind, body)).expect("a connection");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("a reply");
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let mut body = vec![0; number(8) as usize];
    stream.read_exact(&mut body).expect("a reply");
    (number(4), body)
}

#[test]
fn it_listens_only_for_gearman_and_logs_the_address() {
    let daemon = Daemon::spawn(gearmand(&["-p", "0"]));
    assert_eq!(daemon.names().len(), 1, "{:?}", daemon.names());
    let address = daemon.names()[0].strip_suffix(" (Gearman)").expect("a Gearman address").to_owned();
    assert!(address.starts_with("127.0.0.1:"));
    assert_eq!(daemon.log().matches("listening on 127.0.0.1 only, unlike gearmand").count(), 1, "{}", daemon.log());
    let mut stream = TcpStream::connect(address).expect("a connection");
    assert_eq!(ask(&mut stream, 16, b"on"), (17, b"on".to_vec()));
    assert_eq!(daemon.wait_for(Signal::SIGTERM), 0);
}

#[test]
fn invalid_arguments_are_reported_in_one_line() {
    for (arguments, words) in [
        (["-q", "libsqlite3"], "queue type libsqlite3 is not supported"),
        (["-r", "http"], "protocol http is not supported"),
        (["--bogus", "x"], "unknown flag: --bogus"),
        (["--config-file", "/nowhere"], "/nowhere"),
    ] {
        run_command(gearmand(&arguments)).failed(1, &["gearmand: ", words]);
    }
    let version = run_command(gearmand(&["-V"]));
    assert_eq!((version.code, version.out), (0, format!("beanpole {} as gearmand\n", env!("CARGO_PKG_VERSION"))));
    assert_eq!(run_command(gearmand(&["--check-args", "-j", "3"])).code, 0);
}

#[test]
fn a_background_server_has_a_pid_file_while_it_listens() {
    let daemon = Background::start(&[]);
    let mut stream = TcpStream::connect(daemon.address).expect("a connection");
    stream.write_all(b"getpid\n").expect("a connection");
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).expect("a line");
    assert_eq!(line, format!("OK {}\n", daemon.pid));
    let session = nix::unistd::getsid(Some(Pid::from_raw(daemon.pid))).expect("a session");
    assert_eq!(session, Pid::from_raw(daemon.pid), "the daemon must lead its own session");
    assert!(read(&daemon.folder, "log").contains("is listening on"));
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    assert!(TcpStream::connect(daemon.address).is_err());
    assert!(read(&daemon.folder, "log").contains("stopping"));
}

/// Existing settings of gearmand can contain `--daemon`. Under systemd, the server must not fork despite this option,
/// because systemd needs the exit status of the process that it has started.
#[test]
fn a_server_started_by_systemd_does_not_fork() {
    let folder = Folder::new();
    let (pid_file, socket) = (folder.file("pid"), folder.file("notify"));
    let _manager = UnixDatagram::bind(&socket).expect("a socket");
    let mut program = gearmand(&["-d", "-L", "127.0.0.1", "-p", "0", "-l", "stderr", "-P"]);
    program.arg(&pid_file).env("NOTIFY_SOCKET", &socket);
    let daemon = Daemon::spawn(program);
    wait_until("the server has written its PID", || !read(&folder, "pid").is_empty());
    assert_eq!(read(&folder, "pid"), format!("{}\n", daemon.pid()));
}

#[test]
fn a_failed_start_is_reported_to_the_parent() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let folder = Folder::new();
    let mut program = gearmand(&["-d", "-L", "127.0.0.1", "-p", &port]);
    program.arg("-P").arg(folder.file("pid")).arg("-l").arg(folder.file("log"));
    let ended = run_command(program);
    assert_ne!(ended.code, 0);
    assert!(ended.err.starts_with("gearmand: ") && ended.err.contains("in use"), "{ended:?}");
    assert!(read(&folder, "log").contains("in use") && !folder.file("pid").exists());
    let mut program = gearmand(&["-d", "-L", "127.0.0.1", "-p", "0", "-P", "/nowhere/at/all", "-l"]);
    run_command({
        program.arg(folder.file("log"));
        program
    })
    .failed(1, &["/nowhere/at/all"]);
    run_command(gearmand(&["-L", "127.0.0.1", "-p", "0", "-l", "/nowhere/at/all"]))
        .failed(1, &["log", "/nowhere/at/all"]);
}

/// Opening a FIFO for writing blocks until another process opens the FIFO for reading, even if a signal arrives.
#[test]
fn a_pipe_without_a_reader_does_not_block_the_log() {
    let daemon = Background::start(&[]);
    let pipe = daemon.folder.file("log");
    fs::remove_file(&pipe).expect("a log");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    daemon.signal(Signal::SIGHUP);
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let name = pipe.to_str().expect("a UTF-8 path");
    for option in ["-l", "-P"] {
        run_command(gearmand(&["-L", "127.0.0.1", "-p", "0", option, name])).failed(1, &[name, "No such device"]);
    }
}

#[test]
fn sighup_reopens_the_log() {
    let daemon = Background::start(&[]);
    fs::rename(daemon.folder.file("log"), daemon.folder.file("log.1")).expect("a log");
    daemon.signal(Signal::SIGHUP);
    wait_until("the log is reopened", || read(&daemon.folder, "log").contains("log reopened"));
    let mut stream = TcpStream::connect(daemon.address).expect("a connection");
    assert_eq!(ask(&mut stream, 16, b"on"), (17, b"on".to_vec()));
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    assert!(read(&daemon.folder, "log").contains("stopping"));
    assert!(!read(&daemon.folder, "log.1").contains("stopping"));
}

#[test]
fn usr1_stops_the_server_when_no_jobs_remain() {
    let daemon = Background::start(&[]);
    let mut stream = TcpStream::connect(daemon.address).expect("a connection");
    assert_eq!(ask(&mut stream, 18, b"f\0\0x").0, 8);
    daemon.signal(Signal::SIGUSR1);
    wait_until("the server drains", || read(&daemon.folder, "log").contains("draining"));
    assert_eq!(ask(&mut stream, 18, b"f\0\0y").0, 19, "new jobs must be refused");
    stream.write_all(&packet(1, b"f")).expect("a connection");
    let (kind, job) = ask(&mut stream, 9, b"");
    assert_eq!(kind, 11);
    let handle = job.split(|byte| *byte == 0).next().expect("a handle");
    assert!(daemon.folder.file("pid").exists());
    stream.write_all(&packet(13, &[handle, b"\0"].concat())).expect("a connection");
    daemon.wait();
    // Without jobs, the server exits immediately after SIGUSR1.
    let daemon = Background::start(&[]);
    daemon.signal(Signal::SIGUSR1);
    daemon.wait();
}

#[test]
fn the_command_line_overrides_the_configuration_file() {
    let folder = Folder::new();
    fs::write(folder.file("conf"), "# all of them\nport=1\njob-retries = 1\n--exceptions -R\n").expect("a file");
    let mut program = gearmand(&["-p", "0", "--config-file"]);
    program.arg(folder.file("conf"));
    let daemon = Daemon::spawn(program);
    let address = daemon.names()[0].strip_suffix(" (Gearman)").expect("a Gearman address").to_owned();
    let mut client = TcpStream::connect(&address).expect("a connection");
    client.set_read_timeout(Some(PATIENCE)).expect("a connection");
    let (_, handle) = ask(&mut client, 7, b"f\0\0x");
    let mut worker = TcpStream::connect(&address).expect("a connection");
    worker.write_all(&packet(1, b"f")).expect("a connection");
    assert_eq!(ask(&mut worker, 9, b"").0, 11);
    drop(worker);
    let mut reply = vec![0; 12 + handle.len()];
    client.read_exact(&mut reply).expect("the end of the job");
    assert_eq!((reply[7], &reply[12..]), (14, handle.as_slice()), "a job with one try must fail with its worker");
}

#[test]
fn beanpole_s_binlog_option_stores_jobs() {
    let folder = Folder::new();
    let log = format!("--binlog={}", folder.file("jobs").display());
    fs::create_dir(folder.file("jobs")).expect("a directory");
    for round in 0..2 {
        let daemon = Background::start(&[&log]);
        let mut stream = TcpStream::connect(daemon.address).expect("a connection");
        if round == 0 {
            assert_eq!(ask(&mut stream, 18, b"f\0\0kept").0, 8);
        } else {
            stream.write_all(&packet(1, b"f")).expect("a connection");
            let (kind, job) = ask(&mut stream, 9, b"");
            assert!(kind == 11 && job.ends_with(b"f\0kept"), "{kind}: {job:?}");
        }
        daemon.signal(Signal::SIGTERM);
        daemon.wait();
    }
}

impl Daemon {
    fn wait_for(&self, signal: Signal) -> i32 {
        self.signal(signal);
        self.wait(PATIENCE)
    }
}
