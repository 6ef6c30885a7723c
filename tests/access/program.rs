//! Tests the option `--access`, invalid and changing access files, and the subcommand `check-access`.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use beanpole::Server;

use super::{digest, user, Guarded, Talk, OPERATOR};
use crate::daemon::{run, wait_until, Daemon, Folder, Signal, PATIENCE};

/// Creates a directory with an access file, and returns both paths.
fn folder(text: &str) -> (Folder, String) {
    let folder = Folder::new();
    fs::write(folder.file("access"), text).expect("a file");
    let path = folder.file("access").to_str().expect("a UTF-8 path").to_owned();
    (folder, path)
}

#[test]
fn an_invalid_access_file_prevents_the_start() {
    let (_folder, path) = folder("me user:0 look\nyou user:0 look\n\nhe cert:x peek\n");
    let ended = run(&["-p", "0", "--access", &path]);
    assert_eq!((ended.code, ended.err.lines().count()), (1, 1), "{ended:?}");
    for words in ["line 2, column 5: duplicate credential, already in line 1", "line 4, column 11: unknown right: peek"]
    {
        assert!(ended.err.contains(words), "{ended:?}");
    }
    let ended = run(&["-p", "0", "--access", "/nowhere/access"]);
    assert!(ended.code == 1 && ended.err.contains("/nowhere/access cannot be read"), "{ended:?}");
}

#[test]
fn sighup_reloads_the_access_file() {
    let (folder, path) = folder(&format!("me {} take\nyou token:sha256:{} all\n", user(), digest("t")));
    let socket = folder.file("socket");
    let listen = format!("unix:{}", socket.display());
    let daemon = Daemon::start(&["-l", &listen, "--access", &path]);
    let connect = || Talk::new(UnixStream::connect(&socket).expect("a connection"));
    let (mut me, mut you) = (connect(), connect());
    assert_eq!(me.ask("use x"), "FORBIDDEN");
    assert_eq!(you.ask("auth t"), "AUTHENTICATED");
    // One client gets additional rights, and the other client gets a new token.
    fs::write(&path, format!("me {} take put\nyou token:sha256:{} all\n", user(), digest("u"))).expect("a file");
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log("configuration files reloaded");
    assert_eq!(you.rest(), "");
    while me.ask("use x") == "FORBIDDEN" {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(me.ask("reserve-with-timeout 0"), "TIMED_OUT", "the client must stay connected");
    // An invalid new file does not change any rights.
    fs::write(&path, "me user:0\n").expect("a file");
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log("missing right");
    // The server disconnects a client that loses a right, even while the client waits for a job. The reply to `use`
    // shows that the server has read both commands.
    assert_eq!(me.ask("use y\r\nreserve"), "USING y");
    fs::write(&path, format!("me {} take:a* put\n", user())).expect("a file");
    daemon.signal(Signal::SIGHUP);
    assert_eq!(me.rest(), "");
    assert_eq!(connect().ask("watch a"), "WATCHING 2");
}

/// The third invalid access file is a FIFO, from which a blocking read would never return.
#[test]
fn an_unreadable_access_file_keeps_the_old_rights() {
    let (folder, path) = folder(&format!("me {} take put\n", user()));
    let listen = format!("unix:{}", folder.file("socket").display());
    let daemon = Daemon::start(&["-l", &listen, "--access", &path]);
    let mut me = Talk::new(UnixStream::connect(folder.file("socket")).expect("a connection"));
    fs::write(&path, "# nobody yet\n").expect("a file");
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log("the file has no names");
    fs::write(&path, "begin\nyou user:77 take\n").expect("a file");
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log("truncated file");
    fs::remove_file(&path).expect("a file");
    nix::unistd::mkfifo(path.as_str(), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    daemon.signal(Signal::SIGHUP);
    daemon.wait_log("not a regular file");
    assert_eq!(me.ask("use x"), "USING x");
    // A file without any client is valid.
    fs::remove_file(&path).expect("a FIFO");
    fs::write(&path, "begin\nend\n").expect("a file");
    daemon.signal(Signal::SIGHUP);
    assert_eq!(me.rest(), "");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
}

#[test]
fn an_unauthenticated_client_is_disconnected_in_time() {
    let guarded = Guarded::start("");
    let client = guarded.connect("beanstalk");
    let operator = guarded.operator();
    assert_eq!(client.rest(), "");
    assert!(operator.is_silent_for(Duration::from_millis(1)), "an authenticated client must stay connected");
    assert!(guarded.file().exists());
}

/// Silent clients without credentials use all connections, including those for local clients.
#[test]
fn silent_strangers_make_room_for_a_client_with_a_token() {
    let guarded = Guarded::start_by("", |mut config| {
        config.max_connections = 8;
        Server::with(config).expect("a server")
    });
    let strangers: Vec<Talk> = (0..16).map(|_| guarded.connect("beanstalk")).collect();
    let mut operator = None;
    wait_until("a client with a token is served", || {
        let mut stream = UnixStream::connect(guarded.folder.file("beanstalk")).expect("a connection");
        let mut reply = [0; 15];
        let asked = stream.write_all(format!("auth {OPERATOR}\r\n").as_bytes());
        let is_served = asked.is_ok() && stream.read_exact(&mut reply).is_ok() && reply.starts_with(b"AUTHENTICATED");
        operator = is_served.then(|| Talk::new(stream));
        is_served
    });
    let stats = operator.expect("a connection").body("stats");
    // The counter does not include clients that have exceeded the time limit.
    assert!(stats.contains("dropped-connections: ") && !stats.contains("dropped-connections: 0\n"), "{stats}");
    drop(strangers);
}

#[test]
fn check_access_shows_what_is_allowed_and_why() {
    let (_folder, path) = folder("mailer cert:mailer put:mail*\n\nops user:0 all\n* none look:pub\n");
    let check = |arguments: &[&str]| {
        let ended = run(&[&["check-access", path.as_str()], arguments].concat());
        (ended.code, ended.out, ended.err)
    };
    assert_eq!(check(&[]), (0, format!("{path}: names: 3\n"), String::new()));
    for (arguments, code, words) in [
        (["mailer", "put", "mail.x"], 0, "beanstalk put: allowed by line 1 (mailer)\n"),
        (["mailer", "put", "push"], 1, "beanstalk put: refused: line 1 (mailer) does not give put on this tube\n"),
        (["mailer", "SUBMIT_JOB", "mail"], 0, "gearman SUBMIT_JOB: allowed by line 1 (mailer)\n"),
        (["ops", "shutdown", "-x"], 0, "gearman shutdown: allowed by line 3 (ops)\n"),
        (["somebody", "stats-tube", "pub"], 0, "beanstalk stats-tube: allowed by line 4 (*)\n"),
        (
            ["mailer", "inspect queue", "mail"],
            1,
            "workq inspect queue: refused: line 1 (mailer) does not give look on this tube\n",
        ),
    ] {
        if arguments[2].starts_with('-') {
            continue;
        }
        assert_eq!(check(&arguments), (code, words.to_owned(), String::new()), "{arguments:?}");
    }
    let (code, _, err) = check(&["mailer", "frobnicate", "x"]);
    assert!(code == 2 && err.contains("no protocol has the command frobnicate"), "{err}");
    let (folder, wrong) = folder("a\nb user:0 look\nc user:0 look\n");
    let ended = run(&["check-access", &wrong]);
    assert_eq!(ended.code, 1);
    assert_eq!(ended.out.lines().count(), 2, "{ended:?}");
    assert!(ended.out.starts_with(&format!("{wrong}:1:2: missing credential")), "{ended:?}");
    // Reading a pipe without a writer would not end, nor would reading an endless file.
    let pipe = folder.file("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    for path in [pipe.to_str().expect("a name"), "/dev/zero"] {
        let ended = run(&["check-access", path]);
        assert!(ended.code == 2 && ended.err.contains("not a regular file"), "{ended:?}");
    }
}

/// A client must not be able to block a key in tubes on which it has no right.
// Tests promise P26 of beanpole-promises(7).
#[test]
fn keys_are_separate_for_each_tube() {
    let text = format!("a token:sha256:{} put:a take:a\nb token:sha256:{} all\n", digest("a"), digest("b"));
    let (folder, path) = folder(&text);
    let socket = folder.file("socket");
    let _daemon = Daemon::start(&["-l", &format!("unix:{}", socket.display()), "--access", &path]);
    let connect = |token: &str, tube: &str| {
        let mut talk = Talk::new(UnixStream::connect(&socket).expect("a connection"));
        assert_eq!(talk.ask(&format!("auth {token}")), "AUTHENTICATED");
        for command in [format!("use {tube}"), format!("watch {tube}"), "ignore default".to_owned()] {
            talk.ask(&command);
        }
        talk
    };
    let (mut a, mut b) = (connect("a", "a"), connect("b", "b"));
    assert_eq!(a.ask("put 0 0 60 1 con:k\r\nx"), "INSERTED 1");
    assert_eq!(b.ask("put 0 0 60 1 con:k\r\ny"), "INSERTED 2");
    for (talk, reserved) in [(&mut a, "RESERVED 1 1"), (&mut b, "RESERVED 2 1")] {
        assert_eq!(talk.ask("reserve-with-timeout 0"), reserved);
        talk.line();
    }
    // Within one tube, a concurrency key still limits both clients.
    assert_eq!(b.ask("put 0 0 60 1 con:k\r\nz"), "INSERTED 3");
    assert_eq!(b.ask("reserve-with-timeout 0"), "TIMED_OUT");
    // With access control, the limit on the number of tubes that use one key does not apply.
    for tube in 0..100 {
        assert_eq!(b.ask(&format!("put 0 0 60 1 con:j tub:t{tube}\r\nx")), format!("INSERTED {}", 4 + tube));
    }
    for tube in 0..5000 {
        assert_eq!(b.ask(&format!("put 0 0 60 1 idp:i tub:t{tube}\r\nx")), format!("INSERTED {}", 104 + tube));
    }
    assert_eq!(a.ask("put 0 0 60 1 idp:i\r\nx"), "INSERTED 5104");
    assert_eq!(a.ask("put 0 0 60 1 idp:i\r\nx"), "INSERTED 5104 READY");
}
