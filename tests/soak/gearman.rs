//! A Gearman client, a worker and an administrator.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::{Done, Stage};

fn packet(kind: u32, body: &[u8]) -> Vec<u8> {
    [b"\0REQ".as_slice(), &kind.to_be_bytes(), &(body.len() as u32).to_be_bytes(), body].concat()
}

fn response(stream: &mut TcpStream) -> (u32, Vec<u8>) {
    let mut header = [0; 12];
    stream.read_exact(&mut header).expect("a packet");
    let number = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four bytes"));
    let mut body = vec![0; number(8) as usize];
    stream.read_exact(&mut body).expect("the body");
    (number(4), body)
}

/// Requests the list of functions as an administrator. In this list, `soak` must have no jobs and one worker.
fn look(admin: &mut BufReader<TcpStream>) {
    admin.get_mut().write_all(b"status\n").expect("a server");
    let mut line = String::new();
    while line != ".\n" {
        line.clear();
        admin.read_line(&mut line).expect("a line");
        assert!(!line.starts_with("soak\t") || line == "soak\t0\t0\t1\n", "{line}");
    }
}

/// Repeatedly submits a job, submits it again from another client with the same unique name, and executes it. Both
/// clients must receive the result. Then submits and executes a background job.
pub fn run(address: SocketAddr, stage: &Stage, done: &Done) {
    let connect = || {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("a connection");
        stream
    };
    let (mut client, mut other, mut worker) = (connect(), connect(), connect());
    let mut admin = BufReader::new(connect());
    worker.write_all(&packet(1, b"soak")).expect("a server");
    let mut number = 0u64;
    while stage.goes_on() {
        number += 1;
        let submit = packet(7, format!("soak\0unique-{number}\0work").as_bytes());
        client.write_all(&submit).expect("a server");
        let (kind, handle) = response(&mut client);
        assert_eq!(kind, 8, "a job is created");
        other.write_all(&submit).expect("a server");
        assert_eq!(response(&mut other), (8, handle.clone()), "the same job");
        worker.write_all(&packet(9, b"")).expect("a server");
        let (kind, _) = response(&mut worker);
        assert_eq!(kind, 11, "a job must be assigned");
        worker.write_all(&packet(13, &[&handle[..], b"\0done"].concat())).expect("a server");
        for who in [&mut client, &mut other] {
            assert_eq!(response(who), (13, [&handle[..], b"\0done"].concat()));
        }
        client.write_all(&packet(18, b"soak\0\0background")).expect("a server");
        let (kind, handle) = response(&mut client);
        assert_eq!(kind, 8, "a job is created");
        worker.write_all(&packet(9, b"")).expect("a server");
        assert_eq!(response(&mut worker), (11, [&handle[..], b"\0soak\0background"].concat()));
        worker.write_all(&packet(13, &[&handle[..], b"\0"].concat())).expect("a server");
        done.add(2);
        if number % 100 == 0 {
            // The echo reply shows that the server has executed the earlier packets.
            worker.write_all(&packet(16, b"now")).expect("a server");
            assert_eq!(response(&mut worker), (17, b"now".to_vec()));
            look(&mut admin);
            other = connect();
        }
    }
}
