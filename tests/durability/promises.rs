//! Tests that a reply that reveals another client's change waits until the change is durable.
//!
//! The server runs inside the test process, with a disk whose syncs block until the test releases them. The tests check
//! which clients get replies while a sync is blocked, and that all clients get replies afterwards.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use beanpole::internals::binlog::SyncMode;
use beanpole::internals::protocol::Wire;
use beanpole::{Address, Client, Server};

use super::blocked::{config, Gate, Gated, Operation};
use super::daemon::PATIENCE;
use super::support::Home;

/// A connection that can use any protocol.
struct Plain(TcpStream);

impl Plain {
    fn to(server: &Server, wire: Wire) -> Plain {
        let stream = TcpStream::connect(server.address_of(wire).expect("a listener")).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Plain(stream)
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("an open connection");
    }

    /// Returns `true` if no bytes are available.
    fn is_silent(&self) -> bool {
        self.0.set_nonblocking(true).expect("a socket");
        let silent = matches!(self.0.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.0.set_nonblocking(false).expect("a socket");
        silent
    }

    fn expect(&mut self, text: &str) {
        let mut bytes = vec![0; text.len()];
        self.0.read_exact(&mut bytes).expect("a reply");
        assert_eq!(String::from_utf8_lossy(&bytes), text);
    }
}

/// Releases all blocked operations at the end of a test, so that the server can stop.
struct OpenAtEnd(Arc<Gate>);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.set(None, None);
    }
}

/// Waits until the server's only thread, which serves the connections in rotation, has processed all received input.
fn pass(bystander: &mut Client, job: u64) {
    for _ in 0..5 {
        bystander.peek(job).expect("a job");
    }
}

fn serve(home: &Home) -> (Server, Arc<Gate>, Client, u64) {
    let local = || vec![Address::Tcp(Some("127.0.0.1".to_owned()), Some(0))];
    let (disk, gate) = Gated::new(home.path());
    let config = config(SyncMode::Always).with(|config| {
        config.gearman = local();
        config.workq = local();
    });
    let server = Server::with_storage(config, disk).expect("a server");
    let mut bystander = Client::connect(server.address()).expect("a connection");
    let job = bystander.put(b"first", 0, 0, 60).expect("a job");
    // This call makes the disk appear slow, so the server leaves syncs to the log's threads.
    gate.set(None, Some(Operation::Sync));
    for _ in 0..10 {
        bystander.put(b"slow", 0, 0, 60).expect("a job");
    }
    (server, gate, bystander, job)
}

/// Returns a packet that submits a background job with a unique ID.
fn submit(unique: &str) -> Vec<u8> {
    const SUBMIT_JOB_BG: u32 = 18;
    let data = format!("mail\0{unique}\0body");
    [b"\0REQ", &SUBMIT_JOB_BG.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data.as_bytes()].concat()
}

#[test]
fn joining_a_job_is_confirmed_when_durable() {
    let home = Home::new();
    let (server, gate, mut bystander, job) = serve(&home);
    let _end = OpenAtEnd(gate.clone());
    gate.set(Some(Operation::Sync), Some(Operation::Sync));
    let (mut first, mut second) = (Plain::to(&server, Wire::Gearman), Plain::to(&server, Wire::Gearman));
    first.send(submit("u1"));
    gate.wait_until_blocking();
    second.send(submit("u1"));
    pass(&mut bystander, job);
    assert!(first.is_silent() && second.is_silent(), "a power cut now would lose the job");
    gate.set(None, Some(Operation::Sync));
    for client in [&mut first, &mut second] {
        let mut head = [0; 12];
        client.0.read_exact(&mut head).expect("a reply");
        assert_eq!((&head[..4], head[7]), (&b"\0RES"[..], 8), "JOB_CREATED");
    }
    // If the change is already durable, the reply must not wait.
    gate.set(Some(Operation::Sync), Some(Operation::Sync));
    let mut third = Plain::to(&server, Wire::Gearman);
    third.send(submit("u1"));
    third.0.read_exact(&mut [0; 12]).expect("a reply");
    gate.set(None, Some(Operation::Sync));
}

// Tests promise P14 of beanpole-promises(7).
#[test]
fn duplicates_and_results_are_reported_when_durable() {
    const ID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let home = Home::new();
    let (server, gate, mut bystander, job) = serve(&home);
    let _end = OpenAtEnd(gate.clone());
    let [mut producer, mut other, mut waiting, mut late] = [(); 4].map(|()| Plain::to(&server, Wire::Workq));
    let add = format!("add {ID} mail 60000 60000 4\r\nbody\r\n");
    gate.set(Some(Operation::Sync), Some(Operation::Sync));
    producer.send(&add);
    gate.wait_until_blocking();
    other.send(&add);
    waiting.send(format!("result {ID} 60000\r\n"));
    pass(&mut bystander, job);
    assert!(producer.is_silent() && other.is_silent());
    gate.set(None, Some(Operation::Sync));
    producer.expect("+OK\r\n");
    other.expect("-CLIENT-ERROR Duplicate job\r\n");

    gate.set(Some(Operation::Sync), Some(Operation::Sync));
    producer.send(format!("complete {ID} 4\r\ndone\r\n"));
    gate.wait_until_blocking();
    late.send(format!("result {ID} 0\r\n"));
    other.send(format!("fail {ID} 0\r\n\r\n"));
    pass(&mut bystander, job);
    for client in [&producer, &waiting, &late, &other] {
        assert!(client.is_silent(), "a power cut now would lose the result");
    }
    gate.set(None, Some(Operation::Sync));
    producer.expect("+OK\r\n");
    other.expect("-CLIENT-ERROR Duplicate result\r\n");
    for client in [&mut waiting, &mut late] {
        client.expect(&format!("+OK 1\r\n{ID} 1 4\r\ndone\r\n"));
    }
}

// Tests promise P14 of beanpole-promises(7).
#[test]
fn the_end_of_a_job_is_reported_to_waiting_clients_when_durable() {
    let home = Home::new();
    let (server, gate, mut bystander, job) = serve(&home);
    let _end = OpenAtEnd(gate.clone());
    for (verb, reply) in [("delete", "DELETED"), ("bury", "BURIED")] {
        let [mut worker, mut waiting, mut late] = [(); 3].map(|()| Plain::to(&server, Wire::Beanstalk));
        let id = bystander.put(b"x", 0, 0, 60).expect("a job");
        worker.send(format!("reserve-job {id}\r\n"));
        worker.expect(&format!("RESERVED {id} 1\r\nx\r\n"));
        waiting.send(format!("wait {id} 60\r\n"));
        pass(&mut bystander, job);
        gate.set(Some(Operation::Sync), Some(Operation::Sync));
        worker.send(if verb == "bury" { format!("bury {id} 0\r\n") } else { format!("{verb} {id}\r\n") });
        gate.wait_until_blocking();
        late.send(format!("wait {id} 60\r\n"));
        pass(&mut bystander, job);
        for client in [&worker, &waiting, &late] {
            assert!(client.is_silent(), "a power cut now would undo the {verb}");
        }
        gate.set(None, Some(Operation::Sync));
        worker.expect(&format!("{reply}\r\n"));
        waiting.expect(&format!("{reply} {id}\r\n"));
        late.expect(&if verb == "bury" { format!("BURIED {id}\r\n") } else { "NOT_FOUND\r\n".to_owned() });
    }
}

// Tests promise P14 of beanpole-promises(7).
#[test]
fn a_late_request_for_a_result_learns_of_the_delete_when_durable() {
    const ID: &str = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    let home = Home::new();
    let (server, gate, mut bystander, job) = serve(&home);
    let _end = OpenAtEnd(gate.clone());
    let [mut producer, mut late] = [(); 2].map(|()| Plain::to(&server, Wire::Workq));
    producer.send(format!("add {ID} mail 60000 60000 4\r\nbody\r\n"));
    producer.expect("+OK\r\n");
    gate.set(Some(Operation::Sync), Some(Operation::Sync));
    producer.send(format!("delete {ID}\r\n"));
    gate.wait_until_blocking();
    late.send(format!("result {ID} 60000\r\n"));
    pass(&mut bystander, job);
    assert!(producer.is_silent() && late.is_silent(), "a power cut now would bring the job back");
    gate.set(None, Some(Operation::Sync));
    producer.expect("+OK\r\n");
    late.expect("-NOT-FOUND\r\n");
}

// Tests promise P14 of beanpole-promises(7).
#[test]
fn a_held_job_is_delivered_when_the_ends_of_the_members_are_durable() {
    let home = Home::new();
    let (server, gate, mut bystander, job) = serve(&home);
    let _end = OpenAtEnd(gate.clone());
    let [mut worker, mut waiting, mut later] = [(); 3].map(|()| Plain::to(&server, Wire::Beanstalk));
    let mut leasing = Plain::to(&server, Wire::Workq);
    worker.send("put 0 0 60 1 tub:members grp:g\r\nm\r\n");
    worker.expect("INSERTED 12\r\n");
    for id in 13..16 {
        worker.send("put 0 0 60 1 tub:after aft:g\r\na\r\n");
        worker.expect(&format!("INSERTED {id}\r\n"));
    }
    worker.send("reserve-job 12\r\n");
    worker.expect("RESERVED 12 1\r\nm\r\n");
    for client in [&mut waiting, &mut later] {
        client.send("watch after\r\nignore default\r\n");
        client.expect("WATCHING 2\r\nWATCHING 1\r\n");
    }
    waiting.send("reserve\r\n");
    pass(&mut bystander, job);
    leasing.send("lease after 60000\r\n");
    pass(&mut bystander, job);
    gate.set(Some(Operation::Sync), Some(Operation::Sync));
    worker.send("delete 12\r\n");
    gate.wait_until_blocking();
    later.send("reserve\r\n");
    pass(&mut bystander, job);
    for client in [&worker, &waiting, &leasing, &later] {
        assert!(client.is_silent(), "a power cut now would bring the member back");
    }
    gate.set(None, Some(Operation::Sync));
    worker.expect("DELETED\r\n");
    waiting.expect("RESERVED 13 1\r\na\r\n");
    leasing.expect("+OK 1\r\n");
    later.expect("RESERVED 15 1\r\na\r\n");
}

fn packet(kind: u32, data: &[u8]) -> Vec<u8> {
    [b"\0REQ", &kind.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

/// Returns the type and the data of the next packet.
fn hear(client: &mut Plain) -> (u8, Vec<u8>) {
    let mut head = [0; 12];
    client.0.read_exact(&mut head).expect("a reply");
    let mut data = vec![0; u32::from_be_bytes([head[8], head[9], head[10], head[11]]) as usize];
    client.0.read_exact(&mut data).expect("the data");
    (head[7], data)
}

#[test]
fn the_end_of_a_joined_background_job_is_reported_when_durable() {
    const CAN_DO: u32 = 1;
    const SUBMIT_JOB: u32 = 7;
    const GRAB_JOB: u32 = 9;
    const WORK_COMPLETE: u32 = 13;
    let home = Home::new();
    let (server, gate, mut bystander, job) = serve(&home);
    let _end = OpenAtEnd(gate.clone());
    let [mut producer, mut joined, mut worker] = [(); 3].map(|()| Plain::to(&server, Wire::Gearman));
    producer.send(submit("u1"));
    let (_, handle) = hear(&mut producer);
    joined.send(packet(SUBMIT_JOB, b"mail\0u1\0body"));
    assert_eq!(hear(&mut joined).1, handle);
    worker.send([packet(CAN_DO, b"mail"), packet(GRAB_JOB, b"")].concat());
    assert_eq!(hear(&mut worker).0, 11, "JOB_ASSIGN");
    gate.set(Some(Operation::Sync), Some(Operation::Sync));
    worker.send(packet(WORK_COMPLETE, &[&handle[..], b"\0done"].concat()));
    gate.wait_until_blocking();
    pass(&mut bystander, job);
    assert!(joined.is_silent(), "a power cut now would bring the job back");
    gate.set(None, Some(Operation::Sync));
    assert_eq!(hear(&mut joined), (13, [&handle[..], b"\0done"].concat()));
}
