//! Tests that the default of `--max-memory` is below the memory limits of the process.

use super::daemon::{shell, Daemon};

/// 400 MiB in kilobytes, the unit of `ulimit -v`.
const LIMIT: u64 = 409_600;

/// The maximum default of `--max-memory` in a process with the limit [`LIMIT`], in bytes.
const MAX_DEFAULT: u64 = LIMIT * 1024 / 4 * 3;

fn limited(option: char, arguments: &[&str]) -> Daemon {
    let script = format!("ulimit -{option} {LIMIT}; exec \"$0\" \"$@\"");
    Daemon::spawn(shell(&script, &[&["-p", "0"], arguments].concat()))
}

fn max_memory(daemon: &Daemon) -> u64 {
    daemon.client().figure("stats", "max-memory").unwrap().parse().unwrap()
}

#[test]
fn limits_of_the_address_space_and_of_data_are_respected() {
    for option in ['v', 'd'] {
        assert!(max_memory(&limited(option, &[])) <= MAX_DEFAULT, "ulimit -{option}");
        assert!(max_memory(&limited(option, &["--max-memory", "50%"])) <= MAX_DEFAULT / 3 * 2, "ulimit -{option}");
    }
}

/// The server must refuse a job before an allocation fails.
#[test]
fn jobs_are_refused_before_the_system_refuses_memory() {
    for (option, size) in [('v', 60_000), ('v', 500), ('d', 60_000)] {
        let daemon = limited(option, &["-t", "4"]);
        let max_memory = max_memory(&daemon);
        let mut client = daemon.client();
        let command = [format!("put 0 0 60 {size}\r\n").into_bytes(), vec![b'x'; size], b"\r\n".to_vec()].concat();
        let (batch, mut puts) = (100, 0);
        let refused = loop {
            client.send(&command.repeat(batch)).expect("a connection");
            let replies: Vec<String> = (0..batch).map(|_| client.line().expect("a reply")).collect();
            puts += replies.iter().filter(|reply| reply.starts_with("INSERTED ")).count();
            if let Some(reply) = replies.into_iter().find(|reply| !reply.starts_with("INSERTED ")) {
                break reply;
            }
        };
        assert_eq!(refused, "OUT_OF_MEMORY");
        assert!(puts * size > max_memory as usize / 10 * 7, "{puts} jobs of {size} bytes");
        assert_eq!(client.peek(1).expect("the first job").body.len(), size);
    }
}
