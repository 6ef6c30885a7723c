//! Tests of turns that several connections share. The clients send their requests before a round of the pool thread, so
//! that the tests know which connections share a turn.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use mio::Events;

use super::super::clock::Clock;
use super::super::gate::Gate;
use super::super::socket::{PeerAddress, Stream};
use super::*;
use crate::binlog::{Folder, Storage, SyncMode};
use crate::settings::config::{Address, Config};

const MANY_THREADS: usize = 4;

struct Scene {
    thread: PoolThread,
    clients: Vec<UnixStream>,
}

fn config() -> Config {
    Config::embedded().with(|config| {
        config.threads = MANY_THREADS;
        // The server counts turns only if it has an HTTP listener, which serves the metrics.
        config.http = vec![Address::Tcp(None, None)];
    })
}

impl Scene {
    fn begin(config: Config, storage: Option<Arc<dyn Storage>>, gate: Option<Gate>, count: usize) -> Scene {
        let hub = Arc::new(Hub::new(config, Clock::system(), storage, gate, 0).expect("a queue"));
        if let Some(log) = &hub.log {
            log.wal.maintain(&*hub, true);
        }
        let thread = PoolThread::new(hub.clone(), 0).expect("a poller");
        let mut scene = Scene { thread, clients: Vec::new() };
        for _ in 0..count {
            let (ours, theirs) = UnixStream::pair().expect("two sockets");
            ours.set_nonblocking(true).expect("a socket");
            theirs.set_nonblocking(true).expect("a socket");
            hub.admission.admit(&PeerAddress::UNIX, false).expect("an admitted connection");
            let arrival = Arrival { stream: Stream::new(ours), peer: PeerAddress::UNIX, wire: Wire::Beanstalk };
            scene.thread.arrivals.add(arrival).expect("a pollable socket");
            scene.clients.push(theirs);
        }
        scene.rest();
        scene
    }

    fn with_clients(count: usize) -> Scene {
        Scene::begin(config(), None, None, count)
    }

    fn rest(&mut self) {
        while self.thread.round() {}
    }

    fn turns(&self) -> u64 {
        self.thread.hub.process.turns.as_ref().expect("a server with metrics").lock().count()
    }

    fn say(&mut self, client: usize, commands: &str) {
        self.clients[client].write_all(commands.as_bytes()).expect("space in the socket");
    }

    /// Sends each string from a different client, and serves these clients in one round. Returns the number of turns.
    fn play(&mut self, texts: &[&str]) -> u64 {
        texts.iter().enumerate().for_each(|(client, text)| self.say(client, text));
        let before = self.turns();
        self.thread.round();
        self.turns() - before
    }

    fn heard(&mut self, client: usize) -> String {
        let mut bytes = vec![0; 1 << 16];
        let count = self.clients[client].read(&mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    fn all_heard(&mut self) -> Vec<String> {
        (0..self.clients.len()).map(|client| self.heard(client)).collect()
    }

    fn check(&self) {
        self.thread.hub.with_engine(|engine, _| engine.check());
    }
}

const PUT: &str = "put 0 0 9 1\r\na\r\n";

#[test]
fn up_to_eight_connections_share_a_turn() {
    let mut scene = Scene::with_clients(20);
    for round in 0..3 {
        assert_eq!(scene.play(&[PUT; 20]), 3);
        let wanted: Vec<String> = (1..=20).map(|id| format!("INSERTED {}\r\n", 20 * round + id)).collect();
        assert_eq!(scene.all_heard(), wanted);
    }
    assert_eq!(scene.play(&[PUT; 8]), 1);
    assert_eq!(scene.play(&[PUT]), 1);
    assert_eq!(scene.heard(0), "INSERTED 61\r\nINSERTED 69\r\n");
    scene.check();
}

#[test]
fn connections_do_not_share_turns_with_few_threads_or_a_log_of_slow_commands() {
    for (threads, slow) in [(1, None), (2, None), (MANY_THREADS, Some(1000))] {
        let config = config().with(|config| (config.threads, config.slow) = (threads, slow));
        let mut scene = Scene::begin(config, None, None, 8);
        assert_eq!(scene.play(&[PUT; 8]), 8);
        assert_eq!(scene.heard(7), "INSERTED 8\r\n");
    }
}

#[test]
fn each_connection_gets_the_reply_to_its_own_command() {
    let mut scene = Scene::with_clients(8);
    scene.play(&["put 5 0 9 5\r\nhello\r\n", "put 7 0 9 0\r\n\r\n"]);
    assert_eq!(scene.all_heard()[..2], ["INSERTED 1\r\n", "INSERTED 2\r\n"]);
    let texts = [
        "reserve\r\n",
        "peek 2\r\n",
        "delete 99\r\n",
        "watch x\r\n",
        "put 0 0 9 3\r\nabc\r\n",
        "nonsense\r\n",
        "reserve-with-timeout 0\r\n",
        "touch 1\r\n",
    ];
    assert_eq!(scene.play(&texts), 1);
    let wanted = [
        "RESERVED 1 5\r\nhello\r\n",
        "FOUND 2 0\r\n\r\n",
        "NOT_FOUND\r\n",
        "WATCHING 2\r\n",
        "INSERTED 3\r\n",
        "UNKNOWN_COMMAND\r\n",
        "RESERVED 3 3\r\nabc\r\n",
        "NOT_FOUND\r\n",
    ];
    assert_eq!(scene.all_heard(), wanted);
    scene.check();
}

#[test]
fn a_connection_with_more_or_less_than_a_small_command_gets_its_own_turn() {
    let mut scene = Scene::with_clients(6);
    let large = format!("put 0 0 9 5000\r\n{}\r\n", "x".repeat(5000));
    // The third client sends a part of a command, which needs no turn.
    let texts = [PUT, "use x\r\nput 0 0 9 0\r\n\r\n", "put 0 0 9 5\r\nhe", &large, "peek 99\r\n", PUT];
    assert_eq!(scene.play(&texts), 3);
    let wanted =
        ["INSERTED 3\r\n", "USING x\r\nINSERTED 1\r\n", "", "INSERTED 2\r\n", "NOT_FOUND\r\n", "INSERTED 4\r\n"];
    assert_eq!(scene.all_heard(), wanted);
    assert_eq!(scene.play(&["delete 1\r\n", "peek 3\r\n", "llo\r\n", "put 0 0 9 1"]), 1);
    assert_eq!(scene.all_heard(), ["DELETED\r\n", "FOUND 3 1\r\na\r\n", "INSERTED 5\r\n", "", "", ""]);
    assert_eq!(scene.play(&["peek 5\r\n", "peek 5\r\n", "peek 5\r\n", "\r\nb\r\ndelete 5\r\n"]), 2);
    assert_eq!(scene.all_heard()[2..4], ["NOT_FOUND\r\n", "INSERTED 6\r\nDELETED\r\n"]);
    scene.check();
}

#[test]
fn a_put_serves_a_client_that_began_to_wait_in_the_same_turn() {
    let mut scene = Scene::with_clients(5);
    assert_eq!(scene.play(&["reserve\r\n", "reserve\r\n", PUT, "reserve\r\n", "put 0 0 9 1\r\nb\r\n"]), 1);
    let wanted = ["RESERVED 1 1\r\na\r\n", "RESERVED 2 1\r\nb\r\n", "INSERTED 1\r\n", "", "INSERTED 2\r\n"];
    assert_eq!(scene.all_heard(), wanted);
    // The fourth client still waits. Its next command has a turn of its own after the wait.
    assert_eq!(scene.play(&["delete 1\r\n", "release 2 0 0\r\n", "peek 1\r\n", "delete 2\r\n"]), 2);
    let wanted = ["DELETED\r\n", "RELEASED\r\n", "NOT_FOUND\r\n", "RESERVED 2 1\r\nb\r\nDELETED\r\n", ""];
    assert_eq!(scene.all_heard(), wanted);
    scene.check();
}

#[test]
fn clients_that_hang_up_do_not_affect_others() {
    let mut scene = Scene::with_clients(4);
    scene.play(&[PUT]);
    for (client, text) in [PUT, "reserve\r\n", "peek 1\r\n", PUT].iter().enumerate() {
        scene.say(client, text);
    }
    // The server has read the second client's command, but has not executed it yet, when the second client hangs up.
    scene.thread.wait(&mut Events::with_capacity(EVENTS), Some(Duration::ZERO));
    scene.thread.scratch.is_shared = true;
    let readiness = Readiness { readable: true, ..Readiness::default() };
    let numbers: Vec<usize> = scene.thread.connections.iter().map(|(number, _)| number).collect();
    numbers.iter().for_each(|number| scene.thread.on_ready(*number, readiness, false));
    assert_eq!(scene.thread.scratch.joined.len(), 4);
    drop(scene.clients.remove(1));
    scene.thread.scratch.is_shared = false;
    scene.thread.run_shared();
    assert_eq!(scene.thread.connections.len(), 3);
    assert_eq!(scene.all_heard(), ["INSERTED 1\r\nINSERTED 2\r\n", "FOUND 1 1\r\na\r\n", "INSERTED 3\r\n"]);
    // The disconnected client's job is ready again. Two other clients hang up before the server reads their commands.
    (0..3).for_each(|client| scene.say(client, ["reserve-with-timeout 0\r\n", PUT, "delete 2\r\n"][client]));
    scene.clients.truncate(1);
    scene.rest();
    assert_eq!(scene.heard(0), "RESERVED 1 1\r\na\r\n");
    let jobs = scene.thread.hub.with_engine(|engine, _| engine.stats().jobs);
    assert_eq!((jobs.ready, jobs.reserved, scene.thread.connections.len()), (2, 1, 1));
    scene.check();
}

#[test]
fn a_turn_whose_steps_are_used_up_leaves_the_other_commands_to_later_turns() {
    let mut scene = Scene::begin(config().with(|config| config.turn_steps = 16), None, None, 7);
    let put = |body: &str| format!("put 0 0 9 {}\r\n{body}\r\n", body.len());
    let texts = ["a", "bb", "ccc", "dddd", "eeeee", "ffffff", ""].map(put);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    // Two commands use up the 16 steps of the shared turn. Each of the other five commands gets its own turn.
    assert_eq!(scene.play(&texts), 6);
    let mut heard = scene.all_heard();
    heard.sort_unstable();
    assert_eq!(heard, (1..=7).map(|id| format!("INSERTED {id}\r\n")).collect::<Vec<_>>());
    scene.say(0, &(1..=7).map(|id| format!("peek {id}\r\n")).collect::<String>());
    scene.rest();
    let found = scene.heard(0);
    for body in ["a", "bb", "ccc", "dddd", "eeeee", "ffffff", ""] {
        assert!(found.contains(&format!(" {}\r\n{body}\r\n", body.len())), "{body}: {found}");
    }
    scene.check();
}

#[test]
fn shared_turns_respect_the_memory_limit() {
    const MAX: u64 = 4 << 20;
    let mut scene = Scene::begin(config().with(|config| config.max_memory = MAX), None, None, 8);
    let put = format!("put 0 0 9 900\r\n{}\r\n", "x".repeat(900));
    let (mut stored, mut refused) = (0, 0);
    while refused < 16 {
        assert_eq!(scene.play(&[&*put; 8]), 1);
        for reply in scene.all_heard() {
            match &*reply {
                "OUT_OF_MEMORY\r\n" => refused += 1,
                _ => stored += u64::from(reply.starts_with("INSERTED ")),
            }
        }
        let (memory, jobs) =
            scene.thread.hub.with_engine(|engine, _| (engine.stats().memory.total(), engine.stats().jobs));
        assert!(memory <= MAX && jobs.ready == stored, "{memory} bytes, {} of {stored} jobs", jobs.ready);
    }
    assert!(stored > 1000, "{stored}");
    assert_eq!(scene.play(&["delete 1\r\n", "delete 2\r\n", "delete 3\r\n", "delete 4\r\n"]), 1);
    assert_eq!(scene.all_heard()[..4], ["DELETED\r\n"; 4]);
    scene.play(&[&put]);
    assert_eq!(scene.heard(0), format!("INSERTED {}\r\n", stored + 1));
    scene.check();
}

#[test]
fn a_command_can_end_the_drain_for_later_commands_of_the_same_turn() {
    let mut scene = Scene::with_clients(4);
    scene.thread.hub.drain();
    assert_eq!(scene.play(&[PUT, "undrain\r\n", PUT, "drain\r\n"]), 1);
    assert_eq!(scene.all_heard(), ["DRAINING\r\n", "NOT_DRAINING\r\n", "INSERTED 1\r\n", "DRAINING\r\n"]);
    // Closing a connection takes another turn.
    assert_eq!(scene.play(&["reserve\r\n", PUT, "quit\r\n", "peek 1\r\n"]), 2);
    assert_eq!(scene.all_heard(), ["RESERVED 1 1\r\na\r\n", "DRAINING\r\n", "", "FOUND 1 1\r\na\r\n"]);
    assert_eq!(scene.thread.connections.len(), 3);
    scene.check();
}

#[test]
fn each_command_of_a_turn_is_checked_with_the_rights_of_its_client() {
    let folder = std::env::temp_dir().join(format!("shared-turns-access-{}", std::process::id()));
    std::fs::write(&folder, "* none put:mail* take:mail*\n").expect("a file");
    let gate = Gate::open(&folder).expect("a valid access file");
    std::fs::remove_file(&folder).expect("a file");
    let mut scene = Scene::begin(config(), None, Some(gate), 4);
    assert_eq!(scene.play(&["use mail\r\n", PUT, "use mailbox\r\n", "watch mail\r\n"]), 1);
    assert_eq!(scene.all_heard(), ["USING mail\r\n", "FORBIDDEN\r\n", "USING mailbox\r\n", "WATCHING 2\r\n"]);
    let wrong = format!("auth {}\r\n", "0".repeat(64));
    assert_eq!(scene.play(&[PUT, &wrong, PUT, "delete 9\r\n"]), 1);
    // The reply to a wrong token is delayed.
    assert_eq!(scene.all_heard(), ["INSERTED 1\r\n", "", "INSERTED 2\r\n", "NOT_FOUND\r\n"]);
    assert!(scene.thread.probation.wait().is_some());
    scene.check();
}

#[test]
fn the_replies_of_a_shared_turn_wait_for_the_log() {
    let folder = std::env::temp_dir().join(format!("shared-turns-log-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a directory");
    let config = config().with(|config| config.log.mode = SyncMode::Always);
    let mut scene = Scene::begin(config, Some(Arc::new(Folder::new(&folder))), None, 5);
    for round in 0..3 {
        assert_eq!(scene.play(&[PUT, "peek 99\r\n", PUT, "reserve\r\n", "use x\r\n"]), 1);
        // Only the replies to commands that change the queue wait.
        assert_eq!(scene.all_heard()[..3], ["", "NOT_FOUND\r\n", ""]);
        let hub = scene.thread.hub.clone();
        hub.log.iter().for_each(|log| assert_eq!(log.sync(&*hub, &mut Output::new()), 2));
        scene.rest();
        let heard = scene.all_heard();
        assert_eq!(
            (&*heard[0], &*heard[2]),
            (&*format!("INSERTED {}\r\n", round * 2 + 1), &*format!("INSERTED {}\r\n", round * 2 + 2))
        );
    }
    scene.check();
    drop(scene);
    std::fs::remove_dir_all(&folder).expect("a directory");
}
