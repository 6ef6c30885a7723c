//! Tests `top` on a terminal: the display, the keys, and the terminal settings, which `top` must restore.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use nix::pty::{openpty, Winsize};
use nix::sys::signal::{kill, Signal};
use nix::sys::termios::{tcgetattr, LocalFlags};
use nix::unistd::Pid;

use crate::daemon::wait_until;
use crate::support::{with_both, Server};

/// A `top` process on a pseudoterminal.
struct Screen {
    child: Child,
    keys: File,
    /// The slave side of the terminal, from which the test reads the terminal's settings.
    slave: OwnedFd,
    seen: Arc<Mutex<String>>,
}

impl Screen {
    fn start(server: &Server, arguments: &[&str], columns: u16, lines: u16) -> Screen {
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).expect("a terminal");
        let end = || Stdio::from(pair.slave.try_clone().expect("a file"));
        let mut command = server.command(&[&["top"], arguments].concat());
        command.stdin(end()).stdout(end()).stderr(end()).env("NO_COLOR", "1").env("LC_ALL", "C");
        let child = command.spawn().expect("the program");
        let seen = Arc::new(Mutex::new(String::new()));
        let keys = File::from(pair.master);
        let mut reader = keys.try_clone().expect("a file");
        let text = seen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                text.lock().expect("text").push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Screen { child, keys, slave: pair.slave, seen }
    }

    /// Returns the most recent complete frame.
    fn frame(&self) -> String {
        let seen = self.seen.lock().expect("text");
        // The last frame may be incomplete.
        let mut frames = seen.rsplit("\x1b[H");
        let last = frames.next().unwrap_or_default();
        frames
            .next()
            .filter(|_| seen.contains("\x1b[H"))
            .map_or(last, |before| if last.len() < before.len() / 2 { before } else { last })
            .to_owned()
    }

    fn shows(&self, text: &str) {
        wait_until(&format!("top shows {text}; before, it showed {}", self.frame()), || self.frame().contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("a terminal");
    }

    fn is_plain(&self) -> bool {
        let settings = tcgetattr(self.slave.as_fd()).expect("a terminal");
        settings.local_flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }

    /// Waits until `top` exits, checks that it has restored the terminal, and returns the exit code.
    fn end(mut self) -> Option<i32> {
        let mut status = None;
        wait_until("top exits", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        assert!(self.is_plain(), "top must restore the terminal settings");
        wait_until("top restores the screen", || {
            let seen = self.seen.lock().expect("text");
            seen.rfind("\x1b[?1049l") > seen.rfind("\x1b[?1049h") && seen.rfind("\x1b[?25h") > seen.rfind("\x1b[?25l")
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn top_shows_sorts_filters_and_opens() {
    with_both(|server| {
        server.ok(&["put", "-t", "mail", "first body", "b", "c"]);
        server.ok(&["put", "-t", "sms", "x"]);
        server.ok(&["bury", "4"]);
        server.ok(&["put", "-t", "mail", "-d", "1000", "later"]);
        let mut screen = Screen::start(server, &[], 80, 24);
        screen.shows(" TUBE^ ");
        screen.shows("sms ");
        assert!(!screen.is_plain());
        let frame = screen.frame();
        assert!(frame.contains("ready 3  reserved 0  delayed 1  buried 1"), "{frame}");
        assert!(frame.find(">default") < frame.find(" mail") && frame.find(" mail") < frame.find(" sms"), "{frame}");
        screen.press("b");
        screen.shows(">sms");
        screen.press("/mai\r");
        screen.shows(">mail");
        wait_until("other tubes are hidden", || !screen.frame().contains("default "));
        screen.shows("  FILTER mai  up ");
        screen.press("\r");
        screen.shows(">next ready             1  first body");
        screen.shows("current-jobs-ready");
        screen.press("j\r");
        screen.shows("job 5 of mail");
        screen.press("\x1b");
        screen.shows(">next delayed           5  later");
        screen.press("k\r");
        screen.shows("job 1 of mail");
        screen.shows("body        first body");
        server.ok(&["delete", "1"]);
        screen.shows("job 1 of mail no longer exists");
        screen.press("\x1b");
        screen.shows("tube mail");
        screen.press("\x1b");
        screen.shows(" TUBE");
        screen.press("\x1b");
        screen.shows("default ");
        assert!(!screen.frame().contains("FILTER"), "{}", screen.frame());
        screen.press("?");
        screen.shows("kick jobs of tube, line, open job");
        screen.press("x");
        screen.press("q");
        assert_eq!(screen.end(), Some(0));
    });
}

#[test]
fn kicks_and_pauses_require_confirmation() {
    with_both(|server| {
        server.ok(&["put", "-t", "mail", "a", "b"]);
        server.ok(&["bury", "1", "2"]);
        let mut screen = Screen::start(server, &["mail"], 100, 30);
        screen.shows(">mail");
        screen.press("K");
        screen.shows("kick how many jobs of mail? 1_");
        assert_eq!(server.count("mail", "buried"), 2);
        screen.press("\x1b");
        wait_until("the question disappears", || !screen.frame().contains("kick how many"));
        screen.press("K\x7f2\r");
        screen.shows("mail: 2 jobs kicked");
        assert_eq!(server.count("mail", "ready"), 2);
        server.ok(&["bury", "1", "2"]);
        screen.press("K\r");
        screen.shows("mail: 1 job kicked");
        screen.press("p\x7f\x7f77\r");
        screen.shows("mail: paused for 77 s");
        assert_eq!(server.figure("stats-tube mail", "pause"), "77");
        screen.press("p\x7f\x7f0\r");
        screen.shows("mail: resumed");
        assert_eq!(server.figure("stats-tube mail", "pause-time-left"), "0");
        screen.press("\x03");
        assert_eq!(screen.end(), Some(0));
    });
}

#[test]
fn signals_restore_the_terminal() {
    let server = Server::beanpole(&[]);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let screen = Screen::start(&server, &[], 80, 24);
        screen.shows(">default");
        kill(Pid::from_raw(screen.child.id() as i32), signal).expect("a child process");
        assert_eq!(screen.end(), Some(0), "{signal}");
    }
}

#[test]
fn top_can_be_suspended_and_continued() {
    let server = Server::beanpole(&[]);
    let mut screen = Screen::start(&server, &[], 80, 24);
    screen.shows(">default");
    screen.press("\x1a");
    let stat = format!("/proc/{}/stat", screen.child.id());
    wait_until("top is stopped", || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T ")));
    assert!(screen.is_plain());
    kill(Pid::from_raw(screen.child.id() as i32), Signal::SIGCONT).expect("a child process");
    wait_until("top controls the terminal again", || !screen.is_plain());
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
}

#[test]
fn top_reconnects_to_a_lost_server() {
    let folder = crate::daemon::Folder::new();
    let socket = format!("unix:{}", folder.file("socket").display());
    let start = || crate::daemon::Daemon::start(&["-l", &socket]);
    let server = start();
    let other = Server::beanpole(&[]);
    let mut screen = Screen::start(&other, &["-s", &socket], 80, 24);
    screen.shows(">default");
    drop(server);
    screen.shows("trying again");
    let server = start();
    wait_until("top is connected again", || !screen.frame().contains("trying again"));
    drop(server);
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
}

#[test]
fn a_terminal_that_is_too_small_is_reported() {
    let server = Server::beanpole(&[]);
    for (columns, lines) in [(79, 24), (80, 23)] {
        let mut screen = Screen::start(&server, &[], columns, lines);
        let mut code = None;
        wait_until("top exits", || {
            code = screen.child.try_wait().expect("a child").map(|status| status.code());
            code.is_some()
        });
        assert_eq!(code, Some(Some(1)));
        let words = format!("top: the terminal has {columns}x{lines}; it must have 80x24");
        wait_until("top reports the size", || screen.seen.lock().expect("text").contains(&words));
        assert!(screen.is_plain());
    }
}

#[test]
fn tables_for_scripts() {
    with_both(|server| {
        server.ok(&["put", "-t", "mail", "a", "b"]);
        let out = server.ok(&["top", "-b", "-n", "2", "--sort", "ready", "--filter", "ai"]);
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines.len(), 6, "{out}");
        assert!(
            lines[0].contains("tubes 2  ready 2  reserved 0  delayed 0  buried 0  held 0  scheduled 0  put/s 0"),
            "{out}"
        );
        assert_eq!(lines[1], "tube\tready\tresvd\tdelay\tburied\tother\twait\tput/s\tdone/s\tpaused");
        assert_eq!(lines[2], "mail\t2\t0\t0\t0\t0\t0\t0\t0\t0");
    });
}

#[test]
fn workers_failures_and_schedules_have_lists() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "-t", "encode", "-r", "500", "x"]);
    server.ok(&["put", "-t", "mail", "a", "b", "c"]);
    server.ok(&["put", "-t", "nightly", "--unique", "report", "--cron", "@daily", "x"]);
    let fail = "read job; test $job = a && echo no such host >&2 || printf 'no \\033[2J\\nsecond' >&2; exit 1";
    let failed = server.run(&["work", "mail", "-q", "-w", "0", "--retries", "0", "--", "sh", "-c", fail]);
    assert_eq!(failed.code, 0, "{}", failed.err);
    let mut hung = server.daemon.client();
    hung.watch("encode").expect("a tube");
    hung.send(b"name thumbs-1\r\n").expect("a server");
    assert_eq!(hung.reply().expect("a reply").line, "NAMED");
    hung.reserve(Some(0)).expect("a reply").expect("a job");
    let mut screen = Screen::start(&server, &[], 80, 24);
    screen.shows(">default");
    screen.shows("ALARMS  buried 3  failed (1 h) 3");
    screen.press("2");
    screen.shows(">thumbs-1 ");
    screen.shows(" working encode");
    screen.press("\r");
    screen.shows("job 1 of encode");
    screen.shows("holder-name             thumbs-1");
    screen.press("\x1b3");
    screen.shows(">mail                        2          4  exit 1: no \\u001b[2J");
    screen.shows(" mail                        1          2  exit 1: no such host");
    assert!(!screen.frame().contains("second"), "{}", screen.frame());
    screen.press("\r");
    screen.shows("job 4 of mail  1 of 2; up and down show the others");
    screen.press("j");
    screen.shows("job 3 of mail  2 of 2; up");
    screen.press("jk");
    screen.shows("job 4 of mail  1 of 2; up");
    screen.press("\x1b/host\r");
    screen.shows(">mail                        1 ");
    screen.press("K\r");
    screen.shows("job 2 kicked");
    screen.press("4");
    screen.shows(" none");
    screen.press("/\x7f\x7f\x7f\x7f\r");
    screen.shows(">report ");
    screen.shows("@daily, nightly");
    screen.press("\r");
    screen.shows("job 5 of nightly");
    screen.shows("@daily");
    server.ok(&["kick", "5"]);
    assert_eq!(server.run(&["kick", "5"]).code, 1, "the job of the previous run still exists");
    screen.shows("Enter job");
    screen.press("\r");
    screen.shows("job 6 of nightly");
    screen.shows("late schedules 1");
    screen.press("1");
    screen.shows(">default");
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
}

#[test]
fn a_kick_applies_to_the_open_job_or_the_marked_line() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "-t", "mail", "-r", "600", "a", "b", "c", "d", "e"]);
    server.ok(&["bury", "1", "2", "3", "4"]);
    let mut worker = server.daemon.client();
    worker.reserve_job(5).expect("a job");
    let states = || ["1", "2", "3", "4"].map(|id| server.figure(&format!("stats-job {id}"), "state"));
    let mut screen = Screen::start(&server, &[], 80, 24);
    screen.shows(">default");
    screen.press("2");
    screen.shows(" working mail");
    screen.press("K");
    screen.shows("a reserved job cannot be kicked");
    screen.press("\r");
    screen.shows("job 5 of mail");
    screen.press("K\r");
    screen.shows("job 5 not kicked: its state does not allow this");
    screen.press("\x1b3");
    screen.shows(">mail                        4          4");
    screen.press("\rj");
    screen.shows("job 3 of mail  2 of 4; up and down show the others");
    screen.press("K");
    screen.shows("kick job 3? Enter: yes, Escape: no _");
    screen.press("\r");
    screen.shows("job 3 kicked");
    assert_eq!(states(), ["buried", "buried", "ready", "buried"]);
    screen.press("\x1b");
    screen.shows(">mail                        3          4");
    screen.press("K");
    screen.shows("kick the 3 jobs of this line? Enter: yes, Escape: no _");
    screen.press("\x1b");
    wait_until("the question disappears", || !screen.frame().contains("kick the"));
    screen.press("K\r");
    screen.shows("3 of 3 jobs kicked");
    assert_eq!(states(), ["ready"; 4]);
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
}

#[test]
fn a_frozen_screen_loads_each_list_once() {
    let server = Server::beanpole(&[]);
    server.ok(&["put", "-t", "mail", "first body", "b"]);
    server.ok(&["bury", "1"]);
    server.ok(&["put", "-t", "nightly", "--unique", "report", "--cron", "@daily", "x"]);
    let mut waiting = server.daemon.client();
    waiting.send(b"name thumbs-1\r\nreserve\r\n").expect("a server");
    assert_eq!(waiting.reply().expect("a reply").line, "NAMED");
    let mut screen = Screen::start(&server, &[], 80, 24);
    screen.shows(">default");
    screen.press(" ");
    screen.shows("FROZEN");
    screen.press("4");
    screen.shows(">report ");
    screen.press("2");
    screen.shows(">thumbs-1 ");
    screen.press("3");
    screen.shows(">mail                        1          1");
    server.ok(&["bury", "2"]);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    screen.press("j");
    screen.shows(">mail                        1          1");
    screen.press("3");
    screen.shows(">mail                        2          2");
    screen.press("\r");
    screen.shows("job 2 of mail");
    screen.shows("body        b");
    let seen = screen.seen.lock().expect("text").clone();
    assert!(!seen.contains(" none"), "{seen}");
    screen.press("qq");
    assert_eq!(screen.end(), Some(0));
}

/// If the server refuses a list, `top` must show that the list is not available.
#[test]
fn a_list_that_the_server_refuses_is_not_available() {
    let Some(server) = Server::beanstalkd(&[]) else { return };
    server.ok(&["put", "-t", "mail", "a"]);
    server.ok(&["put", "-t", "sms", "b"]);
    server.ok(&["bury", "1", "2"]);
    let mut screen = Screen::start(&server, &[], 80, 24);
    screen.shows(">default");
    screen.press("2");
    screen.shows("list-connections: the server does not know this command");
    screen.shows(" not available");
    screen.press("3");
    screen.shows("list-jobs: the server does not know this command");
    screen.press("4");
    screen.shows(" none");
    screen.press("1");
    screen.shows(">default");
    screen.press("q");
    assert_eq!(screen.end(), Some(0));
}
