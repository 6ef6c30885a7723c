//! Tests invalid command lines with their exit codes and messages, and options that cause warnings.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::{ffi::OsStringExt, net::UnixStream};

use beanpole::internals::options::OPTIONS;

use super::daemon::{command, run, run_command, shell, Daemon, Folder, Signal, PATIENCE};

const BAD_USAGE: i32 = 5;

/// Invalid arguments, each with words that the error message must contain.
const REFUSED: [(&str, &[&str]); 47] = [
    ("-x", &["unknown flag: -x"]),
    ("-Vx", &["unknown flag: -x"]),
    ("--frobnicate", &["unknown flag: --frobnicate"]),
    ("failed", &["unknown subcommand: failed; use history --failed (see beanpole -h)"]),
    ("fail", &["unknown subcommand: fail (see beanpole -h)"]),
    ("-p 0 foo", &["unknown argument: foo", "hyphen"]),
    ("-", &["unknown argument: -"]),
    ("-p", &["flag requires an argument: -p"]),
    ("--port", &["flag requires an argument: --port"]),
    ("-Vl", &["flag requires an argument: -l"]),
    ("--verbose=1", &["flag takes no argument: --verbose"]),
    ("-p 65536", &["-p", "65536", "0 to 65535"]),
    ("-p -1", &["-p", "-1", "0 to 65535"]),
    ("-p http", &["-p", "http", "0 to 65535"]),
    ("-p 0x10", &["-p", "0x10", "0 to 65535"]),
    ("-z 10x", &["-z", "10x", "number of bytes"]),
    ("-z -1", &["-z", "-1", "number of bytes"]),
    ("-z 99999999999999999999", &["-z", "99999999999999999999", "number of bytes"]),
    ("-z K", &["-z", "invalid size: K", "number of bytes"]),
    ("-t 0", &["-t", "invalid number: 0", "1 to"]),
    ("-t two", &["-t", "two", "1 to"]),
    ("-l unix:", &["-l", "unix:", "unix:PATH"]),
    ("-l a:b:c", &["-l", "a:b:c", "ADDR:PORT"]),
    ("-l 127.0.0.1:99999", &["-l", "127.0.0.1:99999", "port 99999 is out of range", "0 to 65535"]),
    ("-l 127.0.0.1:http", &["-l", "127.0.0.1:http", "ADDR:PORT"]),
    ("-l /tmp/x.sock", &["-l", "unix:/tmp/x.sock"]),
    ("-l 11300", &["-l: invalid address: 11300; a port follows an address, as in 127.0.0.1:11300"]),
    ("--http=24502", &["--http: invalid address: 24502; a port follows an address, as in 127.0.0.1:24502"]),
    ("--gearman 0.0.0.0", &["0.0.0.0", "--gearman=0.0.0.0"]),
    ("--workq 7", &["--workq=7"]),
    ("--ready-fd 0", &["--ready-fd", "invalid number: 0", "1 to"]),
    ("--ready-fd x", &["--ready-fd", "invalid number: x", "1 to"]),
    ("--socket-mode 888", &["--socket-mode", "888", "octal"]),
    ("--socket-mode 1777", &["--socket-mode", "1777", "0 to 777"]),
    ("--max-memory 101%", &["--max-memory", "101", "1 to 100"]),
    ("--max-memory 0", &["--max-memory", "0 bytes", "at least 1M"]),
    ("--max-memory 1023K", &["--max-memory", "1023K", "at least 1M"]),
    ("--max-connections-per-address 0", &["--max-connections-per-address", "invalid number: 0", "1 to"]),
    ("--idle-timeout -1", &["--idle-timeout", "invalid number: -1", "0 to"]),
    ("--keepalive-interval 0", &["--keepalive-interval", "invalid number: 0", "1 to 32767"]),
    ("--keepalive-count 128", &["--keepalive-count", "invalid number: 128", "1 to 127"]),
    ("-b", &["flag requires an argument: -b"]),
    ("-f soon", &["-f", "invalid number: soon", "0 to"]),
    ("-f -1", &["-f", "invalid number: -1", "0 to"]),
    ("-s 1X", &["-s", "invalid size: 1X", "number of bytes"]),
    ("-F1", &["unknown flag: -1"]),
    ("--max-connections 0", &["--max-connections", "invalid number: 0", "1 to"]),
];

#[test]
fn bad_usage_exits_with_5_and_one_line() {
    for (line, words) in REFUSED {
        let arguments: Vec<&str> = line.split(' ').collect();
        let ended = run(&arguments);
        ended.failed(BAD_USAGE, words);
        assert!(ended.err.starts_with("beanpole: ") && ended.err.contains("beanpole -h"), "{line}: {}", ended.err);
    }
    run(&[""]).failed(BAD_USAGE, &["unknown argument: "]);
}

/// A path can contain arbitrary bytes, which the program must either keep or refuse.
#[test]
fn an_argument_that_is_not_utf_8_is_not_changed() {
    let folder = Folder::new();
    let mut word = OsString::from("unix:");
    word.push(folder.file(""));
    word.push(OsString::from_vec(b"caf\xe9".to_vec()));
    let mut command = command(&["-l"]);
    command.arg(word);
    run_command(command).failed(BAD_USAGE, &["caf"]);
}

#[test]
fn help_goes_to_stdout_and_has_every_option() {
    for line in [&["-h"][..], &["--help"], &["-V", "-hv"], &["-p", "0", "-h"]] {
        let ended = run(line);
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{line:?}");
        assert!(ended.out.starts_with("Usage: beanpole"), "{}", ended.out);
        for option in &OPTIONS {
            let names = option.short.map_or(String::new(), |letter| format!("-{letter}, ")) + "--" + option.long;
            let lines = ended.out.lines().filter(|line| line.trim_start().starts_with(&names));
            assert!(lines.count() >= 1, "no {names} in:\n{}", ended.out);
        }
    }
}

#[test]
fn the_version_goes_to_stdout() {
    for line in [&["-v"][..], &["--version"], &["-vh"], &["-V", "-v", "-h"], &["-p", "1", "-v"]] {
        let ended = run(line);
        let version = format!("beanpole {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!((ended.code, ended.out, ended.err), (0, version, String::new()), "{line:?}");
    }
}

/// A closed pipe is no error. An error message that cannot be printed does not change the exit code.
#[test]
fn a_full_disk_causes_an_error_but_no_panic() {
    let full = || File::options().write(true).open("/dev/full").expect("/dev/full");
    for (line, code) in [(&["-h"][..], 0), (&["-x"], BAD_USAGE)] {
        let status = command(line).stderr(full()).status().expect("a child process");
        assert_eq!(status.code(), Some(code), "{line:?}");
    }
    for line in ["-v", "-h"] {
        let shown = shell("exec \"$0\" \"$@\" >/dev/full", &[line]);
        run_command(shown).failed(1, &["cannot write: No space left on device"]);
        // The reader has exited.
        let writer = UnixStream::pair().expect("a pair").0;
        assert_eq!(
            command(&[line]).stdout(OwnedFd::from(writer)).status().expect("a child process").code(),
            Some(0),
            "{line}"
        );
    }
}

#[test]
fn flags_are_bundled_and_values_attached() {
    let daemon = Daemon::start(&["-VVcz1000", "-p0", "-t2"]);
    assert!(daemon.log().contains("-c and -n have no effect"), "{}", daemon.log());
    let mut client = daemon.client();
    assert_eq!(client.figure("stats", "max-job-size").unwrap(), "1000");
    daemon.wait_log("TRACE");
    let long = Daemon::start(&["--max-job-size=1K", "--port", "0", "--verbose", "--no-compact"]);
    assert_eq!(long.client().figure("stats", "max-job-size").unwrap(), "1024");
    long.wait_log("connected from");
    let last = Daemon::start(&["-z", "1", "-z", "2"]);
    assert_eq!(last.client().figure("stats", "max-job-size").unwrap(), "2");
}

#[test]
fn a_job_size_over_the_maximum_is_reduced_with_a_warning() {
    let daemon = Daemon::start(&["-z", "2G"]);
    let log = daemon.log();
    let warning = log.lines().find(|line| line.contains(" WARN ")).expect("a warning");
    assert!(warning.contains("-z") && warning.contains("1073741824"), "{warning}");
    assert_eq!(daemon.client().figure("stats", "max-job-size").unwrap(), "1073741824");
}

#[test]
fn the_job_size_is_enforced() {
    let daemon = Daemon::start(&["-z", "10"]);
    let mut client = daemon.client();
    client.put(b"0123456789", 0, 0, 60).unwrap();
    let error = client.put(b"0123456789a", 0, 0, 60).unwrap_err();
    assert!(error.to_string().contains("JOB_TOO_BIG"), "{error}");
}

#[test]
fn options_without_effect_cause_a_warning() {
    for option in ["-c", "-n", "--compact", "--no-compact"] {
        let daemon = Daemon::start(&[option]);
        let log = daemon.log();
        assert_eq!(log.matches(" WARN ").count(), 1, "{log}");
        assert!(log.contains("the binlog is always compacted"), "{log}");
        daemon.client().put(b"x", 0, 0, 60).unwrap();
    }
}

#[test]
fn the_option_sets_the_number_of_threads() {
    let threads = |number: &str| Daemon::start(&["-t", number]).threads();
    assert_eq!(threads("5") - threads("2"), 3);
}

#[test]
fn limits_are_accepted() {
    let limits = ["--max-memory=50%", "--max-output=64K", "--max-tubes=2", "--max-watched=1", "--max-connections=9"];
    let daemon = Daemon::start(&limits);
    let mut client = daemon.client();
    client.use_tube("a").unwrap();
    assert!(client.watch("a").is_err(), "the limit of one watched tube must apply");
    assert_eq!(client.use_tube("b").unwrap_err().to_string(), "the server answered OUT_OF_MEMORY");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(PATIENCE), 0);
}

#[cfg(not(feature = "tls"))]
#[test]
fn a_program_without_tls_reports_this_in_one_line() {
    let words = ["without TLS", "make TLS=1"];
    for option in ["-l", "--gearman", "--workq"] {
        let given = if option == "-l" { "-ltls:127.0.0.1".to_owned() } else { format!("{option}=tls:127.0.0.1") };
        run(&[&given]).failed(5, &words);
    }
    run(&["-l", "beanstalks://127.0.0.1"]).failed(5, &words);
    run(&["--tls-cert", "/nowhere"]).failed(5, &words);
}
